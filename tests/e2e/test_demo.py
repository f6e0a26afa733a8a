"""`tenure demo`, as a newcomer runs it."""

from pathlib import Path
from typing import Any

from tenure.clock import SystemClock
from tests.fixtures_e2e import Place


def test_the_demo_tells_the_truth_in_under_a_minute(tmp_path: Path) -> None:
    clock = SystemClock()
    before = clock.elapsed_ms()
    printed = Place(tmp_path).run("demo", "--json", timeout_s=60)
    assert clock.elapsed_ms() - before < 60_000
    assert printed.code == 0, printed.err
    told = printed.json()
    assert told["attempt_1"] == 1
    assert told["attempt_2"] == 2
    assert told["fence_2"] > told["fence_1"]
    assert told["retry_reason"] == "lease_expired"
    assert told["stale_result_rejected"] is True
    assert told["final_task_status"] == "SUCCEEDED"
    assert told["final_lease_status"] == "COMPLETED"
    assert told["accepted_results"] == 1
    the_stale_files_were_kept_out_and_adopted(told)
    exponents = {point["rho"]: point["exponent"] for point in told["lorenz"]["points"]}
    assert len(exponents) == 16
    assert abs(exponents[28.0] - 0.9056) < 0.01
    assert not list(tmp_path.iterdir()), "the demo leaves nothing behind"


def the_stale_files_were_kept_out_and_adopted(told: dict[str, Any]) -> None:
    assert told["stale_files_worker"] == told["worker_1"]
    assert told["stale_files_lease_status"] == "EXPIRED"
    assert told["stale_files_directive"] == "PENDING"
    assert told["stale_files_rejection_reason"] == "lease_expired"
    listed = told["stale_files_in_quarantine"]
    assert [file["path"] for file in listed] == ["orbit.csv", "wings.json"]
    assert all(file["size"] > 0 and len(file["digest"]) == 64 for file in listed)
    assert told["stale_files_in_store_after_rejection"] == 0
    assert told["adopted_fence"] > told["fence_2"] > told["stale_files_fence"]
    assert told["adopted_by"] == "demo"
    assert told["adopted_files"] == listed
    assert told["adopted_files_are_those_written"] is True
    assert told["adopted_task_status"] == "SUCCEEDED"
