-- Sites and people with credentials of their own, and the site that a lease was offered to.

ALTER TABLE site ADD COLUMN state TEXT NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'REVOKED'));
ALTER TABLE site ADD COLUMN capabilities TEXT NOT NULL DEFAULT '[]';
ALTER TABLE site ADD COLUMN most_leases INTEGER NOT NULL DEFAULT 0 CHECK (most_leases >= 0);
ALTER TABLE site ADD COLUMN revoked_at_ms INTEGER;
ALTER TABLE site ADD COLUMN issued_by TEXT NOT NULL DEFAULT '';

CREATE TABLE person (
    person TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('operator', 'submitter', 'observer')),
    state TEXT NOT NULL CHECK (state IN ('ACTIVE', 'REVOKED')),
    created_at_ms INTEGER NOT NULL,
    revoked_at_ms INTEGER,
    issued_by TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- Of a secret only its digest is kept, which is what the broker keeps, too: enough to make its users again.
CREATE TABLE credential (
    holder TEXT NOT NULL CHECK (holder IN ('site', 'person')),
    name TEXT NOT NULL,
    secret_digest TEXT NOT NULL CHECK (length(secret_digest) = 64),
    issued_at_ms INTEGER NOT NULL,
    retired_at_ms INTEGER,
    PRIMARY KEY (holder, name, secret_digest)
) STRICT, WITHOUT ROWID;

ALTER TABLE lease ADD COLUMN site_id TEXT NOT NULL DEFAULT 'default';
CREATE INDEX lease_of_site ON lease (site_id) WHERE state IN ('OFFERED', 'ACTIVE');
CREATE TRIGGER lease_site_for_good BEFORE UPDATE OF site_id ON lease WHEN NEW.site_id <> OLD.site_id
BEGIN SELECT RAISE(ABORT, 'a lease stays with the site that it was offered to'); END;
CREATE TRIGGER lease_bound_at_its_site BEFORE UPDATE OF worker_id ON lease
WHEN EXISTS (SELECT 1 FROM worker WHERE worker_id = NEW.worker_id AND site_id <> NEW.site_id)
BEGIN SELECT RAISE(ABORT, 'a lease is bound to a worker of the site that it was offered to'); END;

DROP TRIGGER transition_fixed_insert;
INSERT INTO transition (machine, before, after) VALUES
    ('site', 'ACTIVE', 'REVOKED'), ('person', 'ACTIVE', 'REVOKED');
CREATE TRIGGER transition_fixed_insert BEFORE INSERT ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;

CREATE TRIGGER site_transition BEFORE UPDATE OF state ON site
WHEN OLD.state <> NEW.state AND NOT EXISTS (
    SELECT 1 FROM transition WHERE machine = 'site' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal site transition'); END;
CREATE TRIGGER site_kept BEFORE DELETE ON site
BEGIN SELECT RAISE(ABORT, 'sites are never deleted, and their names are never used again'); END;
CREATE TRIGGER person_transition BEFORE UPDATE OF state ON person
WHEN OLD.state <> NEW.state AND NOT EXISTS (
    SELECT 1 FROM transition WHERE machine = 'person' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal person transition'); END;
CREATE TRIGGER person_kept BEFORE DELETE ON person
BEGIN SELECT RAISE(ABORT, 'people are never deleted, and their names are never used again'); END;
CREATE TRIGGER credential_kept BEFORE DELETE ON credential
BEGIN SELECT RAISE(ABORT, 'credentials are retired, never deleted'); END;
CREATE TRIGGER credential_retired_for_good BEFORE UPDATE ON credential
WHEN OLD.retired_at_ms IS NOT NULL OR NEW.secret_digest <> OLD.secret_digest OR NEW.name <> OLD.name
BEGIN SELECT RAISE(ABORT, 'a credential only retires'); END;
