"""Reads: lists of records, the coordinator's status. Nothing here changes anything."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tenure.errors import UsageError
from tenure.protocol.envelope import digest, open_envelope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import Query

FILTERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "tasks": ("task_id", "state", "capability", "run", "campaign", "key"),
        "workers": ("worker_id", "state", "site", "executor_of"),
        "leases": ("task_id", "state", "worker_id"),
        "directives": ("directive_id", "task_id", "state"),
        "quarantine": ("quarantine_id", "task_id", "reason"),
        "artifacts": ("task_id", "kind", "state"),
        "events": ("task_id", "worker_id", "kind", "site", "principal"),
        "capabilities": (),
        "campaigns": ("campaign", "state"),
        "usage": ("campaign",),
        "cancellations": ("cancellation_id", "state"),
        "sites": ("site", "state", "kind"),
        "clients": ("person", "state", "role"),
        "credentials": ("holder", "name", "after"),
    }
)
"""By which columns each list can be filtered."""

_REPLY_BYTES: Final = 512 * 1024
_DECODED: Final = frozenset(
    {"capabilities", "devices", "people", "labels", "resources", "failure", "report", "outputs", "notes"}
)
"""Columns of JSON text that was written here. A task's value is whatever its worker sent, and stays a text."""


def answer(turn: Turn, query: Query) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """The rows of a query and any warnings. Raises `UsageError` for a filter that the list does not have."""
    if query.what == "status":
        return (status(turn),), ()
    allowed = FILTERS[query.what]
    wanted = dict(query.where)
    if unknown := sorted(set(wanted) - set(allowed)):
        raise UsageError(
            f"{query.what} cannot be filtered by {', '.join(unknown)}", f"Use {', '.join(allowed) or 'none'}"
        )
    parameters = {name: wanted.get(name) for name in allowed} | {"limit": query.limit}
    one_task = query.what == "tasks" and (wanted.get("task_id") or wanted.get("key"))
    rows = [_readable(row) for row in turn.store.records("find_task" if one_task else f"list_{query.what}", parameters)]
    if query.what == "tasks":
        rows = [_task(turn, row) for row in rows]
    elif query.what == "workers":
        rows = [row | {"seen_at_ms": _seen_at_ms(turn, row)} for row in rows]
    elif query.what == "sites":
        rows = [row | health(turn, row["site"], row["state"]) | _limits(turn, row["site"]) for row in rows]
    elif query.what == "quarantine":
        rows = [_quarantined(turn, row) for row in rows]
    return fit(rows)


def status(turn: Turn) -> dict[str, Any]:
    """What `doctor` and `up` show: identity, counts, workers."""
    world = turn.store.records("world")[0]
    workers = [worker for worker in turn.fleet if not worker.executor_of]
    return {
        "world": world["world"],
        "epoch": world["epoch"],
        "fence": world["fence"],
        "database": str(turn.store.path),
        "tasks": {str(state): count for state, count in turn.store.rows("count_tasks")},
        "live_leases": len(turn.leases),
        "workers": {worker.worker_id: str(worker.state) for worker in workers},
        "executors": len(list(turn.fleet)) - len(workers),
        "slots": sum(worker.slots for worker in workers),
        "capabilities": sorted(turn.fleet.capabilities()),
        "artifacts": _artifacts(turn),
        "now_ms": turn.now_ms,
    }


def fit(rows: list[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """As many rows as one reply may carry, and a warning when some had to be left out."""
    size = 0
    for index, row in enumerate(rows):
        size += len(json.dumps(row, default=str))
        if size > _REPLY_BYTES and index:
            return tuple(rows[:index]), (
                f"only the first {index} of {len(rows)} rows fit into one reply; narrow the query",
            )
    return tuple(rows), ()


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value) if name in _DECODED and value is not None else value for name, value in row.items()}


def _artifacts(turn: Turn) -> dict[str, Any]:
    """Where the store is, how much is on record, what is under way, and how the newest collection went."""
    collections = turn.store.records("last_collection")
    return {
        "address": turn.curator.address,
        "counts": {f"{kind} {state}": count for kind, state, count in turn.store.rows("count_artifacts")},
        "checking": sum(turn.curator.under_way(kind) for kind in ("result", "checkpoint", "adoption")),
        "promoting": turn.curator.under_way("promote"),
        "collection": collections[0] if collections else None,
    }


def _task(turn: Turn, row: dict[str, Any]) -> dict[str, Any]:
    raw = row.pop("envelope")
    envelope = open_envelope(raw)
    needs = {
        "digest": digest(raw),
        "timeout_ms": envelope.timeout_ms,
        "memory_bytes": envelope.limits.memory_bytes,
        "resources": dict(envelope.requirements.resources),
    }
    lease = turn.leases.get(row["task_id"])
    known = lease.progress if lease is not None else None
    progress: dict[str, Any] = {"progress": None, "message": "", "metrics": "", "cursor": None}
    if known is not None:
        progress["progress"] = known.fraction_ppm / 1_000_000
        progress |= {"message": known.message, "metrics": known.metrics, "cursor": known.cursor}
    return row | {"work": envelope.work.summary(), "label": envelope.label} | needs | progress


def _quarantined(turn: Turn, row: dict[str, Any]) -> dict[str, Any]:
    if row["state"] == "UNDECIDED" and turn.curator.knows(("adoption", row["quarantine_id"])):
        row["state"] = "VERIFYING"
    kept = row["outputs"] is not None and row["state"] in {"UNDECIDED", "VERIFYING"}
    return row | {"files_until_ms": row["received_at_ms"] + turn.memory.retention_ms if kept else None}


def health(turn: Turn, site: str, state: str) -> dict[str, Any]:
    """How a site is, by its workers: how many there are, how many are heard, and when one was heard last."""
    workers = [worker for worker in turn.fleet if worker.site == site and not worker.executor_of]
    active = sum(worker.state == "ACTIVE" for worker in workers)
    word = "ok" if active else "away" if workers else "unseen"
    if state != "ACTIVE":
        word = "revoked"
    elif not active and any(worker.state == "STALE" for worker in workers):
        word = "silent"
    seen_ms = max((turn.now_ms - (turn.elapsed_ms - worker.seen_ms) for worker in workers), default=None)
    return {"health": word, "workers": len(workers), "active_workers": active, "seen_at_ms": seen_ms}


def _limits(turn: Turn, site: str) -> dict[str, Any]:
    """How far a site has used up what it may make the coordinator do and keep."""
    return turn.memory.inboxes.shown(site) | turn.memory.quotas.shown(site, turn.elapsed_ms)


def _seen_at_ms(turn: Turn, row: dict[str, Any]) -> int:
    """When the worker was last heard; the store is behind, since renewals are kept in memory."""
    worker = turn.fleet.get(row["worker_id"])
    return row["seen_at_ms"] if worker is None else turn.now_ms - (turn.elapsed_ms - worker.seen_ms)
