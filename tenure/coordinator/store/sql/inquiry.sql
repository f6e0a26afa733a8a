-- What people read: lists with optional filters (a filter that is NULL does not apply), newest first.

-- name: list_tasks
-- Tasks with their current lease and end.
SELECT t.task_id, t.state, t.capability, t.run, t.priority, t.next_attempt AS attempt, l.fence, l.worker_id,
       t.submitted_at_ms, t.ended_at_ms, t.principal, t.envelope, r.value, r.failure
FROM task t
LEFT JOIN lease l ON l.task_id = t.task_id AND l.fence = (SELECT MAX(fence) FROM lease WHERE task_id = t.task_id)
LEFT JOIN result r ON r.task_id = t.task_id
WHERE (:state IS NULL OR t.state = :state) AND (:capability IS NULL OR t.capability = :capability)
      AND (:run IS NULL OR t.run = :run)
ORDER BY t.position DESC LIMIT :limit;

-- name: find_task
-- The same for the one task of an id or of an idempotency key, found by its index.
SELECT t.task_id, t.state, t.capability, t.run, t.priority, t.next_attempt AS attempt, l.fence, l.worker_id,
       t.submitted_at_ms, t.ended_at_ms, t.principal, t.envelope, r.value, r.failure
FROM task t
LEFT JOIN lease l ON l.task_id = t.task_id AND l.fence = (SELECT MAX(fence) FROM lease WHERE task_id = t.task_id)
LEFT JOIN result r ON r.task_id = t.task_id
WHERE t.task_id = COALESCE(:task_id, (SELECT task_id FROM task WHERE idempotency_key = :key))
      AND (:state IS NULL OR t.state = :state) AND (:capability IS NULL OR t.capability = :capability)
      AND (:run IS NULL OR t.run = :run)
LIMIT :limit;

-- name: list_workers
-- Workers with how many leases they hold.
SELECT w.worker_id, w.site_id AS site, w.state, w.generation, w.slots,
       (SELECT COUNT(*) FROM lease l WHERE l.worker_id = w.worker_id AND l.state = 'ACTIVE') AS holding,
       w.capabilities, w.labels, w.resources, w.ttl_ms, w.host, w.pid, w.version, w.by_hand, w.registered_at_ms,
       w.seen_at_ms
FROM worker w
WHERE (:worker_id IS NULL OR w.worker_id = :worker_id) AND (:state IS NULL OR w.state = :state)
      AND (:site IS NULL OR w.site_id = :site)
ORDER BY w.worker_id LIMIT :limit;

-- name: list_leases
-- Leases of all states.
SELECT task_id, fence, attempt, state, worker_id, generation, nonce, start, ttl_ms, capability, directed_to, digest, cause,
       offered_at_ms, bound_at_ms, ended_at_ms
FROM lease
WHERE (:task_id IS NULL OR task_id = :task_id) AND (:state IS NULL OR state = :state)
      AND (:worker_id IS NULL OR worker_id = :worker_id)
ORDER BY offered_at_ms DESC, fence DESC LIMIT :limit;

-- name: list_directives
-- Directives and who decided them.
SELECT directive_id, task_id, attempt, fence, next_attempt, action, reason, detail, state, decided_by, note, backoff_ms,
       created_at_ms, decided_at_ms
FROM directive
WHERE (:directive_id IS NULL OR directive_id = :directive_id) AND (:task_id IS NULL OR task_id = :task_id)
      AND (:state IS NULL OR state = :state)
ORDER BY created_at_ms DESC, directive_id DESC LIMIT :limit;

-- name: list_quarantine
-- Rejected results, kept as evidence.
SELECT quarantine_id, task_id, attempt, fence, site_id AS site, worker_id, nonce, reason, report, received_at_ms
FROM quarantine
WHERE (:quarantine_id IS NULL OR quarantine_id = :quarantine_id) AND (:task_id IS NULL OR task_id = :task_id)
      AND (:reason IS NULL OR reason = :reason)
ORDER BY received_at_ms DESC LIMIT :limit;

-- name: list_events
-- The event log.
SELECT event_id, at_ms, kind, task_id, worker_id, text
FROM event
WHERE (:task_id IS NULL OR task_id = :task_id) AND (:worker_id IS NULL OR worker_id = :worker_id)
      AND (:kind IS NULL OR kind = :kind)
ORDER BY event_id DESC LIMIT :limit;

-- name: list_capabilities
-- Open tasks by capability and state.
SELECT capability, state, COUNT(*) AS tasks FROM task
WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED')
GROUP BY capability, state ORDER BY capability, state LIMIT :limit;

-- name: count_tasks
-- How many tasks are in each state. Two halves, so that each is counted in its index and no task itself is read.
SELECT state, COUNT(*) FROM task WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED') GROUP BY state
UNION ALL
SELECT state, COUNT(*) FROM task WHERE state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED') GROUP BY state;

-- name: story_task
-- The first line of a task's story.
SELECT t.task_id, t.state, t.capability, t.run, t.principal, t.submitted_at_ms, t.ended_at_ms, t.not_before_ms,
       t.next_attempt, t.envelope, r.attempt, r.worker_id, r.value, r.failure, r.duration_ms, r.accepted_at_ms
FROM task t LEFT JOIN result r ON r.task_id = t.task_id WHERE t.task_id = ?;

-- name: story_leases
-- Every lease of a task, in order.
SELECT fence, attempt, state, worker_id, cause, offered_at_ms, bound_at_ms, ended_at_ms, directed_to
FROM lease WHERE task_id = ? ORDER BY fence;

-- name: story_directives
-- Every directive of a task, in order.
SELECT directive_id, next_attempt, action, reason, detail, state, decided_by, note, created_at_ms, decided_at_ms
FROM directive WHERE task_id = ? ORDER BY next_attempt;

-- name: story_events
-- Everything else that was recorded about a task, in order.
SELECT at_ms, kind, text FROM event WHERE task_id = ? ORDER BY event_id;
