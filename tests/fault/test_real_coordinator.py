"""The coordinator is killed at every named point of its loop, in the middle of a sweep, on a real fleet."""

import signal
from collections.abc import Sequence
from typing import Literal

import pytest

from tests.fault.trial import Sweep, Trials, long, time_to_serve
from tests.fixtures_fleet import Fleet
from tests.waiting import wait_until

Point = tuple[str, str]
"""When, and at which call."""

POINTS: tuple[Point, ...] = (
    ("after", "receive"), ("before", "commit"), ("after", "commit"), ("before", "publish"), ("after", "publish"),
    ("before", "post"), ("after", "post"), ("before", "settle"), ("after", "settle"), ("after", "heartbeats"),
)  # fmt: skip
STARTING: tuple[Point, ...] = (
    ("after", "state"), ("before", "mark"), ("after", "mark"), ("after", "ensure_streams"), ("after", "published"),
    ("before", "withdraw"), ("after", "withdraw"), ("after", "pending"), ("after", "unsettled"),
)  # fmt: skip
"""Points on the way up, which most of the time only a coordinator that finds an emptied broker passes."""

WITH_ITS_DATA = {("after", "published")}
"""Those that it passes only at a broker that is not emptied."""

Start = Literal["granted", "claimed"]

SHORT_LIMIT_S = 240
"""Several points one after the other, each with two or three starts of a coordinator, also on a busy machine."""


def die_at(fleet: Fleet, point: Point, number: int, sweep: Sweep) -> bool:
    """Replace the coordinator by one that dies there; whether it came to that while there was work."""
    module = ("tests.fault.mortal_coordinator", *point, str(number))
    fleet.processes["coordinator"].kill()
    process = fleet.start_coordinator(module=module)
    wait_until(lambda: not process.running or all(handle.done() for handle in sweep.handles), f"it dies {point}", 30)
    return not process.running and process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("points", "start", "numbers"),
    [
        pytest.param(POINTS[::4], "granted", (2,), marks=pytest.mark.timeout(SHORT_LIMIT_S)),
        *(long((point,), start, (1, 2, 3, 5, 8)) for point in POINTS for start in ("granted", "claimed")),
    ],
)
def test_a_coordinator_may_die_anywhere(
    trials: Trials, points: Sequence[Point], start: Start, numbers: Sequence[int]
) -> None:
    """Workers run on meanwhile, so nothing is lost, and nothing is run again."""
    with trials.fleet() as fleet:
        for point in points:
            sweep = trials.sweep(fleet, count=24, seconds=0.2, start=start)
            deaths = sum(die_at(fleet, point, number, sweep) for number in numbers)
            fleet.processes["coordinator"].kill()
            fleet.start_coordinator()
            fault = f"coordinator killed {' '.join(point)}"
            trials.of(fault).serve_ms.append(time_to_serve(fleet))
            trials.judge_alive(fault, fleet, sweep)
            trials.of(fault).trials += deaths - 1
            assert deaths, f"the coordinator never came to {point}"


@pytest.mark.parametrize(
    ("points", "start", "numbers"),
    [
        pytest.param(STARTING[::3], "claimed", (1,), marks=pytest.mark.timeout(SHORT_LIMIT_S)),
        *(long((point,), start, (1, 1, 1, 2, 2)) for point in STARTING for start in ("granted", "claimed")),
    ],
)
def test_a_coordinator_may_die_on_its_way_up(
    trials: Trials, points: Sequence[Point], start: Start, numbers: Sequence[int]
) -> None:
    """The one before it died with offers that it had committed and not published."""
    with trials.fleet() as fleet:
        for point in points:
            emptied = point not in WITH_ITS_DATA
            fault = f"coordinator killed on its way up{' to an emptied broker' if emptied else ''}"
            sweep = trials.sweep(fleet, count=12, seconds=0.3, held=True, start=start)
            sweep.wait_for_running(4)
            assert die_at(fleet, ("before", "publish"), 1, sweep), "there was nothing to publish"
            deaths = 0
            for number in numbers:
                fleet.processes["coordinator"].kill()
                if emptied:
                    fleet.server.admin("FLUSHALL")
                deaths += die_at(fleet, point, number, sweep)
            fleet.processes["coordinator"].kill()
            fleet.start_coordinator()
            trials.of(fault).serve_ms.append(time_to_serve(fleet))
            trials.judge_alive(fault, fleet, sweep)
            trials.of(fault).trials += deaths - 1
            assert deaths >= numbers.count(1), f"the coordinator came to {point} only {deaths} times"
