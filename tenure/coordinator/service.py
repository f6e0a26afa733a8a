"""Running a coordinator: opens the database, steps until it is told to stop, and rides out a broker that is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tenure.coordinator.coordinator import LOG, Coordinator
from tenure.coordinator.store.database import Database
from tenure.errors import BrokerFull, BrokerUnreachable, StoreFull, StreamMissing

if TYPE_CHECKING:
    from tenure.artifacts.base import Porter
    from tenure.broker.base import CoordinatorBroker
    from tenure.clock import Clock, Entropy
    from tenure.coordinator.options import CoordinatorOptions

_PAUSE_MS: Final = 250


class Stop(Protocol):
    """What says that it is time to end; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether to end."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for it."""
        ...


def run_coordinator(
    options: CoordinatorOptions,
    broker: CoordinatorBroker,
    clock: Clock,
    entropy: Entropy,
    stop: Stop,
    porter: Porter | None = None,
) -> None:
    """Coordinate until `stop` is set. The porter, if there is a store, is closed by whoever made it.

    A broker that is away or a disk that is full is waited for: meanwhile nothing is decided and nothing expires.

    Raises:
        StoreError: the database cannot be opened, or another coordinator holds it.
        Superseded: a newer coordinator has taken over.
        BrokerRefused, BrokerUnsafe, NamespaceTaken: the broker will not do; nothing was changed.
    """
    with Database(options.database) as store:
        coordinator = Coordinator(options, store=store, broker=broker, clock=clock, entropy=entropy, porter=porter)
        LOG.info("epoch %d on %s", coordinator.epoch, options.database)
        trouble = ""
        while not stop.is_set():
            try:
                coordinator.step()
                if trouble:
                    LOG.warning("going on: the trouble is over")
                trouble = ""
            except (BrokerFull, BrokerUnreachable, StreamMissing, StoreFull) as error:
                if str(error) != trouble:
                    LOG.warning("waiting: %s", error)
                trouble = str(error)
                stop.wait(_PAUSE_MS / 1000)
