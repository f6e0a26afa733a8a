"""The lines between the parts and the broker are cut, slowed, deafened or lead nowhere, on a real fleet."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import pytest

from tests import fixtures_fleet_handlers as handlers
from tests.fault.proxy import Proxy
from tests.fault.trial import CLOCK, Trials, long, noticed, time_to_serve, wait_for_loss, wait_for_time
from tests.fixtures_fleet import Fleet, Worker

AWAY_MS = 3_500
"""Longer than any lease in here."""


@dataclass
class Lines:
    """One proxy per part."""

    coordinator: Proxy
    w1: Proxy
    w2: Proxy

    def all(self) -> list[Proxy]:
        return [self.coordinator, self.w1, self.w2]


@contextmanager
def wired_fleet(trials: Trials) -> Generator[tuple[Fleet, Lines]]:
    """A fleet each part of which has a line of its own to the broker; the client's is direct."""
    lines = Lines(Proxy(0), Proxy(0), Proxy(0))

    def connect(fleet: Fleet) -> None:
        for proxy in lines.all():
            proxy.target = fleet.server.port

    try:
        workers = (Worker("w1", url=lines.w1.url), Worker("w2", url=lines.w2.url))
        with trials.fleet(*workers, prepare=connect, coordinator_url=lines.coordinator.url) as fleet:
            yield fleet, lines
    finally:
        for proxy in lines.all():
            proxy.close()


def deafen(proxy: Proxy) -> None:
    """What the part sends arrives; it hears no answer."""
    proxy.down = False


def silence(proxy: Proxy) -> None:
    """What the part sends does not arrive; it would hear."""
    proxy.up = False


def isolate(proxy: Proxy) -> None:
    proxy.lead_nowhere()


PARTITIONS: dict[str, Callable[[Proxy], None]] = {
    "worker cut off": isolate,
    "worker's answers lost": deafen,
    "worker's messages lost": silence,
}


@pytest.mark.parametrize(("fault", "repeats"), [("worker cut off", 1), *(long(fault, 6) for fault in PARTITIONS)])
def test_a_worker_that_is_cut_off_has_stopped_before_it_is_replaced(trials: Trials, fault: str, repeats: int) -> None:
    """Also when what it runs ignores every polite request to end."""
    with wired_fleet(trials) as (fleet, lines):
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=4, seconds=4, handler=handlers.stubborn, held=True)
            hit = [each for each in sweep.wait_for_running(4) if fleet.worker_of(each.pid) == "w1"]
            struck_ms = CLOCK.now_ms()
            PARTITIONS[fault](lines.w1)
            wait_for_loss(fleet, hit)
            sweep.wait_for_next_attempt(hit)
            lines.w1.heal()
            trials.judge(fault, fleet, sweep)
            trials.of(fault).notice_ms += noticed(fleet, hit, struck_ms)


@pytest.mark.parametrize("repeats", [1, long(6)])
def test_a_coordinator_that_is_cut_off_replaces_nobody(trials: Trials, repeats: int) -> None:
    """Its workers run on, and what they finish meanwhile is accepted afterwards."""
    fault = "coordinator cut off past the leases"
    with wired_fleet(trials) as (fleet, lines):
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=8, seconds=1, held=True)
            sweep.wait_for_running(4)
            lines.coordinator.lead_nowhere()
            wait_for_time(AWAY_MS)
            lines.coordinator.heal()
            trials.of(fault).serve_ms.append(time_to_serve(fleet))
            trials.judge_alive(fault, fleet, sweep)


def cut(proxy: Proxy) -> None:
    proxy.cut()


def half_close(proxy: Proxy) -> None:
    proxy.half_close()


def delay(proxy: Proxy) -> None:
    proxy.delay_ms = 150


SPOILS: dict[str, Callable[[Proxy], None]] = {
    "all lines cut again and again": cut,
    "all lines half-closed again and again": half_close,
    "all lines slow, 150 ms each way": delay,
}


@pytest.mark.parametrize(
    ("fault", "start", "repeats"),
    [
        ("all lines cut again and again", "claimed", 1),
        ("all lines half-closed again and again", "granted", 1),
        ("all lines slow, 150 ms each way", "claimed", 1),
        *(long(fault, start, 4) for fault in SPOILS for start in ("granted", "claimed")),
    ],
)
def test_bad_lines_cost_time_and_nothing_else(
    trials: Trials, fault: str, start: Literal["granted", "claimed"], repeats: int
) -> None:
    with wired_fleet(trials) as (fleet, lines):
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=12, seconds=0.1, start=start)
            while not all(handle.done() for handle in sweep.handles):
                for proxy in lines.all():
                    SPOILS[fault](proxy)
                    wait_for_time(70)
            for proxy in lines.all():
                proxy.heal()
            trials.judge_alive(fault, fleet, sweep)
