-- Artifacts: what was accepted of a task's files, and whether it is in the store; the logs that are to be kept.

-- name: insert_artifact
-- Something that a task has made was accepted; it is ACCEPTED until it is in the store. Once per task, fence and ordinal.
INSERT INTO artifact (task_id, fence, attempt, kind, ordinal, name, manifest, manifest_size, files, size, state,
                      place_fence, nonce, recorded_at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'ACCEPTED', ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: artifact_promoted
-- ACCEPTED to PROMOTED: its contents are objects of the store.
UPDATE artifact SET state = 'PROMOTED' WHERE task_id = ? AND fence = ? AND kind = ? AND ordinal = ? AND state = 'ACCEPTED';

-- name: artifact
-- One artifact. Its staging place is that of the lease that it was made under, at the lease's site.
SELECT a.task_id, a.fence, a.attempt, a.kind, a.ordinal, a.name, a.manifest, a.manifest_size, a.files, a.size, a.state,
       a.place_fence, a.nonce, l.site_id
FROM artifact a JOIN lease l ON l.task_id = a.task_id AND l.fence = a.place_fence
WHERE a.task_id = ? AND a.fence = ? AND a.kind = ? AND a.ordinal = ?;

-- name: unpromoted_artifacts
-- A portion of what was accepted and is not in the store yet, after a position: a crash may have come between the two.
SELECT a.task_id, a.fence, a.attempt, a.kind, a.ordinal, a.name, a.manifest, a.manifest_size, a.files, a.size, a.state,
       a.place_fence, a.nonce, l.site_id, a.position
FROM artifact a JOIN lease l ON l.task_id = a.task_id AND l.fence = a.place_fence
WHERE a.state = 'ACCEPTED' AND a.position > ? ORDER BY a.position LIMIT ?;

-- name: unpromoted_in_place
-- Whether anything that was accepted still lies in a staging place.
SELECT 1 FROM artifact WHERE state = 'ACCEPTED' AND task_id = ? AND place_fence = ? AND nonce = ? LIMIT 1;

-- name: newest_checkpoint
-- The newest checkpoint of a task, in the store already or not.
SELECT a.task_id, a.fence, a.attempt, a.kind, a.ordinal, a.name, a.manifest, a.manifest_size, a.files, a.size, a.state,
       a.place_fence, a.nonce, l.site_id
FROM artifact a JOIN lease l ON l.task_id = a.task_id AND l.fence = a.place_fence
WHERE a.task_id = ? AND a.kind = 'checkpoint' AND a.state IN ('ACCEPTED', 'PROMOTED')
ORDER BY a.fence DESC, a.ordinal DESC LIMIT 1;

-- name: newest_promoted_checkpoint
-- The newest checkpoint of a task that is in the store.
SELECT a.task_id, a.fence, a.attempt, a.kind, a.ordinal, a.name, a.manifest, a.manifest_size, a.files, a.size, a.state,
       a.place_fence, a.nonce, l.site_id
FROM artifact a JOIN lease l ON l.task_id = a.task_id AND l.fence = a.place_fence
WHERE a.task_id = ? AND a.kind = 'checkpoint' AND a.state = 'PROMOTED'
ORDER BY a.fence DESC, a.ordinal DESC LIMIT 1;

-- name: older_checkpoints_collected
-- The checkpoints of a task before one that is in the store are not wanted any more.
UPDATE artifact SET state = 'COLLECTED'
WHERE task_id = ? AND kind = 'checkpoint' AND state IN ('ACCEPTED', 'PROMOTED') AND (fence, ordinal) < (?, ?);

-- name: artifact_collected
-- It is not wanted any more, or is not there.
UPDATE artifact SET state = 'COLLECTED'
WHERE task_id = ? AND fence = ? AND kind = ? AND ordinal = ? AND state IN ('ACCEPTED', 'PROMOTED');

-- name: checkpoints_of_ended_tasks
-- Tasks that are over need no checkpoint any more.
UPDATE artifact SET state = 'COLLECTED' WHERE position IN (
    SELECT a.position FROM artifact a JOIN task t ON t.task_id = a.task_id
    WHERE a.kind = 'checkpoint' AND a.state IN ('ACCEPTED', 'PROMOTED')
          AND t.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED') LIMIT ?);

-- name: referenced_artifacts
-- A portion of all artifacts that the store must keep, in order of their positions.
SELECT position, kind, manifest, manifest_size, files, size FROM artifact
WHERE position > ? AND state <> 'COLLECTED' ORDER BY position LIMIT ?;

-- name: places_of_artifacts
-- Staging places of what was accepted and is not in the store yet.
SELECT l.site_id, a.task_id, a.place_fence, a.nonce
FROM artifact a JOIN lease l ON l.task_id = a.task_id AND l.fence = a.place_fence WHERE a.state = 'ACCEPTED';

-- name: places_of_leases
-- Staging places of those who hold a lease.
SELECT site_id, task_id, fence, nonce FROM lease WHERE state IN ('OFFERED', 'ACTIVE') AND nonce IS NOT NULL AND nonce <> '';

-- name: places_of_quarantine
-- Staging places of rejected results that nobody has decided about.
SELECT q.site_id, q.task_id, q.fence, q.nonce FROM quarantine q
WHERE q.outputs IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM quarantine_decision d WHERE d.quarantine_id = q.quarantine_id AND d.action <> 'refuse');

-- name: last_position
-- The position of the newest task.
SELECT COALESCE(MAX(position), 0) FROM task;

-- name: envelopes_with_inputs
-- Envelopes of open tasks that name inputs, in a range of positions.
SELECT envelope FROM task
WHERE position > ? AND position <= ? AND state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'ABANDONED')
      AND instr(envelope, x'22696e70757473223a') > 0;

-- name: begin_collection
-- A collection of the store begins.
INSERT INTO collection (asked_by, min_age_ms, dry_run, began_at_ms) VALUES (?, ?, ?, ?) RETURNING collection_id;

-- name: end_collection
-- How a collection ended.
UPDATE collection SET ended_at_ms = ?, removed = ?, size = ?, problem = ? WHERE collection_id = ?;

-- name: last_collection
-- The newest collection.
SELECT collection_id, asked_by, min_age_ms, dry_run, began_at_ms, ended_at_ms, removed, size, problem
FROM collection ORDER BY collection_id DESC LIMIT 1;

-- name: log_to_keep
-- The attempt is over and has printed: its log is to be taken from the broker into the store.
INSERT INTO log_to_keep (task_id, fence, attempt, site_id, ended_at_ms) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: logs_to_keep
-- Logs that are still to be kept of attempts that were over by then, the oldest first.
SELECT task_id, fence, attempt, site_id FROM log_to_keep WHERE ended_at_ms <= ? ORDER BY ended_at_ms LIMIT ?;

-- name: log_done
-- The log is kept, or there is nothing to keep.
DELETE FROM log_to_keep WHERE task_id = ? AND fence = ?;
