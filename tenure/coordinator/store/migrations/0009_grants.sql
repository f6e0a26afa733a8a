-- The devices that a site is granted, and when the last of what a revoked site has left at the broker was deleted.

ALTER TABLE site ADD COLUMN devices TEXT NOT NULL DEFAULT '[]';
ALTER TABLE site ADD COLUMN cleared_at_ms INTEGER;
