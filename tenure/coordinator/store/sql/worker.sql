-- Workers: registration and states.

-- name: put_worker
-- Register a worker, or a new generation of it; it becomes ACTIVE.
INSERT INTO worker (worker_id, site_id, generation, state, by_hand, slots, capabilities, labels, resources, ttl_ms, host,
                    pid, version, registered_at_ms, seen_at_ms, first_fence, executor_of, launches)
VALUES (?, ?, ?, 'ACTIVE', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO UPDATE SET
    generation = excluded.generation, state = 'ACTIVE', by_hand = excluded.by_hand, slots = excluded.slots,
    capabilities = excluded.capabilities, labels = excluded.labels, resources = excluded.resources,
    ttl_ms = excluded.ttl_ms, host = excluded.host, pid = excluded.pid, version = excluded.version,
    registered_at_ms = excluded.registered_at_ms, seen_at_ms = excluded.seen_at_ms,
    first_fence = excluded.first_fence, launches = excluded.launches;

-- name: worker_state
-- A step of the worker state machine.
UPDATE worker SET state = ? WHERE worker_id = ? AND state <> ?;

-- name: worker_offers
-- What a worker may offer, and which labels it may have, by what its site is granted now.
UPDATE worker SET capabilities = ?, labels = ? WHERE worker_id = ?;

-- name: worker_seen
-- When a worker was last heard; written in batches.
UPDATE worker SET seen_at_ms = ? WHERE worker_id = ?;

-- name: workers
-- Every worker that is not OFFLINE, as the loop keeps it in memory.
SELECT worker_id, site_id, generation, state, by_hand, slots, capabilities, labels, resources, ttl_ms,
       first_fence, executor_of, launches
FROM worker WHERE state <> 'OFFLINE' ORDER BY worker_id;

-- name: worker
-- One worker's registration.
SELECT worker_id, site_id, generation, state, by_hand, first_fence, executor_of, launches FROM worker WHERE worker_id = ?;

-- name: younger_agents
-- Workers of a capability at a site, also those that are OFFLINE, whose present or last agent had one before it that may have been
-- given the offer of that fence.
SELECT worker_id FROM worker
WHERE first_fence >= ? AND site_id = ? AND by_hand = 0 AND EXISTS (SELECT 1 FROM json_each(capabilities) WHERE value = ?);

-- name: forget_executor
-- An executor has left or is gone, and holds nothing: it leaves no row.
DELETE FROM worker WHERE worker_id = ? AND executor_of <> '';
