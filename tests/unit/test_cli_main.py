"""The frame around every command: help is quick, errors are one line, a closed pipe is quiet, Ctrl-C is 130."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tenure import __version__
from tenure.cli import failures
from tenure.cli.commands import tenure as root
from tenure.errors import StoreFull, TaskFailed, UsageError
from tests.fixtures_cli import CommandLine, FakeFleet

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def tenure(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(fleet, capsys)


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += leaves(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


@pytest.mark.parametrize("path", leaves(root), ids=" ".join)
def test_every_command_explains_itself(tenure: CommandLine, path: tuple[str, ...]) -> None:
    printed = tenure(*path, "--help")
    assert printed.code == 0
    assert printed.out.startswith(f"Usage: tenure {' '.join(path)}")
    assert len(printed.out.splitlines()) > 4


@pytest.mark.parametrize("path", [path for path in leaves(root) if path != ("completion",)], ids=" ".join)
def test_every_command_that_prints_can_print_json(tenure: CommandLine, path: tuple[str, ...]) -> None:
    assert "--json" in tenure(*path, "--help").out


def test_help_lists_commands_by_section(tenure: CommandLine) -> None:
    text = tenure("--help").out.partition("Options:")[2]
    assert text.index("Start here") < text.index("demo") < text.index("Work:") < text.index("submit")


def test_version(tenure: CommandLine) -> None:
    assert tenure("--version").out == f"tenure {__version__}\n"


def test_no_command_shows_the_help(tenure: CommandLine) -> None:
    printed = tenure()
    assert printed.code == 2
    assert "Start here" in printed.out + printed.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(tenure: CommandLine, shell: str) -> None:
    script = tenure("completion", shell).out
    assert "_TENURE_COMPLETE" in script
    assert "tenure" in script


def test_help_is_quick() -> None:
    """Importing libraries that only some commands need would cost more than the whole limit.

    Counted is the processor's time, against that of a program that only imports what every command needs, in turns: how
    fast and how busy the machine is says nothing about the command.
    """
    turns = [
        (_processor_s("-m", "tenure", "--help"), _processor_s("-c", "import click, json, logging")) for _ in range(3)
    ]
    took, least = (min(times) for times in zip(*turns, strict=True))
    assert took < max(0.3, 6 * least)


def _processor_s(*arguments: str) -> float:
    with subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL) as program:
        _, status, used = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0
    return used.ru_utime + used.ru_stime


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; from tenure.cli.main import run; run(['--help']); print('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(done.stdout.rpartition("LOADED ")[2].split())
    heavy = {"pydantic", "redis", "rich", "sqlite3", "psutil", "platformdirs", "asyncio", "decimal"}
    assert not {name.partition(".")[0] for name in loaded} & heavy
    assert not {name for name in loaded if name.startswith("tenure.broker")}


def test_a_closed_pipe_is_quiet() -> None:
    script = f"{sys.executable} -m tenure --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode in {0, 141}


def test_interrupting_is_130_and_says_nothing(fleet: FakeFleet, tenure: CommandLine) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    fleet.ask = interrupted  # type: ignore[method-assign,assignment]
    printed = tenure("tasks", "list")
    assert printed.code == 130
    assert not printed.out.strip()
    assert not printed.err.strip()


@pytest.mark.parametrize("module", ["resource", "click", "tenure.cli.failures", "tenure.cli.commands", "tenure.cli.up"])
def test_interrupting_while_the_command_is_being_loaded_is_130_and_says_nothing(module: str) -> None:
    script = f"""
import sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt

from tenure.cli.main import main  # the console script
sys.meta_path.insert(0, Interrupts())
main()
"""
    command = [sys.executable, "-c", script, "--help"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_console_script_loads_next_to_nothing_before_it_can_be_interrupted() -> None:
    script = "import sys; had = {*sys.modules}; import tenure.cli.main; print(*{*sys.modules} - had)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = {name for name in done.stdout.split() if name.startswith("tenure")}
    assert loaded == {"tenure", "tenure.cli", "tenure.cli.main"}
    assert not {"click", "typing", "logging", "json"} & set(done.stdout.split())


@pytest.mark.parametrize("group", [(), ("artifacts",)])
def test_a_group_without_a_command_shows_its_help_line_by_line(tenure: CommandLine, group: tuple[str, ...]) -> None:
    printed = tenure(*group)
    assert printed.code == 2
    assert printed.err.rstrip() == tenure(*group, "--help").out.rstrip()


def test_a_program_that_names_no_command_is_told_so() -> None:
    error = click.exceptions.NoArgsIsHelpError(click.Context(click.Group("artifacts"), info_name="artifacts"))
    assert failures.explain(error) == ("usage", "artifacts needs a command", "See `artifacts --help`", 2)


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (UsageError("it does not fit", "Change it"), "tenure: it does not fit. Change it.", 2),
        (TaskFailed("task X failed: no"), "tenure: task X failed: no.", 1),
        (StoreFull("the disk is full!"), "tenure: the disk is full!", 3),
        (UsageError("two\nlines", "a\nb"), "tenure: two lines. a b.", 2),
        (OSError(errno.ENOSPC, "No space left on device", "out.csv"), "tenure: out.csv: No space left on device.", 3),
        (FileNotFoundError(errno.ENOENT, "No such file", "grid.csv"), "tenure: grid.csv: No such file.", 2),
        (click.UsageError("No such option: --x"), "tenure: no such option: --x.", 2),
        (
            click.BadParameter("'a' is not a valid integer range."),
            "tenure: invalid value: 'a' is not a whole number.",
            2,
        ),
    ],
)
def test_errors_become_one_line_and_a_code(error: Exception, line: str, code: int) -> None:
    failure = failures.explain(error)
    assert failure is not None
    assert (failure.line(), failure.exit_code) == (line, code)


def test_a_fault_of_our_own_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.report(ZeroDivisionError("oops"), as_json=False) == 3
    shown = capsys.readouterr().err
    assert "Traceback" in shown or "ZeroDivisionError" in shown
    assert "fault in Tenure itself" in shown


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["tasks", "--json"], True),
        (["submit", "--", "ls", "--json"], False),
        ([], False),
        (["--json", "--", "x"], True),
    ],
)
def test_json_is_noticed_even_in_a_line_that_cannot_be_read(arguments: list[str], wanted: bool) -> None:  # noqa: FBT001
    assert failures.wants_json(arguments) is wanted
