-- Directives: what follows a lost or failed attempt, and who allowed it.

-- name: insert_directive
-- Record that a decision is needed.
INSERT INTO directive (directive_id, task_id, fence, attempt, next_attempt, action, reason, detail, state, backoff_ms,
                       created_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'PENDING', ?, ?);

-- name: decide_directive
-- PENDING to APPROVED or DENIED, by policy or by a person.
UPDATE directive SET state = ?, decided_at_ms = ?, decided_by = ?, note = ? WHERE directive_id = ? AND state = 'PENDING';

-- name: directive
-- One directive by its id.
SELECT directive_id, task_id, next_attempt, state, reason, decided_by, note FROM directive WHERE directive_id = ?;

-- name: pending_directive_of_task
-- The directive that waits for a decision about a task.
SELECT directive_id, task_id, next_attempt, state, reason, decided_by, note
FROM directive WHERE task_id = ? AND state = 'PENDING';

-- name: newest_directive_of_task
-- The last directive about a task, whatever its state.
SELECT directive_id, task_id, next_attempt, state, reason, decided_by, note
FROM directive WHERE task_id = ? ORDER BY next_attempt DESC LIMIT 1;

-- name: approved_in_an_earlier_epoch
-- Whether somebody has allowed an attempt of a task, with that note, while another coordinator served. An event's epoch is
-- that of the seal over it.
SELECT 1 FROM event e
WHERE e.task_id = ? AND e.kind = 'directive_approved' AND e.principal = ? AND e.reason = ?
      AND (SELECT s.epoch FROM seal s WHERE s.last_event >= e.event_id ORDER BY s.last_event LIMIT 1) < ?
LIMIT 1;
