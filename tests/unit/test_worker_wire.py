"""What travels between agent, runner and child, and what leaves the agent: framed, checked, bounded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.clock import SystemClock
from tenure.errors import InvalidSettings
from tenure.processes.frames import BrokenFrame, Unframer, frame
from tenure.protocol.message import MAX_ENTRY_BYTES
from tenure.protocol.worker_messages import FailureKind
from tenure.workers.calls import (
    BrokenMessage,
    Call,
    Cancel,
    Dropped,
    FromChild,
    Imported,
    Printed,
    Progress,
    Raised,
    Ready,
    Returned,
    Saved,
    call_packet,
    cancel_packet,
    packet_call,
    read_frame,
    read_packet,
    write_frame,
)
from tenure.workers.endings import as_input, tree_ended
from tenure.workers.inputs import CallEnded, ProgressMade
from tenure.workers.options import WorkerOptions
from tenure.workers.outbox import Outbox
from tenure.workers.runner_messages import parse


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 20)))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    unframer, found = Unframer(), list[bytes]()
    for cut in cuts:
        found += unframer.feed(stream[:cut])
        stream = stream[cut:]
    assert found + unframer.feed(stream) == bodies


def test_a_large_body_in_many_pieces_costs_no_more_than_its_bytes() -> None:
    """What a collection is to keep travels as one body; it came in thousands of pieces, all copied for each of them."""
    clock = SystemClock()
    raw = memoryview(frame(bytes(48 * 1024 * 1024)))
    unframer = Unframer(64 * 1024 * 1024)
    began_ms = clock.elapsed_ms()
    bodies = [body for at in range(0, len(raw), 65_536) for body in unframer.feed(bytes(raw[at : at + 65_536]))]
    assert [len(body) for body in bodies] == [48 * 1024 * 1024]
    assert clock.elapsed_ms() - began_ms < 3_000


def test_a_length_that_no_frame_has_is_refused_before_anything_is_kept() -> None:
    with pytest.raises(BrokenFrame):
        Unframer().feed(b"\xff\xff\xff\xff")


@given(st.integers(1, 10**9), st.text(), st.integers(1, 2**53))
def test_calls_come_out_as_they_went_in(number: int, arguments: str, fence: int) -> None:
    packet = call_packet(number, ("0" * 26, 1, fence), "m:f", arguments)
    assert read_packet(packet) == Call(number, "0" * 26, 1, fence, "m:f", arguments)
    assert packet_call(packet) == number


def test_a_cancellation_that_is_taken_back_is_no_call() -> None:
    assert read_packet(cancel_packet(7)) == Cancel(7)
    assert packet_call(cancel_packet(7)) is None


@pytest.mark.parametrize(
    "message",
    [
        Returned(1, 2, '"two\nlines"'),
        Raised(1, 2, "{}"),
        Dropped(1, 2),
        Progress(1, 500_000, "half\nway", '{"loss":0.5}'),
        Progress(1, 0, ""),
        Printed(1, 12, 2, "two\nlines"),
        Imported("m:f", is_async=True),
        Ready(),
    ],
)
def test_what_a_child_tells_comes_out_as_it_went_in(message: FromChild) -> None:
    assert read_frame(write_frame(message)) == message


@given(st.binary(max_size=60))
def test_nonsense_from_a_child_is_told_from_messages(body: bytes) -> None:
    try:
        message = read_frame(body)
    except BrokenMessage:
        return
    if not isinstance(message, Printed | Saved):
        as_input(0, message)


def test_a_childs_failure_report_is_checked() -> None:
    happened = as_input(0, Raised(1, 2, '{"kind":"made_up"}'))
    assert isinstance(happened, CallEnded)
    assert happened.outcome is not None
    assert happened.outcome.failure is not None
    assert happened.outcome.failure.kind is FailureKind.EXCEPTION


def test_progress_is_bounded() -> None:
    message = read_frame(b"p1 99999999\n\nx")
    assert isinstance(message, Progress)
    assert as_input(0, message) == ProgressMade(0, 1, 1_000_000, "x")


def test_a_runners_message_must_be_an_object() -> None:
    with pytest.raises(TypeError):
        parse(b"[]")


def test_a_child_that_could_not_be_started_has_begun_nothing() -> None:
    report = {"reason": "exit", "code": None, "error": 11, "duration": 1}
    ended = tree_ended(0, report, None, [4], 100)
    assert (list(ended.unstarted), ended.outcome, ended.gone) == ([4], None, True)
    assert "could not be started" in ended.detail


# --- the outbox ---------------------------------------------------------------------------------


def test_events_leave_in_order_and_fit_into_an_entry() -> None:
    outbox = Outbox()
    events = [json.dumps({"n": number, "x": "y" * 100_000}).encode() for number in range(20)]
    outbox.put(events)
    seen: list[bytes] = []
    while batch := outbox.batch():
        assert sum(map(len, batch)) + len(batch) < MAX_ENTRY_BYTES
        seen += batch
        outbox.settle()
    assert seen == events


def test_an_event_over_the_limit_goes_alone() -> None:
    outbox = Outbox()
    outbox.put([b"x" * MAX_ENTRY_BYTES, b"y"])
    assert outbox.batch() == [b"x" * MAX_ENTRY_BYTES]


def test_a_repeat_of_what_still_waits_is_not_queued_again() -> None:
    outbox = Outbox()
    outbox.put([b"a", b"b", b"a"])
    assert outbox.batch() == [b"a", b"b"]
    outbox.put([b"a"])
    assert outbox.batch() == [b"a"]


def test_what_has_an_unknown_fate_goes_first_again() -> None:
    outbox = Outbox()
    outbox.put([b"a", b"b"])
    batch = outbox.batch()
    outbox.put([b"c"])
    outbox.restore(batch)
    assert outbox.batch() == [b"a", b"b", b"c"]


def test_empty_means_that_nothing_is_on_its_way_either() -> None:
    outbox = Outbox()
    outbox.put([b"a"])
    outbox.batch()
    assert not outbox.wait_until_empty(0)
    outbox.settle()
    assert outbox.wait_until_empty(0)
    outbox.close()
    assert not outbox.wait()


# --- the options --------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"slots": 5_000}, {"capabilities": ()}, {"max_value_bytes": 10**9}])
def test_options_that_cannot_be_are_refused(wrong: dict[str, object], tmp_path: object) -> None:
    with pytest.raises(InvalidSettings):
        WorkerOptions(state_dir=tmp_path, **wrong)  # type: ignore[arg-type]
