-- Executors: workers that another worker's launcher has started for one assignment each.

ALTER TABLE worker ADD COLUMN executor_of TEXT NOT NULL DEFAULT '';
ALTER TABLE lease ADD COLUMN parent TEXT NOT NULL DEFAULT '';
CREATE INDEX lease_of_parent ON lease (parent) WHERE parent <> '' AND state = 'ACTIVE';

CREATE TRIGGER worker_executor_for_good BEFORE UPDATE OF executor_of ON worker WHEN NEW.executor_of <> OLD.executor_of
BEGIN SELECT RAISE(ABORT, 'an executor stays one, of the same worker'); END;
CREATE TRIGGER lease_parent_once BEFORE UPDATE OF parent ON lease
WHEN OLD.worker_id IS NOT NULL AND NEW.parent <> OLD.parent
BEGIN SELECT RAISE(ABORT, 'a lease is bound to one executor for good'); END;

-- An executor comes for one assignment, and leaves nothing but the lease that it held.
DROP TRIGGER worker_kept;
CREATE TRIGGER worker_kept BEFORE DELETE ON worker
WHEN OLD.executor_of = '' OR EXISTS (SELECT 1 FROM lease WHERE worker_id = OLD.worker_id AND state = 'ACTIVE')
BEGIN SELECT RAISE(ABORT, 'workers are never deleted, but executors that hold nothing'); END;

-- An offer that nobody was bound to has not started, whatever the reason why it was given back.
DROP TRIGGER lease_attempt_unused;
CREATE TRIGGER lease_attempt_unused BEFORE INSERT ON lease
WHEN EXISTS (
    SELECT 1 FROM lease
    WHERE task_id = NEW.task_id AND attempt >= NEW.attempt
          AND NOT (state = 'RELEASED' AND (cause = 'unstarted' OR worker_id IS NULL)))
BEGIN SELECT RAISE(ABORT, 'an attempt that may have started is never offered again'); END;
