-- Whether a worker has executors started, or runs what it takes itself: one kind cannot tell what the other has begun under
-- its id, so it would begin that again. Of a worker that has not said which it is since the upgrade, nothing is known.

ALTER TABLE worker ADD COLUMN launches INTEGER CHECK (launches IN (0, 1));
CREATE TRIGGER worker_kind_for_good BEFORE UPDATE OF launches ON worker
WHEN OLD.launches IS NOT NULL AND NEW.launches IS NOT OLD.launches
BEGIN SELECT RAISE(ABORT, 'a worker starts executors or runs tasks itself, for good'); END;
