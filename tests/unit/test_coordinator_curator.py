"""What the coordinator has its porter do: what waits for what, and that much of it costs little."""

from tenure.artifacts.jobs import Ended, Problem, StagingPlace, Tidy
from tenure.clock import SystemClock
from tenure.coordinator.curator import Curator
from tenure.coordinator.errands import AdoptionCheck, Collecting, Discarding
from tenure.protocol.artifact import Blob, Bundle
from tests.held_porter import HeldPorter

PLACE = StagingPlace(site="lab", task_id="0" * 26, fence=1, nonce="a" * 16)
BUNDLE = Bundle(manifest=Blob(digest="0" * 64, size=1), files=1, size=1)


def check(number: int) -> AdoptionCheck:
    return AdoptionCheck(f"q{number}", PLACE, BUNDLE, "ada", "")


def collecting(*, dry_run: bool = False) -> Collecting:
    return Collecting(1, 1, dry_run, (), (), ())


def end(curator: Curator, porter: HeldPorter, kind: str) -> None:
    porter.finish(kind)
    curator.settle(curator.listen())


def test_a_collection_waits_for_readers_and_readers_for_it() -> None:
    porter = HeldPorter()
    curator = Curator(porter, "/store")
    curator.begin([check(1)])
    curator.begin([collecting(), check(2)])
    curator.begin([Discarding(PLACE)])
    assert porter.waiting() == ["verify", "discard"]
    end(curator, porter, "verify")
    assert porter.waiting() == ["discard", "tidy"]
    end(curator, porter, "tidy")
    assert porter.waiting() == ["discard", "verify"]
    curator.begin([collecting()])
    assert not any(isinstance(job, Tidy) for job in porter.jobs)


def test_counting_what_a_collection_would_remove_waits_for_nobody() -> None:
    porter = HeldPorter()
    curator = Curator(porter, "/store")
    curator.begin([check(1), collecting(dry_run=True), check(2)])
    assert sorted(porter.waiting()) == ["tidy", "verify", "verify"]


def test_what_is_under_way_is_counted_until_it_has_ended() -> None:
    porter = HeldPorter()
    curator = Curator(porter, "/store")
    curator.begin([check(1), check(1), check(2), Discarding(PLACE)])
    assert (curator.under_way("adoption"), curator.under_way("log")) == (2, 0)
    porter.finish("verify")
    ends = curator.listen()
    assert len(ends) == len(curator.listen()) == 2
    assert curator.under_way("adoption") == 0
    curator.begin([check(3)])
    curator.settle(ends)
    curator.settle(ends)
    assert curator.under_way("adoption") == 1


def test_one_end_counts_once_however_often_its_turn_is_undone() -> None:
    """A full disk undoes a turn four times a second; the store was away only once."""
    curator, key = Curator(HeldPorter(), "/store"), ("promote", "t", 1, "outputs", 0)
    problem = Problem(code="artifact_store_unreachable", message="it is away")
    assert [curator.failed(key, Ended(number=1, problem=problem), at_ms) for at_ms in range(0, 20_000, 250)] == [1] * 80
    assert (curator.waits(key, 900), curator.waits(key, 1_100)) == (True, False)
    assert curator.failed(key, Ended(number=2, problem=problem), 20_000) == 2


def test_thousands_of_waiting_checks_do_not_hold_up_a_turn() -> None:
    """A collection of a large store takes long, and results with files come in meanwhile."""
    clock = SystemClock()
    porter = HeldPorter()
    curator = Curator(porter, "/store")
    curator.begin([collecting()])
    began_ms = clock.elapsed_ms()
    for number in range(20_000):
        curator.begin([check(number)])
        curator.under_way("log")
    assert clock.elapsed_ms() - began_ms < 5_000
    end(curator, porter, "tidy")
    assert len(porter.jobs) == 20_000
