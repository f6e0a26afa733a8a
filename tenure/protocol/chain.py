"""The chain that seals the event log: what exactly is hashed, and how a log is checked against its seals.

Every commit that adds events adds one seal, whose digest is over the seal before it and all these events. So no event
can be changed, taken out, put in or moved without breaking the chain at that place. Whoever can write the database can
also compute a whole new chain: an *anchor*, the newest seal as it was at some time, kept elsewhere, is what notices
that, and what notices that the end of the log is gone.

A log is read as *lines* in order: `{"chain": …}` first, then `{"event": …}` and, after the last event that it is over,
`{"seal": …}`. This is also what an export holds, one line each.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, final

from pydantic import Field, TypeAdapter

from tenure.protocol.message import Count, Digest, Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMAT: Final = 1
COLUMNS: Final = (
    "event_id",
    "at_ms",
    "kind",
    "principal",
    "site",
    "task_id",
    "worker_id",
    "reason",
    "before",
    "after",
    "text",
)
"""The fields of an event, in the order in which they are hashed."""

_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, check_circular=False).encode


class Head(Message):
    """Which log it is: the first line."""

    format: Literal[1] = FORMAT
    world: str
    created_at_ms: int


class Seal(Message):
    """One link: the digest over the link before it and the events from `first_event` to `last_event`."""

    seal_id: Annotated[int, Field(ge=1)]
    first_event: Annotated[int, Field(ge=1)]
    last_event: Annotated[int, Field(ge=1)]
    at_ms: int
    epoch: Count
    digest: Digest


class Anchor(Message):
    """A seal as it was at some time, to be kept where whoever can change the log cannot change it, too."""

    world: str
    created_at_ms: int
    seal_id: Annotated[int, Field(ge=1)]
    last_event: Annotated[int, Field(ge=1)]
    at_ms: int
    digest: Digest


ANCHOR: Final = TypeAdapter(Anchor)


@final
@dataclass(frozen=True, slots=True)
class Span:
    """What a seal is over, besides the events themselves."""

    seal_id: int
    first_event: int
    last_event: int
    at_ms: int
    epoch: int


def beginning(head: Head) -> str:
    """What stands in place of the digest before the first seal, so that no log can pass for another world's."""
    return sha256(f"tenure events {head.format}\n{_ENCODE([head.world, head.created_at_ms])}\n".encode()).hexdigest()


def digest_of(before: str, span: Span, events: Sequence[Sequence[object]]) -> str:
    """The digest of a seal; `events` are rows of `COLUMNS`, `before` is the digest of the seal before."""
    frame = [span.seal_id, span.first_event, span.last_event, span.at_ms, span.epoch]
    return sha256(f"{before}\n{_ENCODE(frame)}\n{_ENCODE(events)}\n".encode("ascii")).hexdigest()


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was sealed."""

    kind: Literal["changed", "missing", "unsealed", "disordered", "cut", "rewritten", "foreign", "unreadable"]
    text: str


@final
@dataclass(slots=True)
class Checked:
    """What a check came to."""

    events: int = 0
    seals: int = 0
    anchors: int = 0
    first_at_ms: int | None = None
    last_at_ms: int | None = None
    digest: str = ""
    """Of the newest seal."""

    def record(self) -> dict[str, Any]:
        """As a row for people and programs."""
        return asdict(self)


@final
class Checker:
    """Follows a log line by line. `feed` every line in order, then ask for `findings`.

    One bad place is one finding: what comes after it is checked against the digests that are on record.

    Args:
        anchors: seals that were noted before, each of which must be in the log as it was.
    """

    def __init__(self, anchors: Iterable[Anchor] = ()) -> None:
        self.checked = Checked()
        self._anchors = tuple(anchors)
        self._wanted = {anchor.seal_id for anchor in self._anchors}
        self._met: dict[int, str] = {}
        self._findings: list[Finding] = []
        self._head: Head | None = None
        self._before: str | None = ""
        self._last = Span(0, 0, 0, 0, 0)
        self._loose: list[list[object]] = []
        self._newest_event = 0

    def feed(self, line: dict[str, Any]) -> None:
        """Take the next line of the log."""
        try:
            match line:
                case {"chain": head}:
                    self._begin(Head.model_validate(head))
                case {"event": event}:
                    self._event([event[name] for name in COLUMNS])
                case {"seal": seal}:
                    self._seal(Seal.model_validate(seal))
                case _:
                    self._find("unreadable", f"after event {self._newest_event} comes a line of no known kind")
        except (KeyError, TypeError, ValueError):
            self._find("unreadable", f"a line after event {self._newest_event} lacks what it should have")

    def findings(self) -> tuple[Finding, ...]:
        """All that is wrong, once every line was fed."""
        end: list[Finding] = []
        if self._head is None:
            end.append(Finding("unreadable", "it does not begin with the line that says which log it is"))
        if self._loose:
            end.append(Finding("unsealed", f"{_events(self._loose)} at the end are in no seal"))
        for anchor in self._anchors:
            finding = self._compare(anchor)
            if finding is not None:
                end.append(finding)
        return (*self._findings, *end)

    @property
    def holds_events_alone(self) -> bool:
        """Whether there are events with neither seals nor a beginning, and nothing else: what a filter leaves."""
        return bool(self._loose) and self._head is None and not self._last.seal_id and not self._findings

    def anchor(self) -> Anchor | None:
        """The newest seal, to be kept elsewhere; None when there is none."""
        if self._head is None or not self._last.seal_id:
            return None
        return Anchor(
            world=self._head.world,
            created_at_ms=self._head.created_at_ms,
            seal_id=self._last.seal_id,
            last_event=self._last.last_event,
            at_ms=self._last.at_ms,
            digest=self.checked.digest,
        )

    def _begin(self, head: Head) -> None:
        if self._head is not None:
            self._find("disordered", f"after event {self._newest_event} another log begins")
            return
        self._head, self._before = head, beginning(head)

    def _event(self, row: list[object]) -> None:
        number, at_ms = row[0], row[1]
        if not isinstance(number, int) or not isinstance(at_ms, int):
            raise TypeError("an event without a number or a time")
        if number <= self._newest_event:
            self._find("disordered", f"event {number} comes after event {self._newest_event}")
            return
        self._newest_event = number
        self.checked.events += 1
        self.checked.first_at_ms = at_ms if self.checked.first_at_ms is None else self.checked.first_at_ms
        self.checked.last_at_ms = at_ms
        self._loose.append(row)

    def _seal(self, seal: Seal) -> None:
        if seal.seal_id <= self._last.seal_id:
            self._find("disordered", f"seal {seal.seal_id} comes after seal {self._last.seal_id}")
            return
        if seal.seal_id > self._last.seal_id + 1:
            self._find("missing", f"{_numbers('seal', self._last.seal_id + 1, seal.seal_id - 1)} missing")
            self._before = None  # what this one follows is not known
        inside = self._take(seal)
        gaps = _gaps([int(str(row[0])) for row in inside], seal.first_event, seal.last_event)
        for first, last in gaps:
            self._find("missing", f"{_numbers('event', first, last)} missing")
        self._last = Span(seal.seal_id, seal.first_event, seal.last_event, seal.at_ms, seal.epoch)
        if not gaps and self._before is not None and digest_of(self._before, self._last, inside) != seal.digest:
            where = "event" if seal.first_event == seal.last_event else "events"
            span = _span(seal.first_event, seal.last_event)
            self._find("changed", f"{where} {span}, or the seal before, are not what seal {seal.seal_id} was made over")
        self._before = self.checked.digest = seal.digest
        self.checked.seals += 1
        if seal.seal_id in self._wanted:
            self._met[seal.seal_id] = seal.digest

    def _take(self, seal: Seal) -> list[list[object]]:
        """The events that the seal is over, from those that have come since the last one."""
        inside = [row for row in self._loose if seal.first_event <= int(str(row[0])) <= seal.last_event]
        others = [row for row in self._loose if not seal.first_event <= int(str(row[0])) <= seal.last_event]
        if others:
            self._find("unsealed", f"{_events(others)} are in no seal")
        self._loose = []
        return inside

    def _compare(self, anchor: Anchor) -> Finding | None:
        head = self._head
        if head is not None and (head.world, head.created_at_ms) != (anchor.world, anchor.created_at_ms):
            return Finding("foreign", f"the anchor of seal {anchor.seal_id} is of another log than this")
        if anchor.seal_id > self._last.seal_id:
            text = f"the log ends with seal {self._last.seal_id}, and an anchor names seal {anchor.seal_id}"
            return Finding("cut", f"{text} (event {anchor.last_event}): what came last is gone")
        met = self._met.get(anchor.seal_id)
        if met is not None and met != anchor.digest:
            return Finding("rewritten", f"seal {anchor.seal_id} is not the one that an anchor names: the chain is new")
        self.checked.anchors += met is not None
        return None

    def _find(
        self,
        kind: Literal["changed", "missing", "unsealed", "disordered", "unreadable"],
        text: str,
    ) -> None:
        self._findings.append(Finding(kind, text))


def _gaps(numbers: Sequence[int], first: int, last: int) -> list[tuple[int, int]]:
    """Which numbers from `first` to `last` are not there, as ranges."""
    gaps: list[tuple[int, int]] = []
    expected = first
    for number in (*numbers, last + 1):
        if number > expected:
            gaps.append((expected, number - 1))
        expected = number + 1
    return gaps


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _numbers(noun: str, first: int, last: int) -> str:
    return f"{noun} {first} is" if first == last else f"{noun}s {first} to {last} are"


def _events(rows: Sequence[Sequence[object]]) -> str:
    first, last = int(str(rows[0][0])), int(str(rows[-1][0]))
    return f"events {_span(first, last)}" if len(rows) == last - first + 1 else f"{len(rows)} events from {first} on"
