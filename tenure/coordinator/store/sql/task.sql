-- Tasks: admission, choice, and every step of the task state machine.

-- name: task_by_key
-- The task that was submitted under an idempotency key.
SELECT task_id, digest, state FROM task WHERE idempotency_key = ?;

-- name: insert_task
-- Store a submission; it starts QUEUED.
INSERT INTO task (task_id, idempotency_key, digest, envelope, capability, directed, run, state, priority,
                  not_before_ms, watcher, principal, submitted_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, 'QUEUED', ?, ?, ?, ?, ?);

-- name: ready_tasks
-- The next tasks of a capability that any of its workers may take.
SELECT task_id, digest, envelope, next_attempt, run FROM task
WHERE state = 'QUEUED' AND directed = 0 AND capability = ? AND not_before_ms <= ?
ORDER BY priority DESC, position LIMIT ?;

-- name: ready_directed_tasks
-- The next tasks that need a worker picked for them, after those that were looked at in vain.
SELECT task_id, digest, envelope, next_attempt, run FROM task
WHERE state = 'QUEUED' AND directed = 1 AND not_before_ms <= ?
ORDER BY priority DESC, position LIMIT ? OFFSET ?;

-- name: next_due
-- The earliest moment at which a delayed task becomes ready, after ?. The index is used only when 0 is named, too.
SELECT MIN(not_before_ms) FROM task WHERE state = 'QUEUED' AND not_before_ms > 0 AND not_before_ms > ?;

-- name: delays_moved
-- The wall clock was set by that much: what is delayed stays delayed for as long as before.
UPDATE task SET not_before_ms = MAX(not_before_ms + ?, 1) WHERE state = 'QUEUED' AND not_before_ms > 0;

-- name: queued_capabilities
-- Capabilities that have queued tasks which any of their workers may take. Steps from one to the next in the index, so
-- that neither a long backlog nor a long past costs anything.
WITH RECURSIVE waiting (capability) AS (
    SELECT MIN(capability) FROM task WHERE state = 'QUEUED' AND directed = 0
    UNION ALL
    SELECT (SELECT MIN(t.capability) FROM task t
            WHERE t.state = 'QUEUED' AND t.directed = 0 AND t.capability > waiting.capability)
    FROM waiting WHERE waiting.capability IS NOT NULL)
SELECT capability FROM waiting WHERE capability IS NOT NULL;

-- name: task
-- What decisions about one task need.
SELECT task_id, state, digest, envelope, capability, run, next_attempt, lost_count, failed_count, watcher
FROM task WHERE task_id = ?;

-- name: task_offered
-- QUEUED to OFFERED.
UPDATE task SET state = 'OFFERED' WHERE task_id = ? AND state = 'QUEUED';

-- name: task_running
-- OFFERED to RUNNING; a task that is being cancelled stays so.
UPDATE task SET state = 'RUNNING' WHERE task_id = ? AND state = 'OFFERED';

-- name: task_succeeded
-- RUNNING or CANCELLING to SUCCEEDED: an accepted value ends the task, even when a cancel came too late.
UPDATE task SET state = 'SUCCEEDED', ended_at_ms = ? WHERE task_id = ? AND state IN ('RUNNING', 'CANCELLING');

-- name: task_state
-- Any other step, guarded by the state that it starts from.
UPDATE task SET state = ?, ended_at_ms = ? WHERE task_id = ? AND state = ?;

-- name: task_waits
-- A ready task waits a moment longer: for its newest checkpoint to come into the store, or for a worker with the time.
UPDATE task SET not_before_ms = ? WHERE task_id = ? AND state = 'QUEUED';

-- name: task_given_back
-- Back to QUEUED because the assignment provably never started; no attempt is used up.
UPDATE task SET state = 'QUEUED', not_before_ms = ? WHERE task_id = ? AND state IN ('OFFERED', 'RUNNING');

-- name: task_again
-- To QUEUED for a further attempt that a directive has approved.
UPDATE task SET state = 'QUEUED', next_attempt = ?, lost_count = lost_count + ?, failed_count = failed_count + ?,
                not_before_ms = ?
WHERE task_id = ? AND state IN ('LOST', 'RUNNING');

-- name: task_end
-- How a task ended, for notices.
SELECT t.task_id, t.state, r.attempt, r.fence, r.value, r.failure, r.outputs,
       (SELECT detail FROM directive d WHERE d.task_id = t.task_id AND t.state = 'LOST'
        ORDER BY d.next_attempt DESC LIMIT 1)
FROM task t LEFT JOIN result r ON r.task_id = t.task_id WHERE t.task_id = ?;

-- name: insert_result
-- The accepted result. One per task: the primary key and the triggers hold that.
INSERT INTO result (task_id, fence, attempt, worker_id, nonce, value, failure, duration_ms, accepted_at_ms,
                    outputs, notes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_failed_attempt
-- A failure that another attempt follows.
INSERT INTO failed_attempt (task_id, fence, attempt, failure, duration_ms, accepted_at_ms) VALUES (?, ?, ?, ?, ?, ?);
