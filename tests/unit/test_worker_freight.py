"""Jobs for the porter: each is answered once, whatever becomes of the porter."""

from tenure.artifacts.jobs import Discard, Ended, Job, StagingPlace
from tenure.errors import ArtifactStoreUnreachable
from tenure.testing import ManualClock
from tenure.workers.freight import NO_STORE, Freight, StoreAddress
from tenure.workers.inputs import Input
from tests.fixtures_command_run import SlowPorter

_PLACE = StagingPlace(site="lab", task_id="0" * 26, fence=1, nonce="a" * 32)


class Sender:
    """Freight, and what it has answered."""

    def __init__(self, address: str = "/store") -> None:
        self.porters: list[SlowPorter] = []
        self.made: list[str] = []
        self.broken = False
        self.address = StoreAddress(address)
        self.clock = ManualClock()
        self.freight = Freight(self._make, self.address, self.clock)
        self.ended: list[Ended] = []
        self.said: list[str] = []

    def _make(self, address: str) -> SlowPorter:
        if self.broken:
            raise ArtifactStoreUnreachable("it is not there")
        self.made.append(address)
        self.porters.append(SlowPorter())
        return self.porters[-1]

    def send(self) -> int:
        return self.freight.submit(_discard, self._then)

    def send_patiently(self) -> int:
        return self.freight.submit(_discard, self._then, self.said.append)

    def read(self) -> list[str]:
        self.freight.read()
        return [one.problem.code if one.problem else "" for one in self.ended]

    def _then(self, ended: Ended) -> list[Input]:
        self.ended.append(ended)
        return []


def _discard(number: int) -> Job:
    return Discard(number=number, place=_PLACE)


def test_a_porter_is_started_at_first_need_and_shared() -> None:
    sender = Sender()
    assert (sender.made, sender.freight.is_waiting) == ([], False)
    first, second = sender.send(), sender.send()
    assert (sender.made, sender.freight.is_waiting) == (["/store"], True)
    sender.porters[0].finish(second)
    sender.porters[0].finish(first)
    assert sender.read() == ["", ""]
    assert [one.number for one in sender.ended] == [second, first]
    assert not sender.freight.is_waiting


def test_without_an_address_or_a_way_to_start_one_the_answer_comes_nevertheless() -> None:
    sender = Sender("")
    sender.send()
    assert sender.read() == [NO_STORE]
    sender.address.announce("/there")
    sender.broken = True
    sender.send()
    assert sender.read() == [NO_STORE, "artifact_store_unreachable"]


def test_a_job_outlives_two_porters_and_no_third() -> None:
    sender = Sender()
    number = sender.send()
    for _ in range(2):
        sender.porters[0].die()
        assert sender.read() == []
        assert list(sender.porters[0].jobs) == [number]
    sender.porters[0].die()
    assert sender.read() == ["artifact"]


def test_a_patient_job_waits_for_a_store_that_does_not_answer_and_says_so_once() -> None:
    sender = Sender()
    number = sender.send_patiently()
    for _ in range(3):
        sender.porters[0].finish(number, "artifact_store_unreachable")
        assert sender.read() == []
        assert sender.freight.is_waiting
        assert not sender.porters[0].jobs
        sender.clock.advance_ms(5_000)
        assert sender.read() == []
        assert list(sender.porters[0].jobs) == [number]
    sender.porters[0].finish(number)
    assert sender.read() == [""]
    assert len(sender.said) == 1
    assert "does not answer" in sender.said[0]


def test_the_patience_of_a_job_ends_after_some_minutes() -> None:
    sender = Sender()
    number = sender.send_patiently()
    waited_ms = 0
    while not sender.ended:
        sender.porters[0].finish(number, "artifact_store_unreachable")
        while not sender.read() and not sender.porters[0].jobs:
            sender.clock.advance_ms(1_000)
            waited_ms += 1_000
    assert sender.read() == ["artifact_store_unreachable"]
    assert 180_000 <= waited_ms <= 240_000


def test_other_jobs_are_not_patient_and_other_problems_are_not_waited_for() -> None:
    sender = Sender()
    sender.porters.append(SlowPorter())
    numbers = sender.send(), sender.send_patiently()
    sender.porters[-1].finish(numbers[0], "artifact_store_unreachable")
    sender.porters[-1].finish(numbers[1], "artifact_store_full")
    assert sender.read() == ["artifact_store_unreachable", "artifact_store_full"]
    assert not sender.said


def test_a_job_that_waits_for_the_store_can_be_given_up_at_once() -> None:
    sender = Sender()
    number = sender.send_patiently()
    sender.porters[0].finish(number, "artifact_store_unreachable")
    sender.read()
    sender.freight.cancel(number)
    assert sender.read() == ["given_up"]
    assert not sender.freight.is_waiting
    sender.clock.advance_ms(60_000)
    assert sender.read() == ["given_up"]
    assert not sender.porters[0].jobs


def test_a_cancelled_job_is_not_tried_again() -> None:
    sender = Sender()
    number = sender.send()
    sender.freight.cancel(number)
    sender.porters[0].cancelled.clear()
    sender.porters[0].die()
    assert sender.read() == ["artifact"]


def test_a_store_that_has_moved_is_followed_when_nothing_is_on_its_way() -> None:
    sender = Sender("")
    sender.address.announce("/one")
    first = sender.send()
    sender.address.announce("/two")
    second = sender.send()
    assert sender.made == ["/one"]
    sender.porters[0].finish(first)
    sender.porters[0].finish(second)
    sender.read()
    sender.send()
    assert sender.made == ["/one", "/two"]
    assert sender.porters[0].closed


def test_the_workers_own_setting_wins() -> None:
    address = StoreAddress("/mine")
    address.announce("/theirs")
    assert (str(address), address.is_own, address.is_known) == ("/mine", True, True)
    assert not StoreAddress().is_known
