"""The demo's third act: the files of the worker that came too late, kept out of the store until they are adopted.

The recording runs beside the story of the second act, on the worker that is stopped there. Nobody has allowed its
repetition, so its task waits for a decision, and the late result may still become the end of it. What the store holds
is looked up in the store itself, and what comes out of it is hashed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, final

from tenure.cli import demo_tasks
from tenure.cli.demo_stage import CAPABILITY, FIRST, LEASE_TTL
from tenure.cli.output import Column
from tenure.errors import NotAdoptable
from tenure.protocol.sizes import size_text

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.cli.demo_stage import Stage
    from tenure.client.handle import Handle
    from tenure.protocol.artifact import Bundle

_RHO: Final = 28.0
_NOTE: Final = "shown by the demo"
_PATIENCE_S: Final = 60
_COLUMNS: Final = (
    Column("FILE", "path"),
    Column("SIZE", "size", size_text, right=True),
    Column("SHA256", "digest", lambda digest: str(digest)[:16]),
)

Files = list[dict[str, Any]]
"""Files with their paths, sizes and digests."""


@final
@dataclass(frozen=True, slots=True)
class Brought:
    """The records and files that the act ended with."""

    lease: dict[str, Any]
    """The stale one."""
    directive: dict[str, Any]
    """As it was before the adoption."""
    listed: Files
    """What waited in quarantine."""
    stored_before: int
    """How many of these the store held after the rejection."""
    evidence: dict[str, Any]
    """The rejected result and what was decided about it."""
    task: dict[str, Any]
    written: dict[str, str]
    """The digests of the files as the worker told them when it had written them."""
    adopted: Files
    """What came out of the store in the end."""

    def facts(self) -> dict[str, Any]:
        """The act in figures."""
        listed, adopted = ({file["path"]: file["digest"] for file in files} for files in (self.listed, self.adopted))
        return {
            "stale_files_task_id": self.task["task_id"],
            "stale_files_worker": self.evidence["worker_id"],
            "stale_files_fence": self.evidence["fence"],
            "stale_files_lease_status": self.lease["state"],
            "stale_files_directive": self.directive["state"],
            "stale_files_rejection_reason": self.evidence["reason"],
            "stale_files_quarantine_id": self.evidence["quarantine_id"],
            "stale_files_in_quarantine": self.listed,
            "stale_files_in_store_after_rejection": self.stored_before,
            "adopted_by": self.evidence.get("decided_by"),
            "adopted_fence": self.evidence.get("adopted_fence"),
            "adopted_files": self.adopted,
            "adopted_files_are_those_written": self.written == listed == adopted,
            "adopted_task_status": self.task["state"],
        }

    def problems(self) -> list[str]:
        """What is not as it must be."""
        facts = self.facts()
        must = {
            "stale_files_worker": FIRST,
            "stale_files_lease_status": "EXPIRED",
            "stale_files_directive": "PENDING",
            "stale_files_in_store_after_rejection": 0,
            "adopted_files_are_those_written": True,
            "adopted_task_status": "SUCCEEDED",
        }
        found = [f"{name} is {facts[name]}, not {value}" for name, value in must.items() if facts[name] != value]
        if not self.listed:
            found.append("the stale worker left no files")
        if (facts["adopted_fence"] or 0) <= facts["stale_files_fence"]:
            found.append("the adoption has no fence above the stale one")
        return found


def begin_recording(stage: Stage) -> dict[str, Any]:
    """Let the first worker begin to write files, before anything happens to it; answers the lease."""
    submitter = stage.client.using(capability=CAPABILITY, lease_ttl=LEASE_TTL, run="files", label="the recording")
    task_id = submitter.submit(demo_tasks.record, _RHO, str(stage.enough)).task_id
    lease = stage.first("leases", "the recording's lease", task_id=task_id, state="ACTIVE")
    stage.wait("the first file", lambda: stage.rows("tasks", task_id=task_id)[0]["progress"] is not None)
    return lease


def bring_in(stage: Stage, task_id: str) -> Brought:
    """Play the act: the worker that did this task is awake again."""
    stage.say("\nAct 3. The files of the worker that came too late.", bold=True)
    lease, directive = _waits_for_a_person(stage, task_id)
    late = stage.first("quarantine", "the late result with its files", task_id=task_id)
    bundle = _bundle(late)
    listed = _staged(stage, late, bundle)
    stage.say(
        f"{late['worker_id']} handed in its recording as well (fence {late['fence']}). It was rejected: "
        f"{late['reason']}. Its files wait in quarantine ({late['quarantine_id']}):"
    )
    if not stage.desk.output.as_json:
        stage.desk.output.table(_COLUMNS, listed, empty="")
    stored_before = _in_store(stage, listed, bundle)
    stage.say(f"The store of files was searched: it holds {stored_before} of them.")
    evidence = _adopt(stage, late["quarantine_id"])
    handle = stage.client.handle(task_id)
    written, adopted = handle.result(_PATIENCE_S), _out_of_store(handle, stage.folder / "adopted")
    task = stage.first("tasks", "the task", task_id=task_id)
    brought = Brought(lease, directive, listed, stored_before, evidence, task, written, adopted)
    _tell_end(stage, brought)
    return brought


def _waits_for_a_person(stage: Stage, task_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    lease = stage.first("leases", "the end of the recording's lease", task_id=task_id, state="EXPIRED")
    directive = stage.first("directives", "the question about the recording", task_id=task_id)
    task = stage.first("tasks", "the task", task_id=task_id)
    leases = stage.rows("leases", task_id=task_id)
    stage.say(
        f"The recording's lease is {lease['state']}, too. It came without a retry budget: the task is {task['state']}, "
        f"the directive for attempt {directive['next_attempt']} is {directive['state']}; {len(leases)} attempt so far."
    )
    return lease, directive


def _adopt(stage: Stage, quarantine_id: str) -> dict[str, Any]:
    """Adopt the result and answer its record. Raises `NotAdoptable`."""
    from tenure.protocol.client_messages import Adopt

    stage.client.ask(Adopt(quarantine_id=quarantine_id, note=_NOTE))
    found: list[dict[str, Any]] = []

    def decided() -> bool:
        found[:] = stage.rows("quarantine", quarantine_id=quarantine_id)
        return bool(found) and found[0]["state"] != "VERIFYING"

    stage.wait("the adoption", decided)
    if found[0]["state"] != "ADOPTED":
        raise NotAdoptable(f"{quarantine_id} was not adopted: {found[0].get('refusal') or found[0]['state']}")
    return found[0]


def _tell_end(stage: Stage, brought: Brought) -> None:
    evidence, facts = brought.evidence, brought.facts()
    stage.say(
        f"Now {evidence['decided_by']} adopts that result, under the new fence {evidence['adopted_fence']}: "
        f"the task is {brought.task['state']}."
    )
    if facts["adopted_files_are_those_written"]:
        stage.say(
            f"{len(brought.adopted)} files were fetched from the store and hashed: "
            f"the digests are those of what {evidence['worker_id']} wrote."
        )
    stage.say("With a fleet of your own: `tenure quarantine list`, `show ID` and, if you believe it, `adopt ID`.")


# --- the files --------------------------------------------------------------------------------------------------------


def _bundle(row: dict[str, Any]) -> Bundle:
    from tenure.protocol.artifact import Bundle

    return Bundle.model_validate(row["outputs"])


def _staged(stage: Stage, late: dict[str, Any], bundle: Bundle) -> Files:
    """The files in the staging place, as `tenure quarantine show` lists them."""
    from tenure.artifacts.base import Place

    place = Place(late["site"], late["task_id"], late["fence"], late["nonce"])
    files = stage.client.contents.staged_files(place, bundle)
    return [{"path": file.path, "size": file.blob.size, "digest": file.blob.digest} for file in files]


def _in_store(stage: Stage, files: Files, bundle: Bundle) -> int:
    """How many of them, and of the list that names them, are among the objects of the store."""
    held = {stored.blob.digest for stored in stage.client.contents.store.objects()}
    return len(held & {bundle.manifest.digest, *(file["digest"] for file in files)})


def _out_of_store(handle: Handle[Any], folder: Path) -> Files:
    """What the task has left, fetched as anybody would fetch it, and measured anew."""
    handle.download(folder, timeout=_PATIENCE_S)
    found: Files = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        found.append(
            {
                "path": file.relative_to(folder).as_posix(),
                "size": len(content),
                "digest": sha256(content).hexdigest(),
            }
        )
    return found
