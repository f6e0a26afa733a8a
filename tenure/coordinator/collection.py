"""The collection of the store: what no record names goes. Once a day by itself, or when somebody asks.

What has to be kept is read in small portions, one per turn, so that no number of records holds up the loop. Records
only grow at their ends and only let go of contents, so that reading to the end is enough: whatever is accepted later
lies in a staging place or is younger than what is removed, and checks wait until a collection is over (`curator`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from tenure.artifacts.jobs import StagingPlace
from tenure.coordinator.errands import Collecting
from tenure.protocol.artifact import Blob, Bundle
from tenure.protocol.envelope import open_envelope

if TYPE_CHECKING:
    from tenure.artifacts.jobs import Ended
    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import CollectArtifacts

DAILY: Final = "the coordinator, once a day"
DEFAULT_AGE_MS: Final = 86_400_000
_DAY_MS: Final = 86_400_000
_ROWS: Final = 1_000
_TASKS: Final = 2_000
"""How many artifacts and how many tasks one turn looks at."""
_MOST_CHECKPOINTS: Final = 50_000
"""How many checkpoints of ended tasks one collection lets go of."""


@final
@dataclass(slots=True)
class Gathering:
    """What a collection has to keep, as far as it has been read."""

    collection_id: int
    min_age_ms: int
    dry_run: bool
    artifact_position: int = 0
    task_position: int = 0
    artifacts_read: bool = False
    bundles: set[Bundle] = field(default_factory=set[Bundle])
    blobs: set[Blob] = field(default_factory=set[Blob])


def ask(turn: Turn, wanted: CollectArtifacts, by: str) -> list[dict[str, Any]]:
    """Begin a collection; answers that it has begun, or that there is one under way, or no store."""
    if not turn.curator.ready:
        return [{"state": "NO_STORE"}]
    if turn.curator.gathering is not None or turn.curator.knows(("collection",)):
        return [{"state": "UNDER_WAY"}]
    begin(turn, by or "somebody", wanted.min_age_ms, dry_run=wanted.dry_run)
    return [{"state": "BEGUN", "min_age_ms": wanted.min_age_ms, "dry_run": wanted.dry_run}]


def begin(turn: Turn, by: str, min_age_ms: int, *, dry_run: bool) -> None:
    """Write down that a collection begins, and begin to read what it has to keep."""
    turn.store.run("checkpoints_of_ended_tasks", (_MOST_CHECKPOINTS,))
    row = turn.store.row("begin_collection", (by, min_age_ms, int(dry_run), turn.now_ms))
    what = "A count of what a collection of the store would remove" if dry_run else "A collection of the store"
    turn.record("collection_begun", f"{what} was begun by {by}.")
    if row is not None:
        turn.out.gathering = Gathering(row[0], min_age_ms, dry_run)


def begin_daily(turn: Turn, began_ms: int) -> None:
    """Begin one when the last is a day old; the first one is due a day after the coordinator's start."""
    if turn.curator.gathering is not None or turn.curator.knows(("collection",)):
        return
    last = turn.store.row("last_collection")
    if turn.now_ms - (began_ms if last is None else last[4]) >= _DAY_MS:
        begin(turn, DAILY, DEFAULT_AGE_MS, dry_run=False)


def go_on(turn: Turn) -> None:
    """Read one portion more; when all is read, the collection begins after the commit."""
    gathering = turn.curator.gathering
    if gathering is None:
        return
    if not gathering.artifacts_read:
        _read_artifacts(turn, gathering)
    elif not _read_inputs(turn, gathering):
        _read_artifacts(turn, gathering)
        if not gathering.artifacts_read:
            return  # more was accepted meanwhile than one portion
        turn.out.gathered = True
        places = tuple(
            StagingPlace(site=site, task_id=task_id, fence=fence, nonce=nonce)
            for query in ("places_of_leases", "places_of_artifacts", "places_of_quarantine")
            for site, task_id, fence, nonce in turn.store.rows(query)
        )
        turn.ask_porter(
            Collecting(
                collection_id=gathering.collection_id,
                min_age_ms=gathering.min_age_ms,
                dry_run=gathering.dry_run,
                bundles=tuple(gathering.bundles),
                blobs=tuple(gathering.blobs),
                keep_places=places,
            )
        )


def ended(turn: Turn, errand: Collecting, end: Ended) -> None:
    """A collection has ended: write down what went."""
    problem = "" if end.problem is None else end.problem.message
    turn.store.run("end_collection", (turn.now_ms, end.files, end.size, problem, errand.collection_id))


def _read_artifacts(turn: Turn, gathering: Gathering) -> None:
    rows = turn.store.rows("referenced_artifacts", (gathering.artifact_position, _ROWS))
    for position, kind, digest, manifest_size, files, size in rows:
        manifest = Blob(digest=digest, size=manifest_size)
        if kind == "log":
            gathering.blobs.add(manifest)
        else:
            gathering.bundles.add(Bundle(manifest=manifest, files=files, size=size))
        gathering.artifact_position = position
    gathering.artifacts_read = len(rows) < _ROWS


def _read_inputs(turn: Turn, gathering: Gathering) -> bool:
    """Read the inputs of a range of open tasks; False when there are no more tasks."""
    row = turn.store.row("last_position")
    last = int(row[0]) if row is not None else 0
    if gathering.task_position >= last:
        return False
    until = gathering.task_position + _TASKS
    for (raw,) in turn.store.rows("envelopes_with_inputs", (gathering.task_position, until)):
        for each in open_envelope(raw).inputs:
            if isinstance(each.content, Bundle):
                gathering.bundles.add(each.content)
            else:
                gathering.blobs.add(each.content)
    gathering.task_position = min(until, last)
    return True
