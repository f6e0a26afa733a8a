"""What a runner is told to run: the order of a command, and the object that its program finds in `task.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tenure.handlers.json_text import parse
from tenure.protocol.message import MAX_VALUE_BYTES
from tenure.workers.provision import lower

if TYPE_CHECKING:
    from tenure.protocol.artifact import Checkpoint
    from tenure.protocol.envelope import Limits
    from tenure.workers.actions import StartCommand
    from tenure.workers.launching import Launch

_MOST_STATE_BYTES: Final = MAX_VALUE_BYTES + 1


def command_order(action: StartCommand, launch: Launch, folder: Path) -> dict[str, Any]:
    """The order without what the link adds to every order.

    Raises:
        NotJson: the task's parameters are no JSON.
    """
    work, provision = action.work, action.provision
    limits = lower(provision.limits, launch.options.limits)
    task = task_object(action, limits, folder)
    is_lines = work.form == "lines"
    return {
        "op": "command",
        "argv": list(work.argv),
        "env": launch.command_env(action.binding, work),
        "stdin": _first_line(task, provision.checkpoint, folder) if is_lines else work.stdin,
        "limit": launch.options.max_value_bytes,
        "form": work.form,
        "task": task,
        "limits": {
            "memory": limits.memory_bytes or 0,
            "disk": limits.disk_bytes or 0,
            "file": limits.file_bytes or 0,
            "files": limits.files or 0,
            "printed": limits.printed_bytes or 0,
        },
        "secrets": [[name, str(launch.secret_file(name))] for name in provision.secrets],
        "keep": kept_folder(action, launch),
    }


def kept_folder(action: StartCommand, launch: Launch) -> str:
    """Where the task's folder is moved in the end; "" when it is removed."""
    if not action.provision.keep_folder:
        return ""
    return str(launch.kept_folder(f"{action.binding.task_id}-{action.binding.fence}"))


def task_object(action: StartCommand, limits: Limits, folder: Path) -> dict[str, Any]:
    """What a program is told about its task; see docs/task_folder.md. Raises `NotJson`."""
    binding, provision = action.binding, action.provision
    return {
        "task_id": binding.task_id,
        "attempt": binding.attempt,
        "fence": binding.fence,
        "label": provision.label,
        "parameters": parse(action.work.parameters),
        "inputs": [f"inputs/{one.path}" for one in provision.inputs],
        "checkpoint": _checkpoint(provision.checkpoint, folder),
        "secrets": {name: f"secrets/{name}" for name in provision.secrets},
        "limits": limits.model_dump(exclude_none=True),
        "timeout_ms": provision.timeout_ms,
    }


def _checkpoint(checkpoint: Checkpoint | None, folder: Path) -> dict[str, Any] | None:
    if checkpoint is None:
        return None
    return {
        "name": checkpoint.name,
        "path": str(checkpoint_file(checkpoint, folder).relative_to(folder)),
        "attempt": checkpoint.attempt,
        "fence": checkpoint.fence,
    }


def checkpoint_file(checkpoint: Checkpoint, folder: Path) -> Path:
    """Where the checkpoint lies that was fetched: under its name, or as the state that a line has told."""
    plain, state = folder / "checkpoint" / checkpoint.name, folder / "checkpoint" / f"{checkpoint.name}.json"
    return state if state.exists() and not plain.exists() else plain


def _first_line(task: dict[str, Any], checkpoint: Checkpoint | None, folder: Path) -> str:
    """What a program of the form `lines` reads: its task and, if there is one, the checkpoint's state."""
    if checkpoint is not None:
        state = checkpoint_file(checkpoint, folder)
        if state.name == f"{checkpoint.name}.json" and state.is_file() and state.stat().st_size <= _MOST_STATE_BYTES:
            task = {**task, "checkpoint": {**task["checkpoint"], "state": parse(state.read_text(encoding="utf-8"))}}
    return json.dumps(task, ensure_ascii=False, separators=(",", ":")) + "\n"
