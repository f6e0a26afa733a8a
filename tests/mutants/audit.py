"""Rules of the event log: sealed with every commit, whose decision it was, and what a check must notice."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_CHAIN: Final = "protocol/chain.py"
_TURN: Final = "coordinator/turn.py"
_REQUESTS: Final = "coordinator/requests.py"
_SCHEMAS: Final = ("coordinator/store/schema.sql", "coordinator/store/migrations/0007_audit.sql")


def _schema(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(name, rule, tuple(Edit(file, old, new) for file in _SCHEMAS))


RECORDING: Final = (
    mutant(
        "events_not_sealed",
        "what a turn has recorded is written and sealed in its own transaction",
        _TURN,
        "            seal(self)\n",
        "            self.events.clear()\n",
    ),
    mutant(
        "said_is_known",
        "who a client says that it is does not pass for a person who is known",
        "coordinator/journal.py",
        '    return Actor(f"{_PERSON}{name}")\n',
        '    return Actor(f"{_PERSON}{word or name}")\n',
    ),
    mutant(
        "asker_forgotten",
        "what a request decides is the decision of whoever asks",
        _REQUESTS,
        "    turn.actor = person_actor(person, principal)\n",
        "    turn.actor = person_actor(person)\n",
    ),
    mutant(
        "refused_and_recorded",
        "of a request that is refused nothing is on record but the refusal",
        _REQUESTS,
        "        del turn.events[recorded:]",
        "        del turn.events[len(turn.events) :]",
    ),
    mutant(
        "refusals_in_one_pot",
        "a principal who is refused often hides nobody else's refusals",
        _TURN,
        'self.refused.setdefault(self.attended.partition("/")[0], set())',
        'self.refused.setdefault("", set())',
    ),
    mutant(
        "old_log_left_open",
        "what was recorded before there were seals is sealed at the first start",
        "coordinator/journal.py",
        "            _seal_old(store, now_ms)\n",
        "            pass\n",
    ),
    mutant(
        "past_the_seals",
        "a coordinator goes on where somebody has written past the seals",
        "coordinator/store/sql/event.sql",
        "MAX(last_event, COALESCE((SELECT MAX(event_id) FROM event), 0))",
        "last_event",
    ),
    _schema(
        "seal_changes",
        "a seal never changes",
        "CREATE TRIGGER seal_fixed BEFORE UPDATE ON seal\n",
        "CREATE TRIGGER seal_fixed BEFORE UPDATE ON seal WHEN 0\n",
    ),
    _schema(
        "seal_goes",
        "a seal is never deleted",
        "CREATE TRIGGER seal_kept BEFORE DELETE ON seal\n",
        "CREATE TRIGGER seal_kept BEFORE DELETE ON seal WHEN 0\n",
    ),
    _schema(
        "seal_anywhere",
        "a seal follows the newest one",
        "WHEN NEW.seal_id <> COALESCE((SELECT MAX(seal_id) FROM seal), 0) + 1\n     OR ",
        "WHEN ",
    ),
)

CHECKING: Final = (
    mutant(
        "links_apart",
        "the digest of a seal is over the seal before it",
        _CHAIN,
        'f"{before}\\n{_ENCODE(frame)}',
        'f"\\n{_ENCODE(frame)}',
    ),
    mutant(
        "frame_not_sealed",
        "the digest of a seal is over what the seal says",
        _CHAIN,
        "{_ENCODE(frame)}\\n",
        "\\n",
    ),
    mutant(
        "any_world",
        "the log of one world does not pass for another's",
        _CHAIN,
        "{_ENCODE([head.world, head.created_at_ms])}",
        "",
    ),
    mutant(
        "gaps_pass",
        "an event that is missing is found",
        _CHAIN,
        "        for first, last in gaps:\n",
        "        for first, last in gaps[:0]:\n",
    ),
    mutant(
        "seals_skipped",
        "a seal that is missing is found",
        _CHAIN,
        "        if seal.seal_id > self._last.seal_id + 1:\n",
        "        if seal.seal_id < 0:\n",
    ),
    mutant(
        "loose_ends_pass",
        "events at the end that no seal is over are found",
        _CHAIN,
        "        if self._loose:\n",
        "        if self._head is None:\n",
    ),
    mutant(
        "loose_events_pass",
        "events that no seal is over are found",
        _CHAIN,
        "        if others:\n",
        "        if self._head is None:\n",
    ),
    mutant(
        "cut_passes",
        "a log that ends before an anchor was cut",
        _CHAIN,
        "        if anchor.seal_id > self._last.seal_id:\n",
        "        if self._head is None:\n",
    ),
    mutant(
        "rewritten_passes",
        "a log whose seal is not the one that an anchor names was made anew",
        _CHAIN,
        "        if met is not None and met != anchor.digest:\n",
        "        if met == anchor.digest[:1]:\n",
    ),
    mutant(
        "changes_pass",
        "events are compared with their seal",
        _CHAIN,
        "digest_of(self._before, self._last, inside) != seal.digest",
        "not seal.digest",
    ),
)

MUTANTS: Final = (*RECORDING, *CHECKING)
