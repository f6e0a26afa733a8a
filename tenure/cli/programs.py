"""The options of `tenure submit` and `tenure map` about a program: how it gives its value, and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, final

import click

from tenure.cli.arguments import OrPath, require_utf8
from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.client.handle import Handle
    from tenure.client.submitter import Submitter

_F = TypeVar("_F", bound="Callable[..., Any]")
_FORMS: Final = ("stdout", "folder", "lines")


@final
@dataclass(frozen=True, slots=True)
class ProgramForm:
    """What was said about a program; None means "not said"."""

    form: Literal["stdout", "folder", "lines"] | None = None
    parameters: str | None = None

    def refuse_for_functions(self) -> None:
        """Raise `UsageError` when something was said that a function has no use for."""
        for name, value in (("--form", self.form), ("--parameters", self.parameters)):
            if value is not None:
                raise UsageError(f"{name} is for programs", "A function takes its arguments and returns its value")

    def parsed(self) -> object:
        """The parameters' value. Raises `UsageError`."""
        from tenure.handlers.json_text import NotJson, parse

        text = self.parameters or "null"
        if text.startswith("@"):
            text = _read(Path(text[1:]))
        require_utf8("--parameters", text)
        try:
            return parse(text)
        except NotJson as error:
            raise UsageError(
                f"--parameters is not JSON that can be read: {error}", """Write it like '{"rate": 0.1}', or @FILE"""
            ) from None


def program_options(command: _F) -> _F:
    """Give a command the options of `ProgramForm`."""
    command = click.option(
        "--parameters",
        type=OrPath(),
        metavar="JSON|@FILE",
        help="What the program finds under `parameters` in its task.json.",
    )(command)
    return click.option(
        "--form",
        type=click.Choice(_FORMS),
        help="Where a program's value is: what it prints (stdout), result.json (folder), a line of JSON lines (lines).",
    )(command)


def run_program(submitter: Submitter, argv: tuple[str, ...], form: ProgramForm, parameters: object) -> Handle[Any]:
    """Submit one program run, saying only what was said."""
    if form.form is None and parameters is None:
        return submitter.command(argv)
    return submitter.command(argv, form=form.form or "stdout", parameters=parameters)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
