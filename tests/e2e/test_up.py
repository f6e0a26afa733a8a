"""`tenure up`: one command, and nothing left when it ends, however it ends."""

import signal
from pathlib import Path

import psutil

from tests.fixtures_e2e import Up, gone, up
from tests.waiting import wait_until


def running(fleet: Up, task_id: str) -> None:
    wait_until(lambda: fleet.state(task_id) == "RUNNING", f"{task_id} runs")


def test_other_terminals_need_no_setting(tmp_path: Path) -> None:
    with up(tmp_path) as fleet:
        assert fleet.run("submit", "--wait", "e2e_handlers:double", "21").out == "42\n"
        assert fleet.run("submit", "--wait", "--", "echo", "hello").out == "hello\n"
        assert (tmp_path / "data" / "up" / "broker.url").stat().st_mode & 0o777 == 0o600


def test_ctrl_c_lets_a_task_finish_and_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path, "--workers", "1") as fleet:
        gate = tmp_path / "gate"
        task_id = fleet.run("submit", "e2e_handlers:hold", str(gate)).out.strip()
        running(fleet, task_id)
        family = fleet.family()
        fleet.process.send_signal(signal.SIGINT)
        assert fleet.process.stderr is not None
        assert "Ending" in fleet.process.stderr.readline()
        gate.touch()
        fleet.process.communicate(timeout=30)
        assert fleet.process.returncode == 0
        wait_until(gone(family), "everything has ended")
        fleet.launch("--allow", "e2e_handlers", "--workers", "1")
        assert fleet.state(task_id) == "SUCCEEDED"


def test_a_second_ctrl_c_stops_a_task_and_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path, "--workers", "1") as fleet:
        task_id = fleet.run("submit", "e2e_handlers:hold", str(tmp_path / "never")).out.strip()
        running(fleet, task_id)
        family = fleet.family()
        fleet.process.send_signal(signal.SIGINT)
        assert fleet.process.stderr is not None
        assert "Ending" in fleet.process.stderr.readline()
        fleet.end()
        wait_until(gone(family), "everything has ended")


def test_killed_outright_it_leaves_nothing_and_goes_on_from_its_folder(tmp_path: Path) -> None:
    with up(tmp_path) as fleet:
        waiting = fleet.run("submit", "--capability", "gpu", "--", "echo", "later").out.strip()
        task_id = fleet.run("submit", "e2e_handlers:hold", str(tmp_path / "never")).out.strip()
        running(fleet, task_id)
        family = fleet.family()
        fleet.process.kill()
        fleet.process.communicate()
        wait_until(gone(family), "everything has ended", timeout_s=20)
        fleet.launch("--capability", "gpu", "--capability", "default")
        assert fleet.run("wait", waiting, "--timeout", "20s").code == 0
        assert fleet.one("tasks", "show", waiting)["value"] == '"later\\n"'


def test_what_dies_is_started_again_and_said_so(tmp_path: Path) -> None:
    with up(tmp_path, "--workers", "1") as fleet:
        coordinator = next(one for one in fleet.family() if "coordinator" in one.cmdline())
        worker = psutil.Process(fleet.rows("workers", "list")[0]["pid"])
        for victim in (coordinator, worker):
            victim.kill()
        wait_until(gone([coordinator, worker]), "both have ended")
        assert fleet.run("submit", "--wait", "e2e_handlers:double", "4").out == "8\n"
        printed = fleet.end()
        assert "coordinator was ended by SIGKILL. It is started again." in printed.err
        assert "worker-1 was ended by SIGKILL. It is started again." in printed.err


def test_a_folder_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with up(tmp_path, "--workers", "0") as fleet:
        printed = fleet.run("up")
        assert printed.code == 2
        assert printed.err.count("\n") == 1
        assert "in use by another `tenure up`" in printed.err
        assert fleet.run("workers", "list").code == 0, "the refused start must not disturb the fleet"


def test_a_folder_of_ones_own_is_named_in_the_ready_line(tmp_path: Path) -> None:
    with up(tmp_path, "--workers", "0", "--data", str(tmp_path / "own")) as fleet:
        assert str(tmp_path / "own") in fleet.told[0]
        assert fleet.run("workers", "list").code == 2
        assert fleet.run("workers", "list", "--broker-url-file", str(tmp_path / "own" / "broker.url")).code == 0
