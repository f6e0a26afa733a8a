"""The demo says only what the records say, and notices when they do not say what it promises."""

from typing import Any

import pytest

from tenure.cli.demo_story import Told
from tenure.cli.demo_sweep import Swept
from tenure.cli.demo_tasks import exponent

TASK = {"task_id": "T", "state": "SUCCEEDED"}
FIRST = {"attempt": 1, "fence": 7, "worker_id": "worker-a", "state": "EXPIRED"}
SECOND = {"attempt": 2, "fence": 8, "worker_id": "worker-b", "state": "COMPLETED"}
DIRECTIVE = {"reason": "lease_expired", "decided_by": "policy"}
LATE = {"reason": "stale_fence"}


def told(**changes: Any) -> Told:
    parts: dict[str, Any] = {"task": TASK, "leases": [FIRST, SECOND], "directive": DIRECTIVE, "late": LATE} | changes
    return Told(**parts)


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


def test_a_sweep_that_misses_the_published_value_is_noticed() -> None:
    assert Swept({28.0: 0.8}, 1).problems() == ["15 results are missing", "at rho = 28 the exponent is 0.8000"]


def test_the_speed_of_this_machine_is_told_from_the_sweep() -> None:
    assert Swept({}, took_ms=8_000).steps_per_second == 300_000


@pytest.mark.parametrize(("rho", "sign"), [(5.0, -1), (28.0, 1)])
def test_chaos_is_told_from_rest(rho: float, sign: int) -> None:
    assert exponent(rho, 20_000) * sign > 0
