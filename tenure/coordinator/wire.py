"""The coordinator's dealings with the broker between transactions: what must be sent, kept until it is taken.

Publications are a queue in order of their ids: one whose fate is unknown is sent again under its id, which the broker
refuses if it is there already. Entries of ended leases are settled together with what was received. Orders, replies
and notices may be lost: whoever waits for them asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tenure.broker.base import PublishOutcome, Readers, StreamEntry
from tenure.errors import BrokerFull, StreamMissing, Superseded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tenure.broker.base import CoordinatorBroker, Delivery, Mailing, Publication, Stream, WorkerAddress


@final
class Wire:
    """Sends what a committed turn has to say.

    Args:
        broker: the coordinator's face.
    """

    def __init__(self, broker: CoordinatorBroker) -> None:
        self._broker = broker
        self._readers = Readers()
        self._made: Readers | None = None
        self._unpublished: list[Publication] = []
        self._ended: list[StreamEntry] = []
        self._departed: list[WorkerAddress] = []
        self._streams: set[Stream] = set()
        self._wanted: set[Stream] = set()

    def ensure(self, streams: Iterable[Stream] = (), readers: Readers | None = None) -> None:
        """Make the streams that are not known to exist: those of assignments, and what `readers` write to.

        A full broker cannot make them; they are then made before the next publication.
        """
        self._readers = readers or self._readers
        self._wanted |= set(streams) - self._streams
        if not self._wanted and self._made == self._readers:
            return
        try:
            self._broker.ensure_streams(readers=self._readers, assignments=sorted(self._wanted))
        except BrokerFull:
            return
        self._made = self._readers
        self._streams |= self._wanted
        self._wanted.clear()

    def forget_streams(self) -> None:
        """Believe nothing about which streams exist, after the broker may have lost them."""
        self._made = None
        self._streams.clear()

    def drop_unpublished(self) -> None:
        """Give up what could not be sent, because everything that is offered is looked at anew."""
        self._unpublished.clear()

    def unpublished(self) -> set[StreamEntry]:
        """The entries that are still to be sent, or whose fate is unknown."""
        return {_entry(item) for item in self._unpublished}

    def add(self, publications: Sequence[Publication], ended: Sequence[StreamEntry]) -> None:
        """Take over what a committed turn wants published, and which entries are over.

        An entry that is over is not sent any more: a worker would start what another has been given since.
        """
        self._unpublished.extend(publications)
        self._ended.extend(ended)
        if ended and self._unpublished:
            over = set(ended)
            self._unpublished = [item for item in self._unpublished if _entry(item) not in over]

    def publish(self) -> None:
        """Send what is waiting, in order.

        Raises:
            Superseded: the stream belongs to a newer coordinator.
            StreamMissing: a stream is gone; what was not sent is kept.
            BrokerUnreachable: the fate of what was sent is unknown; all of it is kept.
        """
        self.ensure(item.stream for item in self._unpublished)
        if not self._unpublished or self._wanted:
            return
        try:
            outcomes = self._broker.publish(self._unpublished)
        except BrokerFull:
            return  # kept, and sent when there is room
        for publication, outcome in zip(self._unpublished, outcomes, strict=True):
            if outcome is PublishOutcome.SUPERSEDED:
                where = publication.stream.capability or publication.stream.worker_id
                raise Superseded(f"a newer coordinator publishes to {where}", "This one stops; nothing was lost")
            if outcome is PublishOutcome.MISSING:
                raise StreamMissing("an assignment stream is gone", "It is made again")
        self._unpublished.clear()

    def post(self, mailings: Sequence[Mailing], echoes: Mapping[WorkerAddress, str], echo_ttl_ms: int) -> bool:
        """Send orders, replies, notices and echoes; a full broker loses them, and they are asked for again.

        Answers whether they were taken.
        """
        if not mailings and not echoes:
            return True
        try:
            self._broker.post(mailings, echoes, echo_ttl_ms)
        except BrokerFull:
            return False
        return True

    def settle(self, received: Sequence[Delivery], departed: Sequence[WorkerAddress] = ()) -> None:
        """Take what was received, the entries of ended leases, and what was kept for executors that left, away."""
        self._departed.extend(departed)
        if received or self._ended or self._departed:
            self._broker.settle(received, self._ended, self._departed)
            self._ended.clear()
            self._departed.clear()

    def clear_leftovers(self, live: set[StreamEntry], streams: Iterable[Stream]) -> None:
        """Settle delivered entries of leases that have ended: a crash may have come between commit and settling."""
        for stream in streams:
            entries = [StreamEntry(stream, entry.entry_id) for entry in self._broker.pending(stream)]
            self._ended.extend(entry for entry in entries if entry not in live)
        self.settle(())


def _entry(item: Publication) -> StreamEntry:
    return StreamEntry(item.stream, item.entry_id)
