"""What goes wrong outside gets one clear line and the right exit code, and nothing is lost."""

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fixtures_e2e import Place, Printed, Up, up
from tests.fixtures_services import require_program, unavailable
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    with up(tmp_path_factory.mktemp("up"), "--workers", "1") as running:
        yield running


def one_line(printed: Printed, code: int, *words: str) -> None:
    assert printed.code == code, printed
    last = printed.err.splitlines()[-1]
    assert last.startswith("tenure: ")
    assert "tenure/cli" not in printed.err, "a traceback of ours"
    for word in words:
        assert word in last


# --- the broker ---------------------------------------------------------------------------------------


def test_no_broker_is_known(tmp_path: Path) -> None:
    one_line(Place(tmp_path).run("tasks", "list"), 2, "no broker is known", "tenure up")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:6379", "redis://"])
def test_a_wrong_url(tmp_path: Path, url: str) -> None:
    one_line(Place(tmp_path, {"TENURE_BROKER_URL": url}).run("tasks", "list"), 2, "TENURE_BROKER_URL")


def test_nobody_listens_there(tmp_path: Path) -> None:
    place = Place(tmp_path, {"TENURE_BROKER_URL": "redis://127.0.0.1:1", "TENURE_ANSWER_TIMEOUT_S": "1"})
    one_line(place.run("tasks", "list"), 3, "127.0.0.1:1")
    one_line(place.run("submit", "--", "true"), 3, "127.0.0.1:1")
    assert place.run("doctor").code == 3


@pytest.mark.parametrize(
    ("begun", "options", "says"),
    [
        ("launches.jsonl", [], "starts them through a launcher"),
        ("spool.jsonl", ["--launcher", "local"], "runs tasks itself"),
    ],
)
def test_a_worker_s_id_of_the_other_kind(fleet: Up, tmp_path: Path, begun: str, options: list[str], says: str) -> None:
    """What it has begun would be begun again: neither can read what the other has written down."""
    kept = tmp_path / "workers" / "w9" / begun
    kept.parent.mkdir(parents=True)
    kept.touch()
    url = str(fleet.folder / "data" / "up" / "broker.url")
    printed = Place(tmp_path).run(
        "worker", "--worker-id", "w9", "--state-dir", str(tmp_path), "--broker-url-file", url, *options
    )
    one_line(printed, 2, "w9", says, "--worker-id")


def test_a_wrong_password(fleet: Up, tmp_path: Path) -> None:
    url = (fleet.folder / "data" / "up" / "broker.url").read_text().strip()
    wrong = tmp_path / "url"
    wrong.write_text(url.replace(str(urlsplit(url).password), "hunter2"))
    for command in (["tasks", "list"], ["worker", "--state-dir", str(tmp_path)], ["coordinator"]):
        printed = Place(tmp_path).run(*command, "--broker-url-file", str(wrong))
        one_line(printed, 3, "password")
        assert "hunter2" not in printed.err + printed.out


def test_no_coordinator(tmp_path: Path) -> None:
    place = Place(tmp_path, {"TENURE_ANSWER_TIMEOUT_S": "1"})
    broker = place.start("broker", "--json")
    try:
        assert broker.stdout is not None
        told = "".join(iter(broker.stdout.readline, "}\n")) + "}"
        url_file = json.loads(told)["url_file"]
        one_line(place.run("submit", "--broker-url-file", url_file, "--", "true"), 3, "coordinator")
        one_line(place.run("tasks", "list", "--broker-url-file", url_file), 3, "coordinator")
        printed = place.run("doctor", "--broker-url-file", url_file)
        assert printed.code == 3
        assert "bad   coordinator" in printed.out
    finally:
        broker.send_signal(signal.SIGINT)
        broker.communicate(timeout=20)
    assert not Path(url_file).exists()


# --- tasks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["e2e_handlers:nothing"], 2, ["no function nothing"]),
        (["not_installed:f"], 1, ["not_installed"]),
        (["json:dumps", "1"], 1, ["--allow json"]),
        (["e2e_handlers:double", "word"], 2, ["x", "integer"]),
        (["e2e_handlers:double"], 2, ["x"]),
        (["e2e_handlers:double", "1", "2"], 2, ["argument"]),
        (["e2e_handlers:shapeless"], 1, ["no JSON form"]),
        (["e2e_handlers:big"], 1, ["limit"]),
        (["e2e_handlers:fail"], 1, ["no good"]),
        (["e2e_handlers:hold", "x" * 70_000], 2, ["over the limit"]),
        (["--", "no-such-program"], 1, ["no-such-program"]),
        (["--", "false"], 1, ["exit code 1"]),
        (["--lease-ttl", "soon", "--", "true"], 2, ["lease_ttl"]),
        (["--lease-ttl", "1ms", "--", "true"], 2, ["lease_ttl"]),
        (["--exclusive", "--start", "claimed", "--", "true"], 2, ["exclusive"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_task_that_cannot_be(fleet: Up, arguments: list[str], code: int, words: list[str]) -> None:
    one_line(fleet.run("submit", "--wait", *arguments), code, *words)


def test_a_key_that_was_used_for_something_else(fleet: Up) -> None:
    assert fleet.run("submit", "--key", "same", "--", "echo", "1").code == 0
    one_line(fleet.run("submit", "--key", "same", "--", "echo", "2"), 2, "same")


def test_a_capability_that_nobody_offers_waits_and_is_said_to(fleet: Up) -> None:
    printed = fleet.run("submit", "--capability", "gpu", "--", "true")
    assert printed.code == 0
    assert "no active worker offers capability 'gpu'" in printed.err
    task_id = printed.out.strip()
    assert fleet.state(task_id) == "QUEUED"
    assert "no active worker offers capability 'gpu'" in fleet.run("explain", task_id).out
    assert fleet.run("cancel", task_id).code == 0
    assert fleet.state(task_id) == "CANCELLED"


def test_a_task_that_does_not_exist(fleet: Up) -> None:
    nobody = "0" * 26
    for command in ("explain", "cancel", "wait", "result"):
        one_line(fleet.run(command, nobody), 2, nobody)
    one_line(fleet.run("tasks", "show", nobody), 2, nobody)
    one_line(fleet.run("directives", "approve", nobody), 2, nobody)


def test_a_second_worker_of_the_same_id(fleet: Up) -> None:
    state = str(fleet.folder / "data" / "up")
    one_line(fleet.run("worker", "--worker-id", "worker-1", "--state-dir", state), 3, "worker-1")


# --- the coordinator's database -----------------------------------------------------------------------


def test_a_second_coordinator_on_one_database(fleet: Up) -> None:
    database = str(fleet.folder / "data" / "up" / "tenure.db")
    one_line(fleet.run("coordinator", "--database", database), 3, database)
    assert fleet.run("submit", "--wait", "e2e_handlers:double", "1").out == "2\n"


def test_a_database_of_a_newer_program(tmp_path: Path) -> None:
    with up(tmp_path, "--workers", "0"):
        pass
    database = tmp_path / "data" / "up" / "tenure.db"
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    before = database.read_bytes()
    place = Place(tmp_path)
    one_line(place.run("up", "--workers", "0"), 3, "newer")
    assert database.read_bytes() == before
    assert not (tmp_path / "data" / "up" / "broker.url").exists()


def test_a_file_that_is_no_database(fleet: Up, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database at all, but long enough to look like one" * 100)
    one_line(fleet.run("coordinator", "--database", str(tmp_path / "notes.txt")), 3, "notes.txt")


def test_a_broker_that_evicts(tmp_path: Path) -> None:
    socket = tmp_path / "b.sock"
    server = subprocess.Popen(
        [
            *(require_program("valkey"), "--port", "0", "--unixsocket", str(socket), "--maxmemory", "100mb"),
            *("--maxmemory-policy", "allkeys-lru", "--save", "", "--dir", str(tmp_path)),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(socket.exists, "the server listens")
        place = Place(tmp_path, {"TENURE_BROKER_URL": f"unix://{socket}", "TENURE_ANSWER_TIMEOUT_S": "1"})
        one_line(place.run("coordinator", "--database", str(tmp_path / "t.db")), 3, "allkeys-lru")
        printed = place.run("doctor")
        assert printed.code == 3
        assert "bad   broker: it may throw messages away (maxmemory-policy allkeys-lru)" in printed.out
    finally:
        server.terminate()
        server.wait(20)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65_536)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_refuses_work_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "data"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        unavailable("this machine does not let us mount a small disk")
    try:
        with up(tmp_path, "--workers", "0") as fleet:
            kept = fleet.run("submit", "--", "echo", "kept").out.strip()
            filler = disk / "filler"
            with pytest.raises(OSError, match="No space left"):
                fill(filler)
            fleet.more = {"TENURE_ANSWER_TIMEOUT_S": "2"}
            one_line(fleet.run("submit", "--", "echo", "x" * 50_000), 3)
            filler.unlink()
            fleet.more = {}
            assert fleet.state(kept) == "QUEUED"
            assert fleet.run("submit", "--", "echo", "again").code == 0
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
