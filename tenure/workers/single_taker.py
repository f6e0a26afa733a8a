"""The single taker: looks once for the assignment that an executor was started for, and takes nothing else.

It reads the entry where it lies and is given nothing by the broker: the entry stays delivered to the worker whose
launcher has started this executor, and whoever knows the ticket may look. So what it finds counts as delivered before,
and is never started without a grant.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import EntryId, Stream, StreamEntry
from tenure.workers.inputs import Taken

if TYPE_CHECKING:
    from threading import Event

    from tenure.broker.base import Handout, WorkerBroker
    from tenure.clock import Clock
    from tenure.protocol.assignment import Assignment
    from tenure.protocol.launch import LaunchTicket
    from tenure.workers.desk import Front
    from tenure.workers.freight import StoreAddress

_LOG: Final = logging.getLogger(__name__)


@final
class SingleTaker:
    """See `lines.Duty`. `store` hears of the fleet's store; `ended` is set when the agent ends."""

    def __init__(self, launched: LaunchTicket, desk: Front, clock: Clock, store: StoreAddress, ended: Event) -> None:
        self._launched = launched
        self._desk = desk
        self._clock = clock
        self._store = store
        self._ended = ended
        self._has_looked = False

    @property
    def name(self) -> str:
        """See `lines.Duty.name`."""
        return "single-taker"

    def opened(self, *, again: bool) -> None:
        """See `lines.Duty.opened`."""

    def turn(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.turn`."""
        if self._has_looked:
            self._ended.wait()
            return
        issued_ms = self._clock.elapsed_ms()
        handout = self._look(broker)
        if handout is None:
            self._desk.post(Taken((), issued_ms, again=True, withdrawn=True))
        else:
            if not self._store.is_known:
                # The first heartbeat may still be on its way, and the task may need the store.
                self._store.announce(broker.store_address())
            self._desk.post(Taken((handout,), issued_ms, again=True))
        self._has_looked = True

    def closing(self, broker: WorkerBroker) -> None:
        """See `lines.Duty.closing`."""

    def _look(self, broker: WorkerBroker) -> Handout | None:
        launched = self._launched
        entry_id = EntryId(*map(int, launched.entry.split("-")))
        if launched.is_directed:
            stream = Stream(launched.site, worker_id=launched.parent)
        else:
            stream = Stream(launched.site, launched.capability)
        handout = broker.look(StreamEntry(stream, entry_id))
        if handout is None:
            _LOG.info("the assignment %s is not at the broker any more", launched.name)
        elif handout.assignment is not None and not _is_that(launched, handout.assignment):
            _LOG.info("another assignment lies where %s was", launched.name)
            return None
        return handout


def _is_that(launched: LaunchTicket, found: Assignment) -> bool:
    ticket = found.ticket
    expected = (launched.task_id, launched.attempt, launched.fence, launched.digest)
    return (ticket.task_id, ticket.attempt, ticket.fence, ticket.digest) == expected
