-- Leases: offer, bind, complete, expire, release. Every step is one guarded write.

-- name: insert_lease
-- Offer an assignment under a new fence.
INSERT INTO lease (task_id, fence, attempt, digest, state, start, ttl_ms, capability, directed_to, epoch, outbox,
                   offered_at_ms, site_id)
VALUES (?, ?, ?, ?, 'OFFERED', ?, ?, ?, ?, ?, ?, ?, ?);

-- name: bind_lease
-- OFFERED to ACTIVE for one worker and one nonce, at the site that it was offered to.
UPDATE lease SET state = 'ACTIVE', worker_id = ?, parent = ?, generation = ?, nonce = ?, after_beat = ?, bound_at_ms = ?
WHERE task_id = ? AND fence = ? AND attempt = ? AND digest = ? AND site_id = ? AND state = 'OFFERED';

-- name: complete_lease
-- ACTIVE to COMPLETED: the one door to results. Matches task, digest, worker, site, attempt, fence, nonce, world and run.
UPDATE lease SET state = 'COMPLETED', ended_at_ms = :now_ms
WHERE task_id = :task_id AND fence = :fence AND attempt = :attempt AND digest = :digest AND worker_id = :worker_id AND nonce = :nonce
      AND site_id = :site AND state = 'ACTIVE'
      AND EXISTS (SELECT 1 FROM task WHERE task_id = :task_id AND digest = :digest AND run = :run
                                           AND state IN ('RUNNING', 'CANCELLING'))
      AND EXISTS (SELECT 1 FROM world WHERE world = :world);

-- name: may_complete
-- Whether `complete_lease` would complete it now: asks for the same, and changes nothing.
SELECT 1 FROM lease l JOIN task t ON t.task_id = l.task_id JOIN world w ON w.id = 1
WHERE l.task_id = :task_id AND l.fence = :fence AND l.attempt = :attempt AND l.digest = :digest AND t.digest = :digest
      AND l.worker_id = :worker_id AND l.site_id = :site AND l.nonce = :nonce AND l.state = 'ACTIVE' AND t.state IN ('RUNNING', 'CANCELLING')
      AND t.run = :run AND w.world = :world;

-- name: end_lease
-- A live lease to EXPIRED or RELEASED.
UPDATE lease SET state = ?, cause = ?, ended_at_ms = ? WHERE task_id = ? AND fence = ? AND state = ?;

-- name: republished_lease
-- The entry under which an offer was published again; fence and attempt stay.
UPDATE lease SET epoch = ?, outbox = ? WHERE task_id = ? AND fence = ? AND state = 'OFFERED';

-- name: doubt_lease
-- The broker has lost data while this offer was out, and it starts on its claim: somebody may be running it.
UPDATE lease SET doubted = 1 WHERE task_id = ? AND fence = ? AND state = 'OFFERED';

-- name: second_lease
-- Another executor was started for it too: the end of one of them proves nothing about the other, for good.
UPDATE lease SET seconded = 1 WHERE task_id = ? AND fence = ? AND state = 'ACTIVE';

-- name: unproved_lease
-- Its worker could not end the attempt: silence about it proves nothing, for good.
UPDATE lease SET unproved = 1 WHERE task_id = ? AND fence = ? AND state = 'ACTIVE';

-- name: surrendered_lease
-- What its executor has told of its own end, and when: it has its verdict, and does not tell it again.
UPDATE lease SET surrender = ?, surrendered_at_ms = ? WHERE task_id = ? AND fence = ? AND state = 'ACTIVE';

-- name: live_leases
-- Every OFFERED or ACTIVE lease with what the loop keeps in memory about it.
SELECT l.task_id, l.fence, l.attempt, l.digest, l.state, l.start, l.ttl_ms, l.capability, l.directed_to, l.epoch,
       l.outbox, l.worker_id, l.generation, l.nonce, l.after_beat, t.run, t.envelope, t.state, l.doubted, l.parent,
       l.site_id, l.seconded, l.unproved, l.surrender, l.surrendered_at_ms
FROM lease l JOIN task t ON t.task_id = l.task_id
WHERE l.state IN ('OFFERED', 'ACTIVE') ORDER BY l.epoch, l.outbox;

-- name: lease
-- One lease by task and fence, for judging what arrives under it.
SELECT attempt, digest, state, start, worker_id, nonce, cause, generation, parent, directed_to, site_id FROM lease WHERE task_id = ? AND fence = ?;

-- name: starts_in_vain
-- How many executors of an attempt have ended without a claim. That none was launched is another matter: whoever takes
-- launches and refuses this one pauses by itself.
SELECT COUNT(*) FROM lease
WHERE task_id = ? AND attempt = ? AND state = 'RELEASED' AND worker_id IS NULL
      AND cause NOT IN ('unstarted', 'drained', 'launch_refused', 'site_revoked');

-- name: newest_lease
-- How the newest lease on a task is or ended.
SELECT cause, worker_id, ttl_ms, attempt FROM lease WHERE task_id = ? ORDER BY fence DESC LIMIT 1;

-- name: cancelling_without_lease
-- Tasks that are being cancelled although no lease on them is live: their site was revoked.
SELECT t.task_id, t.envelope FROM task t
WHERE t.state = 'CANCELLING' AND t.state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED')
      AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.task_id = t.task_id AND l.state IN ('OFFERED', 'ACTIVE'));

-- name: newest_fence
-- The highest fence ever published for a task.
SELECT MAX(fence) FROM lease WHERE task_id = ?;
