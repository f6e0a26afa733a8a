"""The one place that turns an error into a line for people or an object for programs, and into an exit code.

0 done, 1 the task failed, 2 wrong use, 3 the fleet could not do it, 130 interrupted, 141 nobody reads the output.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from tenure.cli.output import harmless
from tenure.errors import TenureError

if TYPE_CHECKING:
    from collections.abc import Sequence

WRONG_USE: Final = 2
FLEET_COULD_NOT: Final = 3
NOBODY_READS: Final = 141

_NOT_WRITTEN: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EBADF})


class Failure(NamedTuple):
    """An error as it is shown: a stable code, what happened, what to do, and the exit code."""

    code: str
    message: str
    remedy: str
    exit_code: int

    def line(self) -> str:
        """One line for people."""
        end = "" if self.message.endswith((".", "?", "!")) else "."
        text = f"tenure: {self.message}{end} {self.remedy}".rstrip()
        text = " ".join(text.split())
        return text if text.endswith((".", "?", "!")) else f"{text}."

    def object(self) -> str:
        """One object for programs."""
        return json.dumps({"error": {"code": self.code, "message": self.message, "remedy": self.remedy}})


def explain(error: Exception) -> Failure | None:
    """How an error is shown; None when it is nobody's mistake but ours."""
    if isinstance(error, TenureError):
        return Failure(error.code, error.message, error.remedy, error.exit_code)
    if isinstance(error, click.ClickException):
        return _wrong_use(error)
    if isinstance(error, OSError) and error.errno is not None:
        return _system(error)
    return _invalid(error)


def report(error: Exception, *, as_json: bool) -> int:
    """Show an error on standard error; answers the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    failure = explain(error)
    if failure is None:
        traceback.print_exception(error)
        failure = Failure(
            "internal", f"this is a fault in Tenure itself: {error!r}", "Please report it with the lines above", 3
        )
    click.echo(failure.object() if as_json else harmless(failure.line()), err=True)
    return failure.exit_code


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` was asked for; also true when the rest of the line cannot be read."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def closed_stdout() -> OSError:
    """The error of a process that was started without a standard output (`>&-`)."""
    return OSError(errno.EBADF, "standard output is closed")


def silence_stdout() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not complain when it flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _wrong_use(error: click.ClickException) -> Failure:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and context is not None:
        return Failure(
            "usage", f"{context.command_path} needs a command", f"See `{context.command_path} --help`", WRONG_USE
        )
    remedy = f"See `{context.command_path} --help`" if context is not None else ""
    message = error.format_message().rstrip(".").replace("a valid integer range", "a whole number")
    return Failure("usage", message[:1].lower() + message[1:], remedy, WRONG_USE)


def _invalid(error: Exception) -> Failure | None:
    """What a message made of command-line values refused; the values themselves are not repeated."""
    from pydantic import ValidationError

    from tenure.protocol.message import describe

    if not isinstance(error, ValidationError):
        return None
    remedy = "Change it, or see with --help what the command takes"
    return Failure("usage", f"a value does not fit: {describe(error)}", remedy, WRONG_USE)


def _system(error: OSError) -> Failure:
    place = f"{error.filename}: " if error.filename else ""
    exit_code = FLEET_COULD_NOT if error.errno in _NOT_WRITTEN else WRONG_USE
    return Failure("system", f"{place}{error.strerror}", "", exit_code)
