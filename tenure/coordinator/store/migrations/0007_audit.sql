-- The event log names who decided, what was before and after, and is sealed: each commit's events by one link of a chain.
-- What was recorded before does not say whose decision it was; the next start seals it as it is.

ALTER TABLE event ADD COLUMN principal TEXT NOT NULL DEFAULT 'unrecorded' CHECK (principal <> '');
ALTER TABLE event ADD COLUMN site_id TEXT;
ALTER TABLE event ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE event ADD COLUMN before TEXT NOT NULL DEFAULT '';
ALTER TABLE event ADD COLUMN after TEXT NOT NULL DEFAULT '';

CREATE TABLE seal (
    seal_id INTEGER PRIMARY KEY,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    digest TEXT NOT NULL CHECK (length(digest) = 64),
    CHECK (last_event >= first_event)
) STRICT;

CREATE TRIGGER seal_follows BEFORE INSERT ON seal
WHEN NEW.seal_id <> COALESCE((SELECT MAX(seal_id) FROM seal), 0) + 1
     OR NEW.first_event <= COALESCE((SELECT last_event FROM seal ORDER BY seal_id DESC LIMIT 1), 0)
BEGIN SELECT RAISE(ABORT, 'a seal follows the newest one'); END;
CREATE TRIGGER seal_fixed BEFORE UPDATE ON seal
BEGIN SELECT RAISE(ABORT, 'seals are only added'); END;
CREATE TRIGGER seal_kept BEFORE DELETE ON seal
BEGIN SELECT RAISE(ABORT, 'seals are only added'); END;
CREATE INDEX seal_by_event ON seal (last_event);
