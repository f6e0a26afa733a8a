"""`tenure map`: a function or a program over the rows of a CSV, lines of text or a folder of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, with_desk
from tenure.cli.inputs import input_option, uploaded, wanted
from tenure.cli.programs import ProgramForm, program_options
from tenure.cli.submitting import TaskForm, WithProgram, program_given, split_form, task_options
from tenure.errors import KeyConflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tenure.cli.desk import Desk
    from tenure.cli.map_journal import Journal
    from tenure.cli.map_progress import Tally
    from tenure.cli.map_rows import Source
    from tenure.cli.map_run import MapRun, Submitting
    from tenure.cli.map_work import CallTemplate, CommandTemplate
    from tenure.client.options import SubmitOptions

_FILE: Final = LocalPath(path_type=Path, dir_okay=False)
_FOLDER: Final = LocalPath(path_type=Path, file_okay=False)


@final
@dataclass(frozen=True, slots=True)
class MapForm:
    """The options of `tenure map` beyond those of the tasks."""

    handler: str | None
    csv: Path | None
    lines: Path | None
    files: str | None
    out: Path
    run: str | None
    rerun_failed: bool
    cancel_on_interrupt: bool
    outputs: Path | None
    inputs: tuple[str, ...]
    form: Literal["stdout", "folder", "lines"] | None
    parameters: str | None

    @property
    def program(self) -> ProgramForm:
        """The part about a program."""
        return ProgramForm(self.form, self.parameters)


@click.command("map", cls=WithProgram, short_help="Run a function or a program over many rows.")
@click.argument("handler", required=False, metavar="[MODULE:FUNCTION]")
@click.option("--csv", type=_FILE, metavar="FILE", help="One row per line; columns become arguments by name.")
@click.option("--lines", type=_FILE, metavar="FILE", help="One row per line of text.")
@click.option("--files", metavar="PATTERN", help="One row per file that fits, such as 'texts/*.txt'.")
@click.option("--out", type=_FILE, required=True, metavar="FILE", help="Where results go: .csv or .jsonl.")
@click.option("--run", metavar="NAME", help="The run's name; by default made of the work and the out file.")
@click.option("--rerun-failed", is_flag=True, help="Run rows again that failed in an earlier start.")
@click.option("--cancel-on-interrupt", is_flag=True, help="Ctrl-C cancels the tasks; by default they go on.")
@click.option(
    "--outputs", type=_FOLDER, metavar="DIR", help="Where files go that tasks leave: DIR/000001 for the first row."
)
@input_option
@program_options
@task_options
@with_desk
def map_rows(desk: Desk, /, **options: object) -> int:
    """Run a function or a program once per row, and write one result per row.

    \b
    tenure map tasks:exponent --csv grid.csv --out results.csv
    tenure map --files 'texts/*.txt' --out counts.jsonl -- wc -w {path}

    In a program's arguments and --input {path}, {line} or {column} stand for what the row says; a program of the form
    folder or lines may find the row in its parameters instead. Started again, the command runs only what is missing.
    Exits with 1 when rows have no result.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tenure.cli.map_journal import Journal, written_for
    from tenure.cli.map_progress import Tally, meter
    from tenure.cli.map_rows import Source
    from tenure.cli.map_run import MapRun, Rules

    task, rest = split_form(options)
    form = collect(MapForm, rest)
    source = Source(form.csv, form.lines, form.files, written=written_for(form.out), outputs=form.outputs)
    work = _work(form, source)
    run = form.run or _default_run(work, form.out)
    fleet = _rows(desk, work, form, _options(collect(TaskForm, task), run))
    with Journal(form.out, run) as journal:
        tally = Tally(total=source.count())
        loop = MapRun(fleet, journal, tally, Rules(form.rerun_failed, form.outputs))
        try:
            with meter(tally, desk.session.clock) as shown:
                loop.run(source.rows(run), shown)
        except KeyboardInterrupt:
            _interrupted(desk, form, loop, run)
            raise
        except KeyConflict as error:
            raise KeyConflict(
                f"the run {run} was begun with other options or other files ({error.message})",
                "Say as before what it is given, or begin another run: --run NAME",
            ) from error
        _finish(journal, source, run)
    return _summary(desk, form, tally, run)


def _work(form: MapForm, source: Source) -> CallTemplate | CommandTemplate:
    from tenure.cli.map_work import CallTemplate, CommandTemplate, Program

    argv = program_given()
    if bool(form.handler) == bool(argv):
        raise UsageError("say what to run over the rows", "Give MODULE:FUNCTION, or a program after `--`")
    if argv:
        return CommandTemplate(Program(argv, wanted(form.inputs), form.program), source.columns())
    form.program.refuse_for_functions()
    return CallTemplate(form.handler or "")


def _default_run(work: CallTemplate | CommandTemplate, out: Path) -> str:
    from tenure.cli.map_rows import default_run

    return default_run(work.description, out)


def _options(form: TaskForm, run: str) -> SubmitOptions:
    options = form.options()
    options["run"] = run
    return options


def _rows(desk: Desk, work: CallTemplate | CommandTemplate, form: MapForm, options: SubmitOptions) -> Submitting:
    from tenure.cli.map_fleet import CallRows, CommandRows
    from tenure.cli.map_work import CallTemplate

    if isinstance(work, CallTemplate):
        if form.inputs:
            options["inputs"] = uploaded(desk, wanted(form.inputs))
        return CallRows(desk.fleet, work, options)
    return CommandRows(desk.fleet, work, options)


def _finish(journal: Journal, source: Source, run: str) -> None:
    def rows() -> Iterator[tuple[str, Mapping[str, str]]]:
        return ((row.key, row.columns) for row in source.rows(run))

    journal.finish(rows)


def _interrupted(desk: Desk, form: MapForm, loop: MapRun, run: str) -> None:
    from tenure.cli.cancel import cancel_tasks

    waiting = loop.task_ids()
    if form.cancel_on_interrupt:
        cancel_tasks(desk, waiting, "tenure map was interrupted")
        desk.remark(f"Interrupted: {len(waiting)} tasks are being cancelled.")
        return
    desk.remark(
        f"Interrupted: {len(waiting)} tasks go on in the fleet. Run the same command again to collect them and go on, "
        f"or end them with `tenure cancel --run {run}`."
    )


def _summary(desk: Desk, form: MapForm, tally: Tally, run: str) -> int:
    done = tally.found + tally.done
    counts = {"rows": tally.total, "done": done, "failed": tally.failed, "lost": tally.lost}
    if desk.output.as_json:
        desk.output.json({"run": run, "out": str(form.out), **counts})
    if done == tally.total:
        desk.remark(f"All {done} rows are done; the results are in {form.out}.")
        return 0
    desk.remark(f"{tally.total - done} of {tally.total} rows have no result; the error column of {form.out} says why.")
    if tally.failed:
        desk.remark("Run failed rows again with --rerun-failed.")
    if tally.lost:
        desk.remark("Let lost tasks run again with `tenure directives approve`, then start the same command again.")
    return 1
