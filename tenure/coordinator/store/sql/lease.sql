-- Leases: offer, bind, complete, expire, release. Every step is one guarded write.

-- name: insert_lease
-- Offer an assignment under a new fence.
INSERT INTO lease (task_id, fence, attempt, digest, state, start, ttl_ms, capability, directed_to, epoch, outbox,
                   offered_at_ms)
VALUES (?, ?, ?, ?, 'OFFERED', ?, ?, ?, ?, ?, ?, ?);

-- name: bind_lease
-- OFFERED to ACTIVE for one worker and one nonce.
UPDATE lease SET state = 'ACTIVE', worker_id = ?, generation = ?, nonce = ?, after_beat = ?, bound_at_ms = ?
WHERE task_id = ? AND fence = ? AND attempt = ? AND digest = ? AND state = 'OFFERED';

-- name: complete_lease
-- ACTIVE to COMPLETED: the one door to results. Matches task, digest, worker, attempt, fence, nonce, world and run.
UPDATE lease SET state = 'COMPLETED', ended_at_ms = :now_ms
WHERE task_id = :task_id AND fence = :fence AND attempt = :attempt AND digest = :digest AND worker_id = :worker_id AND nonce = :nonce
      AND state = 'ACTIVE'
      AND EXISTS (SELECT 1 FROM task WHERE task_id = :task_id AND digest = :digest AND run = :run
                                           AND state IN ('RUNNING', 'CANCELLING'))
      AND EXISTS (SELECT 1 FROM world WHERE world = :world);

-- name: end_lease
-- A live lease to EXPIRED or RELEASED.
UPDATE lease SET state = ?, cause = ?, ended_at_ms = ? WHERE task_id = ? AND fence = ? AND state = ?;

-- name: republished_lease
-- The entry under which an offer was published again; fence and attempt stay.
UPDATE lease SET epoch = ?, outbox = ? WHERE task_id = ? AND fence = ? AND state = 'OFFERED';

-- name: doubt_lease
-- The broker has lost data while this offer was out, and it starts on its claim: somebody may be running it.
UPDATE lease SET doubted = 1 WHERE task_id = ? AND fence = ? AND state = 'OFFERED';

-- name: live_leases
-- Every OFFERED or ACTIVE lease with what the loop keeps in memory about it.
SELECT l.task_id, l.fence, l.attempt, l.digest, l.state, l.start, l.ttl_ms, l.capability, l.directed_to, l.epoch,
       l.outbox, l.worker_id, l.generation, l.nonce, l.after_beat, t.run, t.envelope, t.state, l.doubted
FROM lease l JOIN task t ON t.task_id = l.task_id
WHERE l.state IN ('OFFERED', 'ACTIVE') ORDER BY l.epoch, l.outbox;

-- name: lease
-- One lease by task and fence, for judging what arrives under it.
SELECT attempt, digest, state, start, worker_id, nonce, cause, generation FROM lease WHERE task_id = ? AND fence = ?;

-- name: newest_fence
-- The highest fence ever published for a task.
SELECT MAX(fence) FROM lease WHERE task_id = ?;

-- name: quarantine_report
-- Keep a rejected result as evidence; the same one again adds nothing.
INSERT INTO quarantine (quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report, received_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;
