"""A coordinator's broker that fails, or lets something happen, at a chosen call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tenure.broker.base import (
    Backlog,
    BrokerState,
    CoordinatorBroker,
    Delivery,
    EntryId,
    Mailing,
    PendingEntry,
    Publication,
    PublishOutcome,
    Readers,
    SiteKeys,
    Stream,
    StreamEntry,
    WithdrawOutcome,
    WorkerAddress,
)

_T = TypeVar("_T")


class Killed(Exception):
    """The process ends here: nothing that follows in it happens."""


def kill() -> None:
    raise Killed


@dataclass
class Trip:
    """When something is to happen: before or after the `at`-th call, counted from 1; 0 is never."""

    at: int = 0
    when: Literal["before", "after"] = "before"
    act: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list[str])
    """The names of the calls so far."""

    def pass_on(self, name: str, call: Callable[[], _T]) -> _T:
        self.calls.append(name)
        here = len(self.calls) == self.at
        if here and self.when == "before":
            self.act()
        answer = call()
        if here and self.when == "after":
            self.act()
        return answer


@dataclass
class Tripwire:
    """Passes every call on, past its trip."""

    inner: CoordinatorBroker
    trip: Trip = field(default_factory=Trip)
    sites: SiteKeys = field(init=False)

    def __post_init__(self) -> None:
        self.sites = SitesTripwire(self)

    def state(self) -> BrokerState:
        return self.trip.pass_on("state", self.inner.state)

    def mark(self, marker: str, store_address: str = "") -> None:
        return self.trip.pass_on("mark", lambda: self.inner.mark(marker, store_address))

    def ensure_streams(self, *, readers: Readers, assignments: Sequence[Stream] = ()) -> None:
        return self.trip.pass_on(
            "ensure_streams", lambda: self.inner.ensure_streams(readers=readers, assignments=assignments)
        )

    def receive(self, *, readers: Readers, limit: int, block_ms: int) -> list[Delivery]:
        return self.trip.pass_on("receive", lambda: self.inner.receive(readers=readers, limit=limit, block_ms=block_ms))

    def unsettled(self, *, readers: Readers, limit: int) -> list[Delivery]:
        return self.trip.pass_on("unsettled", lambda: self.inner.unsettled(readers=readers, limit=limit))

    def settle(
        self,
        deliveries: Sequence[Delivery],
        ended: Sequence[StreamEntry] = (),
        departed: Sequence[WorkerAddress] = (),
    ) -> None:
        return self.trip.pass_on("settle", lambda: self.inner.settle(deliveries, ended, departed))

    def publish(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        return self.trip.pass_on("publish", lambda: self.inner.publish(publications))

    def withdraw(self, entries: Sequence[StreamEntry]) -> list[WithdrawOutcome]:
        return self.trip.pass_on("withdraw", lambda: self.inner.withdraw(entries))

    def published(self, stream: Stream) -> EntryId:
        return self.trip.pass_on("published", lambda: self.inner.published(stream))

    def pending(self, stream: Stream) -> list[PendingEntry]:
        return self.trip.pass_on("pending", lambda: self.inner.pending(stream))

    def post(self, mailings: Sequence[Mailing], echoes: Mapping[WorkerAddress, str], echo_ttl_ms: int) -> None:
        return self.trip.pass_on("post", lambda: self.inner.post(mailings, echoes, echo_ttl_ms))


@dataclass
class SitesTripwire:
    """What a `Tripwire` passes on about sites."""

    outer: Tripwire

    def waiting(self, readers: Readers) -> Mapping[str, Backlog]:
        return self.outer.trip.pass_on("waiting", lambda: self.outer.inner.sites.waiting(readers))

    def heartbeat_sizes(self, workers: Sequence[WorkerAddress]) -> list[int]:
        return self.outer.trip.pass_on("heartbeat_sizes", lambda: self.outer.inner.sites.heartbeat_sizes(workers))

    def heartbeats(
        self, workers: Sequence[WorkerAddress], most: Mapping[WorkerAddress, int] | None = None
    ) -> list[bytes | None]:
        return self.outer.trip.pass_on("heartbeats", lambda: self.outer.inner.sites.heartbeats(workers, most))

    def cut_inbox(self, site: str, keep: int) -> int:
        return self.outer.trip.pass_on("cut_inbox", lambda: self.outer.inner.sites.cut_inbox(site, keep))

    def drop_requests(self, person: str) -> int:
        return self.outer.trip.pass_on("drop_requests", lambda: self.outer.inner.sites.drop_requests(person))

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        return self.outer.trip.pass_on(
            "forget_site", lambda: self.outer.inner.sites.forget_site(site, workers, capabilities)
        )
