-- The one row that every decision counts from.

-- name: create_world
-- Name the world, once.
INSERT INTO world (id, world, epoch, fence, outbox, created_at_ms) VALUES (1, ?, 0, 0, 0, ?) ON CONFLICT DO NOTHING;

-- name: world
-- The world's name, counters and the broker that it last saw.
SELECT world, epoch, fence, outbox, broker_run_id, broker_marker, store_address, created_at_ms FROM world WHERE id = 1;

-- name: take_fences
-- Take the next ? fences and outbox numbers (same count of each); answers the last of each.
UPDATE world SET fence = fence + ?, outbox = outbox + ? WHERE id = 1 RETURNING fence, outbox;

-- name: fence_counter
-- The last fence that was taken.
SELECT fence FROM world WHERE id = 1;

-- name: take_outbox
-- Take the next ? outbox numbers, for assignments that are published again under their fence.
UPDATE world SET outbox = outbox + ? WHERE id = 1 RETURNING outbox;

-- name: set_broker
-- Remember the broker incarnation that was last seen, and the store's address that was announced to it.
UPDATE world SET broker_run_id = ?, broker_marker = ?, store_address = ? WHERE id = 1;

-- name: add_site
-- Make a site known.
INSERT INTO site (site_id, kind, created_at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: active_sites
-- The sites that take part, with what they are granted.
SELECT site_id, capabilities, most_leases, devices FROM site WHERE state = 'ACTIVE' ORDER BY site_id;

-- name: revoked_sites
-- The sites that were thrown out, and when the last of what they have left was deleted.
SELECT site_id, cleared_at_ms FROM site WHERE state = 'REVOKED' ORDER BY site_id;

-- name: active_people
-- The people who may ask.
SELECT person FROM person WHERE state = 'ACTIVE' ORDER BY person;

-- name: revoke_site
-- ACTIVE to REVOKED, for good.
UPDATE site SET state = 'REVOKED', revoked_at_ms = ? WHERE site_id = ? AND state = 'ACTIVE';

-- name: site_cleared
-- Nothing that a revoked site has left is at the broker any more.
UPDATE site SET cleared_at_ms = ? WHERE site_id = ? AND state = 'REVOKED';

-- name: clear_site_again
-- A revoked site may have left something more.
UPDATE site SET cleared_at_ms = NULL WHERE site_id = ? AND state = 'REVOKED';

-- name: workers_of_site
-- A portion of the workers that a site ever had, with what they offer: those after an id.
SELECT worker_id, capabilities FROM worker WHERE site_id = ? AND worker_id > ? ORDER BY worker_id LIMIT ?;
