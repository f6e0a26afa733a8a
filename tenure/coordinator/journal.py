"""The event log: what was decided, on whose word, why, and what was before and after; sealed with every commit.

A turn collects its events and writes them at its end, in the transaction that makes them true, under one seal (see
`tenure.protocol.chain`). One digest per turn costs next to nothing beside the commit, however many tasks it decided
about.

**Whose decision.** `site:<name>` and `person:<name>` by the stream that a message came on; `person:default/<word>`
where the broker asks for no credentials and the client's own word is all there is; `policy:<name>` for what was allowed
beforehand; `coordinator` for the rest. A name holds no slash or colon, so nobody can say that they are another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tenure.broker.keys import DEFAULT_PERSON
from tenure.protocol.chain import Head, Span, beginning, digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.coordinator.store.database import Database, Row
    from tenure.coordinator.turn import Turn

_PERSON: Final = "person:"

_PORTION: Final = 1_000
"""How many events of before there were seals one seal is made over."""


class Actor(NamedTuple):
    """On whose word the coordinator acts just now, and the site that spoke."""

    principal: str
    site: str | None = None

    @property
    def is_person(self) -> bool:
        """Whether it is a person's word."""
        return self.principal.startswith(_PERSON)


COORDINATOR: Final = Actor("coordinator")
RETRY_POLICY: Final = "policy:retry"
RETENTION_POLICY: Final = "policy:retention"


class Step(NamedTuple):
    """What changed and why: states of the vocabulary, and a word of it or a person's note as the reason.

    `principal` and `site` are given where they are not those that the turn is attending to.
    """

    before: str = ""
    after: str = ""
    reason: str = ""
    principal: str = ""
    site: str = ""


NO_STEP: Final = Step()


def site_actor(site: str) -> Actor:
    """The word of a site, known by its inbox."""
    return Actor(f"site:{site}", site)


def person_actor(person: str, word: str = "") -> Actor:
    """The word of a person, known by the stream; `word` is what an unknown one says of itself."""
    name = f"{person}/{word}" if person == DEFAULT_PERSON and word else person
    return Actor(f"{_PERSON}{name}")


def seal(turn: Turn) -> None:
    """Write this turn's events and one seal over them. The last thing in every transaction."""
    if turn.events:
        _write(turn.store, turn.events, turn.now_ms)
        turn.events.clear()


def begin(store: Database, now_ms: int) -> None:
    """Record that a coordinator has begun. Where there are no seals yet, seal first what was recorded before them."""
    with store.transaction():
        if store.row("newest_seal") is None:
            _seal_old(store, now_ms)
        text = f"A coordinator began, epoch {store.epoch}."
        row = (now_ms, "coordinator_began", COORDINATOR.principal, None, None, None, "", "", "", text)
        _write(store, [row], now_ms)


def _write(store: Database, events: Sequence[Row], now_ms: int) -> None:
    newest = store.row("newest_seal")
    last = newest[2] if newest is not None else 0
    rows = [(number, *event) for number, event in enumerate(events, last + 1)]
    store.run_many("add_event", rows)
    _add_seal(store, rows, now_ms, newest)


def _seal_old(store: Database, now_ms: int) -> None:
    last = 0
    while rows := store.rows("events_to_seal", (last, _PORTION)):
        last = rows[-1][0]
        _add_seal(store, rows, now_ms, store.row("newest_seal"))


def _add_seal(store: Database, rows: Sequence[Row], now_ms: int, newest: Row | None) -> None:
    number, before = (newest[0], newest[1]) if newest is not None else (0, beginning(head(store)))
    span = Span(number + 1, rows[0][0], rows[-1][0], now_ms, store.epoch)
    digest = digest_of(before, span, rows)
    store.run("add_seal", (span.seal_id, span.first_event, span.last_event, span.at_ms, span.epoch, digest))


def head(store: Database) -> Head:
    """Which log this is."""
    world, created_at_ms = store.rows("log_identity")[0]
    return Head(world=world, created_at_ms=created_at_ms)
