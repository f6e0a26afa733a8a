"""`tenure map`: one result per row, in order; started again it runs only what is missing."""

import csv
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.cli.map_fleet import Past
from tenure.cli.map_journal import Journal, Outcome
from tenure.cli.map_progress import Tally
from tenure.cli.map_rows import Row
from tenure.cli.map_run import Keyed, MapRun, Rules
from tenure.client.calls import Call
from tenure.client.handle import Handle
from tenure.protocol.states import TaskState
from tests.fixtures_cli import START_MS, CommandLine, FakeFleet, task_id

HANDLERS = """
def square(x: int, name: str = "none") -> int: return x * x
def measure(path: str) -> int: return 1
"""


def work_on(work: Any) -> Any:
    """What the fake fleet's workers do: squares, failing at 7; a program echoes its last argument."""
    if isinstance(work, tuple):
        return f"{work[-1]}\n"
    x = work.kwargs.get("x", work.args[0] if work.args else None)
    return ValueError("seven") if x == 7 else {"square": x * x} if isinstance(x, int) else {"text": x}


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    (tmp_path / "map_handlers.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "map_handlers", raising=False)
    Path("grid.csv").write_text("x,name\n1,one\n7,seven\n2,two\n1,one\n")
    return CommandLine(FakeFleet(ends=work_on), capsys)


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_becomes_calls_and_results_a_csv_in_its_order(tenure: CommandLine) -> None:
    printed = tenure("map", "map_handlers:square", "--csv", "grid.csv", "--out", "out.csv")
    assert printed.code == 1
    assert "1 of 4 rows have no result" in printed.err
    rows = table("out.csv")
    assert [(row["x"], row["square"], row["error"]) for row in rows] == [
        ("1", "1", ""),
        ("7", "", "seven"),
        ("2", "4", ""),
        ("1", "1", ""),
    ]
    assert len({row["task_id"] for row in rows}) == 4
    assert list(rows[0]) == ["x", "name", "square", "error", "task_id", "attempt"]
    assert sorted(path.name for path in Path().iterdir() if "out" in path.name) == ["out.csv"]


def test_columns_are_converted_by_the_hints(tenure: CommandLine) -> None:
    Path("grid.csv").write_text("\ufeffx,name\n3,28\n4,\n")
    assert tenure("map", "map_handlers:square", "--csv", "grid.csv", "--out", "out.csv").code == 0
    assert [task.work.kwargs for task in tenure.fleet.tasks.values()] == [{"x": 3, "name": "28"}, {"x": 4, "name": ""}]


def test_without_the_function_numbers_are_told_by_their_looks(tenure: CommandLine) -> None:
    Path("grid.csv").write_text("x,y,z,w\n3,-1.5e3,007,\n")
    assert tenure("map", "elsewhere:f", "--csv", "grid.csv", "--out", "out.jsonl").code == 0
    (task,) = tenure.fleet.tasks.values()
    assert task.work.kwargs == {"x": 3, "y": -1500.0, "z": "007"}


def test_lines_become_the_one_argument(tenure: CommandLine) -> None:
    Path("words.txt").write_text("alpha\n\nbeta\nalpha\n")
    assert tenure("map", "map_handlers:measure", "--lines", "words.txt", "--out", "out.jsonl").code == 0
    assert [task.work.args for task in tenure.fleet.tasks.values()] == [("alpha",), ("beta",), ("alpha",)]
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "line": "alpha",
        "result": {"text": "alpha"},
        "error": None,
        "task_id": task_id(0),
        "attempt": 1,
    }


def test_files_become_absolute_paths_for_a_program(tenure: CommandLine, tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.dat"):
        Path(name).write_text(name)
    assert tenure("map", "--files", "*.txt", "--out", "out.jsonl", "--", "wc", "-w", "{path}").code == 0
    assert {task.work for task in tenure.fleet.tasks.values()} == {
        ("wc", "-w", str(tmp_path / name)) for name in ("a.txt", "b.txt")
    }
    assert [json.loads(line)["path"] for line in Path("out.jsonl").read_text().splitlines()] == ["a.txt", "b.txt"]


def test_a_file_that_has_changed_is_a_new_row(tenure: CommandLine) -> None:
    line = ("map", "--files", "*.txt", "--out", "out.jsonl", "--", "cat", "{path}")
    Path("a.txt").write_text("one")
    Path("b.txt").write_text("one")
    tenure(*line)
    tenure(*line)
    assert len(tenure.fleet.tasks) == 2
    Path("a.txt").write_text("changed")
    tenure(*line)
    assert len(tenure.fleet.tasks) == 3


def test_the_results_are_not_rows_of_the_next_start(tenure: CommandLine) -> None:
    line = ("map", "--files", "texts/*", "--out", "texts/out.jsonl", "--", "cat", "{path}")
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("one")
    Path("texts/out.jsonl.partial").touch()
    assert tenure(*line).code == 0
    assert tenure(*line).code == 0
    assert len(tenure.fleet.tasks) == 1


def test_what_tasks_leave_is_no_row_of_the_next_start(tenure: CommandLine) -> None:
    Path("left/000001").mkdir(parents=True)
    Path("left/000001/made.txt").write_text("made")
    Path("a.txt").write_text("one")
    line = ("map", "--files", "**/*.txt", "--out", "out.jsonl", "--outputs", "left", "--", "cat", "{path}")
    assert tenure(*line).code == 0
    assert len(tenure.fleet.tasks) == 1


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("", "the path is empty"),
        ("out", "must end in .csv or .jsonl"),
        ("missing/out.csv", "the folder missing does not exist"),
    ],
)
def test_results_go_into_a_file_of_one_of_two_kinds(tenure: CommandLine, out: str, words: str) -> None:
    printed = tenure("map", "map_handlers:square", "--csv", "grid.csv", "--out", out)
    assert printed.code == 2
    assert words in printed.err
    assert not tenure.fleet.tasks


@pytest.mark.parametrize(
    ("option", "rows", "out"),
    [
        ("--csv", "grid.csv", "grid.csv"),
        ("--csv", "grid.csv", "link.csv"),
        ("--lines", "o.csv.partial", "o.csv"),
        ("--csv", "o.csv.new", "o.csv"),
    ],
)
def test_results_are_not_written_over_the_rows(tenure: CommandLine, option: str, rows: str, out: str) -> None:
    Path("link.csv").symlink_to("grid.csv")
    Path("o.csv.partial").write_text("1\n")
    Path("o.csv.new").write_text("value\n1\n")
    before = Path(rows).read_text()
    printed = tenure("map", "map_handlers:square", option, rows, "--out", out)
    assert printed.code == 2
    assert f"written over the rows in {rows}" in printed.err
    assert Path(rows).read_text() == before
    assert not tenure.fleet.tasks


def test_options_reach_the_tasks(tenure: CommandLine) -> None:
    tenure("map", "map_handlers:square", "--csv", "grid.csv", "--out", "o.csv", "--run", "r", "--lease-ttl", "5s")
    assert tenure.fleet.options == [{"run": "r", "lease_ttl": "5s"}]


def test_started_again_nothing_is_submitted_twice(tenure: CommandLine) -> None:
    line = ("map", "map_handlers:square", "--csv", "grid.csv", "--out", "out.csv")
    tenure(*line)
    before = table("out.csv")
    with Path("grid.csv").open("a") as file:
        file.write("5,five\n")
    tenure(*line)
    assert len(tenure.fleet.tasks) == 5
    assert table("out.csv")[:4] == before


def test_failed_rows_run_again_only_on_request(tenure: CommandLine) -> None:
    line = ("map", "map_handlers:square", "--csv", "grid.csv", "--out", "out.csv")
    assert tenure(*line).code == 1
    tenure.fleet.ends = lambda _: "healed"
    tenure.fleet.now_ms = START_MS + 60_000
    assert tenure(*line).code == 1
    assert len(tenure.fleet.tasks) == 4
    assert tenure(*line, "--rerun-failed").code == 0
    assert len(tenure.fleet.tasks) == 5
    assert table("out.csv")[1]["result"] == "healed"
    tenure.fleet.now_ms += 60_000
    assert tenure(*line).code == 0, "the newest run of a row counts, also without the flag"
    assert len(tenure.fleet.tasks) == 5


def test_lost_rows_are_told_and_taken_up_again(tenure: CommandLine) -> None:
    tenure.fleet.ends = lambda _: TaskState.LOST
    line = ("map", "map_handlers:square", "--csv", "grid.csv", "--out", "out.csv")
    printed = tenure(*line, "--json")
    assert printed.code == 1
    assert (printed.json()["lost"], printed.json()["failed"]) == (4, 0)
    assert "directives approve" in printed.err
    assert table("out.csv")[0]["error"].startswith("lost")
    assert len(tenure.fleet.tasks) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["map_handlers:square", "--out", "o.csv"], "exactly one of --csv, --lines and --files"),
        (["map_handlers:square", "--csv", "grid.csv", "--lines", "x", "--out", "o.csv"], "exactly one of"),
        (["map_handlers:square", "--csv", "grid.csv", "--out", "o.xlsx"], "must end in .csv or .jsonl"),
        (["map_handlers:square", "--csv", "grid.csv", "--out", "no/such/o.csv"], "does not exist"),
        (["map_handlers:square", "--csv", "none.csv", "--out", "o.csv"], "none.csv cannot be read"),
        (["map_handlers:nothing", "--csv", "grid.csv", "--out", "o.csv"], "no function nothing"),
        (["--csv", "grid.csv", "--out", "o.csv"], "say what to run"),
        (["map_handlers:square", "--files", "*.none", "--out", "o.csv"], "no file fits"),
        (["--csv", "grid.csv", "--out", "o.csv", "--", "echo", "{y}"], "{y} names no column"),
        (["--csv", "grid.csv", "--out", "o.csv", "--", "echo"], "the same command"),
        (["map_handlers:square", "--csv", "ragged.csv", "--out", "o.csv"], "line 3"),
        (["map_handlers:square", "--csv", "twice.csv", "--out", "o.csv"], "all different"),
        (["map_handlers:square", "--csv", "latin.csv", "--out", "o.csv"], "not UTF-8"),
        (["map_handlers:square", "--csv", "words.csv", "--out", "o.csv"], "row 2"),
        (["map_handlers:square", "--csv", "extra.csv", "--out", "o.csv"], "row 1"),
    ],
)
def test_wrong_input_is_one_line(tenure: CommandLine, arguments: list[str], words: str) -> None:
    Path("ragged.csv").write_text("x,name\n1,a\n2\n")
    Path("twice.csv").write_text("x,x\n1,2\n")
    Path("latin.csv").write_bytes(b"x,name\n1,\xe9\n")
    Path("words.csv").write_text("x\n1\ntwo\n")
    Path("extra.csv").write_text("x,colour\n1,red\n")
    printed = tenure("map", *arguments)
    assert printed.code == 2
    assert printed.err.count("\n") == 1
    assert words in printed.err
    assert not Path("o.csv").exists()


def test_a_journal_of_another_run_is_not_mixed_in(tenure: CommandLine) -> None:
    with Journal(Path("out.csv"), "other") as journal:
        journal.add(Outcome("k", task_id(1), 1, "SUCCEEDED", 1))
        printed = tenure("map", "map_handlers:square", "--csv", "grid.csv", "--out", "out.csv")
        assert "another `tenure map`" in printed.err
    printed = tenure("map", "map_handlers:square", "--csv", "grid.csv", "--out", "out.csv")
    assert printed.code == 2
    assert "another run" in printed.err


# --- interrupted anywhere -------------------------------------------------------------------------


class Interrupted:
    """A fleet and a meter that interrupt the loop at a chosen moment; tasks stay in the fleet, as in life."""

    def __init__(self, fleet: FakeFleet, after: int) -> None:
        self.fleet = fleet
        self.left = after
        self.past = Past(fleet)
        self.is_old, self.exists = self.past.is_old, self.past.exists

    def submit(self, rows: Any) -> list[Handle[Any]]:
        handles: list[Handle[Any]] = []
        for keyed in rows:
            self.tick()
            handles.append(self.fleet.add(keyed.key, Call("f:f", (keyed.row.value,))))
        return handles

    def show(self) -> None:
        self.tick()

    def tick(self) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


def rows_of(values: list[str]) -> list[Row]:
    return [Row(index, {"line": text}, f"key{index}", single=True) for index, text in enumerate(values)]


def tear(journal: Path, size: int) -> None:
    """Cut off the end, as a crash of the machine may; the first line was written long before."""
    if journal.exists():
        content = journal.read_bytes()
        journal.write_bytes(content[: max(content.index(b"\n") + 1, len(content) - size)])


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12),
    interruptions=st.lists(st.integers(0, 25), max_size=4),
    unfinished=st.sets(st.integers(0, 11)),
    torn=st.integers(0, 40),
)
def test_interrupted_at_any_point_the_union_is_complete_and_nothing_is_submitted_twice(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[str],
    interruptions: list[int],
    unfinished: set[int],
    torn: int,
) -> None:
    out = tmp_path_factory.mktemp("map") / "out.jsonl"
    fleet = FakeFleet()
    rows = rows_of(values)
    for after in interruptions:
        fleet.ends = lambda work: None if len(fleet.tasks) - 1 in unfinished else work.args[0] * 2
        attempt = Interrupted(fleet, after)
        with Journal(out, "run") as journal, suppress(KeyboardInterrupt):
            MapRun(attempt, journal, Tally(len(rows)), Rules(look_s=0)).run(rows, attempt)
        tear(out.with_name("out.jsonl.partial"), torn)
        for task in fleet.tasks.values():
            if task.done is None:
                fleet.ends = lambda work: work.args[0] * 2
                task.done = fleet._end(task)
    fleet.ends = lambda work: work.args[0] * 2
    last = Interrupted(fleet, 10_000)
    with Journal(out, "run") as journal:
        MapRun(last, journal, Tally(len(rows)), Rules(look_s=0)).run(rows, last)
        journal.finish(lambda: iter([(row.key, row.columns) for row in rows]))
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["line"], line["result"]) for line in written] == [(value, value * 2) for value in values]
    assert len(fleet.tasks) == len(values)


def test_a_row_knows_its_generations() -> None:
    keyed = Keyed(rows_of(["a"])[0])
    assert (keyed.key, keyed.next().key, keyed.next().next().key) == ("key0", "key0.1", "key0.2")
