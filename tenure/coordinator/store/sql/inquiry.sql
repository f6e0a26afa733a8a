-- What people read: lists with optional filters (a filter that is NULL does not apply), newest first.

-- name: list_tasks
-- Tasks with their current lease and end.
SELECT t.task_id, t.state, t.capability, t.run, t.priority, t.next_attempt AS attempt, l.fence, l.worker_id,
       t.submitted_at_ms, t.ended_at_ms, t.principal, c.campaign, t.envelope, r.value, r.failure,
       r.outputs, r.notes
FROM task t
LEFT JOIN lease l ON l.task_id = t.task_id AND l.fence = (SELECT MAX(fence) FROM lease WHERE task_id = t.task_id)
LEFT JOIN result r ON r.task_id = t.task_id
LEFT JOIN charge c ON c.task_id = t.task_id
WHERE (:state IS NULL OR t.state = :state) AND (:capability IS NULL OR t.capability = :capability)
      AND (:run IS NULL OR t.run = :run) AND (:campaign IS NULL OR c.campaign = :campaign)
ORDER BY t.position DESC LIMIT :limit;

-- name: find_task
-- The same for the one task of an id or of an idempotency key, found by its index.
SELECT t.task_id, t.state, t.capability, t.run, t.priority, t.next_attempt AS attempt, l.fence, l.worker_id,
       t.submitted_at_ms, t.ended_at_ms, t.principal, c.campaign, t.envelope, r.value, r.failure,
       r.outputs, r.notes
FROM task t
LEFT JOIN lease l ON l.task_id = t.task_id AND l.fence = (SELECT MAX(fence) FROM lease WHERE task_id = t.task_id)
LEFT JOIN result r ON r.task_id = t.task_id
LEFT JOIN charge c ON c.task_id = t.task_id
WHERE t.task_id = COALESCE(:task_id, (SELECT task_id FROM task WHERE idempotency_key = :key))
      AND (:state IS NULL OR t.state = :state) AND (:capability IS NULL OR t.capability = :capability)
      AND (:run IS NULL OR t.run = :run) AND (:campaign IS NULL OR c.campaign = :campaign)
LIMIT :limit;

-- name: list_workers
-- Workers with how many leases they and their executors hold. Executors are listed only when they are asked for.
SELECT w.worker_id, w.site_id AS site, w.state, w.generation, w.slots,
       (SELECT COUNT(*) FROM lease l WHERE l.worker_id = w.worker_id AND l.state = 'ACTIVE')
       + (SELECT COUNT(*) FROM lease l WHERE l.parent = w.worker_id AND l.parent <> '' AND l.state = 'ACTIVE') AS holding,
       w.capabilities, w.labels, w.resources, w.ttl_ms, w.host, w.pid, w.version, w.by_hand, w.registered_at_ms,
       w.seen_at_ms, w.executor_of
FROM worker w
WHERE (:worker_id IS NULL OR w.worker_id = :worker_id) AND (:state IS NULL OR w.state = :state)
      AND (:site IS NULL OR w.site_id = :site)
      AND (w.executor_of = '' OR :worker_id IS NOT NULL OR :executor_of IN ('*', w.executor_of))
      AND (:executor_of IS NULL OR :executor_of IN ('*', w.executor_of))
ORDER BY w.worker_id LIMIT :limit;

-- name: list_leases
-- Leases of all states; a worker's are also those of its executors.
SELECT l.task_id, l.fence, l.attempt, l.state, l.worker_id, l.site_id AS site, l.generation, l.nonce, l.start, l.ttl_ms,
       l.capability, l.directed_to, l.digest, l.cause, l.offered_at_ms, l.bound_at_ms, l.ended_at_ms,
       l.parent
FROM lease l
WHERE (:task_id IS NULL OR l.task_id = :task_id) AND (:state IS NULL OR l.state = :state)
      AND (:worker_id IS NULL OR :worker_id IN (l.worker_id, l.parent))
ORDER BY l.offered_at_ms DESC, l.fence DESC LIMIT :limit;

-- name: list_directives
-- Directives and who decided them.
SELECT directive_id, task_id, attempt, fence, next_attempt, action, reason, detail, state, decided_by, note, backoff_ms,
       created_at_ms, decided_at_ms
FROM directive
WHERE (:directive_id IS NULL OR directive_id = :directive_id) AND (:task_id IS NULL OR task_id = :task_id)
      AND (:state IS NULL OR state = :state)
ORDER BY created_at_ms DESC, directive_id DESC LIMIT :limit;

-- name: list_quarantine
-- Rejected results, kept as evidence, with what was decided about each and why the last adoption of it was refused.
SELECT q.quarantine_id, q.task_id, q.attempt, q.fence, q.site_id AS site, q.worker_id, q.nonce, q.reason, q.report,
       q.outputs, q.received_at_ms,
       CASE d.action WHEN 'adopt' THEN 'ADOPTED' WHEN 'drop' THEN 'DROPPED' WHEN 'expire' THEN 'EXPIRED'
                     ELSE 'UNDECIDED' END AS state,
       d.fence AS adopted_fence, d.decided_by, d.note, d.decided_at_ms,
       (SELECT e.note FROM quarantine_decision e WHERE e.quarantine_id = q.quarantine_id AND e.action = 'refuse'
        ORDER BY e.decided_at_ms DESC LIMIT 1) AS refusal
FROM quarantine q
LEFT JOIN quarantine_decision d ON d.quarantine_id = q.quarantine_id AND d.action <> 'refuse'
WHERE (:quarantine_id IS NULL OR q.quarantine_id = :quarantine_id) AND (:task_id IS NULL OR q.task_id = :task_id)
      AND (:reason IS NULL OR q.reason = :reason)
ORDER BY q.received_at_ms DESC LIMIT :limit;

-- name: list_artifacts
-- What was accepted of tasks' files, and whether it is in the store.
SELECT task_id, fence, attempt, kind, ordinal, name, manifest, manifest_size, files, size, state, place_fence, nonce,
       recorded_at_ms
FROM artifact
WHERE (:task_id IS NULL OR task_id = :task_id) AND (:kind IS NULL OR kind = :kind) AND (:state IS NULL OR state = :state)
ORDER BY position DESC LIMIT :limit;

-- name: count_artifacts
-- How many artifacts of each kind are in each state, counted in their index.
SELECT kind, state, COUNT(*) FROM artifact GROUP BY kind, state ORDER BY kind, state;

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
       t.next_attempt, t.envelope, r.attempt, r.worker_id, r.value, r.failure, r.duration_ms, r.accepted_at_ms,
       r.outputs, r.notes
FROM task t LEFT JOIN result r ON r.task_id = t.task_id WHERE t.task_id = ?;

-- name: story_leases
-- Every lease of a task, in order.
SELECT fence, attempt, state, worker_id, cause, offered_at_ms, bound_at_ms, ended_at_ms, directed_to,
       parent, site_id
FROM lease WHERE task_id = ? ORDER BY fence;

-- name: story_directives
-- Every directive of a task, in order.
SELECT directive_id, next_attempt, action, reason, detail, state, decided_by, note, created_at_ms, decided_at_ms
FROM directive WHERE task_id = ? ORDER BY next_attempt;
