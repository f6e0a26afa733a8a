"""How stream entries look on the wire, and how they are read back.

An assignment has two fields, `h` (the ticket as JSON) and `e` (the envelope's exact bytes); every other entry has one,
`m`. An entry that was deleted while it was pending comes back without fields.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from tenure.broker.base import Delivery, EntryId, Handout
from tenure.broker.redis_replies import VALUE_COST
from tenure.errors import TenureError
from tenure.protocol.assignment import TICKET, Assignment
from tenure.protocol.message import MAX_ENVELOPE_BYTES, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tenure.broker.redis_connection import Reply

MESSAGE: Final = b"m"
TICKET_FIELD: Final = b"h"
ENVELOPE_FIELD: Final = b"e"

_MAX_TICKET_BYTES: Final = 4_096

_NO_ORIGINS: Final[Mapping[bytes, tuple[str, str]]] = MappingProxyType({})

Fields: TypeAlias = "list[bytes] | None"


def parse_id(raw: bytes) -> EntryId:
    """Read an id as the server spells it."""
    major, _, minor = raw.partition(b"-")
    return EntryId(int(major), int(minor))


def entries(reply: Reply) -> Iterator[tuple[bytes, bytes, Fields]]:
    """Stream key, id and fields of every entry in the reply to XREAD or XREADGROUP."""
    for key, found in cast("list[tuple[bytes, list[tuple[bytes, Fields]]]]", reply or []):
        for raw_id, fields in found:
            yield key, raw_id, fields


def deliveries(
    reply: Reply, origins: Mapping[bytes, tuple[str, str]] = _NO_ORIGINS
) -> tuple[list[Delivery], list[tuple[bytes, bytes]]]:
    """The messages in a reply, and (key, id) of the entries whose content is gone.

    `origins` says of each stream's key which site and which person write to it; see `Delivery`.

    An entry without a message field is delivered with empty bytes, so that its reader refuses it and settles it.
    """
    found: list[Delivery] = []
    gone: list[tuple[bytes, bytes]] = []
    for key, raw_id, fields in entries(reply):
        if fields:
            raw = fields[1] if fields[0] == MESSAGE else b""
            site, person = origins.get(key, ("", ""))
            found.append(Delivery(parse_id(raw_id), raw, site, person, _size(fields)))
        else:
            gone.append((key, raw_id))
    return found, gone


def handouts(reply: Reply, own: bytes = b"") -> list[Handout]:
    """The assignments in a reply; entries whose content is gone were withdrawn and are left out.

    `own` is the key of the worker's own stream.
    """
    return [
        Handout(parse_id(raw_id), _assignment(fields), is_directed=key == own)
        for key, raw_id, fields in entries(reply)
        if fields
    ]


def _size(fields: list[bytes]) -> int:
    """What an entry has cost its reader: many values cost more than their bytes, and those count that were not kept."""
    thrown: int = getattr(fields, "thrown", 0)  # of a `CutList`
    return sum(map(len, fields)) + len(fields) * VALUE_COST + thrown


def _assignment(fields: list[bytes]) -> Assignment | None:
    named = dict(zip(fields[::2], fields[1::2], strict=False))
    envelope = named.get(ENVELOPE_FIELD)
    if envelope is None or len(envelope) > MAX_ENVELOPE_BYTES:
        return None
    try:
        ticket = decode(TICKET, named.get(TICKET_FIELD, b""), _MAX_TICKET_BYTES)
    except TenureError:
        return None
    return Assignment(ticket=ticket, envelope=envelope)
