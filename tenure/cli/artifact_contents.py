"""`tenure artifacts get`: from what a person calls a content to the content, and to where it is wanted."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import click

from tenure.cli.inputs import CONTENT
from tenure.cli.records import query, task_id_argument
from tenure.cli.transfer import transfer
from tenure.errors import UnknownArtifact, UsageError
from tenure.protocol.artifact import Blob, Bundle, File
from tenure.protocol.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.cli.desk import Desk

_TASK: Final = re.compile(r"([0-9A-Za-z]{26})(?::(outputs|checkpoint|log))?(?:/(.+))?")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MOST_ROWS: Final = 10_000
_WAYS: Final = "Write TASK, TASK:checkpoint, TASK:log, TASK/path/of/a/file or a digest"


@final
@dataclass(frozen=True, slots=True)
class Found:
    """What was asked for: one content, which may be a log as it is kept, or files of a folder."""

    blob: Blob | None = None
    files: Sequence[File] = ()
    is_log: bool = False

    @property
    def size(self) -> int:
        """How many bytes it is."""
        return self.blob.size if self.blob is not None else sum(file.blob.size for file in self.files)


def bundle_of(row: Mapping[str, Any]) -> Bundle:
    """The bundle that a row of the list of artifacts names."""
    manifest = Blob(digest=row["manifest"], size=row["manifest_size"])
    return Bundle(manifest=manifest, files=row["files"], size=row["size"])


def log_of(row: Mapping[str, Any]) -> Blob:
    """The content that a row about a log names."""
    return Blob(digest=row["manifest"], size=row["manifest_size"])


def found(desk: Desk, what: str) -> Found:
    """Find what a person calls by a task or a digest.

    Raises:
        UsageError: it is called by neither.
        UnknownArtifact: there is nothing of that name.
    """
    if match := CONTENT.fullmatch(what):
        return Found(Blob(digest=match[1], size=int(match[2])))
    if _DIGEST.fullmatch(what):
        return _by_digest(desk, what)
    match = _TASK.fullmatch(what)
    if match is None:
        raise UsageError(f"{what[:120]!r} names no content", _WAYS)
    return _of_task(desk, task_id_argument(match[1]), match[2] or "outputs", match[3] or "")


def fetch(desk: Desk, wanted: Found, target: Path | None, *, force: bool) -> None:
    """Put it where it is wanted; one content without a target goes to standard output. Raises `UsageError`."""
    contents = desk.fleet.contents
    if target is None:
        if wanted.blob is None:
            raise UsageError("this is a folder of files", "Name the folder to make: --to DIR")
        if wanted.is_log:
            _print_log(b"".join(contents.read(wanted.blob)))
            return
        for chunk in contents.read(wanted.blob):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    with transfer("fetching", wanted.size) as moved:
        if wanted.blob is not None:
            contents.download(wanted.blob, target, moved, force=force)
        else:
            contents.unpack(wanted.files, target, moved, force=force)
    count = 1 if wanted.blob is not None else len(wanted.files)
    desk.output.answer(
        {"to": str(target), "files": count, "size": wanted.size},
        f"{count} {'file' if count == 1 else 'files'}, {size_text(wanted.size)}: {target}",
    )


def _print_log(raw: bytes) -> None:
    """The text of a kept log: what the task printed to standard output, Tenure's own words to standard error."""
    from tenure.broker import kept_log

    for chunk in kept_log.read(raw):
        click.echo(chunk.text, err=chunk.stream == 0, nl=False, color=True)


def _of_task(desk: Desk, task_id: str, kind: str, path: str) -> Found:
    rows = [row for row in query(desk, "artifacts", {"task_id": task_id, "kind": kind}) if row["state"] != "COLLECTED"]
    if not rows:
        remedy = f"See `tenure artifacts list --task {task_id}`"
        if kind == "log":
            remedy = (
                f"It comes there some seconds after the end of an attempt; `tenure logs {task_id}` shows it at once"
            )
        raise UnknownArtifact(f"the store keeps no {kind} of task {task_id}", remedy)
    newest = rows[0]
    if kind == "log":
        return Found(log_of(newest), is_log=True)
    bundle = bundle_of(newest)
    desk.fleet.contents.await_bundle(bundle, 60_000 if newest["state"] == "ACCEPTED" else 0)
    return _below(desk.fleet.contents.files(bundle), path.strip("/"))


def _below(files: Sequence[File], path: str) -> Found:
    if not path:
        return Found(files=files)
    whole = next((file for file in files if file.path == path), None)
    if whole is not None:
        return Found(whole.blob)
    inside = [
        file.model_copy(update={"path": file.path.removeprefix(f"{path}/")})
        for file in files
        if file.path.startswith(f"{path}/")
    ]
    if not inside:
        names = ", ".join(file.path for file in files[:5])
        raise UnknownArtifact(f"the task has left no {path!r}", f"It has left {names}{_more(len(files) - 5)}")
    return Found(files=inside)


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _by_digest(desk: Desk, digest: str) -> Found:
    for row in query(desk, "artifacts", limit=_MOST_ROWS):
        if row["manifest"] == digest:
            return (
                Found(log_of(row), is_log=True)
                if row["kind"] == "log"
                else Found(files=desk.fleet.contents.files(bundle_of(row)))
            )
    # No record names it as a whole: one file of many, or an input. Only the store knows its size.
    blob = next((one.blob for one in desk.fleet.contents.store.objects() if one.blob.digest == digest), None)
    if blob is None:
        raise UnknownArtifact(f"the store holds no {digest}", "See `tenure artifacts list --json`")
    return Found(blob)
