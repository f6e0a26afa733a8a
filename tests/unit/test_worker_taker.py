"""What a worker reads when its site is granted less, or more again, while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tenure.broker.base import Handout, WorkerBroker
from tenure.errors import BrokerRefused, CredentialRefused
from tenure.testing import ManualClock
from tenure.workers.desk import Front
from tenure.workers.freight import StoreAddress
from tenure.workers.taker import Taker

LATER_MS = 30_000


@dataclass
class Granting:
    """A broker that lets only granted streams be read."""

    granted: set[str]
    own: bool = True
    lets_in: bool = True
    reads: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def take(self, *, capabilities: Sequence[str], limit: int, block_ms: int) -> list[Handout]:
        self._check(capabilities)
        self.reads.append(tuple(capabilities))
        return []

    def retake(self, *, capabilities: Sequence[str], limit: int) -> list[Handout]:
        self._check(capabilities)
        return []

    def _check(self, capabilities: Sequence[str]) -> None:
        if not self.lets_in:
            raise CredentialRefused("The broker refuses this user or password")
        if not self.own or set(capabilities) - self.granted:
            raise BrokerRefused("The broker does not allow this user to do that")


class Roomy:
    """A desk with room."""

    def wait_for_room(self, _: float) -> int:
        return 1

    def post(self, _: Any) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def taker(clock: ManualClock) -> Taker:
    return Taker(("cpu", "gpu"), cast("Front", Roomy()), clock, lambda _: None, cast("StoreAddress", None))


def turns(taker: Taker, broker: Granting, count: int = 1) -> None:
    for _ in range(count):
        taker.turn(cast("WorkerBroker", broker))


def test_what_is_not_granted_any_more_keeps_nobody_from_the_rest(taker: Taker) -> None:
    broker = Granting({"cpu", "gpu"})
    turns(taker, broker, 2)
    broker.granted = {"cpu"}
    turns(taker, broker, 2)

    assert broker.reads == [("cpu", "gpu"), ("cpu",), ("cpu",)]


def test_what_is_granted_again_is_taken_again(taker: Taker, clock: ManualClock) -> None:
    broker = Granting({"gpu"})
    turns(taker, broker, 2)
    broker.granted = {"cpu", "gpu"}
    clock.advance_ms(LATER_MS)
    turns(taker, broker)

    assert broker.reads == [("gpu",), ("cpu", "gpu")]


def test_a_site_that_is_granted_nothing_of_it_reads_what_is_for_the_worker_itself(taker: Taker) -> None:
    broker = Granting(set())
    turns(taker, broker, 2)

    assert broker.reads == [()]


def test_a_refusal_for_another_reason_is_told(taker: Taker) -> None:
    broker = Granting({"cpu", "gpu"})
    turns(taker, broker)
    broker.own = False
    with pytest.raises(BrokerRefused):
        turns(taker, broker, 2)


def test_a_credential_that_is_not_accepted_any_more_is_no_matter_of_grants(
    taker: Taker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Granting({"cpu", "gpu"})
    turns(taker, broker)
    broker.lets_in = False
    with pytest.raises(CredentialRefused):
        turns(taker, broker)
    assert caplog.records == []
