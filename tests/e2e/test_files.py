"""Files of tasks on a real fleet: given, left, fetched, verified, collected, rejected, adopted."""

import json
import signal
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

from tenure.client.client import Client
from tenure.protocol.client_messages import Query
from tests.fault.proxy import Proxy
from tests.fixtures_e2e import Printed, Up, up
from tests.waiting import wait_until

SCALE = """
import json, pathlib
task = json.loads(pathlib.Path("task.json").read_text())
rows = pathlib.Path("inputs/data/rows.txt").read_text().split()
scaled = [int(row) * task["parameters"]["factor"] for row in rows]
pathlib.Path("outputs/deep").mkdir()
pathlib.Path("outputs/deep/scaled.txt").write_text(" ".join(map(str, scaled)))
pathlib.Path("outputs/big.bin").write_bytes(b"x" * 3_000_000)
pathlib.Path("result.json").write_text(json.dumps({"sum": sum(scaled)}))
"""
LEAVE = (
    'echo "$TENURE_TASK_ID" > outputs/made.txt; touch "$1/running"; '
    'while [ ! -e "$1/gate" ]; do sleep 0.02; done; echo late'
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "secrets").mkdir(mode=0o700)
    (folder / "secrets" / "token").write_text("hunter2")
    (folder / "secrets" / "token").chmod(0o600)
    (folder / "data-1").mkdir()
    (folder / "data-1" / "rows.txt").write_text("1 2 3")
    (folder / "scale.py").write_text(SCALE)
    with up(folder, "--workers", "1", "--secrets-dir", str(folder / "secrets")) as running:
        yield running


def one_line(printed: Printed, code: int, *words: str) -> None:
    assert printed.code == code, printed
    last = printed.err.splitlines()[-1]
    assert last.startswith("tenure: ")
    assert "Traceback" not in printed.err
    for word in words:
        assert word in last


def scaled(fleet: Up, factor: int) -> str:
    """The id of a task that has left files."""
    printed = fleet.run(
        *("submit", "--wait", "--json", "--form", "folder", "--parameters", json.dumps({"factor": factor})),
        *("--input", "data=data-1", "--input", "scale.py", "--", "python3", "inputs/scale.py"),
    )
    assert printed.code == 0, printed.err
    assert printed.json()["result"] == {"sum": 6 * factor}
    task_id: str = printed.json()["task_id"]
    return task_id


def tree(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def objects(fleet: Up) -> list[bytes]:
    """Everything that the store holds as an object."""
    folder = fleet.folder / "data" / "up" / "artifacts" / "objects"
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def test_a_folder_goes_in_and_files_come_out(fleet: Up, tmp_path: Path) -> None:
    task_id = scaled(fleet, 10)
    printed = fleet.run("result", task_id, "--outputs", str(tmp_path / "back"))
    assert printed.code == 0, printed.err
    assert json.loads(printed.out) == {"sum": 60}
    assert tree(tmp_path / "back") == {"deep/scaled.txt": 8, "big.bin": 3_000_000}
    assert fleet.run("artifacts", "get", f"{task_id}/deep/scaled.txt").out == "10 20 30"
    assert fleet.run("result", task_id, "--outputs", str(tmp_path / "back")).code == 0, "equal files are no obstacle"
    (tmp_path / "back" / "big.bin").write_text("mine")
    one_line(fleet.run("result", task_id, "--outputs", str(tmp_path / "back")), 2, "big.bin is there already")
    assert fleet.run("result", task_id, "--outputs", str(tmp_path / "back"), "--force").code == 0
    assert tree(tmp_path / "back")["big.bin"] == 3_000_000
    story = fleet.run("explain", task_id).out
    assert "It is given data (5 B), scale.py (" in story
    assert "It left 2 files" in story


def test_every_row_of_a_map_has_a_folder_of_its_own(fleet: Up, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("name,text\none,first\ntwo,second\n")
    command = ["map", "--csv", str(rows), "--out", str(tmp_path / "out.csv"), "--outputs", str(tmp_path / "left")]
    printed = fleet.run(*command, "--", "sh", "-c", 'echo "$1" > outputs/"$0".txt; echo ok', "{name}", "{text}")
    assert printed.code == 0, printed.err
    assert (tmp_path / "left" / "000001" / "one.txt").read_text() == "first\n"
    assert (tmp_path / "left" / "000002" / "two.txt").read_text() == "second\n"


def test_verify_finds_damage_and_gc_removes_what_nobody_names(fleet: Up, tmp_path: Path) -> None:
    task_id = scaled(fleet, 7)
    wait_until(lambda: "ACCEPTED" not in fleet.run("artifacts", "list", "--json").out, "everything is in its place")
    assert fleet.run("artifacts", "verify", task_id).code == 0
    store = fleet.folder / "data" / "up" / "artifacts"
    (tmp_path / "unused").write_text("nobody names this")
    assert fleet.run("submit", "--key", "unused", "--input", str(tmp_path / "unused"), "--", "true").code == 0
    wait_until(lambda: fleet.rows("tasks", "list", "--limit", "1")[0]["state"] == "SUCCEEDED", "it has ended")
    # Meanwhile more may come: what other tasks have printed is kept some time after their end.
    before = set(objects(fleet))
    counted = fleet.one("artifacts", "gc", "--older-than", "0s", "--dry-run")
    assert counted["removed"] >= 1
    assert before <= set(objects(fleet))
    assert fleet.one("artifacts", "gc", "--older-than", "0s")["removed"] >= counted["removed"]
    assert len(before - set(objects(fleet))) == counted["removed"]
    assert b"nobody names this" not in objects(fleet)
    assert fleet.run("artifacts", "verify").code == 0, "what is named stays"
    (victim,) = [path for path in store.rglob("*") if path.is_file() and path.read_bytes() == b"7 14 21"]
    victim.chmod(0o600)
    victim.write_text("7 14 22")
    printed = fleet.run("artifacts", "verify", "--json")
    assert printed.code == 1
    (problem,) = printed.json()["problems"]
    assert (problem["file"], problem["problem"], problem["task_id"]) == ("deep/scaled.txt", "damaged", task_id)
    one_line(fleet.run("result", task_id, "--outputs", str(tmp_path / "back")), 3, "damaged")
    assert "deep/scaled.txt" not in tree(tmp_path / "back")
    victim.write_text("7 14 21")


def test_a_secret_is_a_file_and_nowhere_else(fleet: Up) -> None:
    printed = fleet.run(
        "submit", "--wait", "--secret", "token", "--", "sh", "-c", "wc -c < secrets/token; cat secrets/*"
    )
    assert printed.code == 0, printed.err
    assert printed.out.split() == ["7", "[secret", "token]"]


# --- a result that comes too late -------------------------------------------------------------------------------------


@dataclass
class Far:
    """A worker behind a line that a test can cut, and a client that asks faster than new processes do."""

    fleet: Up
    proxy: Proxy
    client: Client

    def late_result(self, folder: Path) -> tuple[str, dict[str, Any]]:
        """A held loss, whose worker ended the task while nobody could hear it, and has handed in the result since."""
        folder.mkdir()
        options = ("--lease-ttl", "5s", "--on-worker", "far")
        task_id = self.fleet.run("submit", *options, "--", "sh", "-c", LEAVE, "x", str(folder)).out.strip()
        wait_until((folder / "running").exists, "it runs")
        self.proxy.lead_nowhere()
        (folder / "gate").touch()
        wait_until(lambda: self.rows("tasks", task_id=task_id)[0]["state"] == "LOST", "it is lost", 30)
        self.proxy.heal()
        wait_until(lambda: self.rows("quarantine", task_id=task_id), "its result came too late", 20)
        return task_id, self.rows("quarantine", task_id=task_id)[0]

    def rows(self, what: Literal["tasks", "workers", "quarantine"], **where: str) -> list[dict[str, Any]]:
        return list(self.client.ask(Query(what=what, where=tuple(where.items()))).rows)


@pytest.fixture(scope="module")
def far(fleet: Up) -> Generator[Far]:
    url = (fleet.folder / "data" / "up" / "broker.url").read_text().strip()
    parts = urlsplit(url)
    proxy = Proxy(parts.path)
    login = f":{parts.password}@" if parts.password else ""
    (fleet.folder / "far.url").write_text(proxy.url.replace("//", f"//{login}"))
    (fleet.folder / "far.url").chmod(0o600)
    process = fleet.start(
        *("worker", "--worker-id", "far", "--state-dir", str(fleet.folder / "far"), "--ttl", "5s"),
        *("--broker-url-file", str(fleet.folder / "far.url")),
    )
    try:
        with Client(url) as client:
            found = Far(fleet, proxy, client)
            wait_until(lambda: "far" in {row["worker_id"] for row in found.rows("workers")}, "it works", 30)
            yield found
    finally:
        proxy.heal()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        proxy.close()


def test_a_late_result_is_kept_out_and_adopted_by_a_person(fleet: Up, far: Far, tmp_path: Path) -> None:
    task_id, late = far.late_result(tmp_path / "a")
    made = f"{task_id}\n".encode()
    assert made not in objects(fleet), "nothing of a rejected result is in the store"
    assert "made.txt" in fleet.run("quarantine", "show", late["quarantine_id"]).out
    one_line(fleet.run("result", task_id, "--outputs", str(tmp_path / "back")), 1, "lost")
    printed = fleet.run("quarantine", "adopt", late["quarantine_id"], "--yes", "--note", "looked at it")
    assert printed.code == 0, printed.err
    assert f"Task {task_id} has SUCCEEDED by this result" in printed.out
    assert fleet.run("result", task_id, "--outputs", str(tmp_path / "back")).out == "late\n"
    assert (tmp_path / "back" / "made.txt").read_bytes() == made
    assert made in objects(fleet)
    assert "looked at it" in fleet.run("explain", task_id).out
    one_line(fleet.run("quarantine", "adopt", late["quarantine_id"], "--yes"), 2, "adopted already")


@pytest.mark.slow
def test_a_late_result_may_be_dropped(fleet: Up, far: Far, tmp_path: Path) -> None:
    task_id, late = far.late_result(tmp_path / "a")
    assert fleet.run("quarantine", "drop", late["quarantine_id"], "--yes").code == 0
    one_line(fleet.run("quarantine", "adopt", late["quarantine_id"], "--yes"), 2, "dropped already")
    assert fleet.run("directives", "deny", task_id).code == 0
    assert fleet.state(task_id) == "ABANDONED"


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "nothing.csv"], ["nothing.csv", "No such file"]),
        (["--input", "../x=scale.py"], ["'../x'", "'..'"]),
        (["--input", "x=sha256:12:3"], ["no reference"]),
        (["--memory", "much"], ["--memory is not a size"]),
        (["--parameters", "{"], ["--parameters is not JSON"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_input_is_one_line_and_nothing_is_submitted(fleet: Up, arguments: list[str], words: list[str]) -> None:
    before = len(fleet.rows("tasks", "list", "--limit", "1000"))
    one_line(fleet.run("submit", *arguments, "--", "true"), 2, *words)
    assert len(fleet.rows("tasks", "list", "--limit", "1000")) == before


def test_a_content_that_is_not_there_fails_the_task(fleet: Up) -> None:
    one_line(fleet.run("submit", "--wait", "--input", f"x=sha256:{'0' * 64}:3", "--", "true"), 1, "0000")


def test_a_secret_that_nobody_knows_waits_and_says_why(fleet: Up) -> None:
    task_id = fleet.run("submit", "--secret", "unknown", "--", "true").out.strip()
    assert fleet.state(task_id) == "QUEUED"
    assert "has no secret unknown" in fleet.run("explain", task_id).out
    assert fleet.run("cancel", task_id).code == 0


def test_a_store_that_is_not_there(fleet: Up, tmp_path: Path) -> None:
    fleet.more["TENURE_ARTIFACTS"] = str(tmp_path / "nowhere")
    try:
        one_line(fleet.run("submit", "--input", "scale.py", "--", "true"), 3, "nowhere")
        printed = fleet.run("doctor")
        assert printed.code == 3
        assert "bad   artifacts" in printed.out
    finally:
        del fleet.more["TENURE_ARTIFACTS"]
    assert "ok    artifacts" in fleet.run("doctor").out


def test_an_options_file_that_others_may_read(fleet: Up, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"secret": "hunter2"}')
    path.chmod(0o644)
    fleet.more["TENURE_ARTIFACTS_OPTIONS_FILE"] = str(path)
    try:
        printed = fleet.run("submit", "--input", "scale.py", "--", "true")
        one_line(printed, 2, "keys.json", "chmod 600")
        assert "hunter2" not in printed.err
        one_line(fleet.run("worker", "--state-dir", str(tmp_path)), 2, "keys.json", "chmod 600")
    finally:
        del fleet.more["TENURE_ARTIFACTS_OPTIONS_FILE"]


def test_files_that_nobody_has(fleet: Up) -> None:
    nobody = "0" * 26
    one_line(fleet.run("artifacts", "get", nobody), 2, nobody)
    one_line(fleet.run("artifacts", "verify", nobody), 2, nobody)
    one_line(fleet.run("quarantine", "adopt", "nothing", "--yes"), 2, "nothing")
    one_line(fleet.run("artifacts", "get", "0" * 64), 2, "0000")
