"""What `tenure map` and `tenure submit` run: a handler with arguments made of texts, or a command made of a template.

Texts become arguments by the function's own type hints when it can be imported here, else by their looks: what is a
JSON number is one. The worker checks the arguments again, so looking wrong costs an error and never a wrong call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from tenure.cli.programs import ProgramForm
from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.cli.inputs import Wanted
    from tenure.cli.map_rows import Row
    from tenure.handlers.resolve import Handler

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_UNIONS: Final = (typing.Union, types.UnionType)


def find_handler(reference: str) -> Handler | None:
    """The handler when its module can be found here, also in the current folder; None when it cannot.

    Raises:
        UnknownHandler: the module is here, but without that function; or the reference is malformed.
    """
    from tenure.errors import HandlerNotAllowed
    from tenure.handlers.resolve import load

    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.insert(0, here)
    module = reference.partition(":")[0]
    if not _is_importable(module) and ":" in reference:
        return None
    try:
        return load(reference, (module,))
    except HandlerNotAllowed:
        # Defined in another module than the one named. Only the worker knows what it may run.
        return None


@final
class CallTemplate:
    """Calls of one handler.

    Args:
        reference: "package.module:function".
    """

    def __init__(self, reference: str) -> None:
        self.reference: Final = reference
        self.handler: Final = find_handler(reference)
        self._hints = _hints(self.handler.function) if self.handler else {}

    @property
    def description(self) -> str:
        """What makes this work differ from other work."""
        return self.reference

    def arguments(self, row: Row) -> tuple[list[Any], dict[str, Any]]:
        """The call of one row: columns by name, or a line or path as the one positional argument."""
        if row.single:
            first = next(iter(self._hints.values()), str) if self._hints else str
            return [self._value(row.value, first)], {}
        return [], self.named(row.columns)

    def named(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Keyword arguments of texts; an empty text is left out unless the parameter takes text."""
        return {
            name: self._value(text, self._hints.get(name))
            for name, text in texts.items()
            if text or _takes_text(self._hints.get(name))
        }

    @property
    def function(self) -> Callable[..., Any] | str:
        """What to submit: the function with its noted defaults when it is here, else its name."""
        return self.handler.function if self.handler is not None else self.reference

    def given(self, arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
        """One call's arguments as typed by a person: by position, or as name=value."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        hints = list(self._hints.values())
        for text in arguments:
            name, equals, value = text.partition("=")
            if equals and name.isidentifier():
                named[name] = _typed(value, self._hints.get(name))
            else:
                hint = hints[len(positional)] if len(positional) < len(hints) else None
                positional.append(_typed(text, hint))
        return positional, named

    @staticmethod
    def _value(text: str, hint: object) -> object:
        if _takes_text(hint):
            return text
        if hint is None:
            return _json_or_text(text) if _NUMBER.fullmatch(text) else text
        return _json_or_text(text)


@final
@dataclass(frozen=True, slots=True)
class Program:
    """What `tenure map` runs over the rows: a program, what it is given, and how it gives its value."""

    argv: tuple[str, ...]
    inputs: tuple[Wanted, ...] = ()
    form: ProgramForm = field(default_factory=ProgramForm)


@final
class CommandTemplate:
    """Commands made of one program, in which {column}, {line} and {path} stand for what a row says.

    A program that reads its task (`--form folder` or `lines`) and was given no parameters finds the row there.

    Raises:
        UsageError: a placeholder names no column, or every row would run the same command.
    """

    def __init__(self, program: Program, columns: Sequence[str] = ()) -> None:
        self.program: Final = program
        said = program.form
        self._rows_are_parameters = said.form in {"folder", "lines"} and said.parameters is None
        self._parameters = said.parsed()
        parts = [*program.argv, *(part for one in program.inputs for part in (one.name, one.source))]
        named = {name for part in parts for name in _PLACE.findall(part)}
        unknown = sorted(named - set(columns)) if columns else []
        if unknown:
            raise UsageError(f"{{{unknown[0]}}} names no column", f"There are: {', '.join(columns)}")
        if columns and not named and not self._rows_are_parameters:
            raise UsageError("every row would run the same command", f"Put {{{columns[0]}}} where the row belongs")

    @property
    def description(self) -> str:
        """What makes this work differ from other work."""
        program, form = self.program, self.program.form
        if not program.inputs and form == ProgramForm():
            return json.dumps(program.argv)
        given = [[one.name, one.source] for one in program.inputs]
        return json.dumps([program.argv, given, form.form, self._parameters], sort_keys=True)

    def argv(self, row: Row) -> tuple[str, ...]:
        """The command of one row."""
        return tuple(_PLACE.sub(lambda match: _said_by(row)[match.group(1)], part) for part in self.program.argv)

    def inputs(self, row: Row) -> tuple[Wanted, ...]:
        """The inputs of one row."""
        values = _said_by(row)
        return tuple(
            one.filled(lambda text: _PLACE.sub(lambda match: values[match.group(1)], text))
            for one in self.program.inputs
        )

    def parameters(self, row: Row) -> object:
        """What the program of one row finds as its parameters."""
        if not self._rows_are_parameters:
            return self._parameters
        return {name: _json_or_text(text) if _NUMBER.fullmatch(text) else text for name, text in _said_by(row).items()}


def _said_by(row: Row) -> Mapping[str, str]:
    return dict.fromkeys(row.columns, row.value) if row.single else row.columns


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - a hint is any expression of the user's; the worker will say what is wrong with it
        return {}
    hints.pop("return", None)
    return hints


def _typed(text: str, hint: object) -> object:
    """What a person typed: JSON when it is JSON, unless the parameter takes text and it is not a quoted one."""
    if _takes_text(hint) and not text.startswith('"'):
        return text
    return _json_or_text(text)


def _json_or_text(text: str) -> object:
    """What a JSON text says; the text itself when it is none. Raises `UsageError` for JSON that cannot be read."""
    from tenure.handlers.json_text import reason

    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{text[:20]!r}, {len(text)} characters, is not JSON that can be read: {reason(error)}",
            "Put it into a file, and give its path",
        ) from None


def _takes_text(hint: object) -> bool:
    if typing.get_origin(hint) in _UNIONS:
        return str in typing.get_args(hint)
    return hint is str
