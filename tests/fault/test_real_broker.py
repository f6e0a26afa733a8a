"""The broker is emptied, killed, frozen, filled up or replaced in the middle of a sweep, on real servers."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

import pytest

from tenure.broker.keys import GROUP
from tenure.broker.redis_connection import Reply
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Records
from tests.fault.proxy import Proxy
from tests.fault.trial import Trials, long, time_to_serve, wait_for_time
from tests.fixtures_fleet import Fleet, Worker
from tests.fixtures_services import require_program
from tests.servers import KINDS, launch
from tests.waiting import wait_until

Start = Literal["granted", "claimed"]
APPEND_ONLY = ("--appendonly", "yes")
AWAY_MS = 3_500
"""Longer than any lease in here."""
DESTRUCTIONS = 2
"""How often a group is destroyed in one trial."""


def flush(fleet: Fleet) -> None:
    fleet.server.admin("FLUSHALL")


def kill(fleet: Fleet) -> None:
    fleet.server.stop()
    fleet.start_server()


def kill_for_long(fleet: Fleet) -> None:
    fleet.server.stop()
    wait_for_time(AWAY_MS)
    fleet.start_server()


def freeze(fleet: Fleet) -> None:
    fleet.server.process.send_signal(signal.SIGSTOP)
    wait_for_time(AWAY_MS)
    fleet.server.process.send_signal(signal.SIGCONT)


def fill(fleet: Fleet) -> None:
    """The memory limit is reached; reading and acknowledging go on, nothing can be written."""
    fleet.server.admin("CONFIG", "SET", "maxmemory", "1")
    wait_for_time(AWAY_MS)
    fleet.server.admin("CONFIG", "SET", "maxmemory", "0")


def destroy(*patterns: str) -> Callable[[Fleet], None]:
    """The consumer groups of the streams with such keys are destroyed, and again as soon as they are there anew."""

    def strike(fleet: Fleet) -> None:
        def groups(key: bytes) -> Reply:
            return fleet.server.admin("XINFO", "GROUPS", key)

        found = [key for pattern in patterns for key in fleet.server.admin_list("KEYS", pattern)]
        streams = cast("list[bytes]", found)
        assert len(streams) >= len(patterns), streams
        for _ in range(DESTRUCTIONS):
            wait_until(lambda: all(map(groups, streams)), "every group is there", 20, step_ms=20)
            assert all(fleet.server.admin("XGROUP", "DESTROY", key, GROUP) for key in streams), streams

    return strike


FAULTS: dict[str, tuple[Callable[[Fleet], None], tuple[str, ...]]] = {
    "FLUSHALL": (flush, ()),
    "XGROUP DESTROY, assignments": (destroy("tenure:*:cap:*", "tenure:*:own:*"), ()),
    "XGROUP DESTROY, reports": (destroy("tenure:*:inbox:*"), ()),
    "XGROUP DESTROY, requests": (destroy("tenure:*:rpc:*"), ()),
    "kill -9 of broker, append-only file": (kill, APPEND_ONLY),
    "kill -9 of broker, no file": (kill, ()),
    "broker away past the leases, append-only file": (kill_for_long, APPEND_ONLY),
    "broker away past the leases, no file": (kill_for_long, ()),
    "broker frozen past the leases": (freeze, ()),
    "memory limit of broker reached": (fill, ()),
}
REPEATABLE = {("XGROUP DESTROY, assignments", "claimed")}
"""A new group hands out again what is in its stream; what starts on its claim may then start twice."""
SHORT = [
    ("FLUSHALL", "redis7", "claimed", 1),
    ("XGROUP DESTROY, assignments", "redis7", "granted", 1),
    ("XGROUP DESTROY, reports", "valkey", "claimed", 1),
    ("kill -9 of broker, no file", "valkey", "claimed", 1),
    ("kill -9 of broker, append-only file", "valkey", "granted", 1),
    ("memory limit of broker reached", "valkey", "granted", 1),
]
# A group is made again within 5 s, so that trials of its loss take long.
LONG = [
    long(fault, kind, start, 1 if fault.startswith("XGROUP") else 2)
    for fault in FAULTS
    for kind in KINDS
    for start in ("granted", "claimed")
    if (fault, start) not in REPEATABLE
]


@pytest.mark.parametrize(("fault", "kind", "start", "repeats"), [*SHORT, *LONG])
def test_a_sweep_survives_what_happens_to_its_broker(
    trials: Trials, fault: str, kind: str, start: Start, repeats: int
) -> None:
    strike, options = FAULTS[fault]
    with trials.fleet(kind=kind, server=options) as fleet:
        for _ in range(repeats):
            sweep = trials.sweep(fleet, count=16, seconds=0.4, held=True, start=start)
            sweep.wait_for_running(4)
            sweep.wait_for_results(4)
            strike(fleet)
            trials.of(fault).serve_ms.append(time_to_serve(fleet))
            trials.judge_alive(fault, fleet, sweep)


@pytest.mark.parametrize(("kind", "repeats"), [("valkey", 1), long("valkey", 10), long("redis7", 5)])
def test_a_thousand_tasks_in_flight_survive_the_loss_of_the_broker(trials: Trials, kind: str, repeats: int) -> None:
    fault = "kill -9 of broker, 1,000 tasks in flight"
    crowd = [Worker("w1", slots=500), Worker("w2", slots=500), Worker("w3", capability="probe")]
    with trials.fleet(*crowd, kind=kind) as fleet:
        for _ in range(repeats):
            sweep = trials.sweep(fleet, 1_000, 6.0, handlers.work_async, held=True, lease_ttl="10s")
            sweep.wait_for_running(1_000)
            kill(fleet)
            trials.of(fault).serve_ms.append(time_to_serve(fleet, "probe"))
            trials.judge_alive(fault, fleet, sweep)


@pytest.mark.parametrize(("kind", "repeats"), [("redis7", 1), *(long(kind, 4) for kind in KINDS)])
def test_a_promoted_replica_that_lacks_the_newest_writes_loses_nothing(trials: Trials, kind: str, repeats: int) -> None:
    """Of tasks that start on a grant; one that starts on its claim may be handed out twice, see docs/guarantees.md."""
    fault = "promotion of a replica that lacks writes"
    for _ in range(repeats):
        pair = Pair(trials.folder, kind)
        try:
            with trials.fleet(kind=kind, prepare=pair.attach) as fleet:
                sweep = trials.sweep(fleet, count=16, seconds=0.4, held=True)
                sweep.wait_for_running(4)
                pair.copying.lead_nowhere()
                sweep.wait_for_results(6)
                pair.promote(fleet)
                trials.of(fault).serve_ms.append(time_to_serve(fleet))
                trials.judge(fault, fleet, sweep)
                assert Records(fleet.database).count("SELECT count(*) FROM event WHERE kind = 'new_incarnation'") > 0
        finally:
            pair.close()


class Pair:
    """A broker and its replica; the fleet finds the one that serves through a proxy, copies go through another."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.line = Proxy(0)
        self.copying = Proxy(0)
        folder = folder / f"replica-{self.line.port}"
        folder.mkdir()
        self.replica = launch(require_program(kind), folder, "--replicaof", f"127.0.0.1 {self.copying.port}")

    def attach(self, fleet: Fleet) -> None:
        """Put the fleet behind the proxy, and wait until the replica has all that there is."""
        self.line.target = self.copying.target = fleet.server.port
        fleet.address = self.line.url
        wait_until(lambda: b"master_link_status:up" in self._info(), "the replica is in step", 30)

    def promote(self, fleet: Fleet) -> None:
        """The broker dies, and the replica serves in its place."""
        fleet.server.stop()
        self.replica.admin("REPLICAOF", "NO", "ONE")
        self.line.target = self.replica.port
        self.line.cut()

    def close(self) -> None:
        self.replica.stop()
        self.line.close()
        self.copying.close()

    def _info(self) -> bytes:
        reply = self.replica.admin("INFO", "replication")
        return reply if isinstance(reply, bytes) else b""
