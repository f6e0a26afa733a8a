-- Quarantine: rejected results as evidence, and what people decide about them.

-- name: quarantine_report
-- Keep a rejected result as evidence; the same one again adds nothing.
INSERT INTO quarantine (quarantine_id, task_id, fence, attempt, site_id, worker_id, nonce, reason, report, outputs,
                        received_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: is_quarantined
-- Whether this rejected result is kept already.
SELECT 1 FROM quarantine WHERE task_id = ? AND fence = ? AND site_id = ? AND worker_id = ? AND nonce = ?;

-- name: quarantined
-- One rejected result, and the decision about it if there is one.
SELECT q.quarantine_id, q.task_id, q.fence, q.attempt, q.site_id, q.worker_id, q.nonce, q.reason, q.report, q.outputs,
       d.action, d.decided_by
FROM quarantine q
LEFT JOIN quarantine_decision d ON d.quarantine_id = q.quarantine_id AND d.action <> 'refuse'
WHERE q.quarantine_id = ?;

-- name: decide_quarantine
-- A decision about a rejected result: adopt, drop, expire; or that an adoption was tried and refused.
INSERT INTO quarantine_decision (decision_id, quarantine_id, task_id, action, fence, decided_by, note, decided_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: task_adopted
-- LOST or QUEUED to SUCCEEDED, by the adoption that is on record.
UPDATE task SET state = 'SUCCEEDED', ended_at_ms = ? WHERE task_id = ? AND state IN ('LOST', 'QUEUED');

-- name: quarantine_past_retention
-- Rejected results whose files have been kept for long enough without a decision.
SELECT q.quarantine_id, q.site_id, q.task_id, q.fence, q.nonce FROM quarantine q
WHERE q.outputs IS NOT NULL AND q.received_at_ms < ? AND NOT EXISTS (
    SELECT 1 FROM quarantine_decision d WHERE d.quarantine_id = q.quarantine_id AND d.action <> 'refuse')
ORDER BY q.received_at_ms LIMIT ?;

-- name: adoption_of_task
-- The adoption that ended a task.
SELECT quarantine_id, fence, decided_by, note FROM quarantine_decision WHERE task_id = ? AND action = 'adopt';
