"""What holds for the arguments of every command: texts are UTF-8, and a path is never empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, final

import click
from click.types import StringParamType

from tenure.errors import UsageError
from tenure.protocol.texts import is_utf8

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    _ClickPath = click.Path[Path]
else:
    _ClickPath = click.Path  # no generic class before click 8.4

_SHOWN_CHARACTERS: Final = 80


@final
class LocalPath(_ClickPath):
    """A path of this host that is not empty: to Python that is the current folder, to whoever gave it a mistake."""

    def convert(self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Refuse an empty path; see `click.Path` for the rest."""
        if value == "":
            self.fail("the path is empty; if a variable stands there, it is not set", param, ctx)
        return super().convert(value, param, ctx)


@final
class OrPath(StringParamType):
    """A text that may hold a path of this host, and so any bytes; whoever reads it looks at the rest."""


def with_bytes(text: str) -> str:
    r"""The text with bytes that are not UTF-8 written as `\xff`."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def require_utf8(name: str, value: object) -> None:
    """Raise `UsageError` when a text is not UTF-8, or one of several is not; paths may be any bytes."""
    if isinstance(value, tuple):
        for part in cast("tuple[object, ...]", value):
            require_utf8(name, part)
    elif isinstance(value, str) and not is_utf8(value):
        raise UsageError(f"{name} is not UTF-8 text: {with_bytes(value)[:_SHOWN_CHARACTERS]}", "Write it in UTF-8")


def require_texts(context: click.Context) -> None:
    """Raise `UsageError` when an argument of the command is not UTF-8 that is neither a path nor may hold one."""
    for parameter in context.command.params:
        if not isinstance(parameter.type, OrPath):
            require_utf8(parameter.get_error_hint(context), context.params.get(parameter.name or ""))
