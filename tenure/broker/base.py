"""The three faces of the broker, one per role, each with exactly the rights that the role has.

An implementation translates its driver's errors into `tenure.errors.BrokerError`s: after `BrokerUnreachable` the fate
of what was sent is unknown. No call retries by itself. `tests/contract/test_broker.py` is the definition of these
faces' behaviour; it runs on every implementation. One object may serve one thread at a time; the `take`, `orders`,
`receive` and `answers` readers block and therefore want an object of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.protocol.assignment import Assignment

_MAILBOX_ENTRIES: Final = 10_000
_MAILBOX_BYTES: Final = 32 * 1024 * 1024


@final
@dataclass(frozen=True, slots=True, order=True)
class EntryId:
    """A stream entry's id. Published assignments use `<coordinator epoch>-<outbox sequence>`."""

    major: int
    minor: int

    def __str__(self) -> str:
        """The id as the wire spells it."""
        return f"{self.major}-{self.minor}"


@final
@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """A stream of assignments at a site: of a capability, or of one worker. Exactly one of the two is set."""

    site: str
    capability: str = ""
    worker_id: str = ""


@final
@dataclass(frozen=True, slots=True, order=True)
class StreamEntry:
    """An assignment's entry."""

    stream: Stream
    entry_id: EntryId


@final
@dataclass(frozen=True, slots=True, order=True)
class WorkerAddress:
    """Where a worker is written to and heard: its id within the site that it belongs to."""

    site: str
    worker_id: str


@final
@dataclass(frozen=True, slots=True, order=True)
class ClientAddress:
    """Where a client is answered: its id, and the person that it asks for."""

    person: str
    client_id: str


@final
@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry that a reader was given.

    `site` is set for what came by a site's inbox, `person` for a request, and neither for orders and answers. Both are
    what the stream's name says, never what the entry claims.
    `size` is how many bytes were read of the entry, those of fields that mean nothing included, and what it costs to
    read each value, however little is in it.
    """

    entry_id: EntryId
    raw: bytes
    site: str = ""
    person: str = ""
    size: int = 0


@final
@dataclass(frozen=True, slots=True)
class Backlog:
    """What lies in an inbox, received or not: how many entries, and how many bytes of the broker's memory."""

    entries: int = 0
    size: int = 0


@final
@dataclass(frozen=True, slots=True)
class Readers:
    """Whose streams the coordinator makes, reads and answers: sites by their inboxes, people by their requests."""

    sites: tuple[str, ...] = ()
    people: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Handout:
    """One assignment that a worker was given; `assignment` is None when the entry could not be read.

    `is_directed` says that the entry was taken from the worker's own stream, and not from its capability's.
    """

    entry_id: EntryId
    assignment: Assignment | None
    is_directed: bool = False


@final
@dataclass(frozen=True, slots=True)
class Publication:
    """One assignment to publish."""

    entry_id: EntryId
    assignment: Assignment
    stream: Stream


class PublishOutcome(StrEnum):
    """What became of one publication."""

    PUBLISHED = "published"
    REPEATED = "repeated"  #: this id was published before; nothing was added
    SUPERSEDED = "superseded"  #: the stream's last id has a higher epoch: a newer coordinator is at work
    MISSING = "missing"  #: the stream is gone; nothing was added


class WithdrawOutcome(StrEnum):
    """What had become of an entry when it was withdrawn; decided by the broker, as of one moment."""

    UNDELIVERED = "undelivered"  #: it was still there and no worker had been given it: none ever will be
    DELIVERED = "delivered"  #: a worker had been given it
    GONE = "gone"  #: neither there nor pending: settled before, or lost with the broker's data


@final
@dataclass(frozen=True, slots=True)
class BrokerState:
    """What the coordinator checks: identity of the server process, marker of its data, and dangerous settings."""

    run_id: str
    marker: str
    version: str
    eviction_policy: str


@final
@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An assignment that was delivered and is not settled."""

    entry_id: EntryId
    worker_id: str


@final
@dataclass(frozen=True, slots=True)
class Mailing:
    """One message for a worker's control stream or a client's reply stream."""

    raw: bytes
    to: WorkerAddress | ClientAddress

    @property
    def kept(self) -> int:
        """How many entries of its stream to keep: a reader that is gone must not fill the broker with what it missed.

        What is cut off is asked for again, like everything that is lost on the way.
        """
        return min(_MAILBOX_ENTRIES, _MAILBOX_BYTES // max(len(self.raw), 1))


@final
@dataclass(frozen=True, slots=True)
class LogKey:
    """Names the log of one attempt."""

    site: str
    task_id: str
    fence: int


@final
@dataclass(frozen=True, slots=True)
class LogChunk:
    """What a task has printed: `stream` is 1 for standard output, 2 for standard error, 0 for words of Tenure's own.

    `position` counts the characters of the attempt's log before this chunk, also those that were left out: a gap says
    that something is missing.
    """

    stream: int
    position: int
    text: str


class SiteKeys(Protocol):
    """What the coordinator may do with all that sites have at the broker, whatever they have written there.

    And with what people have written: theirs are only requests.
    """

    def waiting(self, readers: Readers) -> Mapping[str, Backlog]:
        """What lies in each site's inbox, by site; nothing of it is read."""
        ...

    def heartbeat_sizes(self, workers: Sequence[WorkerAddress]) -> list[int]:
        """How many bytes the heartbeat of each worker has; 0 when there is none."""
        ...

    def heartbeats(
        self, workers: Sequence[WorkerAddress], most: Mapping[WorkerAddress, int] | None = None
    ) -> list[bytes | None]:
        """The heartbeat of each worker, of those in `most` no more than so many bytes; None when there is none."""
        ...

    def cut_inbox(self, site: str, keep: int) -> int:
        """Delete the oldest entries of an inbox but `keep`, unread; how many. Whoever is owed a verdict repeats it."""
        ...

    def drop_requests(self, person: str) -> int:
        """Delete what was received of a person's requests and never settled, unread; how many of them there were."""
        ...

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        """Delete every stream, echo and heartbeat of a site that was revoked."""
        ...


class CoordinatorBroker(Protocol):
    """What the coordinator may do."""

    sites: SiteKeys
    """What it may do with all that sites have."""

    def state(self) -> BrokerState:
        """Identity and settings of the server; `marker` is "" when there is none."""
        ...

    def mark(self, marker: str, store_address: str = "") -> None:
        """Set the incarnation marker, and say where the fleet's artifacts are kept; "" says that there is no store."""
        ...

    def ensure_streams(self, *, readers: Readers, assignments: Sequence[Stream] = ()) -> None:
        """Make every missing inbox, request stream and stream of assignments, and its group, at position 0."""
        ...

    def receive(self, *, readers: Readers, limit: int, block_ms: int) -> list[Delivery]:
        """New requests and reports, at most `limit` of each stream, waiting up to `block_ms` (0: not at all).

        Raises:
            StreamMissing: a stream is gone, or went while this waited.
            ReplyBeyondMeasure: one of the streams holds what cannot be read; what came on all of them counts as
                received, and is to be read as `unsettled`, of each stream by itself.
        """
        ...

    def unsettled(self, *, readers: Readers, limit: int) -> list[Delivery]:
        """Requests and reports that were received before and never settled, the oldest `limit` of each stream.

        Raises `ReplyBeyondMeasure` when one of the streams holds what cannot be read.
        """
        ...

    def settle(
        self,
        deliveries: Sequence[Delivery],
        ended: Sequence[StreamEntry] = (),
        departed: Sequence[WorkerAddress] = (),
    ) -> None:
        """Acknowledge and delete received entries, and the assignment entries of leases that have ended.

        Of each worker that has departed, delete the control stream, the echo and the heartbeat.
        """
        ...

    def publish(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        """Add assignments under their explicit ids, in order; one outcome each. Raises `BrokerFull`."""
        ...

    def withdraw(self, entries: Sequence[StreamEntry]) -> list[WithdrawOutcome]:
        """Acknowledge and delete assignment entries, each atomically, and say what had become of each."""
        ...

    def published(self, stream: Stream) -> EntryId:
        """The last id ever given in that stream; 0-0 when it does not exist."""
        ...

    def pending(self, stream: Stream) -> list[PendingEntry]:
        """Entries of that stream that were delivered and not settled."""
        ...

    def post(self, mailings: Sequence[Mailing], echoes: Mapping[WorkerAddress, str], echo_ttl_ms: int) -> None:
        """Send control and reply messages, and set the echo of each worker."""
        ...


class WorkerBroker(Protocol):
    """What a worker of one site may do."""

    def take(self, *, capabilities: Sequence[str], limit: int, block_ms: int) -> list[Handout]:
        """New assignments of these capabilities and of the worker's own stream, at most `limit` of each stream.

        Raises `StreamMissing`, also when a stream goes while this waits.
        """
        ...

    def retake(self, *, capabilities: Sequence[str], limit: int) -> list[Handout]:
        """Assignments that were delivered to this worker before and are not settled; read once after each reconnect."""
        ...

    def look(self, entry: StreamEntry) -> Handout | None:
        """The assignment at that entry, delivered to nobody by this; None when it is not there (any more)."""
        ...

    def orders(self, *, after: EntryId, block_ms: int) -> list[Delivery]:
        """Control entries later than `after`."""
        ...

    def report(self, reports: Sequence[bytes]) -> None:
        """Add reports to the site's inbox, in order. Raises `StreamMissing` and `BrokerFull`.

        After any error some may have been added; sending all again may add them twice.
        """
        ...

    def beat(self, heartbeat: bytes, ttl_ms: int) -> str:
        """Write the heartbeat; answers the coordinator's echo, "" when there is none.

        Raises `BrokerFull` when the heartbeat was not taken; the one before it stands, and renews nothing any more.
        """
        ...

    def print(self, log: LogKey, chunks: Sequence[LogChunk], keep: int) -> None:
        """Add to the log of an attempt, keeping its newest `keep` chunks. Raises `BrokerFull`."""
        ...

    def store_address(self) -> str:
        """Where the fleet's artifacts are kept; "" when nobody has said so."""
        ...

    def farewell(self) -> None:
        """Delete the heartbeat."""
        ...

    def marker(self) -> str:
        """The broker's incarnation marker; "" when there is none."""
        ...

    def close(self) -> None:
        """Close the connections; a blocked reader ends with `BrokerUnreachable`."""
        ...


class ClientBroker(Protocol):
    """What a client may do."""

    def ask(self, raw: bytes) -> None:
        """Add a request. Raises `StreamMissing` when no coordinator has ever made the rpc stream."""
        ...

    def printed(self, log: LogKey, *, after: EntryId, block_ms: int) -> list[tuple[EntryId, LogChunk]]:
        """Chunks of an attempt's log later than `after`, waiting up to `block_ms` for one (0: not at all)."""
        ...

    def store_address(self) -> str:
        """Where the fleet's artifacts are kept; "" when nobody has said so."""
        ...

    def answers(self, *, after: EntryId, block_ms: int) -> list[Delivery]:
        """Entries of the reply stream later than `after`; earlier ones are deleted."""
        ...

    def marker(self) -> str:
        """The broker's incarnation marker; "" when there is none."""
        ...

    def close(self) -> None:
        """Delete the reply stream and close the connections."""
        ...
