"""Workers that end by themselves: no task is given to one that it would outlast."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.client_messages import Assign
from tenure.protocol.durations import duration_text
from tenure.protocol.envelope import Requirements
from tenure.protocol.worker_messages import Cause, Released
from tests.scripted_fleet import ScriptedFleet, drop, envelope

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
W1 = Requirements(worker="w1")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def test_a_directed_task_waits_for_a_worker_that_has_the_time(fleet: ScriptedFleet) -> None:
    fleet.worker("w1", remaining_ms=12 * MINUTE_MS)
    task = fleet.submit(requirements=W1, timeout_ms=2 * HOUR_MS)
    assert fleet.records.state(task) == "QUEUED"
    assert fleet.client.explain(task)[-1] == "It is QUEUED: w1 has 12 min left, the task may run 2 h."


@pytest.mark.parametrize("timeout_ms", [None, 12 * MINUTE_MS], ids=["no timeout", "just enough"])
def test_a_directed_task_that_fits_is_given(fleet: ScriptedFleet, timeout_ms: int | None) -> None:
    fleet.worker("w1", remaining_ms=12 * MINUTE_MS)
    assert fleet.records.state(fleet.submit(requirements=W1, timeout_ms=timeout_ms)) == "OFFERED"


def test_the_newest_heartbeat_says_how_long_a_worker_still_has(fleet: ScriptedFleet) -> None:
    worker = fleet.worker("w1", remaining_ms=2 * HOUR_MS)
    worker.remaining_ms = HOUR_MS
    fleet.live(1_000)
    task = fleet.submit(requirements=W1, timeout_ms=2 * HOUR_MS)
    assert fleet.client.explain(task)[-1] == "It is QUEUED: w1 has 1 h left, the task may run 2 h."


def test_a_task_is_assigned_by_hand_only_where_there_is_time(fleet: ScriptedFleet) -> None:
    fleet.worker("w1", remaining_ms=MINUTE_MS)
    task = fleet.submit(timeout_ms=HOUR_MS)
    refusal = fleet.client.ask(Assign(worker_id="w1", task_id=task)).refusal
    assert refusal is not None
    assert refusal.message == f"task {task} cannot be given to w1: w1 has 1 min left, the task may run 1 h"


# --- tasks that any worker of a capability may take ----------------------------------------------


def test_a_task_that_no_worker_has_the_time_for_is_not_handed_to_and_fro(fleet: ScriptedFleet) -> None:
    fleet.worker("w1", remaining_ms=12 * MINUTE_MS)
    task = fleet.submit(timeout_ms=2 * HOUR_MS)
    fleet.live(MINUTE_MS)
    assert fleet.records.leases(task) == []
    assert fleet.client.explain(task)[-1] == "It is QUEUED: w1 has 12 min left, the task may run 2 h."


def test_shorter_tasks_pass_by_one_that_is_too_long(fleet: ScriptedFleet) -> None:
    worker = fleet.worker("w1", remaining_ms=12 * MINUTE_MS)
    reply = fleet.client.ask(fleet.client.submission(*[envelope(timeout_ms=2 * HOUR_MS)] * 300))
    shorter, without = fleet.submit(timeout_ms=MINUTE_MS), fleet.submit()
    fleet.step(5)
    worker.finish(worker.claim())
    worker.finish(worker.claim())
    assert [fleet.records.state(task) for task in (shorter, without)] == ["SUCCEEDED", "SUCCEEDED"]
    assert {fleet.records.state(one.task_id) for one in reply.admitted} == {"QUEUED"}


def test_a_long_task_goes_to_the_stream_as_soon_as_somebody_has_the_time(fleet: ScriptedFleet) -> None:
    fleet.worker("w1", remaining_ms=12 * MINUTE_MS)
    task = fleet.submit(timeout_ms=2 * HOUR_MS)
    fleet.live(5_000)
    fleet.worker("w2")
    fleet.live(15_000)
    assert fleet.records.state(task) == "OFFERED"


def test_a_worker_that_got_it_all_the_same_gives_it_back_and_says_why_once(fleet: ScriptedFleet) -> None:
    worker = fleet.worker("w1", remaining_ms=HOUR_MS)
    fleet.worker("w2")
    task = fleet.submit(timeout_ms=2 * HOUR_MS)
    for _ in range(3):
        (hand,) = worker.take()
        drop(worker, hand)
        worker.report(
            Released(
                binding=hand.binding, cause=Cause.REFUSED, started=False, tree_gone=True, detail="it ends too soon"
            )
        )
        fleet.live(2_000)
    story = fleet.client.explain(task)
    assert sum("w1 cannot run it and gave it back: it ends too soon." in line for line in story) == 1
    assert fleet.records.state(task) == "OFFERED"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (45_400, "45 s"),
        (90_000, "1 min 30 s"),
        (12 * MINUTE_MS, "12 min"),
        (90 * MINUTE_MS, "1 h 30 min"),
        (2 * HOUR_MS + 59_000, "2 h"),
        (49 * HOUR_MS, "2 d 1 h"),
    ],
)
def test_a_duration_in_a_sentence_has_two_units_at_most(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
