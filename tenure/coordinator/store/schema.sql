-- The schema as it stands after all migrations; a test replays the migrations and finds no difference.

CREATE TABLE world (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    world TEXT NOT NULL,
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    fence INTEGER NOT NULL CHECK (fence >= 0),
    outbox INTEGER NOT NULL CHECK (outbox >= 0),
    broker_run_id TEXT NOT NULL DEFAULT '',
    broker_marker TEXT NOT NULL DEFAULT '',
    created_at_ms INTEGER NOT NULL,
    store_address TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TRIGGER world_only_grows BEFORE UPDATE ON world
WHEN NEW.epoch < OLD.epoch OR NEW.fence < OLD.fence OR NEW.outbox < OLD.outbox OR NEW.world <> OLD.world
BEGIN SELECT RAISE(ABORT, 'epoch, fence and outbox never go back and a world keeps its name'); END;
CREATE TRIGGER world_kept BEFORE DELETE ON world
BEGIN SELECT RAISE(ABORT, 'the world is never deleted'); END;

CREATE TABLE transition (
    machine TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    PRIMARY KEY (machine, before, after)
) STRICT, WITHOUT ROWID;

INSERT INTO transition (machine, before, after) VALUES
    ('task', 'QUEUED', 'OFFERED'), ('task', 'QUEUED', 'CANCELLED'), ('task', 'QUEUED', 'SUCCEEDED'),
    ('task', 'QUEUED', 'CANCELLING'),
    ('task', 'OFFERED', 'RUNNING'), ('task', 'OFFERED', 'QUEUED'), ('task', 'OFFERED', 'CANCELLING'),
    ('task', 'OFFERED', 'CANCELLED'),
    ('task', 'RUNNING', 'SUCCEEDED'), ('task', 'RUNNING', 'FAILED'), ('task', 'RUNNING', 'CANCELLING'),
    ('task', 'RUNNING', 'LOST'), ('task', 'RUNNING', 'QUEUED'),
    ('task', 'CANCELLING', 'CANCELLED'), ('task', 'CANCELLING', 'SUCCEEDED'), ('task', 'CANCELLING', 'FAILED'),
    ('task', 'LOST', 'QUEUED'), ('task', 'LOST', 'SUCCEEDED'), ('task', 'LOST', 'ABANDONED'),
    ('task', 'LOST', 'CANCELLED'), ('task', 'LOST', 'CANCELLING'),
    ('lease', 'OFFERED', 'ACTIVE'), ('lease', 'OFFERED', 'RELEASED'),
    ('lease', 'ACTIVE', 'COMPLETED'), ('lease', 'ACTIVE', 'EXPIRED'), ('lease', 'ACTIVE', 'RELEASED'),
    ('worker', 'ACTIVE', 'STALE'), ('worker', 'ACTIVE', 'DRAINING'), ('worker', 'ACTIVE', 'OFFLINE'),
    ('worker', 'STALE', 'ACTIVE'), ('worker', 'STALE', 'DRAINING'), ('worker', 'STALE', 'OFFLINE'),
    ('worker', 'DRAINING', 'OFFLINE'), ('worker', 'DRAINING', 'ACTIVE'),
    ('worker', 'OFFLINE', 'ACTIVE'),
    ('directive', 'PENDING', 'APPROVED'), ('directive', 'PENDING', 'DENIED'),
    ('artifact', 'ACCEPTED', 'PROMOTED'), ('artifact', 'ACCEPTED', 'COLLECTED'), ('artifact', 'PROMOTED', 'COLLECTED'),
    ('site', 'ACTIVE', 'REVOKED'), ('person', 'ACTIVE', 'REVOKED'),
    ('campaign', 'OPEN', 'CLOSED'), ('charge', 'RESERVED', 'USED'), ('charge', 'RESERVED', 'RELEASED'),
    ('cancellation', 'OPEN', 'DONE');

CREATE TRIGGER transition_fixed_insert BEFORE INSERT ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;
CREATE TRIGGER transition_fixed_update BEFORE UPDATE ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;
CREATE TRIGGER transition_fixed_delete BEFORE DELETE ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;

CREATE TABLE site (
    site_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('agent', 'compute', 'batch', 'lab')),
    created_at_ms INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'REVOKED')),
    capabilities TEXT NOT NULL DEFAULT '[]',
    most_leases INTEGER NOT NULL DEFAULT 0 CHECK (most_leases >= 0),
    revoked_at_ms INTEGER,
    issued_by TEXT NOT NULL DEFAULT '',
    devices TEXT NOT NULL DEFAULT '[]',
    cleared_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TRIGGER site_transition BEFORE UPDATE OF state ON site
WHEN OLD.state <> NEW.state AND NOT EXISTS (
    SELECT 1 FROM transition WHERE machine = 'site' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal site transition'); END;
CREATE TRIGGER site_kept BEFORE DELETE ON site
BEGIN SELECT RAISE(ABORT, 'sites are never deleted, and their names are never used again'); END;

CREATE TABLE person (
    person TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('operator', 'submitter', 'observer')),
    state TEXT NOT NULL CHECK (state IN ('ACTIVE', 'REVOKED')),
    created_at_ms INTEGER NOT NULL,
    revoked_at_ms INTEGER,
    issued_by TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE TRIGGER person_transition BEFORE UPDATE OF state ON person
WHEN OLD.state <> NEW.state AND NOT EXISTS (
    SELECT 1 FROM transition WHERE machine = 'person' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal person transition'); END;
CREATE TRIGGER person_kept BEFORE DELETE ON person
BEGIN SELECT RAISE(ABORT, 'people are never deleted, and their names are never used again'); END;

-- Of a secret only its digest is kept, which is what the broker keeps, too: enough to make its users again.
CREATE TABLE credential (
    holder TEXT NOT NULL CHECK (holder IN ('site', 'person')),
    name TEXT NOT NULL,
    secret_digest TEXT NOT NULL CHECK (length(secret_digest) = 64),
    issued_at_ms INTEGER NOT NULL,
    retired_at_ms INTEGER,
    PRIMARY KEY (holder, name, secret_digest)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER credential_kept BEFORE DELETE ON credential
BEGIN SELECT RAISE(ABORT, 'credentials are retired, never deleted'); END;
CREATE TRIGGER credential_retired_for_good BEFORE UPDATE ON credential
WHEN OLD.retired_at_ms IS NOT NULL OR NEW.secret_digest <> OLD.secret_digest OR NEW.name <> OLD.name
BEGIN SELECT RAISE(ABORT, 'a credential only retires'); END;

CREATE TABLE task (
    position INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL UNIQUE,
    idempotency_key TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    envelope BLOB NOT NULL,
    capability TEXT NOT NULL,
    directed INTEGER NOT NULL CHECK (directed IN (0, 1)),
    run TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('QUEUED', 'OFFERED', 'RUNNING', 'CANCELLING', 'LOST', 'SUCCEEDED', 'FAILED',
                                         'CANCELLED', 'ABANDONED')),
    priority INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    next_attempt INTEGER NOT NULL DEFAULT 1 CHECK (next_attempt >= 1),
    lost_count INTEGER NOT NULL DEFAULT 0,
    failed_count INTEGER NOT NULL DEFAULT 0,
    watcher TEXT NOT NULL,
    principal TEXT NOT NULL,
    submitted_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER
) STRICT;

CREATE INDEX task_ready ON task (capability, priority DESC, position) WHERE state = 'QUEUED' AND directed = 0;
CREATE INDEX task_directed ON task (priority DESC, position) WHERE state = 'QUEUED' AND directed = 1;
CREATE INDEX task_delayed ON task (not_before_ms) WHERE state = 'QUEUED' AND not_before_ms > 0;
CREATE INDEX task_open ON task (state, capability) WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED');
CREATE INDEX task_ended ON task (state) WHERE state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED');

CREATE TRIGGER task_starts_queued BEFORE INSERT ON task WHEN NEW.state <> 'QUEUED'
BEGIN SELECT RAISE(ABORT, 'a task starts QUEUED'); END;
CREATE TRIGGER task_transition BEFORE UPDATE OF state ON task
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'task' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal task transition'); END;
CREATE TRIGGER task_identity BEFORE UPDATE OF position, task_id, idempotency_key, digest, envelope, capability, run ON task
BEGIN SELECT RAISE(ABORT, 'a task never changes its identity or its envelope'); END;
CREATE TRIGGER task_kept BEFORE DELETE ON task
BEGIN SELECT RAISE(ABORT, 'tasks are never deleted'); END;

CREATE TABLE lease (
    task_id TEXT NOT NULL REFERENCES task (task_id),
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('OFFERED', 'ACTIVE', 'COMPLETED', 'EXPIRED', 'RELEASED')),
    start TEXT NOT NULL CHECK (start IN ('granted', 'claimed')),
    ttl_ms INTEGER NOT NULL,
    capability TEXT NOT NULL,
    directed_to TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL,
    outbox INTEGER NOT NULL,
    doubted INTEGER NOT NULL DEFAULT 0 CHECK (doubted IN (0, 1)),
    worker_id TEXT,
    generation INTEGER,
    nonce TEXT,
    after_beat INTEGER,
    offered_at_ms INTEGER NOT NULL,
    bound_at_ms INTEGER,
    ended_at_ms INTEGER,
    cause TEXT,
    parent TEXT NOT NULL DEFAULT '',
    site_id TEXT NOT NULL DEFAULT 'default',
    seconded INTEGER NOT NULL DEFAULT 0 CHECK (seconded IN (0, 1)),
    unproved INTEGER NOT NULL DEFAULT 0 CHECK (unproved IN (0, 1)),
    surrender TEXT NOT NULL DEFAULT '',
    surrendered_at_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task_id, fence)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX lease_one_live ON lease (task_id) WHERE state IN ('OFFERED', 'ACTIVE');
CREATE INDEX lease_by_worker ON lease (worker_id, offered_at_ms) WHERE worker_id IS NOT NULL;
CREATE INDEX lease_of_parent ON lease (parent) WHERE parent <> '' AND state = 'ACTIVE';
CREATE INDEX lease_of_site ON lease (site_id) WHERE state IN ('OFFERED', 'ACTIVE');
CREATE TRIGGER lease_site_for_good BEFORE UPDATE OF site_id ON lease WHEN NEW.site_id <> OLD.site_id
BEGIN SELECT RAISE(ABORT, 'a lease stays with the site that it was offered to'); END;
CREATE TRIGGER lease_bound_at_its_site BEFORE UPDATE OF worker_id ON lease
WHEN EXISTS (SELECT 1 FROM worker WHERE worker_id = NEW.worker_id AND site_id <> NEW.site_id)
BEGIN SELECT RAISE(ABORT, 'a lease is bound to a worker of the site that it was offered to'); END;

CREATE TRIGGER lease_starts_offered BEFORE INSERT ON lease WHEN NEW.state <> 'OFFERED'
BEGIN SELECT RAISE(ABORT, 'a lease starts OFFERED'); END;
CREATE TRIGGER lease_fence_grows BEFORE INSERT ON lease
WHEN EXISTS (SELECT 1 FROM lease WHERE task_id = NEW.task_id AND fence >= NEW.fence)
     OR NEW.fence > (SELECT fence FROM world)
BEGIN SELECT RAISE(ABORT, 'a fence grows strictly and comes from the counter'); END;
CREATE TRIGGER lease_needs_directive BEFORE INSERT ON lease
WHEN NEW.attempt > 1 AND NOT EXISTS (
    SELECT 1 FROM directive
    WHERE task_id = NEW.task_id AND next_attempt = NEW.attempt AND state = 'APPROVED')
BEGIN SELECT RAISE(ABORT, 'no further attempt without an approved directive'); END;
CREATE TRIGGER lease_attempt_unused BEFORE INSERT ON lease
WHEN EXISTS (
    SELECT 1 FROM lease
    WHERE task_id = NEW.task_id AND attempt >= NEW.attempt
          AND NOT (state = 'RELEASED' AND (cause = 'unstarted' OR worker_id IS NULL)))
BEGIN SELECT RAISE(ABORT, 'an attempt that may have started is never offered again'); END;
CREATE TRIGGER lease_transition BEFORE UPDATE OF state ON lease
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'lease' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal lease transition'); END;
CREATE TRIGGER lease_identity BEFORE UPDATE OF task_id, fence, attempt, digest, start, ttl_ms ON lease
BEGIN SELECT RAISE(ABORT, 'a lease never changes what it is for'); END;
CREATE TRIGGER lease_bound_once BEFORE UPDATE OF worker_id, nonce ON lease
WHEN OLD.worker_id IS NOT NULL AND (NEW.worker_id IS NOT OLD.worker_id OR NEW.nonce IS NOT OLD.nonce)
BEGIN SELECT RAISE(ABORT, 'a lease is bound to one executor for good'); END;
CREATE TRIGGER lease_parent_once BEFORE UPDATE OF parent ON lease
WHEN OLD.worker_id IS NOT NULL AND NEW.parent <> OLD.parent
BEGIN SELECT RAISE(ABORT, 'a lease is bound to one executor for good'); END;
CREATE TRIGGER lease_kept BEFORE DELETE ON lease
BEGIN SELECT RAISE(ABORT, 'leases are never deleted'); END;

CREATE TABLE result (
    task_id TEXT PRIMARY KEY REFERENCES task (task_id),
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id TEXT NOT NULL,
    nonce TEXT NOT NULL,
    value TEXT,
    failure TEXT,
    duration_ms INTEGER NOT NULL,
    accepted_at_ms INTEGER NOT NULL,
    outputs TEXT,
    notes TEXT NOT NULL DEFAULT '[]',
    CHECK ((value IS NULL) <> (failure IS NULL))
) STRICT;

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
CREATE TRIGGER result_fixed BEFORE UPDATE ON result
BEGIN SELECT RAISE(ABORT, 'an accepted result never changes'); END;
CREATE TRIGGER result_kept BEFORE DELETE ON result
BEGIN SELECT RAISE(ABORT, 'results are never deleted'); END;

CREATE TABLE failed_attempt (
    task_id TEXT NOT NULL REFERENCES task (task_id),
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    failure TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    accepted_at_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, fence)
) STRICT;

CREATE TRIGGER failed_attempt_fixed BEFORE UPDATE ON failed_attempt
BEGIN SELECT RAISE(ABORT, 'a recorded failure never changes'); END;
CREATE TRIGGER failed_attempt_kept BEFORE DELETE ON failed_attempt
BEGIN SELECT RAISE(ABORT, 'failures are never deleted'); END;

CREATE TABLE directive (
    directive_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES task (task_id),
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    next_attempt INTEGER NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('retry', 'hold')),
    reason TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL CHECK (state IN ('PENDING', 'APPROVED', 'DENIED')),
    backoff_ms INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    decided_at_ms INTEGER,
    decided_by TEXT,
    note TEXT NOT NULL DEFAULT '',
    UNIQUE (task_id, next_attempt)
) STRICT;

CREATE INDEX directive_pending ON directive (created_at_ms) WHERE state = 'PENDING';

CREATE TRIGGER directive_transition BEFORE UPDATE OF state ON directive
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'directive' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal directive transition'); END;
CREATE TRIGGER directive_starts BEFORE INSERT ON directive WHEN NEW.state <> 'PENDING'
BEGIN SELECT RAISE(ABORT, 'a directive starts PENDING'); END;
CREATE TRIGGER directive_decided_by_someone BEFORE UPDATE OF state ON directive WHEN NEW.decided_by IS NULL
BEGIN SELECT RAISE(ABORT, 'a decision names who made it'); END;
CREATE TRIGGER directive_identity BEFORE UPDATE OF directive_id, task_id, fence, attempt, next_attempt, reason ON directive
BEGIN SELECT RAISE(ABORT, 'a directive never changes what it is about'); END;
CREATE TRIGGER directive_kept BEFORE DELETE ON directive
BEGIN SELECT RAISE(ABORT, 'directives are never deleted'); END;

CREATE TABLE worker (
    worker_id TEXT PRIMARY KEY,
    site_id TEXT NOT NULL REFERENCES site (site_id),
    generation INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('ACTIVE', 'STALE', 'DRAINING', 'OFFLINE')),
    by_hand INTEGER NOT NULL DEFAULT 0 CHECK (by_hand IN (0, 1)),
    slots INTEGER NOT NULL,
    capabilities TEXT NOT NULL,
    labels TEXT NOT NULL,
    resources TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    registered_at_ms INTEGER NOT NULL,
    seen_at_ms INTEGER NOT NULL,
    first_fence INTEGER NOT NULL DEFAULT 0,
    executor_of TEXT NOT NULL DEFAULT '',
    launches INTEGER CHECK (launches IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER worker_transition BEFORE UPDATE OF state ON worker
WHEN OLD.state <> NEW.state AND NOT EXISTS (
    SELECT 1 FROM transition WHERE machine = 'worker' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal worker transition'); END;
CREATE TRIGGER worker_identity BEFORE UPDATE OF worker_id, site_id ON worker WHEN NEW.site_id <> OLD.site_id
BEGIN SELECT RAISE(ABORT, 'a worker stays with its site'); END;
CREATE TRIGGER worker_generation_grows BEFORE UPDATE OF generation ON worker WHEN NEW.generation < OLD.generation
BEGIN SELECT RAISE(ABORT, 'a generation never goes back'); END;
CREATE TRIGGER worker_executor_for_good BEFORE UPDATE OF executor_of ON worker WHEN NEW.executor_of <> OLD.executor_of
BEGIN SELECT RAISE(ABORT, 'an executor stays one, of the same worker'); END;
CREATE TRIGGER worker_kind_for_good BEFORE UPDATE OF launches ON worker
WHEN OLD.launches IS NOT NULL AND NEW.launches IS NOT OLD.launches
BEGIN SELECT RAISE(ABORT, 'a worker starts executors or runs tasks itself, for good'); END;
CREATE TRIGGER worker_kept BEFORE DELETE ON worker
WHEN OLD.executor_of = '' OR EXISTS (SELECT 1 FROM lease WHERE worker_id = OLD.worker_id AND state = 'ACTIVE')
BEGIN SELECT RAISE(ABORT, 'workers are never deleted, but executors that hold nothing'); END;

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

CREATE INDEX quarantine_with_files ON quarantine (received_at_ms) WHERE outputs IS NOT NULL;

CREATE TRIGGER quarantine_fixed BEFORE UPDATE ON quarantine
BEGIN SELECT RAISE(ABORT, 'evidence never changes'); END;
CREATE TRIGGER quarantine_kept BEFORE DELETE ON quarantine
BEGIN SELECT RAISE(ABORT, 'evidence is never deleted'); END;

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

-- Campaigns. The sums are kept by triggers, so that whatever ends an attempt or a task settles it at once.

CREATE TABLE campaign (
    campaign TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('OPEN', 'CLOSED')),
    most_tasks INTEGER,
    most_attempt_ms INTEGER,
    most_cost INTEGER,
    capabilities TEXT NOT NULL DEFAULT '[]',
    devices TEXT NOT NULL DEFAULT '[]',
    people TEXT NOT NULL DEFAULT '[]',
    starts_at_ms INTEGER,
    ends_at_ms INTEGER,
    reserved_tasks INTEGER NOT NULL DEFAULT 0 CHECK (reserved_tasks >= 0),
    reserved_ms INTEGER NOT NULL DEFAULT 0 CHECK (reserved_ms >= 0),
    reserved_cost INTEGER NOT NULL DEFAULT 0 CHECK (reserved_cost >= 0),
    used_tasks INTEGER NOT NULL DEFAULT 0 CHECK (used_tasks >= 0),
    used_ms INTEGER NOT NULL DEFAULT 0 CHECK (used_ms >= 0),
    used_cost INTEGER NOT NULL DEFAULT 0 CHECK (used_cost >= 0),
    note TEXT NOT NULL DEFAULT '',
    created_at_ms INTEGER NOT NULL,
    created_by TEXT NOT NULL CHECK (created_by <> ''),
    closed_at_ms INTEGER,
    closed_by TEXT,
    CHECK (most_tasks IS NULL OR reserved_tasks + used_tasks <= most_tasks),
    CHECK (most_attempt_ms IS NULL OR reserved_ms + used_ms <= most_attempt_ms),
    CHECK (most_cost IS NULL OR reserved_cost + used_cost <= most_cost)
) STRICT, WITHOUT ROWID;

-- What one task holds of its campaign. `attempt_ms` is the longest that one attempt may take, 0 when nothing was said.
CREATE TABLE charge (
    task_id TEXT PRIMARY KEY REFERENCES task (task_id),
    campaign TEXT NOT NULL REFERENCES campaign (campaign),
    principal TEXT NOT NULL,
    capability TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('RESERVED', 'USED', 'RELEASED')),
    cost INTEGER NOT NULL CHECK (cost >= 0),
    attempt_ms INTEGER NOT NULL CHECK (attempt_ms >= 0),
    reserved_ms INTEGER NOT NULL CHECK (reserved_ms >= 0),
    used_ms INTEGER NOT NULL DEFAULT 0 CHECK (used_ms >= 0),
    CHECK (state = 'RESERVED' OR reserved_ms = 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX charge_open ON charge (campaign, task_id) WHERE state = 'RESERVED';
CREATE INDEX charge_usage ON charge (campaign, principal, capability, state, cost, used_ms);

CREATE TRIGGER campaign_starts_open BEFORE INSERT ON campaign WHEN NEW.state <> 'OPEN'
BEGIN SELECT RAISE(ABORT, 'a campaign starts OPEN'); END;
CREATE TRIGGER campaign_transition BEFORE UPDATE OF state ON campaign
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'campaign' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal campaign transition'); END;
CREATE TRIGGER campaign_closed_by_someone BEFORE UPDATE OF state ON campaign WHEN NEW.closed_by IS NULL
BEGIN SELECT RAISE(ABORT, 'a campaign is closed by someone'); END;
CREATE TRIGGER campaign_identity BEFORE UPDATE OF campaign, most_tasks, most_attempt_ms, most_cost, capabilities, devices,
    people, starts_at_ms, ends_at_ms, created_at_ms, created_by ON campaign
BEGIN SELECT RAISE(ABORT, 'what a campaign allows never changes'); END;
CREATE TRIGGER campaign_kept BEFORE DELETE ON campaign
BEGIN SELECT RAISE(ABORT, 'campaigns are never deleted, and their names are never used again'); END;

CREATE TRIGGER charge_starts_reserved BEFORE INSERT ON charge WHEN NEW.state <> 'RESERVED' OR NEW.used_ms <> 0
BEGIN SELECT RAISE(ABORT, 'a charge starts RESERVED'); END;
CREATE TRIGGER charge_of_an_open_campaign BEFORE INSERT ON charge
WHEN NOT EXISTS (SELECT 1 FROM campaign WHERE campaign = NEW.campaign AND state = 'OPEN')
BEGIN SELECT RAISE(ABORT, 'a task counts against an open campaign'); END;
CREATE TRIGGER charge_has_its_limit BEFORE INSERT ON charge
WHEN NEW.attempt_ms = 0 AND (SELECT most_attempt_ms FROM campaign WHERE campaign = NEW.campaign) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'where time is limited, every task has a limit'); END;
CREATE TRIGGER charge_transition BEFORE UPDATE OF state ON charge
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'charge' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal charge transition'); END;
CREATE TRIGGER charge_identity BEFORE UPDATE OF task_id, campaign, principal, capability, cost, attempt_ms ON charge
BEGIN SELECT RAISE(ABORT, 'a charge never changes what it is for'); END;
CREATE TRIGGER charge_kept BEFORE DELETE ON charge
BEGIN SELECT RAISE(ABORT, 'charges are never deleted'); END;

CREATE TRIGGER charge_reserves AFTER INSERT ON charge
BEGIN
    UPDATE campaign SET reserved_tasks = reserved_tasks + 1, reserved_ms = reserved_ms + NEW.reserved_ms,
                        reserved_cost = reserved_cost + NEW.cost
    WHERE campaign = NEW.campaign;
END;
CREATE TRIGGER charge_moves AFTER UPDATE OF state, reserved_ms, used_ms ON charge
BEGIN
    UPDATE campaign SET
        reserved_tasks = reserved_tasks + (NEW.state = 'RESERVED') - (OLD.state = 'RESERVED'),
        used_tasks = used_tasks + (NEW.state = 'USED') - (OLD.state = 'USED'),
        reserved_cost = reserved_cost + NEW.cost * ((NEW.state = 'RESERVED') - (OLD.state = 'RESERVED')),
        used_cost = used_cost + NEW.cost * ((NEW.state = 'USED') - (OLD.state = 'USED')),
        reserved_ms = reserved_ms + NEW.reserved_ms - OLD.reserved_ms,
        used_ms = used_ms + NEW.used_ms - OLD.used_ms
    WHERE campaign = NEW.campaign;
END;

-- An attempt that ends uses what it took, by the coordinator's own clock, and at most what was reserved for one; the
-- rest of that goes back. A worker's word on how long it took counts only while it says less.
CREATE TRIGGER charge_of_ended_lease AFTER UPDATE OF state ON lease
WHEN NEW.state IN ('EXPIRED', 'RELEASED') AND NEW.bound_at_ms IS NOT NULL AND NEW.cause IS NOT 'unstarted'
BEGIN
    UPDATE charge SET
        used_ms = used_ms + MAX(0, MIN(NEW.ended_at_ms - NEW.bound_at_ms,
            CASE WHEN attempt_ms > 0 THEN MIN(attempt_ms, reserved_ms) ELSE NEW.ended_at_ms - NEW.bound_at_ms END)),
        reserved_ms = MAX(0, reserved_ms - attempt_ms)
    WHERE task_id = NEW.task_id AND state = 'RESERVED';
END;
CREATE TRIGGER charge_of_failed_attempt AFTER INSERT ON failed_attempt
BEGIN
    UPDATE charge SET
        used_ms = used_ms + COALESCE((
            SELECT MAX(0, MIN(NEW.duration_ms, l.ended_at_ms - l.offered_at_ms,
                CASE WHEN attempt_ms > 0 THEN MIN(attempt_ms, reserved_ms) ELSE NEW.duration_ms END))
            FROM lease l WHERE l.task_id = NEW.task_id AND l.fence = NEW.fence), 0),
        reserved_ms = MAX(0, reserved_ms - attempt_ms)
    WHERE task_id = NEW.task_id AND state = 'RESERVED';
END;

-- Acceptance settles. An adopted result took its time before its lease was over, which counted then.
CREATE TRIGGER charge_settled AFTER INSERT ON result
BEGIN
    UPDATE charge SET
        state = 'USED',
        used_ms = used_ms + COALESCE((
            SELECT MAX(0, MIN(NEW.duration_ms, l.ended_at_ms - l.offered_at_ms,
                CASE WHEN attempt_ms > 0 THEN MIN(attempt_ms, reserved_ms) ELSE NEW.duration_ms END))
            FROM lease l WHERE l.task_id = NEW.task_id AND l.fence = NEW.fence AND l.state = 'COMPLETED'), 0),
        reserved_ms = 0
    WHERE task_id = NEW.task_id AND state = 'RESERVED';
END;
CREATE TRIGGER charge_released AFTER UPDATE OF state ON task WHEN NEW.state IN ('CANCELLED', 'ABANDONED')
BEGIN
    UPDATE charge SET state = 'RELEASED', reserved_ms = 0 WHERE task_id = NEW.task_id AND state = 'RESERVED';
END;

-- A person who allows an attempt that the retry budget did not hold reserves the time for it.
CREATE TRIGGER charge_of_further_attempt AFTER UPDATE OF state ON directive
WHEN NEW.state = 'APPROVED' AND NEW.action = 'hold'
BEGIN
    UPDATE charge SET reserved_ms = reserved_ms + attempt_ms WHERE task_id = NEW.task_id AND state = 'RESERVED';
END;

CREATE TABLE event (
    event_id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    task_id TEXT,
    worker_id TEXT,
    text TEXT NOT NULL,
    principal TEXT NOT NULL DEFAULT 'unrecorded' CHECK (principal <> ''),
    site_id TEXT,
    reason TEXT NOT NULL DEFAULT '',
    before TEXT NOT NULL DEFAULT '',
    after TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX event_by_task ON event (task_id, event_id) WHERE task_id IS NOT NULL;

CREATE TRIGGER event_fixed BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'events are only added'); END;
CREATE TRIGGER event_kept BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'events are only added'); END;

CREATE TABLE seal (
    seal_id INTEGER PRIMARY KEY,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    digest TEXT NOT NULL CHECK (length(digest) = 64),
    CHECK (last_event >= first_event)
) STRICT;

CREATE TRIGGER seal_follows BEFORE INSERT ON seal
WHEN NEW.seal_id <> COALESCE((SELECT MAX(seal_id) FROM seal), 0) + 1
     OR NEW.first_event <= COALESCE((SELECT last_event FROM seal ORDER BY seal_id DESC LIMIT 1), 0)
BEGIN SELECT RAISE(ABORT, 'a seal follows the newest one'); END;
CREATE TRIGGER seal_fixed BEFORE UPDATE ON seal
BEGIN SELECT RAISE(ABORT, 'seals are only added'); END;
CREATE TRIGGER seal_kept BEFORE DELETE ON seal
BEGIN SELECT RAISE(ABORT, 'seals are only added'); END;
CREATE INDEX seal_by_event ON seal (last_event);

CREATE TABLE cancellation (
    cancellation_id INTEGER PRIMARY KEY,
    request TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('OPEN', 'DONE')),
    run TEXT,
    campaign TEXT,
    capability TEXT,
    principal TEXT,
    last_position INTEGER NOT NULL,
    stage TEXT NOT NULL CHECK (stage IN ('OFFERED', 'RUNNING', 'LOST', 'QUEUED')),
    at_capability TEXT NOT NULL,
    at_position INTEGER NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    stopping INTEGER NOT NULL DEFAULT 0 CHECK (stopping >= 0),
    asked_by TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    asked_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER
) STRICT;

CREATE INDEX cancellation_open ON cancellation (cancellation_id) WHERE state = 'OPEN';

CREATE TRIGGER cancellation_starts_open BEFORE INSERT ON cancellation WHEN NEW.state <> 'OPEN'
BEGIN SELECT RAISE(ABORT, 'a cancellation starts OPEN'); END;
CREATE TRIGGER cancellation_transition BEFORE UPDATE OF state ON cancellation
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'cancellation' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal cancellation transition'); END;
CREATE TRIGGER cancellation_identity BEFORE UPDATE OF cancellation_id, request, run, campaign, capability, principal,
    last_position, asked_by, actor, reason, asked_at_ms ON cancellation
BEGIN SELECT RAISE(ABORT, 'a cancellation never changes what it covers'); END;
CREATE TRIGGER cancellation_kept BEFORE DELETE ON cancellation
BEGIN SELECT RAISE(ABORT, 'cancellations are never deleted'); END;
