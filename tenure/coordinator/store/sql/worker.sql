-- Workers: registration and states.

-- name: put_worker
-- Register a worker, or a new generation of it; it becomes ACTIVE.
INSERT INTO worker (worker_id, site_id, generation, state, by_hand, slots, capabilities, labels, resources, ttl_ms, host,
                    pid, version, registered_at_ms, seen_at_ms)
VALUES (?, ?, ?, 'ACTIVE', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO UPDATE SET
    generation = excluded.generation, state = 'ACTIVE', by_hand = excluded.by_hand, slots = excluded.slots,
    capabilities = excluded.capabilities, labels = excluded.labels, resources = excluded.resources,
    ttl_ms = excluded.ttl_ms, host = excluded.host, pid = excluded.pid, version = excluded.version,
    registered_at_ms = excluded.registered_at_ms, seen_at_ms = excluded.seen_at_ms;

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
