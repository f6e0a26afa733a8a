"""`tenure artifacts verify`: everything that records name is read from the store and compared with its digest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tenure.cli.artifact_contents import bundle_of, log_of
from tenure.cli.output import Column
from tenure.cli.records import query
from tenure.cli.transfer import transfer
from tenure.errors import ArtifactDamaged, UnknownArtifact, UnknownTask
from tenure.protocol.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tenure.cli.desk import Desk
    from tenure.client.contents import Contents
    from tenure.protocol.artifact import Blob

_MOST_ROWS: Final = 10_000
_AT_ONCE: Final = 4
_PROBLEMS: Final = (
    Column("TASK", "task_id"),
    Column("KIND", "kind", spare=1),
    Column("FILE", "file"),
    Column("PROBLEM", "problem"),
    Column("DIGEST", "digest", spare=2),
)


class Content(NamedTuple):
    """One content that a record names, and the file that it is."""

    row: Mapping[str, Any]
    file: str
    blob: Blob


def audit(desk: Desk, task_id: str | None) -> int:
    """Verify all artifacts that are in the store, or those of one task. Answers the exit code."""
    rows = query(desk, "artifacts", {"task_id": task_id}, _MOST_ROWS)
    if not rows and task_id is not None and not query(desk, "tasks", {"task_id": task_id}, 1):
        raise UnknownTask(f"there is no record of {task_id}", "List what there is with `tenure tasks list`")
    here = [row for row in rows if row["state"] == "PROMOTED"]
    contents = desk.fleet.contents
    problems: list[dict[str, Any]] = []
    with transfer("verifying", sum(row["size"] for row in here)) as moved, ThreadPoolExecutor(_AT_ONCE) as readers:
        named = list(_named(contents, here, problems))
        verdicts = readers.map(partial(_problem, contents, moved), named)
        problems += [_told(content, problem) for content, problem in zip(named, verdicts, strict=True) if problem]
    _report(desk, here, named, problems)
    on_the_way = sum(row["state"] == "ACCEPTED" for row in rows)
    if on_the_way:
        desk.remark(f"{on_the_way} more are on their way into the store and were not looked at.")
    if len(rows) == _MOST_ROWS:
        desk.remark(f"Only the newest {_MOST_ROWS} artifacts were looked at.")
    return int(bool(problems))


def _named(contents: Contents, rows: Sequence[Mapping[str, Any]], problems: list[dict[str, Any]]) -> Iterator[Content]:
    """Every content once; a list of files that cannot be read is a problem of its own."""
    seen: set[str] = set()
    for row in rows:
        whole = Content(row, "", log_of(row))
        try:
            inner = () if row["kind"] == "log" else contents.files(bundle_of(row))
        except (ArtifactDamaged, UnknownArtifact) as error:
            problems.append(_told(whole, _word_for(error)))
            continue
        for content in (whole, *(Content(row, file.path, file.blob) for file in inner)):
            if content.blob.digest not in seen:
                seen.add(content.blob.digest)
                yield content


def _problem(contents: Contents, moved: Callable[[int], object], content: Content) -> str:
    try:
        for chunk in contents.read(content.blob):
            moved(len(chunk))
    except (ArtifactDamaged, UnknownArtifact) as error:
        return _word_for(error)
    return ""


def _word_for(error: ArtifactDamaged | UnknownArtifact) -> str:
    return "missing" if isinstance(error, UnknownArtifact) else "damaged"


def _told(content: Content, problem: str) -> dict[str, Any]:
    row = content.row
    names = {"task_id": row["task_id"], "kind": row["kind"], "fence": row["fence"], "file": content.file}
    return {**names, "problem": problem, "digest": content.blob.digest}


def _report(
    desk: Desk, rows: Sequence[Mapping[str, Any]], named: Sequence[Content], problems: Sequence[dict[str, Any]]
) -> None:
    size = sum(content.blob.size for content in named)
    if desk.output.as_json:
        counts = {"artifacts": len(rows), "contents": len(named), "size": size}
        desk.output.json({**counts, "problems": list(problems)})
        return
    if problems:
        desk.output.table(_PROBLEMS, problems, empty="")
    good = len(rows) - len({(row["task_id"], row["kind"], row["fence"]) for row in problems})
    desk.output.say(
        f"{good} of {len(rows)} artifacts are whole: {len(named)} contents, {size_text(size)}, were read and compared.",
        colour="red" if problems else "green",
    )
