"""A worker with the local launcher, on a real fleet, when it is asked to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure
from tenure.protocol.client_messages import Query
from tests.fault.instrument import Instrument
from tests.fixtures_fleet import Worker
from tests.fixtures_fleet_handlers import count
from tests.fixtures_parity import PARENT, Parity, open_fleet_of_nobody
from tests.launcher_local import LocalBench
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def parity(tmp_path: Path) -> Iterator[Parity]:
    """One whose parent a test may end."""
    with open_fleet_of_nobody(tmp_path) as fleet:
        parity = Parity("local", fleet, LocalBench({"grace": "5s"}), tmp_path)
        parity.start_parent()
        yield parity


@pytest.fixture
def instrument(tmp_path: Path) -> Iterator[Instrument]:
    instrument = Instrument(tmp_path / "marks")
    yield instrument
    instrument.close()


def test_it_waits_for_what_it_has_launched_and_ends_it_when_asked_again(parity: Parity, instrument: Instrument) -> None:
    instrument.hold()
    first = parity.work(instrument, 0)
    parity.wait_for_start(instrument, first)
    parent = parity.fleet.processes[PARENT]
    parent.signal(signal.SIGTERM)
    wait_until(lambda: _state(parity) == "DRAINING", "it takes nothing more", 20)
    waiting = parity.submit(count, 1)
    assert parent.running
    instrument.let_go()
    assert first.result(60) == 1
    assert parent.wait(60) == 0
    assert parity.state(waiting) == "QUEUED"

    parity.start_parent()
    assert waiting.result(60) == 1
    instrument.hold()
    second = parity.work(instrument, 0, retry=tenure.Retry(lost=1))
    parity.wait_for_start(instrument, second)
    for _ in range(2):
        parity.fleet.processes[PARENT].signal(signal.SIGTERM)
        wait_until(lambda: _state(parity) != "ACTIVE", "it was heard", 20)
    assert parity.fleet.processes[PARENT].wait(60) == 0
    assert not parity.executors(second)
    assert [row["cause"] for row in parity.leases(second)][:1] == ["drained"]


def test_it_leaves_by_itself_when_it_has_had_nothing_to_do(parity: Parity) -> None:
    parity.fleet.processes[PARENT].signal(signal.SIGTERM)
    assert parity.fleet.processes[PARENT].wait(60) == 0
    waiting = parity.submit(count, 1)
    parity.start_parent("--max-idle", "2s")
    assert waiting.result(60) == 1
    assert parity.fleet.processes[PARENT].wait(60) == 0
    assert _state(parity) == "OFFLINE"


@pytest.mark.parametrize("launches_first", [True, False])
def test_a_worker_s_id_is_of_one_kind_in_every_folder(tmp_path: Path, *, launches_first: bool) -> None:
    """What one has begun, the other would begin again: neither can tell, of what the broker holds for their id."""
    kinds = (("--launcher", "local"), ()) if launches_first else ((), ("--launcher", "local"))
    with open_fleet_of_nobody(tmp_path) as fleet:
        first, second = (
            Worker("w1", 1, 5_000, state=tmp_path / place, options=kind)
            for place, kind in zip(("here", "there"), kinds, strict=True)
        )
        fleet.start_worker(first)
        fleet.wait_for_workers("w1")
        fleet.processes["w1"].signal(signal.SIGTERM)
        assert fleet.processes["w1"].wait(60) == 0
        assert fleet.start_worker(second).wait(60) == 2
        said = (tmp_path / "w1.log").read_text()
        assert said.count("--worker-id") == 1, said
        assert ("cannot be one that runs tasks itself" in said) == launches_first
        fleet.start_worker(first)
        fleet.wait_for_workers("w1")


def _state(parity: Parity) -> str:
    (row,) = parity.fleet.client.ask(Query(what="workers", where=(("worker_id", PARENT),))).rows
    return str(row["state"])
