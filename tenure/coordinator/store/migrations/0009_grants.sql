-- The devices that a site is granted, and when the last of what a revoked site has left at the broker was deleted. A site
-- that was there before is granted the devices that its workers on record work with: what waits for one still finds it.

ALTER TABLE site ADD COLUMN devices TEXT NOT NULL DEFAULT '[]';
ALTER TABLE site ADD COLUMN cleared_at_ms INTEGER;

UPDATE site SET devices = (
    SELECT json_group_array(device) FROM (
        SELECT DISTINCT json_extract(label.value, '$[1]') AS device
        FROM worker, json_each(worker.labels) AS label
        WHERE worker.site_id = site.site_id AND json_extract(label.value, '$[0]') = 'device'
        ORDER BY device))
WHERE site_id <> 'default';
