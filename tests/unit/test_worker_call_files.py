"""Calls with files: their place on the floor, their packets, and what handlers see of them."""

from pathlib import Path

import pytest

import tenure
from tenure.errors import UsageError
from tenure.handlers.context_files import TaskFiles
from tenure.protocol.envelope import CallWork, Envelope
from tenure.testing import ManualClock
from tenure.workers.actions import EndTree, Recall
from tenure.workers.calls import Call, Saved, files_packet, packet_call, read_frame, read_packet, write_frame
from tenure.workers.child_run import Run
from tenure.workers.inputs import HandlerSeen, Recalled
from tests.fixtures_worker_core import SCOPE, Core, quick

CALL = Call(3, "T", 1, 2, "m:f", '{"a":1}', '{"folder":"/f","checkpoint":"/f/checkpoint/a","secrets":{"key":"/s/key"}}')


def with_files() -> Envelope:
    return Envelope(work=CallWork(handler="m:f", files=True), scope=SCOPE, start="claimed")


# --- on the floor -------------------------------------------------------------------------------


def learned() -> Core:
    """A worker that knows its handlers to be quick."""
    core = Core()
    for envelope in (quick(), with_files()):
        (ticket,) = core.take(envelope)
        core.end(ticket, duration_ms=0)
    return core


def test_a_call_with_files_waits_for_an_empty_slot_and_nothing_waits_behind_it() -> None:
    core = learned()
    before, files, after = core.take(quick(), with_files(), quick())
    assert core.seen.started()[2:] == [before.fence, after.fence]
    core.end(before)
    core.end(after)
    assert core.seen.started()[4:] == [files.fence]
    (behind,) = core.take(quick())
    assert behind.fence not in core.seen.started()
    core.end(files)
    assert core.seen.started()[5:] == [behind.fence]


def test_an_async_one_shares_its_slot_with_nobody() -> None:
    core = Core(slots=2)
    (first,) = core.take(with_files())
    core.feed(HandlerSeen(0, "m:f", is_async=True))
    second, third = core.take(with_files(), with_files())
    assert [core.seen.start_of(ticket).slot for ticket in (first, second)] == [0, 1]
    assert third.fence not in core.seen.started()


def test_it_is_stopped_by_ending_its_child() -> None:
    core = Core()
    (ticket,) = core.take(with_files())
    core.feed(HandlerSeen(0, "m:f", is_async=True))
    core.orders.stop(ticket)
    assert core.seen.all(Recall)
    core.feed(Recalled(0, []))
    assert core.seen.all(EndTree)


# --- on the wire --------------------------------------------------------------------------------


def test_packets_and_frames_come_back_as_they_were() -> None:
    assert read_packet(files_packet(CALL)) == CALL
    assert packet_call(files_packet(CALL)) == 3
    assert read_frame(write_frame(Saved(3, "step-6"))) == Saved(3, "step-6")


# --- what handlers see --------------------------------------------------------------------------


def test_a_call_sees_its_files_and_tells_its_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "b").mkdir(parents=True)
    (tmp_path / "key").write_text("value")
    text = f'{{"folder":"{tmp_path}","checkpoint":"{tmp_path}/checkpoint/a","secrets":{{"key":"{tmp_path}/key"}}}}'
    told: list[object] = []
    run = Run(Call(3, "T", 1, 2, "m:f", "{}", text), told.append, ManualClock())

    assert (run.folder, run.inputs, run.outputs) == (tmp_path, tmp_path / "inputs", tmp_path / "outputs")
    assert run.checkpoint == tmp_path / "checkpoint" / "a"
    assert run.secret("key") == "value"
    run.save_checkpoint("b")
    assert told == [Saved(3, "b")]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "missing"])
def test_only_what_is_there_under_a_plain_name_is_a_checkpoint(tmp_path: Path, name: str) -> None:
    told: list[str] = []
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(UsageError, match="checkpoint"):
        TaskFiles(tmp_path, None, {}, told.append).save_checkpoint(name)
    assert told == []


def test_a_call_without_files_says_how_to_get_them() -> None:
    run = Run(Call(3, "T", 1, 2, "m:f", "{}"), lambda _: None, ManualClock())
    assert run.checkpoint is None
    with pytest.raises(UsageError, match="files=True"):
        _ = run.folder
    with pytest.raises(UsageError, match="secrets="):
        run.secret("key")


def test_outside_a_fleet_there_is_a_temporary_folder() -> None:
    run = tenure.current()
    (run.outputs / "x").write_text("x")
    (run.folder / "checkpoint" / "a").write_text("y")
    run.save_checkpoint("a")
    assert tenure.current().folder == run.folder
    assert run.inputs.is_dir()
    assert run.checkpoint is None
    with pytest.raises(UsageError):
        run.secret("key")
