"""When inboxes are weighed, and that one which weighs much is not waited for behind those in which nothing is."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from tenure.broker.base import CoordinatorBroker, Delivery, Readers, SiteKeys
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore
from tenure.coordinator.intake import Intake
from tenure.coordinator.limits import InboxLimits, SiteLimits
from tenure.coordinator.people_limits import PeopleLimits, PersonLimits
from tenure.testing import ManualClock
from tests.tripwire import Trip, Tripwire

ALL = Readers(("lab", "yard"), ("ada",))
LIMITS = SiteLimits(units_per_s=10**6, burst=10**6, units_per_turn=10**5, most_waiting=300, kept_waiting=20)
LARGE = b"x" * 400_000


@dataclass
class Reading:
    """Passes on what an intake reads, and notes how long it would have waited for it."""

    inner: CoordinatorBroker
    waits_ms: list[int] = field(default_factory=list[int])

    @property
    def sites(self) -> SiteKeys:
        return self.inner.sites

    def receive(self, *, readers: Readers, limit: int, block_ms: int) -> list[Delivery]:
        self.waits_ms.append(block_ms)
        return self.inner.receive(readers=readers, limit=limit, block_ms=block_ms)


class Scene:
    """An intake over a broker in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(MemoryStore(self.clock), Keys("main"))
        self.face = self.broker.coordinator()
        self.face.ensure_streams(readers=ALL)
        self.trip = Trip()
        self.reading = Reading(Tripwire(self.face, self.trip))
        people = PeopleLimits(PersonLimits(), ("ada",), self.clock)
        limits = InboxLimits(LIMITS, free=("default",))
        self.intake = Intake(cast("CoordinatorBroker", self.reading), limits, people, self.clock, 64)

    def report(self, count: int, raw: bytes = b"{}", site: str = "lab") -> None:
        self.broker.worker(site=site, worker_id="w1").report([raw] * count)

    def turn(self) -> int:
        """One turn, whose entries are settled; how many there were."""
        self.reading.waits_ms.clear()
        portion = self.intake.receive(ALL, 250)
        found = list(portion)
        self.face.settle(found)
        return len(found)

    def weighings(self) -> int:
        return self.trip.calls.count("waiting")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_inboxes_in_which_little_is_are_weighed_now_and_then_and_not_in_every_turn(scene: Scene) -> None:
    for _ in range(20):
        scene.report(1)
        assert scene.turn() == 1
    assert scene.weighings() == 1
    scene.clock.advance_ms(300)
    scene.turn()
    assert scene.weighings() == 2


def test_an_inbox_that_is_flooded_between_two_weighings_is_read_once_and_then_cut(scene: Scene) -> None:
    scene.turn()
    scene.report(1_000)
    assert scene.turn() == 64
    assert scene.turn() <= 20
    assert scene.face.sites.waiting(ALL)["lab"].entries <= 20


def test_of_an_inbox_of_which_much_came_little_is_read_from_the_next_turn_on(scene: Scene) -> None:
    scene.turn()
    scene.report(3, LARGE)
    assert scene.turn() == 3
    scene.report(60, LARGE)
    assert [scene.turn() for _ in range(3)] == [4, 4, 4]


def test_nobody_waits_for_others_before_an_inbox_that_weighs_much_is_read(scene: Scene) -> None:
    scene.report(10, LARGE)
    assert scene.turn() == 4
    assert set(scene.reading.waits_ms) == {0}
    assert [scene.turn() for _ in range(3)] == [4, 2, 0]
    scene.clock.advance_ms(300)
    scene.turn()
    assert scene.reading.waits_ms[0] == 250


def test_an_inbox_that_weighs_much_with_nothing_to_read_in_it_lets_others_be_waited_for(scene: Scene) -> None:
    scene.report(4, LARGE)
    received = scene.face.receive(readers=Readers(("lab",)), limit=9, block_ms=0)
    scene.turn()
    scene.turn()
    assert scene.reading.waits_ms[0] == 250
    scene.face.settle(received)


def test_nobody_waits_for_others_before_an_inbox_that_weighs_more_than_when_nothing_was_read_in_it(
    scene: Scene,
) -> None:
    scene.report(4, LARGE)
    scene.face.receive(readers=Readers(("lab",)), limit=9, block_ms=0)
    scene.turn()
    scene.clock.advance_ms(300)
    scene.report(1, LARGE)
    assert scene.turn() == 1
    assert scene.reading.waits_ms[0] == 0


def test_nothing_is_weighed_for_the_sake_of_a_site_that_is_quiet_again(scene: Scene) -> None:
    scene.turn()
    scene.report(64)
    scene.turn()
    weighed = scene.weighings()
    scene.turn()
    assert scene.weighings() == weighed + 1
    scene.clock.advance_ms(11_000)
    scene.turn()
    weighed = scene.weighings()
    scene.turn()
    assert scene.weighings() == weighed
