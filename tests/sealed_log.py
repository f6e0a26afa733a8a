"""Sealed logs as lines, and what a check of them finds."""

from __future__ import annotations

from typing import Any

from tenure.protocol.chain import COLUMNS, Anchor, Checker, Head, Span, beginning, digest_of

HEAD = Head(world="main", created_at_ms=7)
Line = dict[str, Any]


def event(number: int, **changes: Any) -> Line:
    row: Line = dict.fromkeys(COLUMNS, "")
    row |= {"event_id": number, "at_ms": 1_000 + number, "kind": "lost", "principal": "coordinator"}
    row |= {"site": None, "task_id": None, "worker_id": None, "text": f"No {number}"}
    return {"event": row | changes}


def log(*sizes: int, head: Head = HEAD) -> list[Line]:
    """A sealed log: so many events under each seal."""
    lines: list[Line] = [{"chain": head.model_dump()}]
    before, number = beginning(head), 0
    for seal_id, size in enumerate(sizes, 1):
        events = [event(number + 1 + index) for index in range(size)]
        span = Span(seal_id, number + 1, number + size, 5_000 + seal_id, 3)
        before = digest_of(before, span, [[each["event"][name] for name in COLUMNS] for each in events])
        number += size
        seal = {"seal_id": seal_id, "first_event": span.first_event, "last_event": span.last_event}
        lines += [*events, {"seal": seal | {"at_ms": span.at_ms, "epoch": span.epoch, "digest": before}}]
    return lines


def check(lines: list[Line], *anchors: Anchor) -> list[str]:
    """The findings, each as its kind and text."""
    return [f"{finding.kind}: {finding.text}" for finding in fed(lines, *anchors).findings()]


def fed(lines: list[Line], *anchors: Anchor) -> Checker:
    checker = Checker(anchors)
    for line in lines:
        checker.feed(line)
    return checker


def anchor_of(lines: list[Line]) -> Anchor:
    anchor = fed(lines).anchor()
    assert anchor is not None
    return anchor


def place(lines: list[Line], number: int) -> int:
    """Where in the log an event is."""
    return next(at for at, line in enumerate(lines) if line.get("event", {}).get("event_id") == number)
