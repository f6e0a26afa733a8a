"""Publishing assignments, and taking them back, by explicit ids: the server refuses repeats and old epochs.

Each batch that is published is one MULTI: it is taken as a whole or not at all. Without that, a server at its memory
limit could refuse one entry and take a later one of the same stream, after which the first id could never be published,
and its repeat would look as if it had been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from redis.exceptions import ResponseError

from tenure.broker.base import EntryId, PublishOutcome, WithdrawOutcome
from tenure.broker.keys import GROUP
from tenure.broker.redis_entries import ENVELOPE_FIELD, TICKET_FIELD, parse_id
from tenure.protocol.assignment import TICKET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tenure.broker.base import Publication, StreamEntry
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import Answer, Command, RedisConnection

_BATCH_BYTES: Final = 512 * 1024
"""A server closes connections that queue more than its client-query-buffer-limit, which hardened ones set to 2 MB."""

_NOT_NEWER: Final = "equal or smaller"


def publish(connection: RedisConnection, keys: Keys, publications: Sequence[Publication]) -> list[PublishOutcome]:
    """Add the assignments in order; one outcome each. Raises `BrokerError`, after which any prefix may be published."""
    outcomes: list[PublishOutcome] = []
    done = 0
    for commands in _batches(keys, publications):
        for answer in _transaction(connection, commands):
            outcomes.append(_outcome(connection, keys, publications[done], answer))
            done += 1
    return outcomes


def withdraw(connection: RedisConnection, keys: Keys, entries: Sequence[StreamEntry]) -> list[WithdrawOutcome]:
    """Delete and acknowledge the entries; what had become of each. Raises `BrokerError`.

    Deleting comes first: what is deleted is handed to nobody any more, so what the acknowledgement then finds is final,
    as if both were one step. A MULTI would do that, too, but a full Redis refuses every command inside one, also those
    that make room.
    """
    if not entries:
        return []
    named = [(keys.assignments(each.stream), each.entry_id) for each in entries]
    streams = list(dict.fromkeys(key for key, _ in named))
    answers = connection.call_all(
        [
            *(("XDEL", key, str(entry_id)) for key, entry_id in named),
            *(("XACK", key, GROUP, str(entry_id)) for key, entry_id in named),
            *(("XINFO", "GROUPS", key) for key in streams),
        ]
    )
    reached = dict(
        zip(streams, (_delivered_up_to(connection, each) for each in answers[2 * len(named) :]), strict=True)
    )
    counts = [cast("int", connection.checked(answer)) for answer in answers[: 2 * len(named)]]
    return [
        _withdrawn(deleted=deleted > 0, acked=acked > 0, passed=entry_id <= reached[key])
        for (key, entry_id), deleted, acked in zip(named, counts, counts[len(named) :], strict=False)
    ]


def last_id(connection: RedisConnection, key: str) -> EntryId:
    """The last id that the stream ever took; 0-0 when there is no stream."""
    answer = connection.call_all([("XINFO", "STREAM", key)])[0]
    if isinstance(answer, ResponseError) and "no such key" in str(answer):
        return EntryId(0, 0)
    found = cast("list[bytes]", connection.checked(answer))
    return parse_id(found[found.index(b"last-generated-id") + 1])


def _batches(keys: Keys, publications: Sequence[Publication]) -> Iterator[list[Command]]:
    batch: list[Command] = []
    size = 0
    for publication in publications:
        envelope = publication.assignment.envelope
        ticket = TICKET.dump_json(publication.assignment.ticket)
        key = keys.assignments(publication.stream)
        at = str(publication.entry_id)
        batch.append(("XADD", key, "NOMKSTREAM", at, TICKET_FIELD, ticket, ENVELOPE_FIELD, envelope))
        size += len(envelope) + len(ticket)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _transaction(connection: RedisConnection, commands: list[Command]) -> list[Answer]:
    answers = connection.call_all([("MULTI",), *commands, ("EXEC",)])
    for answer in answers:
        # The reason stands at the command that was not queued; EXEC itself says only that something was refused.
        connection.checked(answer)
    return cast("list[Answer]", answers[-1])


def _outcome(connection: RedisConnection, keys: Keys, publication: Publication, answer: Answer) -> PublishOutcome:
    if answer is None:
        return PublishOutcome.MISSING
    if not isinstance(answer, ResponseError):
        return PublishOutcome.PUBLISHED
    if _NOT_NEWER not in str(answer):
        connection.checked(answer)
    last = last_id(connection, keys.assignments(publication.stream))
    newer = last.major > publication.entry_id.major
    return PublishOutcome.SUPERSEDED if newer else PublishOutcome.REPEATED


def _withdrawn(*, acked: bool, deleted: bool, passed: bool) -> WithdrawOutcome:
    # A worker may read with NOACK, which leaves no pending entry; only the group's position shows it.
    if acked or (deleted and passed):
        return WithdrawOutcome.DELIVERED
    return WithdrawOutcome.UNDELIVERED if deleted else WithdrawOutcome.GONE


def _delivered_up_to(connection: RedisConnection, answer: Answer) -> EntryId:
    if isinstance(answer, ResponseError) and "no such key" in str(answer):
        return EntryId(0, 0)
    for group in cast("list[list[bytes]]", connection.checked(answer)):
        found = dict(zip(group[::2], group[1::2], strict=False))
        if found[b"name"] == GROUP.encode():
            return parse_id(found[b"last-delivered-id"])
    return EntryId(0, 0)
