"""`tenure submit`: one task, as a function with arguments or a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import click

from tenure.cli.desk import collect, with_desk
from tenure.cli.inputs import input_option, uploaded, wanted
from tenure.cli.programs import ProgramForm, program_options, run_program
from tenure.cli.submitting import TaskForm, WithProgram, program_given, split_form, task_options
from tenure.errors import UsageError

if TYPE_CHECKING:
    from tenure.cli.desk import Desk
    from tenure.client.handle import Handle
    from tenure.client.submitter import Submitter


@final
@dataclass(frozen=True, slots=True)
class SubmitForm:
    """The options of `tenure submit` beyond those of the task."""

    handler: str | None
    arguments: tuple[str, ...]
    wait: bool
    key: str | None
    run: str | None
    inputs: tuple[str, ...]
    form: Literal["stdout", "folder", "lines"] | None
    parameters: str | None

    @property
    def program(self) -> ProgramForm:
        """The part about a program."""
        return ProgramForm(self.form, self.parameters)


@click.command(cls=WithProgram, short_help="Submit one task: a function with arguments, or a program.")
@click.argument("handler", required=False, metavar="[MODULE:FUNCTION]")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENT]...")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option("--key", metavar="TEXT", help="Submitting again under the same key makes no second task.")
@click.option("--run", metavar="NAME", help="The group that the task belongs to.")
@input_option
@program_options
@task_options
@with_desk
def submit(desk: Desk, /, **options: object) -> None:
    """Submit one task and print its id.

    An ARGUMENT is a JSON value or plain text, by position or as name=value. A program with its arguments follows after
    two dashes: tenure submit --wait -- wc -w /etc/passwd

    Files are sent before the task is submitted: tenure submit --wait --input data.csv -- wc -w inputs/data.csv
    """
    task, rest = split_form(options)
    form = collect(SubmitForm, rest)
    chosen = collect(TaskForm, task).options()
    if form.key:
        chosen["key"] = form.key
    if form.run:
        chosen["run"] = form.run
    argv = program_given()
    if bool(form.handler) == bool(argv):
        raise UsageError("say what to run", "Give MODULE:FUNCTION with its arguments, or a program after `--`")
    if not argv:
        form.program.refuse_for_functions()
    parameters = form.program.parsed()
    if form.inputs:
        chosen["inputs"] = uploaded(desk, wanted(form.inputs))
    handle = _submitted(desk.fleet.using(**chosen), form, argv, parameters)
    if form.wait:
        _print_end(desk, handle, as_text=bool(argv) and form.form in {None, "stdout"})
    else:
        desk.output.answer({"task_id": handle.task_id, "state": str(handle.state)}, handle.task_id)


def _submitted(submitter: Submitter, form: SubmitForm, argv: tuple[str, ...], parameters: object) -> Handle[Any]:
    from tenure.cli.map_work import CallTemplate

    if argv:
        return run_program(submitter, argv, form.program, parameters)
    template = CallTemplate(form.handler or "")
    args, kwargs = template.given(form.arguments)
    return submitter.submit(template.function, *args, **kwargs)


def _print_end(desk: Desk, handle: Handle[Any], *, as_text: bool) -> None:
    from tenure.cli.ending import print_value

    try:
        print_value(desk, handle, as_text=as_text)
    except KeyboardInterrupt:
        desk.remark(f"\nThe task goes on; see `tenure wait {handle.task_id}` or `tenure cancel {handle.task_id}`.")
        raise
