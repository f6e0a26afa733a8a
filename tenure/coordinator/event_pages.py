"""Pages of the event log. Each looks at a bounded number of events, so that reading a long log holds up no decision.

A page is cut after an event and the seals that end with it, never between them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tenure.coordinator.journal import head
from tenure.protocol.audit_messages import Page
from tenure.protocol.message import MAX_INT

if TYPE_CHECKING:
    from tenure.coordinator.turn import Turn
    from tenure.protocol.audit_messages import ReadEvents

Line = dict[str, Any]
_SCAN: Final = 20_000
"""How many events one page looks through for those that are asked for: some tens of milliseconds."""
_PAGE_BYTES: Final = 384 * 1024


def read(turn: Turn, ask: ReadEvents) -> list[Line]:
    """A page's frame and its lines."""
    beyond = ask.beyond or (MAX_INT if ask.newest_first else 0)
    found = _events(turn, ask, beyond)
    end = _end(turn, ask, beyond, found)
    lines: list[tuple[int, Line]] = [(event["event_id"], {"event": event}) for event in found]
    if ask.seals and not ask.newest_first:
        lines, end = _with_seals(turn, ask, beyond, lines, end)
    lines, end = _cut(lines, end)
    first = head(turn.store)
    page = Page(beyond=end, world=first.world, created_at_ms=first.created_at_ms)
    return [page.model_dump(), *(line for _, line in lines)]


def _events(turn: Turn, ask: ReadEvents, beyond: int) -> list[dict[str, Any]]:
    parameters = ask.only.model_dump() | {"beyond": beyond, "limit": ask.limit, "scan": _SCAN}
    if ask.only.task_id:
        query = "events_of_task_before" if ask.newest_first else "events_of_task_beyond"
    else:
        query = "events_before" if ask.newest_first else "events_beyond"
    return turn.store.records(query, parameters)


def _end(turn: Turn, ask: ReadEvents, beyond: int, found: list[dict[str, Any]]) -> int | None:
    """The event that the next page begins beyond; None when everything was looked through."""
    if len(found) == ask.limit:
        return int(found[-1]["event_id"])
    if ask.only.task_id:
        return None
    query = "nearest_event" if ask.newest_first else "farthest_event"
    row = turn.store.row(query, (beyond, _SCAN))
    edge = row[0] if row is not None else None
    if edge is None:
        return None
    return int(edge) if turn.store.row(query, (edge, 1)) != (None,) else None


def _with_seals(
    turn: Turn, ask: ReadEvents, beyond: int, lines: list[tuple[int, Line]], end: int | None
) -> tuple[list[tuple[int, Line]], int | None]:
    """The lines with the seals between them; where there are more seals than one page takes, it ends with the last."""
    seals = turn.store.records("seals_beyond", {"beyond": beyond, "limit": ask.limit})
    if len(seals) == ask.limit and (end is None or seals[-1]["last_event"] < end):
        end = int(seals[-1]["last_event"])
    merged = [*lines, *((seal["last_event"], {"seal": seal}) for seal in seals)]
    merged = [line for line in merged if end is None or line[0] <= end]
    merged.sort(key=lambda line: (line[0], "seal" in line[1]))
    return merged, end


def _cut(lines: list[tuple[int, Line]], end: int | None) -> tuple[list[tuple[int, Line]], int | None]:
    size = 0
    for index, (number, line) in enumerate(lines):
        size += len(json.dumps(line))
        following = lines[index + 1][0] if index + 1 < len(lines) else number
        if size > _PAGE_BYTES and following != number:
            return lines[: index + 1], number
    return lines, end
