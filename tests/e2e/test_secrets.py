"""The scanner: the value of a secret that programs and calls were given is nowhere but where it belongs.

Programs tell it in every way they can. Everything that a fleet writes, keeps or shows is then searched for its parts.
A plain marker that is told in the same ways has to be found: it proves that the scanner sees.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tenure.broker.redis_connection import RedisConnection
from tenure.client.handle import Handle
from tests import fixtures_secret_handlers as handlers
from tests.fixtures_files_fleet import FilesFleet, files_fleet
from tests.fixtures_fleet import Worker
from tests.secret_search import MARKER, ProcessWatch, found, found_below
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
PARTS = ("open-sesame-7261", "the-other-half-94")
SECRET = f'{PARTS[0]}"\\ü\t{PARTS[1]}'

TELL = """
import json, os, pathlib, sys, time
value, marker, gate = pathlib.Path("secrets/token").read_text(), sys.argv[1], pathlib.Path(sys.argv[2])
os.write(1, f"{marker} {value}\\n".encode()); os.write(2, value.encode() + b"\\n")
os.write(1, value[:7].encode()); time.sleep(0.3); os.write(1, value[7:].encode() + b"\\n")
with open("progress.jsonl", "a") as file:
    file.write(json.dumps({"fraction": 0.5, "message": value, "metrics": {"told": value}}) + "\\n")
    file.write(json.dumps({"message": value}, ensure_ascii=False) + "\\n")
print(sorted(os.environ), sys.argv)
while not gate.exists():
    time.sleep(0.02)
pathlib.Path("result.json").write_text(json.dumps({"value": value}))
sys.exit(int(sys.argv[3]))
"""
LINES = """
import json, pathlib
value = pathlib.Path("secrets/token").read_text()
print(value)
for line in ({"log": value}, {"message": value}, {"checkpoint": "one", "state": {"at": value}}, {"result": [value]}):
    print(json.dumps(line), flush=True)
"""
LEAVE = "import pathlib; pathlib.Path('outputs/mine').write_text(pathlib.Path('secrets/token').read_text())"


def everything_in_broker(connection: RedisConnection) -> Iterator[tuple[str, bytes]]:
    """Every key with all that is in it."""
    keys = connection.call("KEYS", "*")
    assert isinstance(keys, list)
    reads: dict[bytes, tuple[str, tuple[str | int, ...]]] = {
        b"string": ("GET", ()),
        b"hash": ("HGETALL", ()),
        b"set": ("SMEMBERS", ()),
    }
    reads |= {b"list": ("LRANGE", (0, -1)), b"zset": ("ZRANGE", (0, -1)), b"stream": ("XRANGE", ("-", "+"))}
    for key in keys:
        assert isinstance(key, bytes)
        kind = connection.call("TYPE", key)
        if kind == b"none":
            continue  # it has expired
        assert isinstance(kind, bytes)
        command, rest = reads[kind]
        yield key.decode(), b"".join(flat(connection.call(command, key, *rest)))


def flat(reply: object) -> Iterator[bytes]:
    if isinstance(reply, list):
        for each in cast("list[object]", reply):
            yield from flat(each)
    elif isinstance(reply, bytes):
        yield reply


@dataclass
class Told:
    """A fleet in which the secret has been told in every way."""

    files: FilesFleet
    tasks: dict[str, str]
    watch: ProcessWatch


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Generator[Told]:
    folder, secrets = tmp_path_factory.mktemp("fleet"), tmp_path_factory.mktemp("secrets")
    (secrets / "token").touch(mode=0o600)
    (secrets / "token").write_text(f"{SECRET}\n")
    options = ("--secrets-dir", str(secrets), "--allow", "tests.fixtures_secret_handlers")
    kept = ("--appendonly", "yes", "--rdbcompression", "no")
    worker = Worker("w1", slots=4, options=options)
    with files_fleet(folder, [worker], server_options=kept) as files, ProcessWatch() as watch:
        tasks = tell_everywhere(files, folder / "gate", watch)
        printing = {tasks[name] for name in ("program", "failed program", "lines", "call", "async")}
        wait_until(lambda: logs_of(files) >= printing, "what they have printed is in the store", 30)
        yield Told(files, tasks, watch)


def tell_everywhere(files: FilesFleet, gate: Path, watch: ProcessWatch) -> dict[str, str]:
    given = files.fleet.client.using(secrets=["token"])

    def program(script: str, *arguments: str, form: Any = "folder") -> Any:
        return given.command(["/usr/bin/env", f"NOTE={MARKER}", sys.executable, "-c", script, *arguments], form=form)

    handles: dict[str, Handle[Any]] = {
        "program": program(TELL, MARKER, str(gate), "0"),
        "failed program": program(TELL, MARKER, str(gate), "3"),
        "lines": program(LINES, form="lines"),
        "silent": program(LEAVE, form="stdout"),
        "call": given.submit(handlers.tell, "token", str(gate)),
        "failed call": given.submit(handlers.fail, "token"),
    }
    wait_until(lambda: all(logged(files, handles[name].task_id) for name in ("program", "call")), "they run", 30)
    wait_until(lambda: MARKER in watch.seen([])["environ"], "the marker is seen in an environment", 30, 100)
    gate.touch()
    handles["async"] = given.submit(handlers.tell_async, "token")
    for handle in handles.values():
        wait_until(handle.done, "it is over", 60)
    handles["counted"] = given.submit(handlers.remember, "token")
    assert handles["counted"].result(30) >= 1
    return {name: str(handle.task_id) for name, handle in handles.items()}


def logged(files: FilesFleet, task_id: str) -> bool:
    return any(chunk.stream for chunk in files.fleet.client.logs(task_id))


def logs_of(files: FilesFleet) -> set[str]:
    """The tasks whose logs are in the store."""
    return {row["task_id"] for row in files.rows("artifacts", kind="log") if row["state"] == "PROMOTED"}


def test_what_programs_and_calls_have_told_is_masked(told: Told) -> None:
    """The value was really there: what is left of it is its name."""
    client = told.files.fleet.client

    def texts(name: str) -> str:
        return "".join(chunk.text for chunk in client.logs(told.tasks[name]) if chunk.stream)

    for name, count in {"program": 3, "failed program": 3, "lines": 2, "call": 4, "async": 1}.items():
        assert texts(name).count("[secret token]") == count, (name, texts(name))
    rows = {name: told.files.task(task_id) for name, task_id in told.tasks.items()}
    assert json.loads(rows["program"]["value"]) == {"value": "[secret token]\n"}
    assert "[secret token]" in rows["failed program"]["failure"]["message"] + rows["failed program"]["failure"]["trace"]
    assert json.loads(rows["lines"]["value"]) == ["[secret token]\n"]
    assert json.loads(rows["call"]["value"]) == {
        "value": "[secret token]\n",
        "[secret token]\n": "<[secret token]\n>",
    }
    assert f"{MARKER} of a failure: [secret token]" in rows["failed call"]["failure"]["message"]


def test_it_is_in_no_argv_and_no_environment(told: Told) -> None:
    assert told.watch.rounds > 5
    assert told.watch.seen(PARTS) == {"cmdline": {MARKER}, "environ": {MARKER}}


def test_it_is_not_at_the_broker_nor_in_its_files(told: Told) -> None:
    server = told.files.fleet.server
    connection = server.connect()
    try:
        contents = dict(everything_in_broker(connection))
        connection.call("SAVE")
    finally:
        connection.close()
    assert len(contents) > 5
    everything = {word for data in contents.values() for word in found(data, PARTS)}
    assert everything == {MARKER}
    folder = told.files.fleet.folder
    for kept in (folder / "dump.rdb", *(folder / "appendonlydir").iterdir()):
        assert found(kept.read_bytes(), PARTS) <= {MARKER}, kept
    assert MARKER in found((folder / "dump.rdb").read_bytes(), PARTS)


def test_it_is_in_no_database_and_in_no_log(told: Told) -> None:
    folder = told.files.fleet.folder
    seen = found_below(folder, PARTS, without=folder / "store")
    assert {"fleet.db", "w1.log", "coordinator.log"} <= seen.keys()
    assert {path for path, words in seen.items() if words - {MARKER}} == set()
    assert any(MARKER in words for path, words in seen.items() if path.startswith("fleet.db"))


def test_it_is_in_the_store_only_where_a_program_has_put_it(told: Told) -> None:
    """Files that programs leave are theirs; the documentation says that they are not searched."""
    store = told.files.fleet.folder / "store"
    hits = [path for path in store.rglob("*") if path.is_file() and found(path.read_bytes(), PARTS) - {MARKER}]
    assert [path.read_text() for path in hits] == [f"{SECRET}\n"]
    (mine,) = told.files.rows("artifacts", task_id=told.tasks["silent"], kind="outputs")
    assert mine["files"] == 1
    assert any(MARKER.encode() in path.read_bytes() for path in store.rglob("*") if path.is_file())


@pytest.mark.parametrize("as_json", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_command_line_shows_it_nowhere(told: Told, as_json: bool) -> None:  # noqa: FBT001 - a parameter
    files = told.files
    lines = [
        (*words, told.tasks[name])
        for name in ("program", "failed call")
        for words in (("explain",), ("tasks", "show"), ("result",), ("logs",))
    ]
    lines += [("tasks", "list"), ("workers", "list"), ("artifacts", "list"), ("doctor",)]
    printed = [files.run(*line, *(["--json"] if as_json else [])) for line in lines]
    printed.append(files.fine("artifacts", "get", f"{told.tasks['call']}:log"))
    shown = [each.out + each.err for each in printed]
    assert {word for text in shown for word in found(text.encode(), PARTS)} == {MARKER}
    assert "[secret token]" in "".join(shown)


def test_what_a_module_remembers_is_masked_for_other_calls(told: Told) -> None:
    """A call that names no secret, in a child that has given one away."""
    client = told.files.fleet.client
    handles = [client.submit(handlers.recall) for _ in range(8)]
    assert {word for handle in handles for word in found(str(handle.result(30)).encode(), PARTS)} == set()
    texts = ["".join(chunk.text for chunk in client.logs(handle.task_id)) for handle in handles]
    assert {word for text in texts for word in found(text.encode(), PARTS)} == set()
