"""`tenure demo`, as a newcomer runs it."""

from pathlib import Path

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
    exponents = {point["rho"]: point["exponent"] for point in told["lorenz"]["points"]}
    assert len(exponents) == 16
    assert round(exponents[28.0], 2) == 0.91
    assert not list(tmp_path.iterdir()), "the demo leaves nothing behind"
