"""`tenure logs` on real fleets: how late a line is, and what is left of one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure import Retry
from tenure.protocol.client_messages import Query
from tests.fixtures_fleet import TTL_MS, Worker, open_fleet
from tests.fixtures_hosts import another_host, worker_on
from tests.fixtures_printing import CLOCK, FLOOD, following, largest_gap_ms, measured_ms, share
from tests.waiting import wait_until

LINES = 50
Figures = Callable[[str, object], None]


def check_delays(delays: list[float], record_property: Figures) -> None:
    record_property("p50_ms", share(delays, 0.5))
    record_property("p99_ms", share(delays, 0.99))
    sys.stderr.write(f"lines seen after {share(delays, 0.5):.0f} ms (p50), {share(delays, 0.99):.0f} ms (p99)\n")
    assert len(delays) == LINES
    assert delays[-1] < 1_000, delays


@pytest.mark.parametrize("kind", ["command", "call"])
def test_a_line_is_seen_within_a_second(tmp_path: Path, kind: str, record_property: Figures) -> None:
    with open_fleet(tmp_path, [Worker("w1")]) as fleet:
        gate = tmp_path / "gate"
        if kind == "command":
            task_id = fleet.client.command([sys.executable, "-c", CLOCK, str(LINES), str(gate)]).task_id
        else:
            task_id = fleet.client.submit("tests.fixtures_fleet_handlers:tick", LINES, str(gate)).task_id
        check_delays(measured_ms(fleet, task_id, gate), record_property)


def test_a_line_from_another_network_namespace_is_seen_within_a_second(
    tmp_path: Path, record_property: Figures
) -> None:
    with another_host() as (name, address):
        options = ("--bind", "127.0.0.1", address, "--protected-mode", "no")
        with open_fleet(tmp_path, [], server_options=options) as fleet:
            url = fleet.url.replace("127.0.0.1", address)
            with worker_on(name, url, tmp_path):
                gate = tmp_path / "gate"
                handle = fleet.client.command([sys.executable, "-c", CLOCK, str(LINES), str(gate)])
                delays = measured_ms(fleet, handle.task_id, gate)
        check_delays(delays, record_property)


def test_what_a_killed_worker_had_flushed_is_there_and_the_next_attempt_is_followed(tmp_path: Path) -> None:
    with open_fleet(tmp_path, [Worker("w1")]) as fleet:
        script = "import time; print('before', flush=True); time.sleep(600)"
        handle = fleet.client.using(retry=Retry(lost=1)).command([sys.executable, "-c", script])
        with following(fleet, handle.task_id) as follower:
            wait_until(lambda: follower.text() == "before\n", "the line has come", 30)
            fleet.processes["w1"].kill()
            fleet.start_worker(Worker("w1"))
            wait_until(lambda: follower.text() == "before\nbefore\n", "the line of the next attempt has come", 30)
        texts = [[chunk.text for chunk in fleet.client.logs(handle.task_id, attempt=n)] for n in (1, 2)]
        assert texts == [["before\n"], ["before\n"]]
        fleet.client.cancel([handle])


def test_following_survives_a_broker_that_is_killed(tmp_path: Path) -> None:
    with open_fleet(tmp_path, [Worker("w1", ttl_ms=20_000)]) as fleet:
        gate = tmp_path / "gate"
        script = (
            "import sys, time, pathlib; print('before', flush=True); gate = pathlib.Path(sys.argv[1])\n"
            "while not gate.exists(): time.sleep(0.01)\n"
            "print('after', flush=True)"
        )
        handle = fleet.client.using(lease_ttl="20s").command([sys.executable, "-c", script, str(gate)])
        with following(fleet, handle.task_id) as follower:
            wait_until(lambda: follower.text() == "before\n", "the line has come", 30)
            fleet.server.stop()
            fleet.start_server()
            gate.touch()
            assert follower.wait(60) == 0
            assert follower.text() == "before\nafter\n"


def test_a_log_that_is_gone_from_the_broker_is_read_from_the_store(tmp_path: Path) -> None:
    with open_fleet(tmp_path, [Worker("w1")]) as fleet:
        script = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
        handle = fleet.client.command([sys.executable, "-c", script])
        silent = fleet.client.command(["true"])
        silent.result(30)
        handle.result(30)

        def kept() -> list[str]:
            rows = fleet.client.ask(Query(what="artifacts", where=(("kind", "log"), ("state", "PROMOTED")))).rows
            return [row["task_id"] for row in rows]

        wait_until(kept, "the log has been kept", 30)
        assert kept() == [handle.task_id]
        assert fleet.server.admin("DEL", f"tenure:{{main}}:log:default:{handle.task_id}:1") == 1
        found = {(chunk.stream, chunk.text) for chunk in fleet.client.logs(handle.task_id)}
        assert found == {(1, "out\n"), (2, "err\n")}
        assert list(fleet.client.logs(silent.task_id)) == []


def test_ten_megabytes_a_second_do_not_delay_heartbeats(tmp_path: Path, record_property: Figures) -> None:
    with open_fleet(tmp_path, [Worker("w1")]) as fleet:
        handle = fleet.client.command([sys.executable, "-c", FLOOD, "6"])
        wait_until(lambda: fleet.client.ask(Query(what="leases")).rows, "it has been offered")
        gap_ms = largest_gap_ms(fleet, handle.done)
        record_property("largest_gap_ms", gap_ms)
        sys.stderr.write(f"largest gap between heartbeats: {gap_ms:.0f} ms of {TTL_MS} ms\n")
        printed = int(handle.result(30))
        # The first reading waits for the last words, and may see more than is kept: older ones go as newer ones come.
        assert list(fleet.client.logs(handle.task_id))
        chunks = [chunk for chunk in fleet.client.logs(handle.task_id) if chunk.stream]

        assert printed > 20_000_000
        # Two pipes: which of the last words comes first is not said, so that the other's flood may have pushed it out.
        assert "".join(chunk.text for chunk in chunks if chunk.stream == 1) in {f"{printed}\n", ""}
        assert chunks[-1].position + len(chunks[-1].text) == printed + len(f"{printed}\n")
        assert sum(len(chunk.text) for chunk in chunks) <= 1024 * 1024
        assert gap_ms < TTL_MS / 2
        assert handle.attempt == 1
