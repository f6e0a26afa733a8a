"""Trials: a fleet under a sweep of tasks, a fault in the middle, and the judgement afterwards."""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import pytest

import tenure
from tenure.client.handle import Handle
from tenure.client.options import SubmitOptions
from tenure.clock import SystemClock
from tests import fixtures_fleet_handlers as handlers
from tests.fault.figures import Figures
from tests.fault.instrument import Execution, Findings, Instrument, Records, check, cut, false_deaths
from tests.fixtures_fleet import TTL_MS, Fleet, Worker, open_fleet
from tests.waiting import wait_until

CLOCK = SystemClock()
RETRIES = tenure.Retry(lost=20)
NOTICE_LIMIT_MS = 1.2 * TTL_MS + 2_000


def long(*values: object, timeout_s: int = 400) -> Any:
    """A set of parameters for the long runs of `make fault` alone."""
    return pytest.param(*values, marks=[pytest.mark.slow, pytest.mark.timeout(timeout_s)])


@dataclass
class Sweep:
    """Tasks under way."""

    handles: list[Handle[Any]]
    instrument: Instrument

    @property
    def ids(self) -> list[str]:
        return [handle.task_id for handle in self.handles]

    def running(self) -> list[Execution]:
        ids = set(self.ids)
        return [each for each in self.instrument.running() if each.task_id in ids]

    def wait_for_running(self, count: int) -> list[Execution]:
        """Wait until that many of the tasks run at once, and let them go if they were held; answers them."""
        wait_until(lambda: len(self.running()) >= count, f"{count} tasks run", 40)
        self.instrument.let_go()
        return self.running()

    def wait_for_next_attempt(self, lost: Collection[Execution]) -> None:
        """Wait until somebody runs again one of these."""
        ids = {each.task_id for each in lost}
        wait_until(lambda: any(e.task_id in ids and e.attempt > 1 for e in self.running()), "it runs again", 20)

    def wait_for_results(self, count: int) -> None:
        """Wait until the client has that many results."""
        wait_until(lambda: sum(each.done() for each in self.handles) >= count, f"{count} results are in", 20)

    def results(self, timeout_s: float = 60) -> list[Any]:
        until_ms = CLOCK.elapsed_ms() + timeout_s * 1000
        return [handle.result(max(0.1, (until_ms - CLOCK.elapsed_ms()) / 1000)) for handle in self.handles]


class Trials:
    """What a test of one fault works with: instruments, fleets, and figures by fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.figures: dict[str, Figures] = {}
        self.instrument = Instrument(folder / "marks")

    def close(self) -> None:
        self.instrument.close()

    def of(self, fault: str) -> Figures:
        """The figures of a fault."""
        return self.figures.setdefault(fault, Figures(fault, notice_limit_ms=NOTICE_LIMIT_MS))

    @contextmanager
    def fleet(
        self,
        *workers: Worker,
        kind: str = "valkey",
        server: tuple[str, ...] = (),
        prepare: Callable[[Fleet], None] = lambda _: None,
        coordinator_url: str | None = None,
        database: Path | None = None,
    ) -> Generator[Fleet]:
        """A fleet in a folder of its own."""
        folder = self.folder / f"fleet-{CLOCK.elapsed_ms()}"
        folder.mkdir()
        chosen = workers or (Worker("w1"), Worker("w2"))
        with open_fleet(
            folder,
            chosen,
            kind=kind,
            server_options=server,
            prepare=prepare,
            coordinator_url=coordinator_url,
            database=database,
        ) as fleet:
            yield fleet

    def sweep(
        self,
        fleet: Fleet,
        count: int = 8,
        seconds: float = 0.4,
        handler: Callable[..., Any] = handlers.work,
        *,
        held: bool = False,
        **options: Unpack[SubmitOptions],
    ) -> Sweep:
        """Submit tasks; lost attempts may be repeated unless the options say otherwise.

        Tasks that are `held` begin and then wait, until `Sweep.wait_for_running` lets them go: on a busy machine short
        ones would else be over before enough of them run at once.
        """
        if held:
            self.instrument.hold()
        said: SubmitOptions = {"lease_ttl": f"{TTL_MS}ms", "retry": RETRIES, **options}
        marks = [str(self.instrument.path)] * count
        handles = fleet.client.using(**said).map(handler, marks, range(count), [seconds] * count)
        return Sweep(handles, self.instrument)

    def judge(
        self, fault: str, fleet: Fleet, sweep: Sweep, *, suspended: Collection[int] = (), stopped_ns: int = 0
    ) -> Findings:
        """Wait for all results, count the trial, and fail on anything that must not be.

        What processes of a `suspended` host had begun counts until `stopped_ns`, as if they had ended there: how long
        they go on after they are woken is measured apart, and nothing that they finish then may be accepted.
        """
        wrong = [value for number, value in enumerate(sweep.results()) if value != number]
        executions = cut(self.instrument.executions(), suspended, stopped_ns)
        findings = check(executions, Records(fleet.database), sweep.ids)
        self.of(fault).add(findings)
        assert not findings.problems(), findings.problems()
        assert not wrong, wrong
        return findings

    def judge_alive(self, fault: str, fleet: Fleet, sweep: Sweep) -> Findings:
        """The same after a trial in which every worker was alive: whatever was given up was given up wrongly."""
        findings = self.judge(fault, fleet, sweep)
        records = Records(fleet.database)
        count = false_deaths(findings, records, sweep.ids)
        self.of(fault).add_false_deaths(count)
        assert not count, records.rows("SELECT task_id, attempt, reason, detail FROM directive")
        return findings


def wait_for_time(duration_ms: int) -> None:
    """Wait until that much time has passed, where nothing but time tells that the moment has come."""
    until_ms = CLOCK.elapsed_ms() + duration_ms
    wait_until(lambda: CLOCK.elapsed_ms() >= until_ms, f"{duration_ms} ms have passed", duration_ms / 1000 + 5)


def time_to_serve(fleet: Fleet, capability: str = "default") -> float:
    """How long from now until a new task has its result; the capability should have a free slot."""
    began_ms = CLOCK.elapsed_ms()
    assert fleet.client.using(capability=capability).submit(handlers.count, 7).result(60) == 7
    return CLOCK.elapsed_ms() - began_ms


def noticed(fleet: Fleet, executions: Sequence[Execution], struck_ms: int) -> list[float]:
    """How long after that wall-clock moment the losses of these executions were recorded; 0 for none."""
    records = Records(fleet.database)
    found: list[float] = []
    for each in executions:
        rows = records.rows(
            "SELECT created_at_ms FROM directive WHERE task_id = ? AND attempt = ?", each.task_id, each.attempt
        )
        found.extend(int(str(row[0])) - struck_ms for row in rows)
    return found


def wait_for_loss(fleet: Fleet, executions: Sequence[Execution]) -> None:
    """Wait until every one of these executions has been recorded as lost."""
    wait_until(lambda: len(noticed(fleet, executions, 0)) == len(executions), "the loss is on record", 20)
