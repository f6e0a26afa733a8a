-- Workers: registration and states.

-- name: put_worker
-- Register a worker, or a new generation of it; it becomes ACTIVE.
INSERT INTO worker (worker_id, site_id, generation, state, by_hand, slots, capabilities, labels, resources, ttl_ms, host,
                    pid, version, registered_at_ms, seen_at_ms)
VALUES (?1, ?2, ?3, 'ACTIVE', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13)
ON CONFLICT (worker_id) DO UPDATE SET
    generation = ?3, state = 'ACTIVE', by_hand = ?4, slots = ?5, capabilities = ?6, labels = ?7, resources = ?8,
    ttl_ms = ?9, host = ?10, pid = ?11, version = ?12, registered_at_ms = ?13, seen_at_ms = ?13;

-- name: worker_state
-- A step of the worker state machine.
UPDATE worker SET state = ? WHERE worker_id = ? AND state <> ?;

-- name: worker_seen
-- When a worker was last heard; written in batches.
UPDATE worker SET seen_at_ms = ? WHERE worker_id = ?;

-- name: workers
-- Every worker that is not OFFLINE, as the loop keeps it in memory.
SELECT worker_id, site_id, generation, state, by_hand, slots, capabilities, labels, resources, ttl_ms
FROM worker WHERE state <> 'OFFLINE' ORDER BY worker_id;

-- name: worker
-- One worker's registration.
SELECT worker_id, site_id, generation, state, by_hand FROM worker WHERE worker_id = ?;
