"""What holds for the arguments of every command: bytes that are no text, empty paths, JSON beyond reading."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tenure.cli.commands import tenure as root
from tests.fixtures_cli import CommandLine, FakeFleet, Printed, task_id

ROOT = Path(__file__).parents[2]
DEEP = "[" * 20_000
LONG = "1" * 5_000


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a\n1\n")
    (tmp_path / "deep.json").write_text(DEEP)
    return CommandLine(FakeFleet(ends=lambda _: "done"), capsys)


def one_line(printed: Printed, *words: str) -> None:
    assert printed.code == 2, printed
    (line,) = printed.err.splitlines()
    for word in words:
        assert word in line


# --- bytes that are no text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["submit", "--", "echo", "a\udcffb"], "the program: a\\xffb"),
        (["submit", "--label", "r=a\udcff", "--", "x"], "'--label' is not UTF-8 text: r=a\\xff"),
        (["submit", "--key", "a\udcff", "--", "x"], "'--key' is not UTF-8 text: a\\xff"),
        (["submit", "--parameters", '"\udcff"', "--", "x"], '--parameters is not UTF-8 text: "\\xff"'),
        (["submit", "tasks:f", "1", "\udcff"], "\\xff"),
        (["submit", "--namespace", "a\udcff", "--", "x"], "'--namespace' is not UTF-8 text: a\\xff"),
        (["tasks", "list", "--run", "a\udcff"], "'--run' is not UTF-8 text: a\\xff"),
        (["directives", "deny", "a\udcff"], "is not UTF-8 text: a\\xff"),
        (["directives", "deny", "--all", "--note", "\udcc3"], "'--note' is not UTF-8 text: \\xc3"),
        (["map", "--files", "\udcff*", "--out", "o.csv", "--", "x", "{path}"], "'--files' is not UTF-8 text: \\xff*"),
        (["a\udcff"], "no such command"),
    ],
)
def test_bytes_that_are_no_text_are_one_line(tenure: CommandLine, arguments: list[str], named: str) -> None:
    one_line(tenure(*arguments), named.replace("the program: ", "an argument of the program is not UTF-8 text: "))
    assert not tenure.fleet.asked
    assert not tenure.fleet.tasks


@pytest.mark.parametrize("option", ["--csv", "--lines"])
def test_rows_may_come_from_a_file_whose_name_is_no_text(tenure: CommandLine, option: str) -> None:
    Path("g\udcff").write_text("a\n1\n")
    printed = tenure("map", option, "g\udcff", "--out", "o.csv", "--", "x", "{a}" if option == "--csv" else "{line}")
    assert printed.code == 0, printed.err


def test_results_and_outputs_may_go_where_the_name_is_no_text(tenure: CommandLine) -> None:
    printed = tenure("map", "--csv", "rows.csv", "--out", "o\udcff.csv", "--outputs", "d\udcff", "--", "x", "{a}")
    assert printed.code == 0, printed.err
    assert "o\\xff.csv" in printed.err
    assert Path("o\udcff.csv").exists()


def test_a_file_whose_name_is_no_text_may_be_an_input_under_another_name(tenure: CommandLine) -> None:
    Path("f\udcff").touch()
    assert tenure("submit", "--input", "x=f\udcff", "--", "x").code == 0
    one_line(tenure("submit", "--input", "f\udcff", "--", "x"), "UTF-8")


def test_a_file_whose_name_is_no_text_may_hold_the_parameters(tenure: CommandLine) -> None:
    Path("f\udcff").write_text("[1]")
    assert tenure("submit", "--parameters", "@f\udcff", "--", "x").code == 0


def test_map_says_which_of_the_files_has_a_name_that_is_no_text(tenure: CommandLine) -> None:
    for name in ("f1", "f2\udcff", "f3"):
        Path(name).touch()
    one_line(tenure("map", "--files", "f*", "--out", "o.csv", "--", "x", "{path}"), "f2\\xff is not UTF-8", "ename it")
    assert not tenure.fleet.tasks


def test_json_about_a_path_that_is_no_text_is_json(tenure: CommandLine) -> None:
    printed = tenure("map", "--json", "--csv", "rows.csv", "--out", "o\udcff.csv", "--", "x", "{a}")
    assert printed.json()["out"] == "o\udcff.csv"


# --- empty paths ------------------------------------------------------------------------------------------------------


def paths(group: click.Group, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """Every option of every command that takes a path."""
    found: list[tuple[tuple[str, ...], str]] = []
    for name, command in group.commands.items():
        place = (*above, name)
        found += [(place, each.opts[0]) for each in command.params if isinstance(each.type, click.Path)]
        if isinstance(command, click.Group):
            found += paths(command, place)
    return found


def test_there_are_options_that_take_paths() -> None:
    assert {("result",), ("artifacts", "get"), ("map",), ("up",)} <= {place for place, _ in paths(root)}


@pytest.mark.parametrize(("place", "option"), paths(root))
def test_no_path_is_empty(tenure: CommandLine, place: tuple[str, ...], option: str) -> None:
    needed = [task_id(1)] if place in {("result",), ("artifacts", "get")} else []
    one_line(tenure(*place, *needed, option, ""), f"'{option}'", "the path is empty")


# --- JSON beyond reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["submit", "--parameters", DEEP, "--", "x"], "nested too deeply"),
        (["submit", "--parameters", "@deep.json", "--", "x"], "nested too deeply"),
        (["submit", "--parameters", LONG, "--", "x"], "more than 4300 digits"),
        (["submit", "tasks:f", DEEP], "nested too deeply"),
        (["submit", "tasks:f", f"a={DEEP}"], "nested too deeply"),
        (["submit", "tasks:f", LONG], "more than 4300 digits"),
        (["map", "--csv", "rows.csv", "--out", "o.csv", "--parameters", DEEP, "--", "x", "{a}"], "nested too deeply"),
    ],
)
def test_json_beyond_reading_is_one_line(tenure: CommandLine, arguments: list[str], words: str) -> None:
    one_line(tenure(*arguments), "is not JSON that can be read", words)
    assert not tenure.fleet.tasks


def test_a_cell_beyond_reading_is_one_line(tenure: CommandLine) -> None:
    Path("rows.csv").write_text(f"a\n1\n{LONG}\n")
    one_line(tenure("map", "tasks:f", "--csv", "rows.csv", "--out", "o.csv"), "row 2", "more than 4300 digits")


def test_an_export_beyond_reading_is_one_line(tenure: CommandLine) -> None:
    one_line(tenure("events", "verify", "--file", "deep.json"), "line 1 of deep.json is no line of an export")


def test_a_stores_options_beyond_reading_are_one_line(tenure: CommandLine) -> None:
    Path("deep.json").chmod(0o600)
    given = ("--broker-url", "redis://h:1", "--artifacts-options-file", "deep.json", "--artifacts", "s3://b/p")
    one_line(tenure("worker", *given), "holds no JSON object")


# --- standard streams that are closed ---------------------------------------------------------------------------------


def run(command: str) -> subprocess.CompletedProcess[str]:
    script = command.replace("tenure", f"{sys.executable} -m tenure", 1)
    return subprocess.run(["sh", "-c", script], cwd=ROOT, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", ["tasks list", "--version", "--help", "submit --json -- x"])
def test_a_closed_standard_output_is_one_line_and_code_3(arguments: str) -> None:
    done = run(f"tenure {arguments} >&-")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "standard output is closed" in done.stderr


def test_closed_standard_input_and_error_are_no_trouble() -> None:
    done = run("tenure --version <&- 2>&-")
    assert (done.returncode, done.stdout.split()[0]) == (0, "tenure")
    done = run("tenure quarantine drop q1 <&-")
    assert done.returncode == 2
    assert "give --yes" in done.stderr
