"""Commands with files on a worker with real runners: what they find, what they leave, and what becomes of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.artifacts.porter_link import PorterLink
from tenure.artifacts.porter_orders import PorterSettings
from tenure.clock import SystemClock
from tenure.protocol.artifact import Blob, Checkpoint, Input
from tenure.protocol.assignment import Ticket
from tenure.protocol.control_messages import Stop, StopReason
from tenure.protocol.envelope import CommandWork, Envelope, Limits, Scope
from tenure.protocol.worker_messages import (
    Cause,
    Checkpointed,
    FailureKind,
    Finished,
    Hello,
    Progressed,
)
from tests.fixtures_worker import WORKER, Bench
from tests.fixtures_worker_depot import Depot, folders, kind_of, value_of
from tests.waiting import wait_until


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path)


@pytest.fixture
def start(tmp_path: Path, depot: Depot) -> Iterator[Callable[..., Bench]]:
    """Starts a worker that reaches the depot; it is ended with the test."""
    benches: list[Bench] = []

    def start_one(**options: Any) -> Bench:
        settings = {"porter": depot.make_porter, "artifacts": depot.address, "allow": (), **options}
        benches.append(Bench(tmp_path / "state", **settings))
        return benches[-1]

    yield start_one
    for bench in benches:
        bench.close()


def shell(script: str, form: str = "folder", parameters: str = "null", **fields: Any) -> Envelope:
    """A task that runs a shell script."""
    work = CommandWork.model_validate(
        {"argv": ("/bin/sh", "-ec", script), "form": form, "parameters": parameters}, strict=False
    )
    return Envelope(work=work, scope=Scope(world="world", run="run"), **fields)


def test_inputs_arrive_and_outputs_are_staged(start: Callable[..., Bench], depot: Depot) -> None:
    bench = start()
    inputs = (Input(path="data/a.txt", content=depot.put(b"hello")),)
    script = "mkdir -p outputs/deep; tr a-z A-Z < inputs/data/a.txt > outputs/deep/b.txt; cp task.json result.json"
    (ticket,) = bench.publish(shell(script, inputs=inputs, parameters='{"n": 1}', label="mine"))
    finished = bench.result(ticket)

    told = value_of(finished)
    assert (told["inputs"], told["parameters"], told["label"]) == (["inputs/data/a.txt"], {"n": 1}, "mine")
    assert finished.outputs is not None
    assert (finished.outputs.files, finished.outputs.size) == (1, 5)
    assert list(depot.store.objects()) != []
    assert depot.accept(finished, finished.outputs) == {"deep/b.txt": "HELLO"}
    wait_until(lambda: not folders(bench), "the task's folder is gone")


def test_the_coordinators_word_is_enough_to_find_the_store(start: Callable[..., Bench], depot: Depot) -> None:
    bench = start(artifacts="")
    with bench.wire.lock:
        bench.coordinator.mark("first", depot.address)
    (ticket,) = bench.publish(shell("echo x > outputs/x; echo 1 > result.json"))
    assert bench.result(ticket).outputs is not None


def test_without_a_store_a_task_with_outputs_fails_and_says_what_to_set(start: Callable[..., Bench]) -> None:
    bench = start(artifacts="")
    (ticket,) = bench.publish(shell("echo x > outputs/x; echo 1 > result.json"))
    assert kind_of(bench.result(ticket)) is FailureKind.OUTPUTS_NOT_STORED


def test_an_input_that_is_not_there_fails_the_task(start: Callable[..., Bench], depot: Depot) -> None:
    bench = start()
    missing = (Input(path="a", content=Blob(digest="0" * 64, size=4)),)
    (ticket,) = bench.publish(shell("true", inputs=missing))
    assert kind_of(bench.result(ticket)) is FailureKind.INPUT_UNAVAILABLE
    wait_until(lambda: not folders(bench), "the task's folder is gone")


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("ln -s /etc/passwd outputs/x; echo 1 > result.json", FailureKind.FORBIDDEN_PATH),
        ("mkfifo outputs/x; echo 1 > result.json", FailureKind.FORBIDDEN_PATH),
        ("touch outputs/a outputs/b outputs/c; echo 1 > result.json", FailureKind.TOO_MANY_FILES),
        ("echo nonsense > result.json", FailureKind.INVALID_RESULT),
        ("echo x > outputs/x; exit 3", FailureKind.EXIT_CODE),
    ],
)
def test_bad_outputs_fail_the_task_and_leave_nothing_in_the_store(
    start: Callable[..., Bench], depot: Depot, script: str, kind: FailureKind
) -> None:
    bench = start(output_files=2)
    (ticket,) = bench.publish(shell(script))
    finished = bench.result(ticket)
    assert (kind_of(finished), finished.outputs) == (kind, None)
    assert list(depot.store.objects()) == []


def test_a_checkpoint_of_a_failed_attempt_is_where_the_next_one_begins(
    start: Callable[..., Bench], depot: Depot
) -> None:
    bench = start()
    script = """
        if [ -e checkpoint/step-6 ]; then cat checkpoint/step-6/sum > result.json; exit 0; fi
        mkdir checkpoint/step-6; echo 21 > checkpoint/step-6/sum
        echo '{"fraction": 0.6, "checkpoint": "step-6", "metrics": {"sum": 21}}' >> progress.jsonl
        exit 9
    """
    (ticket,) = bench.publish(shell(script))
    assert kind_of(bench.result(ticket)) is FailureKind.EXIT_CODE
    (saved,) = bench.of(Checkpointed, ticket)
    assert (saved.name, saved.ordinal) == ("step-6", 1)
    assert depot.accept(saved, saved.bundle) == {"step-6/sum": "21\n"}
    assert bench.events.index(saved) < bench.events.index(bench.result(ticket))

    checkpoint = Checkpoint(name="step-6", attempt=1, fence=ticket.fence, ordinal=1, bundle=saved.bundle)
    (again,) = bench.publish(shell(script), task_id=ticket.task_id, checkpoint=checkpoint)
    assert value_of(bench.result(again)) == 21


def test_a_program_of_lines_tells_its_state_and_gets_it_back(start: Callable[..., Bench], depot: Depot) -> None:
    bench = start()
    script = """
        read task
        echo '{"fraction": 0.5, "message": "half", "metrics": {"loss": 0.25}}'
        echo '{"checkpoint": "half", "state": {"sum": 3}}'
        case "$task" in
            *'"state":{"sum":3}'*) echo '{"result": "went on"}' ;;
            *) sleep 0.3; exit 1 ;;
        esac
    """
    (ticket,) = bench.publish(shell(script, form="lines"))
    assert kind_of(bench.result(ticket)) is FailureKind.EXIT_CODE
    (saved,) = bench.of(Checkpointed, ticket)
    assert depot.accept(saved, saved.bundle) == {"half.json": '{"sum":3}'}
    (progress,) = bench.of(Progressed, ticket)
    assert (progress.fraction_ppm, progress.message, progress.metrics) == (500_000, "half", '{"loss":0.25}')

    checkpoint = Checkpoint(name="half", attempt=1, fence=ticket.fence, ordinal=1, bundle=saved.bundle)
    (again,) = bench.publish(shell(script, form="lines"), task_id=ticket.task_id, checkpoint=checkpoint)
    assert value_of(bench.result(again)) == "went on"
    wait_until(lambda: not folders(bench), "the folders are gone")


@pytest.mark.parametrize(("step", "started"), [("fetch", False), ("collect", True)])
@pytest.mark.parametrize("by", ["stop", "drain"])
def test_a_task_can_be_ended_in_every_step_of_the_porter(
    start: Callable[..., Bench], depot: Depot, step: str, by: str, *, started: bool
) -> None:
    depot.closed_to.add(step)
    bench = start()
    inputs = (Input(path="a", content=depot.put(b"x")),)
    (ticket,) = bench.publish(shell("echo x > outputs/x; echo 1 > result.json", inputs=inputs))
    bench.until(lambda: depot.gates and depot.gates[0].waiting, "the porter is at work")
    if by == "stop":
        bench.order(Stop(task_id=ticket.task_id, fence=ticket.fence, reason=StopReason.CANCELLED))
    else:
        bench.drain(2)
    released = bench.released(ticket)
    cause = Cause.CANCELLED if by == "stop" else Cause.DRAINED
    assert (released.cause, released.tree_gone, released.started) == (cause, True, started)
    assert depot.gates[0].cancelled
    assert not bench.of(Finished, ticket)


@pytest.mark.parametrize("step", ["fetch", "collect"])
def test_time_counts_over_all_steps(start: Callable[..., Bench], depot: Depot, step: str) -> None:
    depot.closed_to.add(step)
    bench = start()
    inputs = (Input(path="a", content=depot.put(b"x")),)
    script = "echo x > outputs/x; echo 1 > result.json"
    (ticket,) = bench.publish(shell(script, inputs=inputs, timeout_ms=1_000))
    assert kind_of(bench.result(ticket)) is FailureKind.TIMEOUT


def states(bench: Bench) -> list[str]:
    """What the heartbeat that is at the broker says of everything that is held."""
    beat = bench.beat()
    return [held.state for held in beat.held] if beat is not None else []


def test_a_worker_that_cannot_renew_gives_a_fetch_up(start: Callable[..., Bench], depot: Depot) -> None:
    depot.closed_to.add("fetch")
    bench = start(ttl_ms=1_000)
    inputs = (Input(path="a", content=depot.put(b"x")),)
    script = "echo x > outputs/x; echo 1 > result.json"
    (ticket,) = bench.publish(shell(script, inputs=inputs, lease_ttl_ms=1_000))
    bench.until(lambda: depot.gates and depot.gates[0].waiting, "the porter is at work")
    bench.wire.cut = True
    wait_until(lambda: depot.gates[0].cancelled, "the worker gives it up")
    bench.wire.cut = False
    assert bench.released(ticket).cause is Cause.SELF_FENCED


def test_a_worker_that_is_told_to_end_waits_for_no_evidence(start: Callable[..., Bench], depot: Depot) -> None:
    depot.closed_to.add("collect")
    bench = start(ttl_ms=1_000)
    (ticket,) = bench.publish(shell("echo x > outputs/x; echo 1 > result.json", lease_ttl_ms=1_000))
    bench.until(lambda: depot.gates and depot.gates[0].waiting, "the porter is at work")
    bench.wire.cut = True
    over_ms = SystemClock().elapsed_ms() + 1_500
    wait_until(lambda: SystemClock().elapsed_ms() > over_ms, "its right to run is over")
    bench.wire.cut = False
    wait_until(lambda: "stopping" in states(bench), "it says so")
    assert not depot.gates[0].cancelled, "what it has may still be wanted"
    bench.drain(2)
    assert bench.released(ticket).cause is Cause.SELF_FENCED
    assert depot.gates[0].cancelled


def test_a_result_with_outputs_survives_the_agent(start: Callable[..., Bench], depot: Depot) -> None:
    bench = start()
    bench.judges = False
    (ticket,) = bench.publish(shell("echo x > outputs/x; echo 1 > result.json"))
    first = bench.result(ticket)
    bench.drain(2)
    bench.events.clear()
    bench.start()
    bench.judges = True
    assert bench.result(ticket) == first
    assert first.outputs is not None
    assert depot.accept(first, first.outputs) == {"x": "x\n"}


def test_secrets_are_files_that_only_named_tasks_find(start: Callable[..., Bench], tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("key", "other"):
        (secrets / name).write_text(f"value of {name}")
        (secrets / name).chmod(0o600)
    bench = start(secrets_dir=secrets)
    script = "test ! -e secrets/other; printf '%s' \"$(wc -c < secrets/key)\" > result.json"
    (ticket,) = bench.publish(shell(script, secrets=("key",)))
    assert value_of(bench.result(ticket)) == len("value of key")
    (hello,) = [event for event in bench.events if isinstance(event, Hello)]
    assert hello.labels == (("secret:key", "yes"), ("secret:other", "yes"))

    (unknown,) = bench.publish(shell("true", secrets=("nothing",)))
    assert bench.released(unknown).cause is Cause.REFUSED


def test_a_folder_is_kept_on_demand_without_its_secrets(start: Callable[..., Bench], tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("value")
    (secrets / "key").chmod(0o600)
    bench = start(secrets_dir=secrets)
    (ticket,) = bench.publish(shell("echo x > outputs/x; echo 1 > result.json", keep_folder=True, secrets=("key",)))
    bench.result(ticket)
    kept = tmp_path / "state" / "workers" / WORKER / "kept" / f"{ticket.task_id}-{ticket.fence}"
    wait_until((kept / "outputs" / "x").exists, "the folder is kept")
    wait_until(lambda: not (kept / "secrets").exists(), "its secrets are gone")
    bench.drain()
    bench.start()
    assert (kept / "task.json").exists()


def test_the_workers_caps_count(start: Callable[..., Bench]) -> None:
    bench = start(limits=Limits(printed_bytes=1_000))
    (ticket,) = bench.publish(
        shell("head -c 100000 /dev/zero; sleep 30", limits=Limits(printed_bytes=1_000_000), form="stdout")
    )
    assert kind_of(bench.result(ticket)) is FailureKind.PRINTED_TOO_MUCH


def test_a_killed_runner_costs_the_attempt_but_not_the_slot(start: Callable[..., Bench], depot: Depot) -> None:
    bench = start()
    (ticket,) = bench.publish(shell("kill -9 $PPID; sleep 30"))
    assert bench.released(ticket).cause is Cause.PROCESS_DIED
    assert len(next_value(bench)) == 1


def next_value(bench: Bench) -> list[Ticket]:
    tickets = bench.publish(shell("echo 1 > result.json"))
    assert value_of(bench.result(tickets[0])) == 1
    return tickets


def test_a_porter_that_is_killed_is_started_again_and_costs_no_task(start: Callable[..., Bench], depot: Depot) -> None:
    links: list[PorterLink] = []

    def make(address: str) -> PorterLink:
        links.append(PorterLink(PorterSettings(address=address), SystemClock()))
        return links[-1]

    bench = start(porter=make)
    inputs = (Input(path="a", content=depot.put(b"x")),)
    task = shell("cp inputs/a outputs/b; kill -9 $PORTER; echo 1 > result.json", inputs=inputs)
    (first,) = bench.publish(shell("cp inputs/a outputs/b; echo 1 > result.json", inputs=inputs))
    assert bench.result(first, 20).outputs is not None
    assert isinstance(task.work, CommandWork)
    env = (("PORTER", str(links[0].pid)),)
    (second,) = bench.publish(task.model_copy(update={"work": task.work.model_copy(update={"env": env})}))
    finished = bench.result(second, 20)
    assert finished.outputs is not None
    assert depot.accept(finished, finished.outputs) == {"b": "x"}
    assert len(links) == 1
