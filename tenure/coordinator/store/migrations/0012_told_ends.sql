-- What executors and workers have told of an end outlives the coordinator. That an attempt could not be ended: silence
-- about it proves nothing, for good. And that it was given up because its executor was ended from outside: it has its
-- verdict and is gone, so nobody would tell that again. Of leases that were live before, the events since their bind say
-- the first: an earlier attempt of the task may have been with the same worker. The oldest have no event of their bind,
-- but its time.

ALTER TABLE lease ADD COLUMN unproved INTEGER NOT NULL DEFAULT 0 CHECK (unproved IN (0, 1));
ALTER TABLE lease ADD COLUMN surrender TEXT NOT NULL DEFAULT '';
ALTER TABLE lease ADD COLUMN surrendered_at_ms INTEGER NOT NULL DEFAULT 0;
UPDATE lease SET unproved = 1
WHERE state = 'ACTIVE'
      AND EXISTS (
          SELECT 1 FROM event e
          WHERE e.task_id = lease.task_id AND e.kind = 'not_ended' AND e.event_id > COALESCE(
              (SELECT MAX(b.event_id) FROM event b WHERE b.task_id = lease.task_id AND b.kind = 'bound'),
              (SELECT MAX(b.event_id) FROM event b WHERE b.task_id = lease.task_id AND b.at_ms < lease.bound_at_ms), 0));
