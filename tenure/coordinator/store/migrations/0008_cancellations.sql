-- Requests to cancel many tasks at once: what they cover, and how far they have come. A condition that is NULL was not made.

CREATE TABLE cancellation (
    cancellation_id INTEGER PRIMARY KEY,
    request TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('OPEN', 'DONE')),
    run TEXT,
    campaign TEXT,
    capability TEXT,
    principal TEXT,
    last_position INTEGER NOT NULL,
    stage TEXT NOT NULL CHECK (stage IN ('OFFERED', 'RUNNING', 'LOST', 'QUEUED')),
    at_capability TEXT NOT NULL,
    at_position INTEGER NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    stopping INTEGER NOT NULL DEFAULT 0 CHECK (stopping >= 0),
    asked_by TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    asked_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER
) STRICT;

CREATE INDEX cancellation_open ON cancellation (cancellation_id) WHERE state = 'OPEN';

DROP TRIGGER transition_fixed_insert;
INSERT INTO transition (machine, before, after) VALUES ('cancellation', 'OPEN', 'DONE');
CREATE TRIGGER transition_fixed_insert BEFORE INSERT ON transition
BEGIN SELECT RAISE(ABORT, 'the state tables change by migration only'); END;

CREATE TRIGGER cancellation_starts_open BEFORE INSERT ON cancellation WHEN NEW.state <> 'OPEN'
BEGIN SELECT RAISE(ABORT, 'a cancellation starts OPEN'); END;
CREATE TRIGGER cancellation_transition BEFORE UPDATE OF state ON cancellation
WHEN NOT EXISTS (SELECT 1 FROM transition WHERE machine = 'cancellation' AND before = OLD.state AND after = NEW.state)
BEGIN SELECT RAISE(ABORT, 'illegal cancellation transition'); END;
CREATE TRIGGER cancellation_identity BEFORE UPDATE OF cancellation_id, request, run, campaign, capability, principal,
    last_position, asked_by, actor, reason, asked_at_ms ON cancellation
BEGIN SELECT RAISE(ABORT, 'a cancellation never changes what it covers'); END;
CREATE TRIGGER cancellation_kept BEFORE DELETE ON cancellation
BEGIN SELECT RAISE(ABORT, 'cancellations are never deleted'); END;
