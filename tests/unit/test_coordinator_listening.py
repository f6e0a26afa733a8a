"""Of each site no more heartbeats are read and decoded than it can have a reason to write."""

from tenure.broker.base import EntryId, WorkerAddress
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore
from tenure.coordinator.fleet import WorkerView
from tenure.coordinator.limits import InboxLimits, SiteLimits
from tenure.coordinator.listening import Listener
from tenure.coordinator.live import LiveLease, LiveLeases
from tenure.protocol.states import LeaseState, WorkerState
from tenure.protocol.worker_messages import HEARTBEAT, Heartbeat, Held
from tenure.testing import ManualClock
from tests.tripwire import Trip, Tripwire

RULES = SiteLimits(units_per_s=1_000, burst=1_000)
TASK = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Scene:
    """A broker in memory, a listener, and workers of a site with limits and of one without."""

    def __init__(self) -> None:
        broker = MemoryBroker(MemoryStore(ManualClock()), Keys("main"))
        self.broker = broker
        self.limits = InboxLimits(RULES, free=("default",))
        self.trip = Trip()
        self.listener = Listener(Tripwire(broker.coordinator(), self.trip), self.limits)
        self.leases = LiveLeases()
        self.workers: list[WorkerView] = []

    def worker(self, name: str, *, site: str = "lab", bound: int = 0) -> WorkerView:
        worker = WorkerView(
            worker_id=name,
            site=site,
            generation=1,
            state=WorkerState.ACTIVE,
            slots=1,
            capabilities=frozenset({"cpu"}),
            labels=frozenset(),
            resources={},
            ttl_ms=10_000,
            seen_ms=0,
            bound=bound,
        )
        self.workers.append(worker)
        return worker

    def beat(self, worker: WorkerView, holds: int = 0, sequence: int = 1) -> None:
        held = tuple(Held(task_id=TASK, fence=2**53 - 1, state="launched") for _ in range(holds))
        self.write(worker, HEARTBEAT.dump_json(Heartbeat(generation=1, sequence=sequence, window=1, held=held)))

    def write(self, worker: WorkerView, raw: bytes) -> None:
        self.broker.worker(site=worker.site, worker_id=worker.worker_id).beat(raw, 10**9)

    def lease(self, number: int, *, worker_id: str = "", ttl_ms: int = 10_000) -> None:
        self.leases.add(
            LiveLease(
                task_id=f"{number:026}",
                fence=number,
                attempt=1,
                digest="0" * 64,
                run="r",
                state=LeaseState.ACTIVE if worker_id else LeaseState.OFFERED,
                start="granted",
                ttl_ms=ttl_ms,
                site="lab",
                capability="cpu",
                directed_to="",
                entry_id=EntryId(1, number),
                renewed_ms=0,
                worker_id=worker_id,
            )
        )

    def spend(self, now_ms: int) -> None:
        """The site's inbox takes all of the allowance."""
        while self.limits.afford("lab", 1_000, now_ms):
            pass

    def heard(self, now_ms: int = 0) -> list[str]:
        found = self.listener.listen(self.workers, self.leases, now_ms)
        for worker, beat in found:
            worker.beat = beat.sequence
        return [worker.worker_id for worker, _ in found]


def test_a_heartbeat_is_news_once() -> None:
    scene = Scene()
    worker = scene.worker("lab.w1")
    scene.beat(worker)
    assert [scene.heard() for _ in range(2)] == [["lab.w1"], []]
    scene.beat(worker, sequence=2)
    assert scene.heard() == ["lab.w1"]


def test_what_was_read_before_is_news_again_to_whoever_has_forgotten_it() -> None:
    scene = Scene()
    worker = scene.worker("lab.w1")
    scene.beat(worker)
    assert scene.heard() == ["lab.w1"]
    worker.beat = -1
    assert scene.heard() == ["lab.w1"]
    worker.generation = 2
    assert scene.heard() == ["lab.w1"]


def test_rubbish_is_no_news_until_it_is_none_any_more() -> None:
    scene = Scene()
    worker = scene.worker("lab.w1")
    for raw in (b"{}", b"{}", b"\xff"):
        scene.write(worker, raw)
        assert scene.heard() == []
    scene.beat(worker)
    assert scene.heard() == ["lab.w1"]


def test_a_worker_with_ten_thousand_leases_is_heard_whole_at_every_look() -> None:
    """Its heartbeat is shorter than the longest that there may be, and costs its site nothing."""
    scene = Scene()
    honest = scene.worker("lab.w1", bound=10_000)
    for sequence in range(5):
        held = tuple(Held(task_id=TASK, fence=9_999, state="running") for _ in range(10_000))
        beat = Heartbeat(generation=1, sequence=sequence, window=1, held=held)
        scene.write(honest, HEARTBEAT.dump_json(beat))
        ((_, found),) = scene.listener.listen(scene.workers, scene.leases, 0)
        assert len(found.held) == 10_000
        honest.beat = sequence


def test_what_lists_offers_that_are_at_its_site_costs_nothing() -> None:
    scene = Scene()
    for number in range(100):
        scene.lease(number)
    worker = scene.worker("lab.w1")
    for sequence in range(1, 50):
        scene.beat(worker, holds=100, sequence=sequence)
        assert scene.heard() == ["lab.w1"]


def test_long_heartbeats_use_up_the_allowance_of_their_site_alone_and_are_heard_in_turn() -> None:
    scene = Scene()
    names = [f"lab.w{number}" for number in range(3)]
    for name in names:
        scene.beat(scene.worker(name), holds=1_000)
    scene.beat(scene.worker("lab.small"))
    scene.beat(scene.worker("yard.w1", site="yard"))
    scene.beat(scene.worker("w1", site="default"), holds=5_000)

    first = scene.heard(0)
    assert first == [names[0], "lab.small", "yard.w1", "w1"]
    assert scene.heard(1) == []
    for worker in scene.workers[:3]:
        scene.beat(worker, holds=1_000, sequence=2)
    later = [name for now_ms in range(1_000, 20_000, 1_000) for name in scene.heard(now_ms)]
    assert later[:3] == [names[1], names[2], names[0]]


def test_what_no_heartbeat_may_be_is_not_read_and_costs_nothing() -> None:
    scene = Scene()
    scene.write(scene.worker("lab.w1"), b"x" * 800_000)
    long = scene.worker("lab.w2")
    scene.beat(long, holds=100)
    assert scene.heard() == ["lab.w2"]
    assert scene.broker.coordinator().sites.heartbeat_sizes([WorkerAddress("lab", "lab.w1")]) == [800_000]


def test_a_worker_is_heard_before_its_leases_are_over_though_the_inbox_takes_all_of_the_allowance() -> None:
    scene = Scene()
    worker = scene.worker("lab.w1", bound=1)
    scene.lease(1, worker_id="lab.w1", ttl_ms=6_000)
    moments: list[int] = []
    for now_ms in range(0, 12_000, 500):
        scene.beat(worker, holds=100, sequence=now_ms + 1)
        scene.spend(now_ms)
        moments += [now_ms for _ in scene.heard(now_ms)]
    assert moments == [2_500, 5_500, 8_500, 11_500]


def test_of_workers_that_were_passed_over_no_more_is_read_in_a_second_than_the_longest_heartbeat() -> None:
    """However often heartbeats are looked at, which is more often the shorter the leases are."""
    scene = Scene()
    names = [f"lab.w{number}" for number in range(3)]
    for name in names:
        scene.beat(scene.worker(name), holds=5_000)
    looks: list[list[str]] = []
    for now_ms in (0, 3_500, 3_501, 4_500, 4_501, 5_500):
        scene.spend(now_ms)
        looks.append(scene.heard(now_ms))
    assert looks == [[], names[:1], [], names[1:2], [], names[2:]]


def test_only_heartbeats_that_are_longer_than_they_should_be_are_measured_and_read_twice() -> None:
    scene = Scene()
    for number in range(3):
        scene.beat(scene.worker(f"lab.w{number}", bound=10), holds=10)
    assert len(scene.heard()) == 3
    assert scene.trip.calls == ["heartbeats"]
    scene.beat(scene.workers[1], holds=100, sequence=2)
    assert scene.heard() == ["lab.w1"]
    assert scene.trip.calls[1:] == ["heartbeats", "heartbeat_sizes", "heartbeats"]
