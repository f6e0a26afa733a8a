-- Requests to cancel many tasks at once, and the tasks that they cover. A condition that is NULL was not made.

-- name: add_cancellation
-- Keep a request. It covers what is submitted by now; a repeat of the same request adds nothing.
INSERT INTO cancellation (request, state, run, campaign, capability, principal, last_position, stage, at_capability,
                          at_position, asked_by, actor, reason, asked_at_ms)
VALUES (:request, 'OPEN', :run, :campaign, :capability, :principal,
        (SELECT COALESCE(MAX(position), 0) FROM task), :stage, '', 0, :asked_by, :actor, :reason, :now_ms)
ON CONFLICT (request) DO NOTHING;

-- name: cancellation_of_request
-- The one that a request has begun.
SELECT cancellation_id FROM cancellation WHERE request = ?;

-- name: open_cancellations
-- Those that are not done, in order.
SELECT cancellation_id, run, campaign, capability, principal, last_position, stage, at_capability, at_position, asked_by,
       actor, reason
FROM cancellation WHERE state = 'OPEN' ORDER BY cancellation_id;

-- name: list_cancellations
-- What people read of them.
SELECT cancellation_id, state, run, campaign, capability, principal, cancelled, stopping, asked_by, reason, asked_at_ms,
       ended_at_ms
FROM cancellation
WHERE (:cancellation_id IS NULL OR cancellation_id = CAST(:cancellation_id AS INTEGER))
      AND (:state IS NULL OR state = :state)
ORDER BY cancellation_id DESC LIMIT :limit;

-- name: cancellation_went_on
-- How far it has come, and how many tasks it has cancelled and is stopping.
UPDATE cancellation SET stage = ?, at_capability = ?, at_position = ?, cancelled = cancelled + ?, stopping = stopping + ?
WHERE cancellation_id = ? AND state = 'OPEN';

-- name: cancellation_done
-- OPEN to DONE: everything that it covers has ended or is told to stop, and nothing of it can be offered any more.
UPDATE cancellation SET state = 'DONE', ended_at_ms = ? WHERE cancellation_id = ? AND state = 'OPEN';

-- name: next_open_capability
-- The next capability with tasks in that state, stepped to in the index.
SELECT MIN(capability) FROM task
WHERE state = ? AND state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED') AND capability > ?;

-- name: end_of_portion
-- Where a portion of the tasks of a state and capability ends; read from their index alone.
SELECT MAX(position) FROM (
    SELECT position FROM task
    WHERE state = ? AND state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED') AND capability = ?
          AND position > ? AND position <= ?
    ORDER BY position LIMIT ?);

-- name: cancel_queued
-- QUEUED to CANCELLED for a portion of what a cancellation covers: nobody has it, and nobody can still be running an
-- attempt that was taken from a revoked site. One statement for all of them takes a third of the time.
UPDATE task SET state = 'CANCELLED', ended_at_ms = :now_ms
WHERE state = 'QUEUED' AND state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED') AND capability = :at_capability
      AND position > :after AND position <= :until
      AND (:run IS NULL OR run = :run) AND (:principal IS NULL OR principal = :principal)
      AND (:campaign IS NULL OR EXISTS (
          SELECT 1 FROM charge c WHERE c.task_id = task.task_id AND c.campaign = :campaign))
      AND (next_attempt = 1 OR NOT EXISTS (
          SELECT 1 FROM lease l
          WHERE l.task_id = task.task_id AND l.cause = 'site_revoked' AND l.worker_id IS NOT NULL))
RETURNING task_id, watcher, next_attempt,
          (SELECT l.attempt FROM lease l WHERE l.task_id = task.task_id ORDER BY l.fence DESC LIMIT 1);

-- name: covered_portion
-- A portion of what a cancellation covers in another state.
SELECT task_id FROM task
WHERE state = :stage AND state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED') AND capability = :at_capability
      AND position > :after AND position <= :until
      AND (:run IS NULL OR run = :run) AND (:principal IS NULL OR principal = :principal)
      AND (:campaign IS NULL OR EXISTS (
          SELECT 1 FROM charge c WHERE c.task_id = task.task_id AND c.campaign = :campaign));

-- name: covering_cancellation
-- The first one under way that covers a task.
SELECT c.cancellation_id FROM task t JOIN cancellation c ON c.state = 'OPEN'
WHERE t.task_id = ? AND t.position <= c.last_position
      AND (c.run IS NULL OR c.run = t.run) AND (c.capability IS NULL OR c.capability = t.capability)
      AND (c.principal IS NULL OR c.principal = t.principal)
      AND (c.campaign IS NULL OR EXISTS (
          SELECT 1 FROM charge h WHERE h.task_id = t.task_id AND h.campaign = c.campaign))
ORDER BY c.cancellation_id LIMIT 1;
