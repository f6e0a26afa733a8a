"""`tenure logs`: what a task has printed, or is printing.

What the task printed goes to standard output, in the order in which it was printed; Tenure's own words (where something
is missing, where an attempt begins) go to standard error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.desk import with_desk
from tenure.cli.records import task_id_argument

if TYPE_CHECKING:
    from tenure.broker.base import LogChunk
    from tenure.cli.desk import Desk

_NAMES: Final = ("tenure", "stdout", "stderr")
_OWN: Final = 0
_STDERR: Final = 2


@click.command(short_help="Print what a task prints.")
@click.argument("task_id", type=task_id_argument)
@click.option("-f", "--follow", is_flag=True, help="Go on until the task is over, through all attempts.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt.")
@click.option("--stdout", "streams", flag_value="stdout", multiple=True, help="Only standard output.")
@click.option("--stderr", "streams", flag_value="stderr", multiple=True, help="Only standard error.")
@with_desk
def logs(desk: Desk, task_id: str, *, follow: bool, attempt: int | None, streams: tuple[str, ...]) -> None:
    """Print what a task has printed: the newest MiB of each attempt.

    With --follow, also what it prints from now on, until the task is over; the task may start later. On a terminal,
    standard error is red. With --json, one object per line.
    """
    only = streams[0] if len(set(streams)) == 1 else None
    nothing = True
    for number, chunk in desk.fleet.log_reader.read(task_id, follow=follow, attempt=attempt):
        nothing = nothing and chunk.stream == _OWN
        if desk.output.as_json:
            _print_json(number, chunk, only)
        else:
            _print(desk, chunk, only)
    if nothing:
        desk.remark("The task has printed nothing.")


def _print(desk: Desk, chunk: LogChunk, only: str | None) -> None:
    if chunk.stream == _OWN:
        click.echo(chunk.text, err=True, nl=False)
    elif only in {None, _name(chunk)}:
        text = chunk.text
        if desk.output.terminal and chunk.stream == _STDERR:
            text = click.style(text, fg="red")
        # Even in a pipe: whatever the task has printed goes out unchanged.
        click.echo(text, nl=False, color=True)


def _print_json(number: int, chunk: LogChunk, only: str | None) -> None:
    if only in {None, _name(chunk)}:
        fields = {"attempt": number, "stream": _name(chunk), "position": chunk.position, "text": chunk.text}
        click.echo(json.dumps(fields, ensure_ascii=False))


def _name(chunk: LogChunk) -> str:
    return _NAMES[chunk.stream] if 0 <= chunk.stream < len(_NAMES) else _NAMES[_OWN]
