"""A stream that holds what nobody can read holds up neither those that are read with it nor the end of any lease."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tenure.broker.base import CoordinatorBroker, Delivery, EntryId, Readers
from tenure.broker.keys import Keys
from tenure.coordinator import scheduler
from tenure.coordinator.limits import SiteLimits
from tenure.coordinator.listening import Listener
from tenure.errors import BrokerUnreachable, ReplyBeyondMeasure, StoreFull, TenureError
from tenure.protocol.client_messages import MAIL, Query, Reply
from tenure.protocol.message import decode
from tenure.protocol.principal_messages import IssuePerson, IssueSite
from tenure.protocol.worker_messages import Leaving
from tests.scripted_fleet import ScriptedClient, ScriptedFleet, ScriptedWorker

BOUNDLESS = b"boundless"
LIMITS = SiteLimits(units_per_s=1_000, burst=1_000, units_per_turn=50)
EVERYBODY = Readers(("default", "calm", "wild"), ("default", "ada"))


@dataclass
class Bounded:
    """A broker of which no reading is of any use with such an entry in it."""

    inner: CoordinatorBroker
    readings: int = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def receive(self, *, readers: Readers, limit: int, block_ms: int) -> list[Delivery]:
        return self._read(lambda: self.inner.receive(readers=readers, limit=limit, block_ms=block_ms))

    def unsettled(self, *, readers: Readers, limit: int) -> list[Delivery]:
        return self._read(lambda: self.inner.unsettled(readers=readers, limit=limit))

    def _read(self, read: Callable[[], list[Delivery]]) -> list[Delivery]:
        found = read()
        if any(each.raw == BOUNDLESS for each in found):
            self.readings += 1
            raise ReplyBeyondMeasure("far more than any entry may hold")
        return found


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, site_limits=LIMITS) as fleet:
        fleet.face = cast("CoordinatorBroker", Bounded(fleet.face))
        fleet.restart()
        for number, site in enumerate(("calm", "wild")):
            fleet.client.ask(IssueSite(site=site, capabilities=("cpu",), secret_digest=f"{number}" * 64))
        fleet.client.ask(IssuePerson(person="ada", secret_digest="a" * 64))
        yield fleet


@pytest.fixture
def wild(fleet: ScriptedFleet) -> ScriptedWorker:
    return fleet.worker("wild.w1", site="wild", capabilities=("other",))


def readings(fleet: ScriptedFleet) -> int:
    """How many were of no use."""
    return cast("Bounded", fleet.face).readings


def answered(client: ScriptedClient, *requests: str) -> bool:
    client.read()
    return set(requests) <= set(client.replies)


def received(client: ScriptedClient) -> list[str]:
    """The requests that were answered, as often as they were."""
    mail = [decode(MAIL, each.raw) for each in client.face.answers(after=EntryId(0, 0), block_ms=0)]
    return [answer.request_id for each in mail for answer in each.answers if isinstance(answer, Reply)]


def shown(fleet: ScriptedFleet, site: str) -> dict[str, object]:
    (row,) = fleet.client.query("sites", site=site)
    return row


def test_what_others_have_said_is_taken_in_the_same_turn(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    calm = fleet.worker("calm.w1", site="calm")
    ada = fleet.connect("c2", "ada")
    wild.face.report([BOUNDLESS])
    calm.send(Leaving(gone=False))
    asked = [fleet.client.send(Query(what="tasks")), ada.send(Query(what="tasks"))]
    fleet.step()
    assert fleet.records.worker("calm.w1") == "DRAINING"
    assert answered(fleet.client, asked[0])
    assert answered(ada, asked[1])


def test_no_lease_lives_longer_by_it(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    calm = fleet.worker("calm.w1", site="calm")
    task = fleet.submit()
    calm.claim()
    calm.alive = False
    for _ in range(14):
        wild.face.report([BOUNDLESS])
        fleet.live(1_000)
    assert fleet.records.state(task) == "LOST"


def test_it_is_dropped_and_that_is_on_record_once(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    for _ in range(3):
        wild.face.report([BOUNDLESS, b"{}"])
        fleet.live(2_000)
    assert fleet.records.events("flooded") == ["The inbox of wild had piled up: 2 entries were cut off unread."]
    assert shown(fleet, "wild")["inbox_cut"] == 6


def test_its_site_is_not_read_for_a_while(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    for _ in range(5):
        wild.face.report([BOUNDLESS])
        fleet.step()
    assert readings(fleet) == 2  # with others, and by itself
    fleet.clock.advance_ms(1_000)
    fleet.step()
    assert readings(fleet) == 4


def test_an_inbox_that_was_emptied_takes_reports_whatever_its_last_id_was(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    fleet.server.add(Keys("main").inbox("wild"), BOUNDLESS, EntryId(2**64 - 1, 2**64 - 1))
    fleet.step()
    fleet.live(2_000)
    wild.report(Leaving(gone=False))
    assert fleet.records.worker("wild.w1") == "DRAINING"


def test_a_persons_requests_are_dropped_and_that_is_on_record_once(fleet: ScriptedFleet) -> None:
    ada = fleet.connect("c2", "ada")
    for _ in range(3):
        fleet.server.add(Keys("main").rpc("ada"), BOUNDLESS)
        fleet.live(3_000)
    assert fleet.records.events("flooded") == ["1 requests of ada were dropped unread: one is larger than any may be."]
    asked = ada.send(Query(what="tasks"))
    fleet.step()
    assert answered(ada, asked)


def test_a_person_is_not_read_for_a_while(fleet: ScriptedFleet) -> None:
    fleet.server.add(Keys("main").rpc("ada"), BOUNDLESS)
    fleet.step()
    asked = (ada := fleet.connect("c2", "ada")).send(Query(what="tasks"))
    fleet.step(5)
    assert not answered(ada, asked)
    fleet.clock.advance_ms(2_000)
    fleet.step()
    assert answered(ada, asked)


def test_what_was_received_before_a_restart_is_found_beside_it(fleet: ScriptedFleet, wild: ScriptedWorker) -> None:
    asked = fleet.client.send(Query(what="tasks"))
    wild.face.report([BOUNDLESS])
    with pytest.raises(ReplyBeyondMeasure):
        fleet.face.receive(readers=EVERYBODY, limit=9, block_ms=0)
    fleet.restart()
    fleet.step()
    assert answered(fleet.client, asked)
    assert len(fleet.records.events("flooded")) == 0
    fleet.live(1_000)
    assert len(fleet.records.events("flooded")) == 1


def test_what_was_received_before_a_restart_is_taken_once_beside_what_is_new(
    fleet: ScriptedFleet, wild: ScriptedWorker
) -> None:
    ada = fleet.connect("c2", "ada")
    asked = [fleet.client.send(Query(what="tasks")), ada.send(Query(what="tasks"))]
    fleet.face.receive(readers=EVERYBODY, limit=9, block_ms=0)
    fleet.restart()
    wild.face.report([BOUNDLESS])
    fleet.step(3)
    assert [received(each).count(one) for each, one in zip((fleet.client, ada), asked, strict=True)] == [1, 1]


@pytest.mark.parametrize(
    ("part", "error"),
    [((Listener, "listen"), BrokerUnreachable("away")), ((scheduler, "schedule"), StoreFull("the disk is full"))],
    ids=["before the turn", "before its commit"],
)
def test_what_is_remarked_of_an_inbox_is_on_record_also_after_a_turn_that_failed(
    fleet: ScriptedFleet,
    wild: ScriptedWorker,
    monkeypatch: pytest.MonkeyPatch,
    part: tuple[object, str],
    error: TenureError,
) -> None:
    def fail(*_: object) -> None:
        raise error

    wild.face.report([BOUNDLESS])
    fleet.step()
    fleet.clock.advance_ms(1_500)
    with monkeypatch.context() as patch:
        patch.setattr(*part, fail)
        with pytest.raises(type(error)):
            fleet.step()
    fleet.live(2_000)
    assert len(fleet.records.events("flooded")) == 1


def test_however_much_was_received_before_a_restart_all_of_it_is_found_in_order(fleet: ScriptedFleet) -> None:
    ada = fleet.connect("c2", "ada")
    asked = {client.client_id: [client.send(Query(what="tasks")) for _ in range(200)] for client in (fleet.client, ada)}
    fleet.face.receive(readers=EVERYBODY, limit=999, block_ms=0)
    for client in (fleet.client, ada):
        asked[client.client_id].append(client.send(Query(what="tasks")))
    fleet.restart()
    fleet.step(20)
    for client in (fleet.client, ada):
        client.read()
        assert list(client.replies)[-201:] == asked[client.client_id]
