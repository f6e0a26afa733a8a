"""`--input` of `tenure submit` and `tenure map`: files and folders of this host, and contents that are in the store."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from tenure.cli.arguments import OrPath
from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.cli.desk import Desk
    from tenure.protocol.artifact import Blob, Bundle

CONTENT: Final = re.compile(r"sha256:([0-9a-f]{64}):([0-9]{1,16})")

input_option: Final = click.option(
    "--input",
    "inputs",
    multiple=True,
    type=OrPath(),
    metavar="[NAME=]PATH",
    help="A file or folder that the task finds at inputs/NAME; also NAME=sha256:DIGEST:SIZE; repeatable.",
)


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """One input as given: the name below `inputs/`, and a path of this host or a content's reference.

    `is_named`: the name was given, too, and is not the last part of the path.
    """

    name: str
    source: str
    is_named: bool = True

    @property
    def content(self) -> Blob | None:
        """The content that the reference names; None when it is a path."""
        from tenure.protocol.artifact import Blob

        match = CONTENT.fullmatch(self.source)
        return Blob(digest=match[1], size=int(match[2])) if match else None

    def filled(self, fill: Callable[[str], str]) -> Wanted:
        """The same with names of columns replaced."""
        source = fill(self.source)
        return Wanted(fill(self.name) if self.is_named else _last_part(source), source, self.is_named)


def wanted(options: Sequence[str]) -> tuple[Wanted, ...]:
    """The inputs as given on the command line. Raises `UsageError`."""
    from tenure.client.contents import refuse_nested

    found = tuple(map(_wanted, options))
    names = [one.name for one in found]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise UsageError(f"two inputs are called {double!r}", "Name them: --input NAME=PATH")
    refuse_nested(names)
    return found


def _wanted(text: str) -> Wanted:
    name, equals, source = text.partition("=")
    if not equals:
        name, source = "", text
    if not name and source.startswith("sha256:"):
        raise UsageError(f"--input {text!r} has no name", "Write NAME=sha256:DIGEST:SIZE")
    if source.startswith("sha256:") and CONTENT.fullmatch(source) is None:
        raise UsageError(
            f"--input {text!r} is no reference to a content",
            "Write NAME=sha256:DIGEST:SIZE, with 64 small hexadecimal digits and the size in bytes",
        )
    is_named = bool(name)
    name = name or _last_part(source)
    if not name or not source:
        raise UsageError(f"--input {text!r} names no file", "Write PATH or NAME=PATH")
    return Wanted(name, source, is_named)


def _last_part(path: str) -> str:
    """Of what the path means, not of how it is spelled: `--input .` and `--input data/` have names, too."""
    return os.path.basename(os.path.abspath(path))  # noqa: PTH100, PTH119 - no link is followed here


def uploaded(desk: Desk, given: Sequence[Wanted]) -> Mapping[str, Blob | Bundle]:
    """The inputs as contents of the store, sent where they are not there, with a bar when it takes long.

    Raises:
        UsageError: a path is not there, cannot be read, or may not travel.
        ArtifactError: the store is full, away or refuses.
    """
    from tenure.cli.transfer import transfer
    from tenure.client.uploading import local_files
    from tenure.protocol.artifact import checked_path

    for one in given:
        try:
            checked_path(one.name)
        except ValueError as error:
            raise UsageError(f"an input cannot be called {one.name[:80]!r}: {error}") from None
    paths = [Path(one.source) for one in given if one.content is None]
    total = sum(local.size for path in paths for local in local_files(path))
    with transfer("sending", total) as moved:
        return {one.name: one.content or desk.fleet.contents.upload(Path(one.source), moved) for one in given}
