-- Artifacts, what people decide about quarantined results, and the logs that are still to be kept.

DROP TRIGGER transition_fixed_insert;
INSERT INTO transition (machine, before, after) VALUES
    ('task', 'QUEUED', 'SUCCEEDED'),
    ('artifact', 'ACCEPTED', 'PROMOTED'), ('artifact', 'ACCEPTED', 'COLLECTED'), ('artifact', 'PROMOTED', 'COLLECTED');
CREATE TRIGGER transition_fixed_insert BEFORE INSERT ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;

ALTER TABLE world ADD COLUMN store_address TEXT NOT NULL DEFAULT '';
ALTER TABLE result ADD COLUMN outputs TEXT;
ALTER TABLE result ADD COLUMN notes TEXT NOT NULL DEFAULT '[]';
ALTER TABLE quarantine ADD COLUMN outputs TEXT;
CREATE INDEX quarantine_with_files ON quarantine (received_at_ms) WHERE outputs IS NOT NULL;

CREATE TABLE quarantine_decision (
    decision_id TEXT PRIMARY KEY,
    quarantine_id TEXT NOT NULL REFERENCES quarantine (quarantine_id),
    task_id TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('adopt', 'drop', 'expire', 'refuse')),
    fence INTEGER,
    decided_by TEXT NOT NULL CHECK (decided_by <> ''),
    note TEXT NOT NULL DEFAULT '',
    decided_at_ms INTEGER NOT NULL,
    CHECK ((action = 'adopt') = (fence IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX quarantine_decided ON quarantine_decision (quarantine_id) WHERE action <> 'refuse';
CREATE UNIQUE INDEX adoption_of_task ON quarantine_decision (task_id) WHERE action = 'adopt';
CREATE INDEX quarantine_refused ON quarantine_decision (quarantine_id, decided_at_ms) WHERE action = 'refuse';

CREATE TRIGGER adoption_of_the_last_holder BEFORE INSERT ON quarantine_decision
WHEN NEW.action = 'adopt' AND NOT EXISTS (
    SELECT 1 FROM quarantine q
    JOIN task t ON t.task_id = q.task_id
    JOIN lease l ON l.task_id = q.task_id AND l.fence = q.fence AND l.attempt = q.attempt
    WHERE q.quarantine_id = NEW.quarantine_id AND q.task_id = NEW.task_id
          AND (t.state = 'LOST' OR (t.state = 'QUEUED' AND t.next_attempt > q.attempt))
          AND l.state IN ('EXPIRED', 'RELEASED')
          AND COALESCE(l.worker_id, '') IN ('', q.worker_id) AND COALESCE(l.nonce, '') IN ('', q.nonce))
BEGIN SELECT RAISE(ABORT, 'only the holder of a lease that is over is adopted, while its task waits'); END;
CREATE TRIGGER adoption_beside_no_other BEFORE INSERT ON quarantine_decision
WHEN NEW.action = 'adopt' AND EXISTS (
    SELECT 1 FROM lease
    WHERE task_id = NEW.task_id AND (state IN ('OFFERED', 'ACTIVE') OR (state = 'COMPLETED' AND fence >= (
        SELECT fence FROM quarantine WHERE quarantine_id = NEW.quarantine_id))))
BEGIN SELECT RAISE(ABORT, 'no adoption while a lease is live, or when a newer one was completed'); END;
CREATE TRIGGER adoption_fence_grows BEFORE INSERT ON quarantine_decision
WHEN NEW.action = 'adopt' AND (EXISTS (SELECT 1 FROM lease WHERE task_id = NEW.task_id AND fence >= NEW.fence)
     OR NEW.fence > (SELECT fence FROM world))
BEGIN SELECT RAISE(ABORT, 'an adoption has a new fence, from the counter'); END;
CREATE TRIGGER quarantine_decision_fixed BEFORE UPDATE ON quarantine_decision
BEGIN SELECT RAISE(ABORT, 'a decision never changes'); END;
CREATE TRIGGER quarantine_decision_kept BEFORE DELETE ON quarantine_decision
BEGIN SELECT RAISE(ABORT, 'decisions are never deleted'); END;

CREATE TRIGGER task_succeeds_by_its_lease BEFORE UPDATE OF state ON task
WHEN NEW.state = 'SUCCEEDED' AND OLD.state IN ('QUEUED', 'LOST') AND NOT EXISTS (
    SELECT 1 FROM quarantine_decision WHERE task_id = NEW.task_id AND action = 'adopt')
BEGIN SELECT RAISE(ABORT, 'a task that nobody runs succeeds only by an adoption'); END;

DROP TRIGGER result_needs_its_lease;
CREATE TRIGGER result_needs_its_lease BEFORE INSERT ON result
WHEN NOT EXISTS (
    SELECT 1 FROM lease
    WHERE task_id = NEW.task_id AND fence = NEW.fence AND attempt = NEW.attempt AND worker_id = NEW.worker_id
          AND nonce = NEW.nonce AND state = 'COMPLETED')
AND NOT EXISTS (
    SELECT 1 FROM quarantine_decision d JOIN quarantine q ON q.quarantine_id = d.quarantine_id
    WHERE d.task_id = NEW.task_id AND d.action = 'adopt' AND d.fence = NEW.fence AND q.attempt = NEW.attempt
          AND q.worker_id = NEW.worker_id AND q.nonce = NEW.nonce AND q.outputs IS NEW.outputs AND NEW.failure IS NULL)
BEGIN SELECT RAISE(ABORT, 'a result needs the lease that it was made under, or its adoption'); END;

CREATE TABLE artifact (
    position INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES task (task_id),
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('outputs', 'checkpoint', 'log')),
    ordinal INTEGER NOT NULL DEFAULT 0,
    name TEXT NOT NULL DEFAULT '',
    manifest TEXT NOT NULL,
    manifest_size INTEGER NOT NULL,
    files INTEGER NOT NULL,
    size INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('ACCEPTED', 'PROMOTED', 'COLLECTED')),
    place_fence INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    UNIQUE (task_id, fence, kind, ordinal)
) STRICT;

CREATE INDEX artifact_unpromoted ON artifact (position) WHERE state = 'ACCEPTED';
CREATE INDEX artifact_by_state ON artifact (kind, state);

CREATE TRIGGER artifact_starts_accepted BEFORE INSERT ON artifact WHEN NEW.state <> 'ACCEPTED'
BEGIN SELECT RAISE(ABORT, 'an artifact starts ACCEPTED'); END;
CREATE TRIGGER artifact_transition BEFORE UPDATE OF state ON artifact
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'artifact' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal artifact transition'); END;
CREATE TRIGGER artifact_identity BEFORE UPDATE OF position, task_id, fence, attempt, kind, ordinal, name, manifest,
    manifest_size, files, size, place_fence, nonce ON artifact
BEGIN SELECT RAISE(ABORT, 'an artifact never changes what it holds'); END;
CREATE TRIGGER artifact_kept BEFORE DELETE ON artifact
BEGIN SELECT RAISE(ABORT, 'records of artifacts are never deleted'); END;
CREATE TRIGGER artifact_outputs_of_a_result BEFORE INSERT ON artifact
WHEN NEW.kind = 'outputs' AND NOT EXISTS (
    SELECT 1 FROM result
    WHERE task_id = NEW.task_id AND fence = NEW.fence AND attempt = NEW.attempt AND nonce = NEW.nonce
          AND instr(outputs, NEW.manifest) > 0)
BEGIN SELECT RAISE(ABORT, 'outputs need the accepted result that names them'); END;
CREATE TRIGGER artifact_checkpoint_of_the_holder BEFORE INSERT ON artifact
WHEN NEW.kind = 'checkpoint' AND NOT EXISTS (
    SELECT 1 FROM lease
    WHERE task_id = NEW.task_id AND fence = NEW.fence AND attempt = NEW.attempt AND nonce = NEW.nonce
          AND state = 'ACTIVE')
BEGIN SELECT RAISE(ABORT, 'a checkpoint needs the live lease that it was made under'); END;
CREATE TRIGGER artifact_log_of_an_attempt BEFORE INSERT ON artifact
WHEN NEW.kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM lease
    WHERE task_id = NEW.task_id AND fence = NEW.fence AND attempt = NEW.attempt
          AND state NOT IN ('OFFERED', 'ACTIVE'))
BEGIN SELECT RAISE(ABORT, 'a log is kept when its attempt is over'); END;

CREATE TABLE log_to_keep (
    task_id TEXT NOT NULL REFERENCES task (task_id),
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    site_id TEXT NOT NULL,
    ended_at_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, fence)
) STRICT, WITHOUT ROWID;

CREATE INDEX log_to_keep_in_time ON log_to_keep (ended_at_ms);

CREATE TABLE collection (
    collection_id INTEGER PRIMARY KEY,
    asked_by TEXT NOT NULL,
    min_age_ms INTEGER NOT NULL,
    dry_run INTEGER NOT NULL CHECK (dry_run IN (0, 1)),
    began_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER,
    removed INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    problem TEXT NOT NULL DEFAULT ''
) STRICT;
