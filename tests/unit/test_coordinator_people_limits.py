"""A person who asks for much waits, and nobody else does."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tenure.broker.base import Delivery, EntryId
from tenure.broker.memory_store import START
from tenure.coordinator.people_limits import PeopleLimits, PersonLimits
from tenure.coordinator.watchers import Watchers
from tenure.protocol.client_messages import MAIL, Query, Reply, Watch
from tenure.protocol.message import decode
from tenure.protocol.principal_messages import IssuePerson, IssueSite, Role
from tenure.testing import ManualClock
from tests.scripted_fleet import ScriptedClient, ScriptedFleet, envelope
from tests.tripwire import Trip, Tripwire

NUMBERS = count(1)
RULES = PersonLimits(time_ms_per_s=100, reserve_ms=1_000, time_ms_per_turn=50, watches=2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limits(clock: ManualClock) -> PeopleLimits:
    return PeopleLimits(RULES, free=("default",), clock=clock)


def request(person: str, raw: bytes = b"", *, site: str = "") -> Delivery:
    number = next(NUMBERS)
    return Delivery(EntryId(1, number), raw or b"%09d" % number, site=site, person=person)


def taken(of: PeopleLimits, clock: ManualClock, *, each_takes_ms: int = 0) -> list[Delivery]:
    """What a turn takes when answering each request takes so long."""
    found: list[Delivery] = []
    for delivery in of.ration():
        found.append(delivery)
        clock.advance_ms(each_takes_ms)
    return found


# --- the allowance -------------------------------------------------------------------------------


def test_people_without_limits_and_sites_pass_at_once(limits: PeopleLimits, clock: ManualClock) -> None:
    received = [request("default"), request("", site="lab"), request("ada")]
    assert limits.arrived(received) == received[:2]
    assert taken(limits, clock) == received[2:]


def test_a_turn_takes_a_share_of_each_person_in_order(limits: PeopleLimits, clock: ManualClock) -> None:
    many, one = [request("ada") for _ in range(8)], [request("bob")]
    limits.arrived(many + one)
    assert taken(limits, clock, each_takes_ms=20) == many[:3] + one
    assert taken(limits, clock, each_takes_ms=20) == many[3:6]


def test_a_request_is_taken_whole_and_paid_for_later(limits: PeopleLimits, clock: ManualClock) -> None:
    long, short = request("ada"), request("ada")
    limits.arrived([long, short])
    assert taken(limits, clock, each_takes_ms=1_500) == [long]
    assert taken(limits, clock) == []
    clock.advance_ms(3_500)  # with the second and a half before it, this brings back what was used beyond the reserve
    assert taken(limits, clock) == []
    clock.advance_ms(2)
    assert taken(limits, clock) == [short]


def test_a_host_that_was_suspended_meanwhile_is_charged_to_nobody(clock: ManualClock) -> None:
    of = PeopleLimits(PersonLimits(), free=(), clock=clock)
    first, second = request("ada"), request("ada")
    of.arrived([first])
    assert taken(of, clock, each_takes_ms=3_600_000) == [first]
    of.arrived([second])
    assert taken(of, clock) == [second]
    assert of.remarks() == []


def test_what_a_request_holds_beside_its_message_costs_what_it_costs_to_read(
    limits: PeopleLimits, clock: ManualClock
) -> None:
    limits.arrived([Delivery(EntryId(1, next(NUMBERS)), b"{}", person="ada", size=64 * 1024 * 1_100), request("ada")])
    assert len(taken(limits, clock)) == 1
    assert taken(limits, clock) == []


def test_nobody_gets_into_more_debt_than_a_reserve(limits: PeopleLimits, clock: ManualClock) -> None:
    limits.arrived([request("ada"), request("ada")])
    for _ in range(50):
        limits.charge_refused("ada", 2_000)
    limits.charge_refused("nobody", 2_000)
    clock.advance_ms(10_000)
    assert taken(limits, clock) == []
    clock.advance_ms(1)
    assert len(taken(limits, clock)) == 1


def test_a_request_is_charged_whose_taking_ends_the_turn(limits: PeopleLimits, clock: ManualClock) -> None:
    limits.arrived([request("ada"), request("ada")])
    turn = limits.ration()
    next(turn)
    clock.advance_ms(1_500)
    del turn  # as when an exception leaves the loop over it
    assert taken(limits, clock) == []


def test_a_turn_that_nobody_else_wants_costs_nothing(limits: PeopleLimits, clock: ManualClock) -> None:
    limits.arrived([request("ada") for _ in range(3)])
    assert len(taken(limits, clock, each_takes_ms=1_900)) == 1
    given = limits.given_away()
    next(given)
    clock.advance_ms(49)
    next(given)
    clock.advance_ms(9_000)
    assert list(given) == []
    limits.arrived([request("ada")])
    assert len(taken(limits, clock)) == 1


def test_a_copy_of_what_waits_is_not_taken_again_and_costs_what_its_bytes_do(
    limits: PeopleLimits, clock: ManualClock
) -> None:
    first, copy, other = request("ada", b"same"), request("ada", b"same"), request("bob", b"same")
    limits.arrived([first, other, copy])
    assert (limits.copies(), limits.copies()) == ([copy], [])
    assert taken(limits, clock) == [first, other]
    again = request("ada", b"same")
    limits.arrived([again])
    assert (limits.copies(), taken(limits, clock)) == ([], [again])
    limits.arrived([request("ada", b"same") for _ in range(10_001)])
    assert taken(limits, clock) == []


def test_requests_cost_something_that_take_no_time_and_their_bytes_do(limits: PeopleLimits, clock: ManualClock) -> None:
    limits.arrived([request("ada") for _ in range(9_000)] + [request("bob", bytes(64 * 1024 * 60)), request("bob")])
    assert len(taken(limits, clock)) == 500 + 1
    assert sum(len(taken(limits, clock)) for _ in range(25)) == 9_000 - 500 + 1


def test_of_who_has_something_held_more_is_read_once_a_second(limits: PeopleLimits, clock: ManualClock) -> None:
    limits.readable(("ada",))
    limits.arrived([request("ada")])
    clock.advance_ms(999)
    assert limits.readable(("ada",)) == ()
    clock.advance_ms(1)
    assert limits.readable(("ada",)) == ("ada",)
    assert limits.readable(("ada",)) == ()
    limits.arrived([request("ada") for _ in range(63)])
    clock.advance_ms(1_000)
    assert limits.readable(("ada",)) == ()


def test_who_has_something_held_is_not_read_at_once(limits: PeopleLimits, clock: ManualClock) -> None:
    assert limits.readable(("default", "ada", "bob")) == ("default", "ada", "bob")
    limits.arrived([request("ada"), request("ada")])
    assert limits.readable(("default", "ada", "bob")) == ("default", "bob")
    assert limits.wait_ms() == 0
    assert len(taken(limits, clock, each_takes_ms=49)) == 2
    assert limits.readable(("default", "ada", "bob")) == ("default", "ada", "bob")
    assert limits.wait_ms() is None


def test_what_waits_is_dropped_when_it_is_about_to_come_again_or_the_person_is_gone(
    limits: PeopleLimits, clock: ManualClock
) -> None:
    limits.arrived([request("ada")])
    limits.forget()
    assert taken(limits, clock) == []
    limits.arrived([request("ada")])
    limits.readable(("bob",))
    assert taken(limits, clock) == []


def test_that_somebody_has_asked_for_too_much_is_remarked_once(limits: PeopleLimits, clock: ManualClock) -> None:
    remarks: list[str] = []
    for _ in range(3):
        limits.arrived([request("ada"), request("bob")])
        for delivery in limits.ration():
            clock.advance_ms(1_500 if delivery.person == "ada" else 0)
        remarks += limits.remarks()
        clock.advance_ms(10_000_000)

    assert remarks == ["ada asks for more than a person may of the coordinator's time: requests wait for others."]


def test_the_limits_let_a_hundred_thousand_tasks_pass_in_one_go(clock: ManualClock) -> None:
    """A hundred requests with a thousand tasks each, half a second of a slow machine each, one per turn."""
    of = PeopleLimits(PersonLimits(), free=(), clock=clock)
    sizes = 1_000 * 600
    for _ in range(100):
        of.arrived([request("ada", bytes(sizes))])
        assert len(taken(of, clock, each_takes_ms=500)) == 1


# --- watches -------------------------------------------------------------------------------------


def test_of_a_person_who_watches_too_much_the_oldest_is_forgotten() -> None:
    watchers = Watchers(2)
    watchers.add("t1", "ada:c1")
    watchers.add("t2", "ada:c1")
    watchers.add("t1", "ada:c1")  # asked again: now t2 is the oldest
    watchers.add("t1", "bob:c1")
    watchers.add("t3", "ada:c2")

    assert [watchers.of(task) for task in ("t1", "t2", "t3")] == [{"ada:c1", "bob:c1"}, set(), {"ada:c2"}]


def test_a_task_that_is_over_gives_its_watches_back() -> None:
    watchers = Watchers(2)
    for number in range(9):
        watchers.add(f"t{number}", "ada:c1")
        watchers.forget(f"t{number}")
    watchers.add("a", "ada:c1")
    watchers.add("b", "ada:c1")

    assert [watchers.of(task) for task in ("t8", "a", "b")] == [set(), {"ada:c1"}, {"ada:c1"}]


def test_without_credentials_anybody_watches_anything() -> None:
    watchers = Watchers(2)
    for number in range(9):
        watchers.add(f"t{number}", "c1")

    assert all(watchers.of(f"t{number}") == {"c1"} for number in range(9))


# --- in the loop ---------------------------------------------------------------------------------


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, person_limits=PersonLimits(10, 10, 1, 2)) as fleet:
        for number, name in enumerate(("ada", "bob")):
            fleet.client.ask(IssuePerson(person=name, role=Role.SUBMITTER, secret_digest=f"{number}" * 64))
        yield fleet


def answered(client: ScriptedClient) -> int:
    client.read()
    return len(client.replies)


def test_a_flood_of_requests_is_answered_in_shares_and_others_at_once(fleet: ScriptedFleet) -> None:
    wild, calm = fleet.connect("c1", "ada"), fleet.connect("c1", "bob")
    for _ in range(60):
        wild.send(Query(what="tasks"))
    fleet.step()
    assert 0 < answered(wild) <= 20
    assert calm.ask(Query(what="tasks")).refusal is None
    fleet.client.ask(IssueSite(site="lab", capabilities=("cpu",), secret_digest="f" * 64))
    assert answered(wild) < 60


def test_what_was_held_back_of_a_person_is_answered_in_the_end(fleet: ScriptedFleet) -> None:
    wild, calm = fleet.connect("c1", "ada"), fleet.connect("c1")
    for _ in range(300):
        wild.send(Query(what="tasks"))
    for _ in range(20):
        calm.ask(Query(what="tasks"))
    assert 90 <= answered(wild) <= 110
    fleet.live(30_000)

    assert answered(wild) == 300
    assert fleet.records.events("flooded") == [
        "ada asks for more than a person may of the coordinator's time: requests wait for others."
    ]


def test_who_has_used_their_time_up_goes_on_while_nobody_else_asks(fleet: ScriptedFleet) -> None:
    wild = fleet.connect("c1", "ada")
    for _ in range(300):
        wild.send(Query(what="tasks"))
    fleet.step(40)

    assert answered(wild) == 300


def test_a_request_that_was_repeated_while_it_waited_is_answered_once(fleet: ScriptedFleet) -> None:
    wild = fleet.connect("c1", "ada")
    for number in range(15):
        wild.send(Query(what="tasks"), request_id=f"q{number}")
    fleet.step()
    assert answered(wild) < 15
    for _ in range(9):
        wild.send(Query(what="tasks"), request_id="q14")
    fleet.clock.advance_ms(1_000)
    fleet.step(9)

    answers = [each for entry in wild.face.answers(after=START, block_ms=0) for each in decode(MAIL, entry.raw).answers]
    assert [each.request_id for each in answers if isinstance(each, Reply)].count("q14") == 1


def test_a_request_that_the_store_refuses_is_paid_for_with_all_the_time_that_it_took(tmp_path: Path) -> None:
    rule = "CREATE TRIGGER a_rule BEFORE INSERT ON task BEGIN SELECT RAISE(ABORT, 'a rule'); END"
    with ScriptedFleet(tmp_path, person_limits=PersonLimits(10, 1_000, 50, 2)) as fleet:
        fleet.client.ask(IssuePerson(person="ada", role=Role.SUBMITTER, secret_digest="a" * 64))
        slow = Trip(when="after", act=lambda: fleet.clock.advance_ms(1_500))
        fleet.face = Tripwire(fleet.broker.coordinator(), slow)
        fleet.restart()
        fleet.step()
        with closing(sqlite3.connect(fleet.options.database)) as connection:
            connection.execute(rule)
        wild, calm = fleet.connect("c1", "ada"), fleet.connect("c2")
        wild.send(wild.submission(envelope()))
        slow.calls.clear()
        slow.at = 2
        fleet.step()
        assert slow.calls[1] == "settle"
        wild.send(Query(what="tasks"))
        calm.ask(Query(what="tasks"))
        assert answered(wild) == 0


def test_what_was_held_back_of_a_person_is_answered_by_the_next_coordinator(fleet: ScriptedFleet) -> None:
    wild = fleet.connect("c1", "ada")
    for _ in range(40):
        wild.send(Query(what="tasks"))
    fleet.step()
    taken = answered(wild)
    assert taken < 40
    fleet.restart()
    fleet.step()

    assert taken < answered(wild) < 40  # in shares, as before
    fleet.step(5)
    assert answered(wild) == 40


def test_clients_that_are_made_up_do_not_fill_the_memory(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(slots=9)
    tasks = [fleet.connect("c0", "ada").submit(envelope()) for _ in range(1)]
    clients = [fleet.connect(f"c{number}", "ada") for number in range(1, 5)]
    for client in clients:
        fleet.clock.advance_ms(1_000)
        client.ask(Watch(task_ids=tuple(tasks)))
    worker.finish(worker.claim())

    assert [bool(client.read()) for client in clients] == [False, False, True, True]
