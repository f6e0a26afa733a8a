"""Submitting, waiting, cancelling and asking, against a scripted fleet."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

import tenure
from tenure.client.calls import Call
from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.errors import (
    FleetError,
    InvalidArguments,
    KeyConflict,
    PayloadTooLarge,
    TaskAbandoned,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    UnknownHandler,
    UnknownTask,
    UsageError,
    WaitTimedOut,
)
from tenure.protocol.client_messages import Query, Refusal
from tenure.protocol.envelope import CallWork, CommandWork, Envelope
from tenure.protocol.states import TaskState
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_client import ScriptedFleet
from tests.fixtures_handlers import Point, anything, exponent, greet, move
from tests.waiting import wait_until


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet(ManualClock(), time_passes=False)


def client_of(fleet: ScriptedFleet, **options: Any) -> Client:
    return Client.over(fleet.connect, ClientOptions(**options), clock=fleet.clock, entropy=SeededEntropy(1))


@pytest.fixture
def client(fleet: ScriptedFleet) -> Iterator[Client]:
    with client_of(fleet, principal="ada") as client:
        yield client


def half(envelope: Envelope) -> str:
    assert isinstance(envelope.work, CallWork)
    return "0.5"


# --- submitting ----------------------------------------------------------------------------------


NO_TEXT: list[Callable[[Client], object]] = [
    lambda client: client.command(["echo", "a\udcffb"]),
    lambda client: client.command(["echo"], env={"A": "\udcff"}),
    lambda client: client.command(["cat"], stdin="\ud800"),
    lambda client: client.command(["train"], form="folder", parameters={"a": "\udcff"}),
    lambda client: client.submit("tasks:f", "\udcff"),
    lambda client: client.submit("tasks:f", a="\udcff"),
    lambda client: client.submit("tasks:f", **{"\udcff": 1}),
    lambda client: client.using(labels={"r": "\udcff"}).submit("tasks:f"),
    lambda client: client.using(labels={"\udcff": "r"}).command(["echo"]),
    lambda client: client.using(label="\udcff").submit("tasks:f"),
    lambda client: client.using(key="\udcff").command(["echo"]),
    lambda client: client.using().submit_many([Call("tasks:f", key="\udcff")]),
    lambda client: client.using(run="\udcff"),
    lambda client: client.using(campaign="\udcff"),
    lambda client: client.using(worker="\udcff").submit("tasks:f"),
    lambda client: client.using(capability="\udcff").submit("tasks:f"),
    lambda client: client.using(secrets=["\udcff"]).submit("tasks:f"),
    lambda client: client.ask(Query(what="tasks", where=(("run", "\udcff"),))),
]


@pytest.mark.parametrize("submits", NO_TEXT)
def test_texts_that_are_not_utf8_are_refused_before_anything_is_sent(
    fleet: ScriptedFleet, client: Client, submits: Callable[[Client], object]
) -> None:
    with pytest.raises(UsageError):
        submits(client)
    assert not fleet.asks


def test_a_text_that_is_not_utf8_is_named(client: Client) -> None:
    with pytest.raises(UsageError, match=r"work\.argv\.1 holds half"):
        client.command(["echo", "a\udcffb"])


def test_a_submitted_call_gives_its_value(fleet: ScriptedFleet, client: Client) -> None:
    fleet.work = half
    handle = client.submit(exponent, 28.0)
    assert handle.result(timeout=10) == 0.5
    assert (handle.task_id, handle.state, handle.fence) == ("0" * 26, TaskState.SUCCEEDED, 7)
    assert (handle.args, dict(handle.kwargs)) == ((28.0,), {})
    assert fleet.principals == {"ada"}


def test_the_envelope_says_what_the_decorator_and_the_submitter_say(fleet: ScriptedFleet, client: Client) -> None:
    client.submit(exponent, 28.0, steps=5)
    client.using(capability="gpu", timeout="1m", labels={"room": "b12"}, run="night").submit(exponent, 1.0)
    plain, changed = fleet.envelopes.values()
    work = plain.work
    assert isinstance(work, CallWork)
    assert (work.handler, work.arguments) == (
        "tests.fixtures_handlers:exponent",
        '{"args":[28.0],"kwargs":{"steps":5}}',
    )
    assert (plain.capability, plain.lease_ttl_ms, plain.retry.lost) == ("cpu", 120_000, 2)
    assert (plain.scope.world, plain.scope.run) == ("main", "default")
    assert (changed.capability, changed.timeout_ms, changed.lease_ttl_ms) == ("gpu", 60_000, 120_000)
    assert (changed.requirements.labels, changed.scope.run) == ((("room", "b12"),), "night")


def test_a_reference_is_submitted_unchecked(fleet: ScriptedFleet, client: Client) -> None:
    client.submit("elsewhere:run", "anything", n=1)
    (envelope,) = fleet.envelopes.values()
    assert envelope.work == CallWork(handler="elsewhere:run", arguments='{"args":["anything"],"kwargs":{"n":1}}')


def test_a_command_is_submitted(fleet: ScriptedFleet, client: Client) -> None:
    client.command(["wc", "-w"], env={"B": "2", "A": "1"}, stdin="two words")
    (envelope,) = fleet.envelopes.values()
    assert envelope.work == CommandWork(argv=("wc", "-w"), env=(("A", "1"), ("B", "2")), stdin="two words")


def test_values_are_read_as_the_return_hint_says(fleet: ScriptedFleet, client: Client) -> None:
    fleet.work = lambda _: '{"x":1,"y":[2,3]}'
    assert client.submit(move, Point(1.0)).result(10) == Point(1.0, (2, 3))
    assert client.submit("tests.fixtures_handlers:move", {"x": 1}).result(10) == {"x": 1, "y": [2, 3]}


def test_map_zips_its_iterables_in_order(fleet: ScriptedFleet, client: Client) -> None:
    fleet.work = half
    handles = client.map(exponent, [1.0, 2.0, 3.0], [10, 20])
    assert [handle.args for handle in handles] == [(1.0, 10), (2.0, 20)]
    assert [handle.task_id for handle in handles] == list(fleet.envelopes)
    assert client.map(exponent, []) == []


def test_several_functions_go_out_together(fleet: ScriptedFleet, client: Client) -> None:
    calls = [Call(exponent, (1.0,)), Call("a:b", (), {"c": 1}, key="mine"), Call(greet, ("you",))]
    client.using(capability="x").submit_many(calls)
    client.using().submit_work([CommandWork(argv=("ls",))])
    assert len(fleet.submitted()) == 2
    assert "mine" in fleet.keys
    assert {envelope.capability for envelope in list(fleet.envelopes.values())[:3]} == {"x"}


def test_a_key_that_leaves_no_room_for_the_tasks_numbers_is_refused(fleet: ScriptedFleet, client: Client) -> None:
    """The coordinator could not read such a request, and so would never answer it."""
    with pytest.raises(UsageError, match="130 characters"):
        client.using(key="k" * 128).map(exponent, [1.0])
    assert fleet.submitted() == []


def test_many_tasks_are_sent_in_bounded_requests(fleet: ScriptedFleet) -> None:
    fleet.work = half
    with client_of(fleet, batch_tasks=100, requests_in_flight=2) as client:
        handles = client.map(exponent, (float(number) for number in range(1_050)))
        assert [handle.result(10) for handle in handles] == [0.5] * 1_050
    assert [len(submit.items) for submit in fleet.submitted()] == [100] * 10 + [50]


def test_large_tasks_share_a_request_only_while_they_fit(fleet: ScriptedFleet) -> None:
    with client_of(fleet, batch_bytes=50_000) as client:
        client.map(anything, ['"' * 5_000, "ü" * 10_000] * 4 + ["x" * 60_000])
    assert max(map(len, fleet.raw_requests[:-1])) <= 50_000
    assert len(fleet.submitted()[-1].items) == 1


def test_map_reads_its_iterable_only_as_far_as_requests_have_gone_out(fleet: ScriptedFleet) -> None:
    fleet.silent = fleet.time_passes = True
    taken: list[float] = []

    def numbers() -> Iterator[float]:
        for number in range(1_000):
            taken.append(number)
            yield float(number)

    with (
        client_of(fleet, batch_tasks=10, requests_in_flight=2, patience_ms=1_000) as client,
        pytest.raises(FleetError, match="no coordinator"),
    ):
        client.map(exponent, numbers())
    assert len(taken) < 50


REFUSED: Sequence[tuple[Callable[[Client], object], type[Exception]]] = [
    (lambda client: client.submit(exponent, cast("Any", "28")), InvalidArguments),
    (lambda client: client.submit(exponent, float("nan")), InvalidArguments),
    (lambda client: client.submit(lambda: 1), UnknownHandler),
    (lambda client: client.submit("no reference"), UnknownHandler),
    (lambda client: client.submit(anything, "x" * 70_000), PayloadTooLarge),
    (lambda client: client.submit(anything, "ü" * 33_000), PayloadTooLarge),
    (lambda client: client.command([]), UsageError),
    (lambda client: client.command("ls"), UsageError),
    (lambda client: client.using(priority=2_000).submit(anything, 1), UsageError),
    (lambda client: client.using(capability="ü").submit(anything, 1), UsageError),
    (lambda client: client.using(start="claimed", exclusive=True), UsageError),
    (lambda client: client.using(**cast("Any", {"capabilty": "cpu"})), UsageError),
    (lambda client: client.using(key="k" * 129), UsageError),
    (lambda client: client.using(run="not a name"), UsageError),
]


@pytest.mark.parametrize(("submit", "error"), REFUSED)
def test_what_is_wrong_is_refused_before_anything_is_sent(
    fleet: ScriptedFleet, client: Client, submit: Any, error: Any
) -> None:
    with pytest.raises(error) as caught:
        submit(client)
    assert str(caught.value)
    assert fleet.asks == []


def test_a_wrong_item_says_how_many_went_out_before_it(fleet: ScriptedFleet) -> None:
    with client_of(fleet, batch_tasks=2, requests_in_flight=1) as client, pytest.raises(InvalidArguments) as caught:
        client.map(exponent, [1.0, 2.0, 3.0, 4.0, "five"])
    assert len(fleet.tasks) == 2
    assert "2 of this call's tasks were stored before" in caught.value.__notes__[0]


# --- keys ----------------------------------------------------------------------------------------


def test_keys_are_unique_unless_they_are_given(fleet: ScriptedFleet, client: Client) -> None:
    first, second = client.submit(anything, 1), client.submit(anything, 1)
    assert first.task_id != second.task_id
    mine = client.using(key="sweep-1")
    assert mine.submit(anything, 1).task_id == mine.submit(anything, 1).task_id
    once, again = mine.map(anything, [1, 2, 3]), mine.map(anything, [1, 2, 3])
    assert [handle.task_id for handle in once] == [handle.task_id for handle in again]
    assert {"sweep-1", "sweep-1:0", "sweep-1:2"} <= fleet.keys.keys()


def test_keys_of_a_map_go_on_counting_across_requests(fleet: ScriptedFleet) -> None:
    with client_of(fleet, batch_tasks=2) as client:
        client.using(key="k").map(anything, range(5))
    assert list(fleet.keys) == ["k:0", "k:1", "k:2", "k:3", "k:4"]


def test_a_key_whose_task_is_over_gives_its_value(fleet: ScriptedFleet, client: Client) -> None:
    fleet.work = half
    mine = client.using(key="once")
    assert mine.submit(exponent, 1.0).result(10) == 0.5
    assert mine.submit(exponent, 1.0).result(10) == 0.5


def test_a_refusal_is_raised_as_the_error_that_it_was(fleet: ScriptedFleet, client: Client) -> None:
    fleet.refusal = Refusal(code="key_conflict", message="another envelope", remedy="Choose another key")
    with pytest.raises(KeyConflict, match=r"another envelope\. Choose another key"):
        client.submit(anything, 1)
    fleet.refusal = Refusal(code="of_the_future", message="not yet known")
    with pytest.raises(FleetError, match="not yet known"):
        client.submit(anything, 1)


# --- ends ----------------------------------------------------------------------------------------


def test_a_failure_carries_kind_message_and_trace(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    fleet.end(handle.task_id, TaskState.FAILED)
    with pytest.raises(TaskFailed, match=f"task {handle.task_id} failed: ValueError: no") as caught:
        handle.result(10)
    assert (caught.value.kind, caught.value.trace) == ("exception", "Traceback ...")
    assert isinstance(handle.exception(), TaskFailed)


def test_an_abandoned_task_raises(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    fleet.end(handle.task_id, TaskState.ABANDONED)
    with pytest.raises(TaskAbandoned):
        handle.result(10)


def test_a_lost_task_raises_with_the_remedy(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    fleet.end(handle.task_id, TaskState.LOST)
    with pytest.raises(TaskLost, match=f"tenure directives approve {handle.task_id}"):
        handle.result(10)
    assert handle.state is TaskState.LOST


def test_a_lost_task_can_be_waited_for(fleet: ScriptedFleet) -> None:
    with client_of(fleet, lost="wait") as client:
        handle = client.submit(anything, 1)
        fleet.end(handle.task_id, TaskState.LOST)
        wait_until(lambda: handle.state is TaskState.LOST, "the loss is known")
        assert not handle.done()
        fleet.end(handle.task_id, TaskState.SUCCEEDED, "[1]")
        assert handle.result(10) == [1]


def test_waiting_too_briefly_leaves_the_task_alone(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    with pytest.raises(WaitTimedOut, match="It goes on"):
        handle.result(timeout=0)
    with pytest.raises(TimeoutError):
        handle.exception(timeout=0)
    fleet.end(handle.task_id, value="1")
    assert handle.result(10) == 1


def test_cancelling_a_queued_task_is_confirmed(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    assert handle.cancel()
    assert handle.cancelled()
    assert handle.done()
    assert handle.cancel()
    with pytest.raises(TaskCancelled):
        handle.result()
    assert isinstance(handle.exception(), TaskCancelled)


def test_cancelling_a_running_task_goes_on(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    fleet.tasks[handle.task_id] = fleet.tasks[handle.task_id].model_copy(update={"state": TaskState.RUNNING})
    assert not handle.cancel()
    fleet.end(handle.task_id, TaskState.CANCELLED)
    with pytest.raises(TaskCancelled):
        handle.result(10)


def test_several_tasks_are_cancelled_by_handle_or_id(fleet: ScriptedFleet, client: Client) -> None:
    first, second, third = client.map(anything, [1, 2, 3])
    fleet.end(third.task_id, value="1")
    assert client.cancel([first, second.task_id, third], reason="enough") == {first.task_id, second.task_id}


def test_a_handle_is_an_asyncio_citizen(fleet: ScriptedFleet, client: Client) -> None:
    fleet.work = half

    async def gather() -> list[float]:
        return await asyncio.gather(*map(asyncio.wrap_future, client.map(exponent, [1.0, 2.0])))

    assert asyncio.run(gather()) == [0.5, 0.5]


def test_a_task_is_attached_to_by_its_id(fleet: ScriptedFleet, client: Client) -> None:
    task_id = client.submit(anything, 1).task_id
    with client_of(fleet) as other:
        attached = other.handle(task_id)
        fleet.end(task_id, value='"late"')
        assert attached.result(10) == "late"
        assert other.handle(task_id).result(10) == "late"


@pytest.mark.parametrize("task_id", ["", "nonsense", "9" * 26, "!" * 26])
def test_an_unknown_task_is_refused(client: Client, task_id: str) -> None:
    with pytest.raises(UnknownTask):
        client.handle(task_id)


def test_anything_of_the_protocol_can_be_asked(fleet: ScriptedFleet, client: Client) -> None:
    assert client.ask(Query(what="workers")).rows == ({"asked": "query"},)


def test_the_clients_names_are_exported() -> None:
    assert tenure.Client is Client
    assert "Handle" in dir(tenure)
    with pytest.raises(AttributeError, match="no attribute 'Klient'"):
        getattr(tenure, "Kl" + "ient")
