-- Sites and people with credentials: who may take part, with which digests of secrets, until when.

-- name: site_on_record
-- One site: its state, kind and grants.
SELECT state, kind, capabilities, most_leases, devices FROM site WHERE site_id = ?;

-- name: issue_site
-- Make a site with credentials known.
INSERT INTO site (site_id, kind, created_at_ms, capabilities, devices, most_leases, issued_by)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: grant_site
-- Grant a site something else than before.
UPDATE site SET capabilities = ?, devices = ?, most_leases = ? WHERE site_id = ? AND state = 'ACTIVE';

-- name: person_on_record
-- One person: the role and the state.
SELECT role, state FROM person WHERE person = ?;

-- name: issue_person
-- Make a person known.
INSERT INTO person (person, role, state, created_at_ms, issued_by) VALUES (?, ?, 'ACTIVE', ?, ?);

-- name: change_role
-- Give a person another role.
UPDATE person SET role = ? WHERE person = ? AND state = 'ACTIVE';

-- name: revoke_person
-- Throw a person out for good.
UPDATE person SET state = 'REVOKED', revoked_at_ms = ? WHERE person = ? AND state = 'ACTIVE';

-- name: add_credential
-- Let a holder come with this secret, too.
INSERT INTO credential (holder, name, secret_digest, issued_at_ms) VALUES (?, ?, ?, ?);

-- name: live_credentials
-- The digests of a holder's secrets that are good, the oldest first.
SELECT secret_digest, issued_at_ms FROM credential WHERE holder = ? AND name = ? AND retired_at_ms IS NULL
ORDER BY issued_at_ms;

-- name: credential_on_record
-- Whether a holder has or had this secret.
SELECT 1 FROM credential WHERE holder = ? AND name = ? AND secret_digest = ?;

-- name: retire_credential
-- End one credential.
UPDATE credential SET retired_at_ms = ? WHERE holder = ? AND name = ? AND secret_digest = ? AND retired_at_ms IS NULL;

-- name: list_sites
-- Sites with what they were granted, how many workers they have and how much they hold.
SELECT s.site_id AS site, s.kind, s.state, s.capabilities, s.devices, s.most_leases,
       (SELECT COUNT(*) FROM lease l WHERE l.site_id = s.site_id AND l.state IN ('OFFERED', 'ACTIVE')) AS leases,
       (SELECT COUNT(*) FROM credential c
        WHERE c.holder = 'site' AND c.name = s.site_id AND c.retired_at_ms IS NULL) AS credentials,
       s.issued_by, s.created_at_ms AS issued_at_ms, s.revoked_at_ms
FROM site s
WHERE (:site IS NULL OR s.site_id = :site) AND (:state IS NULL OR s.state = :state)
      AND (:kind IS NULL OR s.kind = :kind)
ORDER BY s.site_id LIMIT :limit;

-- name: list_clients
-- People with their roles.
SELECT p.person, p.role, p.state,
       (SELECT COUNT(*) FROM credential c
        WHERE c.holder = 'person' AND c.name = p.person AND c.retired_at_ms IS NULL) AS credentials,
       p.issued_by, p.created_at_ms AS issued_at_ms, p.revoked_at_ms
FROM person p
WHERE (:person IS NULL OR p.person = :person) AND (:state IS NULL OR p.state = :state)
      AND (:role IS NULL OR p.role = :role)
ORDER BY p.person LIMIT :limit;

-- name: list_credentials
-- The digests that the broker should let in, with what their holders' rights follow from; `after` is the name before.
SELECT c.holder, c.name, c.secret_digest, c.issued_at_ms, COALESCE(s.capabilities, '[]') AS capabilities, p.role
FROM credential c
LEFT JOIN site s ON c.holder = 'site' AND s.site_id = c.name
LEFT JOIN person p ON c.holder = 'person' AND p.person = c.name
WHERE c.retired_at_ms IS NULL AND (:holder IS NULL OR c.holder = :holder) AND (:name IS NULL OR c.name = :name)
      AND (:after IS NULL OR c.name > :after)
ORDER BY c.holder, c.name, c.issued_at_ms LIMIT :limit;

-- name: principal_of_task
-- Who has submitted a task.
SELECT principal FROM task WHERE task_id = ?;
