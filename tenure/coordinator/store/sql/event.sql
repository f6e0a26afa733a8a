-- The event log and its seals. Nothing here changes or removes anything; triggers hold that, too.

-- name: add_event
-- Add to the log; only together with a seal over it, in the same transaction.
INSERT INTO event (event_id, at_ms, kind, principal, site_id, task_id, worker_id, reason, before, after, text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_seal
-- Seal the events that this transaction has added.
INSERT INTO seal (seal_id, first_event, last_event, at_ms, epoch, digest) VALUES (?, ?, ?, ?, ?, ?);

-- name: newest_seal
-- What the next seal follows, and the last event's number. The two only differ when somebody has written past the seals.
SELECT seal_id, digest, MAX(last_event, COALESCE((SELECT MAX(event_id) FROM event), 0))
FROM seal ORDER BY seal_id DESC LIMIT 1;

-- name: events_to_seal
-- A portion of the events after this one, in the order of the fields that are sealed.
SELECT event_id, at_ms, kind, principal, site_id, task_id, worker_id, reason, before, after, text
FROM event WHERE event_id > ? ORDER BY event_id LIMIT ?;

-- name: list_events
-- The newest events; one task's are found by their index, others are looked for among so many of the newest.
SELECT event_id, at_ms, kind, principal, site_id AS site, task_id, worker_id, reason, before, after, text
FROM (SELECT * FROM event WHERE :task_id IS NULL ORDER BY event_id DESC LIMIT 20000)
WHERE (:worker_id IS NULL OR worker_id = :worker_id) AND (:kind IS NULL OR kind = :kind)
      AND (:site IS NULL OR site_id = :site) AND (:principal IS NULL OR principal = :principal)
UNION ALL
SELECT event_id, at_ms, kind, principal, site_id AS site, task_id, worker_id, reason, before, after, text
FROM event
WHERE task_id = :task_id AND (:worker_id IS NULL OR worker_id = :worker_id) AND (:kind IS NULL OR kind = :kind)
      AND (:site IS NULL OR site_id = :site) AND (:principal IS NULL OR principal = :principal)
ORDER BY event_id DESC LIMIT :limit;

-- name: events_beyond
-- Events after one, in order, among the next so many.
SELECT event_id, at_ms, kind, principal, site_id AS site, task_id, worker_id, reason, before, after, text
FROM (SELECT * FROM event WHERE event_id > :beyond ORDER BY event_id LIMIT :scan)
WHERE (:worker_id IS NULL OR worker_id = :worker_id) AND (:kind IS NULL OR kind = :kind)
      AND (:site IS NULL OR site_id = :site) AND (:principal IS NULL OR principal = :principal)
      AND (:since_ms IS NULL OR at_ms >= :since_ms) AND (:until_ms IS NULL OR at_ms < :until_ms)
ORDER BY event_id LIMIT :limit;

-- name: events_before
-- Events before one, newest first, among the next so many.
SELECT event_id, at_ms, kind, principal, site_id AS site, task_id, worker_id, reason, before, after, text
FROM (SELECT * FROM event WHERE event_id < :beyond ORDER BY event_id DESC LIMIT :scan)
WHERE (:worker_id IS NULL OR worker_id = :worker_id) AND (:kind IS NULL OR kind = :kind)
      AND (:site IS NULL OR site_id = :site) AND (:principal IS NULL OR principal = :principal)
      AND (:since_ms IS NULL OR at_ms >= :since_ms) AND (:until_ms IS NULL OR at_ms < :until_ms)
ORDER BY event_id DESC LIMIT :limit;

-- name: events_of_task_beyond
-- A task's events after one, in order.
SELECT event_id, at_ms, kind, principal, site_id AS site, task_id, worker_id, reason, before, after, text
FROM event
WHERE task_id = :task_id AND event_id > :beyond
      AND (:worker_id IS NULL OR worker_id = :worker_id) AND (:kind IS NULL OR kind = :kind)
      AND (:site IS NULL OR site_id = :site) AND (:principal IS NULL OR principal = :principal)
      AND (:since_ms IS NULL OR at_ms >= :since_ms) AND (:until_ms IS NULL OR at_ms < :until_ms)
ORDER BY event_id LIMIT :limit;

-- name: events_of_task_before
-- A task's events before one, newest first.
SELECT event_id, at_ms, kind, principal, site_id AS site, task_id, worker_id, reason, before, after, text
FROM event
WHERE task_id = :task_id AND event_id < :beyond
      AND (:worker_id IS NULL OR worker_id = :worker_id) AND (:kind IS NULL OR kind = :kind)
      AND (:site IS NULL OR site_id = :site) AND (:principal IS NULL OR principal = :principal)
      AND (:since_ms IS NULL OR at_ms >= :since_ms) AND (:until_ms IS NULL OR at_ms < :until_ms)
ORDER BY event_id DESC LIMIT :limit;

-- name: seals_beyond
-- Seals whose last event comes after one, in order.
SELECT seal_id, first_event, last_event, at_ms, epoch, digest
FROM seal WHERE last_event > :beyond ORDER BY last_event LIMIT :limit;

-- name: farthest_event
-- The last event of a portion of so many events after one; NULL when there is none.
SELECT MAX(event_id) FROM (SELECT event_id FROM event WHERE event_id > ? ORDER BY event_id LIMIT ?);

-- name: nearest_event
-- The last event of a portion of so many events before one, newest first; NULL when there is none.
SELECT MIN(event_id) FROM (SELECT event_id FROM event WHERE event_id < ? ORDER BY event_id DESC LIMIT ?);

-- name: story_events
-- What was recorded about a task and is told by no record of its own, in order.
SELECT at_ms, kind, text FROM event
WHERE task_id = ? AND kind NOT IN ('submitted', 'offered', 'bound', 'lease_over', 'accepted', 'retry_allowed', 'retry_held',
                                      'checkpoint_taken')
ORDER BY event_id;

-- name: all_seals
-- Every seal, in order.
SELECT seal_id, first_event, last_event, at_ms, epoch, digest FROM seal ORDER BY seal_id;

-- name: log_identity
-- Which log it is.
SELECT world, created_at_ms FROM world WHERE id = 1;
