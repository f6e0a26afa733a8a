"""The demo says only what the records say, and notices when they do not say what it promises."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.cli.demo_files import Brought
from tenure.cli.demo_story import Told
from tenure.cli.demo_sweep import Swept
from tenure.cli.demo_tasks import exponent, record

TASK = {"task_id": "T", "state": "SUCCEEDED"}
FIRST = {"attempt": 1, "fence": 7, "worker_id": "worker-a", "state": "EXPIRED"}
SECOND = {"attempt": 2, "fence": 8, "worker_id": "worker-b", "state": "COMPLETED"}
DIRECTIVE = {"reason": "lease_expired", "decided_by": "policy"}
LATE = {"reason": "stale_fence"}
FILE = {"path": "orbit.csv", "size": 4, "digest": "d1"}
EVIDENCE = {
    "quarantine_id": "Q",
    "worker_id": "worker-a",
    "fence": 6,
    "reason": "lease_expired",
    "adopted_fence": 9,
    "decided_by": "demo",
}


def told(**changes: Any) -> Told:
    parts: dict[str, Any] = {"task": TASK, "leases": [FIRST, SECOND], "directive": DIRECTIVE, "late": LATE} | changes
    return Told(**parts)


def brought(**changes: Any) -> Brought:
    parts: dict[str, Any] = {
        "lease": {"state": "EXPIRED"},
        "directive": {"state": "PENDING"},
        "listed": [FILE],
        "stored_before": 0,
        "evidence": EVIDENCE,
        "task": TASK,
        "written": {"orbit.csv": "d1"},
        "adopted": [FILE],
    }
    return Brought(**(parts | changes))


def test_the_facts_are_those_of_the_records() -> None:
    assert told().facts() == {
        "task_id": "T",
        "attempt_1": 1,
        "fence_1": 7,
        "worker_1": "worker-a",
        "lease_status_1": "EXPIRED",
        "retry_reason": "lease_expired",
        "retry_decided_by": "policy",
        "attempt_2": 2,
        "fence_2": 8,
        "worker_2": "worker-b",
        "stale_result_rejected": True,
        "rejection_reason": "stale_fence",
        "final_task_status": "SUCCEEDED",
        "final_lease_status": "COMPLETED",
        "accepted_results": 1,
    }
    assert not told().problems()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"late": {}}, "stale_result_rejected is False"),
        ({"task": TASK | {"state": "LOST"}}, "final_task_status is LOST"),
        ({"leases": [FIRST | {"state": "COMPLETED"}, SECOND]}, "accepted_results is 2"),
        ({"leases": [FIRST, SECOND | {"fence": 7}]}, "the fence did not grow"),
        ({"leases": [FIRST, SECOND | {"worker_id": "worker-a"}]}, "worker_2 is worker-a"),
    ],
)
def test_records_that_say_otherwise_are_noticed(changes: dict[str, Any], words: str) -> None:
    assert any(words in problem for problem in told(**changes).problems())


def test_the_facts_about_the_files_are_those_of_the_records_and_the_store() -> None:
    assert brought().facts() == {
        "stale_files_task_id": "T",
        "stale_files_worker": "worker-a",
        "stale_files_fence": 6,
        "stale_files_lease_status": "EXPIRED",
        "stale_files_directive": "PENDING",
        "stale_files_rejection_reason": "lease_expired",
        "stale_files_quarantine_id": "Q",
        "stale_files_in_quarantine": [FILE],
        "stale_files_in_store_after_rejection": 0,
        "adopted_by": "demo",
        "adopted_fence": 9,
        "adopted_files": [FILE],
        "adopted_files_are_those_written": True,
        "adopted_task_status": "SUCCEEDED",
    }
    assert not brought().problems()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stored_before": 1}, "stale_files_in_store_after_rejection is 1"),
        ({"directive": {"state": "APPROVED"}}, "stale_files_directive is APPROVED"),
        ({"lease": {"state": "COMPLETED"}}, "stale_files_lease_status is COMPLETED"),
        ({"listed": [], "adopted": [], "written": {}}, "left no files"),
        ({"listed": [FILE | {"digest": "d2"}]}, "adopted_files_are_those_written is False"),
        ({"adopted": [FILE | {"digest": "d2"}]}, "adopted_files_are_those_written is False"),
        ({"written": {"orbit.csv": "d2"}}, "adopted_files_are_those_written is False"),
        ({"evidence": EVIDENCE | {"adopted_fence": 6}}, "no fence above the stale one"),
        ({"evidence": EVIDENCE | {"adopted_fence": None}}, "no fence above the stale one"),
        ({"evidence": EVIDENCE | {"worker_id": "worker-b"}}, "stale_files_worker is worker-b"),
        ({"task": TASK | {"state": "LOST"}}, "adopted_task_status is LOST"),
    ],
)
def test_files_that_are_not_where_they_must_be_are_noticed(changes: dict[str, Any], words: str) -> None:
    assert any(words in problem for problem in brought(**changes).problems())


def test_a_sweep_that_misses_the_published_value_is_noticed() -> None:
    assert Swept({28.0: 0.8}, 1).problems() == ["15 results are missing", "at rho = 28 the exponent is 0.8000"]


@pytest.mark.parametrize(("rho", "sign"), [(5.0, -1), (28.0, 1)])
def test_chaos_is_told_from_rest(rho: float, sign: int) -> None:
    assert exponent(rho, 20_000) * sign > 0


def test_the_recording_leaves_the_files_whose_digests_it_tells(tmp_path: Path) -> None:
    # Outside a fleet all tasks of a process share one folder.
    outputs = tenure.current().outputs
    (outputs / "of another task").touch()
    told = record(28.0, str(tmp_path))
    (outputs / "of another task").unlink()
    assert told == {name: sha256((outputs / name).read_bytes()).hexdigest() for name in ("orbit.csv", "wings.json")}
