-- What a revoked site may still be running is CANCELLING until nothing can be left of it, also where the task was LOST or
-- waits in the queue by then. Evidence is told apart by its site, too: who knows the nonce of another site's executor
-- could otherwise leave a forgery in the place of the true result.

DROP TRIGGER transition_fixed_insert;
INSERT INTO transition (machine, before, after) VALUES ('task', 'QUEUED', 'CANCELLING'), ('task', 'LOST', 'CANCELLING');
CREATE TRIGGER transition_fixed_insert BEFORE INSERT ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;

-- A constraint cannot be changed, so the table is made anew, and before it the one that refers to it.
CREATE TEMP TABLE evidence_kept AS SELECT * FROM quarantine;
CREATE TEMP TABLE decisions_kept AS SELECT * FROM quarantine_decision;
DROP TABLE quarantine_decision;
DROP TABLE quarantine;

CREATE TABLE quarantine (
    quarantine_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    site_id TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    nonce TEXT NOT NULL,
    reason TEXT NOT NULL,
    report TEXT NOT NULL,
    received_at_ms INTEGER NOT NULL,
    outputs TEXT,
    UNIQUE (task_id, fence, site_id, worker_id, nonce)
) STRICT;

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

INSERT INTO quarantine (quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report, received_at_ms,
                        outputs)
SELECT quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report, received_at_ms, outputs
FROM evidence_kept ORDER BY rowid;
INSERT INTO quarantine_decision (decision_id, quarantine_id, task_id, action, fence, decided_by, note, decided_at_ms)
SELECT decision_id, quarantine_id, task_id, action, fence, decided_by, note, decided_at_ms
FROM decisions_kept ORDER BY rowid;
DROP TABLE decisions_kept;
DROP TABLE evidence_kept;

CREATE INDEX quarantine_with_files ON quarantine (received_at_ms) WHERE outputs IS NOT NULL;

CREATE TRIGGER quarantine_fixed BEFORE UPDATE ON quarantine
BEGIN SELECT RAISE(ABORT, 'evidence never changes'); END;
CREATE TRIGGER quarantine_kept BEFORE DELETE ON quarantine
BEGIN SELECT RAISE(ABORT, 'evidence is never deleted'); END;

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
