-- Campaigns: what a group of submissions may use, and what each of their tasks has reserved and used of it. The sums are
-- kept by triggers, so that whatever ends an attempt or a task settles it in the same transaction.

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

DROP TRIGGER transition_fixed_insert;
INSERT INTO transition (machine, before, after) VALUES
    ('campaign', 'OPEN', 'CLOSED'), ('charge', 'RESERVED', 'USED'), ('charge', 'RESERVED', 'RELEASED');
CREATE TRIGGER transition_fixed_insert BEFORE INSERT ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;

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
