-- That two executors were started for one lease outlives the coordinator: what their parent proves may be the end of the
-- one that was refused. Leases that were live before have none on record, but for what the events say.

ALTER TABLE lease ADD COLUMN seconded INTEGER NOT NULL DEFAULT 0 CHECK (seconded IN (0, 1));
UPDATE lease SET seconded = 1
WHERE state = 'ACTIVE' AND parent <> ''
      AND EXISTS (SELECT 1 FROM event e WHERE e.task_id = lease.task_id AND e.kind = 'second_executor');
