"""Calls with files on a worker with real children."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.protocol.artifact import Checkpoint, Input
from tenure.protocol.control_messages import Stop, StopReason
from tenure.protocol.envelope import CallWork, Envelope, Scope
from tenure.protocol.worker_messages import Cause, Checkpointed, FailureKind, Finished, Released
from tests.fixtures_worker import Bench, results_of
from tests.fixtures_worker_depot import Depot, folders, kind_of, value_of
from tests.waiting import wait_until

HANDLERS = "tests.fixtures_worker_file_handlers"
StartBench = Callable[..., Bench]


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path)


@pytest.fixture
def start(tmp_path: Path, depot: Depot) -> Iterator[StartBench]:
    benches: list[Bench] = []

    def start_one(**options: Any) -> Bench:
        settings = {"porter": depot.make_porter, "artifacts": depot.address, "allow": (HANDLERS,), **options}
        benches.append(Bench(tmp_path / "state", **settings))
        return benches[-1]

    yield start_one
    for bench in benches:
        bench.close()


def call(function: str, *args: Any, files: bool = True, **fields: Any) -> Envelope:
    arguments = json.dumps({"args": args, "kwargs": {}})
    work = CallWork(handler=f"{HANDLERS}:{function}", arguments=arguments, files=files)
    return Envelope(work=work, scope=Scope(world="world", run="run"), **fields)


def only_children(bench: Bench) -> bool:
    """Whether no folder of a call is left; a child keeps its own."""
    return all(name.startswith("child-") for name in folders(bench))


def test_a_call_finds_its_inputs_and_its_outputs_are_staged(start: StartBench, depot: Depot) -> None:
    bench = start()
    inputs = (Input(path="data/a.txt", content=depot.put(b"hello")),)
    (ticket,) = bench.publish(call("copy_in_capitals", files=False, inputs=inputs))
    finished = bench.result(ticket)
    assert value_of(finished) == ["checkpoint", "inputs", "outputs"]
    assert finished.outputs is not None
    assert depot.accept(finished, finished.outputs) == {"b.txt": "HELLO"}
    wait_until(lambda: only_children(bench), "the call's folder is gone")


def test_an_async_call_with_files_has_the_child_to_itself(start: StartBench, depot: Depot) -> None:
    bench = start(slots=1)
    for finished in results_of(bench, *[call("leave_later") for _ in range(4)]):
        assert value_of(finished) == "left"
        assert finished.outputs is not None
        assert depot.accept(finished, finished.outputs) == {"x": "x"}


@pytest.mark.parametrize("how", ["raise", "die"])
def test_the_next_attempt_goes_on_from_the_last_checkpoint(start: StartBench, depot: Depot, how: str) -> None:
    bench = start()
    (ticket,) = bench.publish(call("count_to", 10, 6, how))
    ends = (Finished, Released)
    bench.until(lambda: any(bench.of(kind, ticket) for kind in ends), "the attempt is over", 20)
    saved = bench.of(Checkpointed, ticket)[-1]
    assert saved.name == "step-6"
    assert depot.accept(saved, saved.bundle) == {"step-6/count": "6"}
    if how == "die":
        assert bench.of(Released, ticket)[0].cause is Cause.PROCESS_DIED

    checkpoint = Checkpoint(name="step-6", attempt=1, fence=ticket.fence, ordinal=1, bundle=saved.bundle)
    (again,) = bench.publish(call("count_to", 10, 0, how), task_id=ticket.task_id, checkpoint=checkpoint)
    assert value_of(bench.result(again)) == [6, 10]


def test_a_call_gets_the_secrets_that_it_names(start: StartBench, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("key", "other"):
        (secrets / name).write_text(f"value of {name}")
        (secrets / name).chmod(0o600)
    bench = start(secrets_dir=secrets)
    (named, other) = bench.publish(
        call("reveal", "key", files=False, secrets=("key",)), call("reveal", "other", files=False, secrets=("key",))
    )
    assert value_of(bench.result(named)) == [len("value of key"), "[secret key]"]
    assert kind_of(bench.result(other)) is FailureKind.EXCEPTION


def test_a_call_that_asked_for_no_files_has_no_folder(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("where", files=False))
    finished = bench.result(ticket)
    assert finished.outcome.failure is not None
    assert "files=True" in finished.outcome.failure.message


@pytest.mark.parametrize("step", ["fetch", "collect"])
def test_a_call_can_be_ended_in_every_step_of_the_porter(start: StartBench, depot: Depot, step: str) -> None:
    depot.closed_to.add(step)
    bench = start()
    inputs = (Input(path="data/a.txt", content=depot.put(b"hello")),)
    (ticket,) = bench.publish(call("copy_in_capitals", inputs=inputs))
    bench.until(lambda: depot.gates and depot.gates[0].waiting, "the porter is at work", 20)
    bench.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))
    released = bench.released(ticket)
    assert (released.cause, released.tree_gone, released.started) == (Cause.CANCELLED, True, step == "collect")

    depot.closed_to.clear()
    (after,) = bench.publish(call("copy_in_capitals", inputs=inputs))
    assert value_of(bench.result(after)) == ["checkpoint", "inputs", "outputs"]


def test_time_counts_while_inputs_are_fetched(start: StartBench, depot: Depot) -> None:
    depot.closed_to.add("fetch")
    bench = start()
    inputs = (Input(path="data/a.txt", content=depot.put(b"hello")),)
    (ticket,) = bench.publish(call("copy_in_capitals", inputs=inputs, timeout_ms=500))
    assert kind_of(bench.result(ticket, 20)) is FailureKind.TIMEOUT


def test_a_stopped_call_leaves_nothing(start: StartBench, tmp_path: Path) -> None:
    bench = start()
    note = tmp_path / "note"
    (ticket,) = bench.publish(call("leave_and_wait", str(note)))
    bench.until(lambda: note.exists() and note.read_text(), "the call runs", 20)
    bench.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))
    assert bench.released(ticket).cause is Cause.CANCELLED
    wait_until(lambda: not Path(note.read_text()).exists(), "its folder is gone")
