"""`tenure run-assignment`: an executor, which a launcher starts for one assignment."""

from __future__ import annotations

import functools
import signal
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.desk import collect, store_options, with_desk
from tenure.cli.execution import ExecutionForm, execution_of, execution_options, site_for, worker_connector
from tenure.cli.failures import FLEET_COULD_NOT
from tenure.cli.owner import log_to_stderr
from tenure.errors import MalformedMessage, PayloadTooLarge, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from tenure.cli.desk import Desk
    from tenure.clock import Entropy
    from tenure.protocol.launch import LaunchTicket
    from tenure.workers.agent import Agent

_PARENT_CHARACTERS: Final = 48
_NAME_BYTES: Final = 4
_SETTLED: Final = {
    "withdrawn": "the assignment is not there any more",
    "refused": "another executor has the assignment, or it is over",
    "accepted": "what became of it is on record",
    "duplicate": "what became of it was on record already",
    "rejected": "its report came too late, and is kept in quarantine",
}
"""What ends an executor in good order, as the core counts it, and as it is said to people."""


@final
@dataclass(frozen=True, slots=True)
class RunForm:
    """The options of `tenure run-assignment`."""

    ticket: str | None
    ticket_file: Path | None
    patience: str
    execution: ExecutionForm


@click.command(hidden=True, short_help="Run one assignment; launchers call this.")
@click.option("--ticket", metavar="JSON", help="Which assignment it is; `-` reads it from standard input.")
@click.option("--ticket-file", type=LocalPath(path_type=Path), metavar="FILE", help="A file that holds the ticket.")
@click.option(
    "--patience", default="2m", show_default=True, metavar="DURATION", help="How long its claim may stay unanswered."
)
@execution_options
@store_options
@with_desk
def run_assignment(desk: Desk, /, **options: object) -> int:
    """Run the one assignment that the launch ticket names, report it, and end. Launchers start this.

    The ticket's namespace, site and capability count, whatever else is set. Exit codes: 0 nothing is left to do here,
    whatever became of the task; 3 the fleet did not answer.
    """
    from tenure.protocol.durations import duration_ms
    from tenure.workers.agent import Agent
    from tenure.workers.shift import Launched, Shift

    form = collect(RunForm, {**options, "execution": collect(ExecutionForm, options)})
    launched = Launched(read_ticket(form), duration_ms(form.patience, "--patience"))
    log_to_stderr()
    with _private_folder() as folder:
        from tenure.cli.porters import porter_factory

        ticket, session = launched.ticket, desk.session
        settings = desk.settings.model_copy(update={"namespace": ticket.namespace})
        chosen = replace(
            execution_of(form.execution, settings, folder),
            capabilities=(ticket.capability,),
            worker_id=executor_name(ticket.parent, session.entropy),
            ttl_ms=ticket.ttl_ms,
            site=site_for(settings, ticket.site),
        )
        connect, porters = worker_connector(settings, chosen), porter_factory(settings, session.clock)
        begin = functools.partial(Shift, launched=launched)
        agent = Agent(chosen, connect, session.clock, session.entropy, porters, begin)
        _end_on_signals(agent)
        summary = agent.run()
    code, text = conclusion(summary.counts)
    if code and summary.refusal is not None:
        raise summary.refusal
    desk.remark(f"Executor {summary.worker_id} of {ticket.name} has ended: {text}")
    return code


def read_ticket(form: RunForm) -> LaunchTicket:
    """The launch ticket, from where the options say that it is. Raises `UsageError`."""
    from tenure.protocol.launch import LAUNCH_TICKET, MAX_TICKET_BYTES
    from tenure.protocol.message import decode

    if (form.ticket is None) == (form.ticket_file is None):
        raise UsageError("a launch ticket is needed, once", "Give --ticket or --ticket-file")
    try:
        return decode(LAUNCH_TICKET, _raw_ticket(form, MAX_TICKET_BYTES + 1), MAX_TICKET_BYTES)
    except (MalformedMessage, PayloadTooLarge) as error:
        raise UsageError(
            f"the launch ticket cannot be used: {error.message}",
            "Launchers write it; they and this command must be of one version of Tenure",
        ) from None


def executor_name(parent: str, entropy: Entropy) -> str:
    """A worker id that no other executor has, and that shows whose executor it is."""
    return f"{parent[:_PARENT_CHARACTERS]}.x{entropy.token(_NAME_BYTES)}"


def conclusion(counts: dict[str, int]) -> tuple[int, str]:
    """The exit code, and how it is said, from how many holds ended in which way."""
    for name, text in _SETTLED.items():
        if counts.get(name):
            return 0, text
    if counts.get("finished") or counts.get("released"):
        return FLEET_COULD_NOT, "its report was given to the broker, if that was there, and has no answer"
    if counts.get("unreadable"):
        return FLEET_COULD_NOT, "the assignment cannot be read by this version of Tenure"
    return FLEET_COULD_NOT, "the fleet was not reached, and nothing was run"


def _raw_ticket(form: RunForm, most_bytes: int) -> bytes:
    if form.ticket_file is not None:
        with form.ticket_file.open("rb") as file:
            return file.read(most_bytes)
    if form.ticket == "-":
        return sys.stdin.buffer.read(most_bytes)
    return (form.ticket or "").encode(errors="replace")


@contextmanager
def _private_folder() -> Generator[Path]:
    """A folder that only this account can enter, gone afterwards unless a task's folder is to be kept."""
    from tenure.workers.removal import Removal

    folder = Path(tempfile.mkdtemp(prefix="tenure-executor-"))
    try:
        yield folder
    finally:
        if not any(folder.glob("workers/*/kept/*")):
            Removal(str(folder)).finish()


def _end_on_signals(agent: Agent) -> None:
    """The substrate has no patience, and the report of an end in good order must still be sent."""

    def end(_: int, __: FrameType | None) -> None:
        agent.request_drain()
        agent.request_drain()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
