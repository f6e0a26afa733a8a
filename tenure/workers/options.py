"""What a worker is started with: one frozen value, checked when it is made."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from tenure.broker.keys import DEFAULT_SITE
from tenure.errors import InvalidSettings
from tenure.protocol.artifact import MAX_FILES
from tenure.protocol.envelope import Limits
from tenure.protocol.message import MAX_VALUE_BYTES, SITE_NAME
from tenure.protocol.timing import DEFAULT_LEASE_TTL_MS
from tenure.workers.lifetime import ENDLESS, Lifetime

ENVIRONMENT_NAMES: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    "TZ",
    "TMPDIR",
)
"""Variables that tasks may inherit. Nothing else of the worker's environment reaches them: it may hold credentials."""

_MAX_SLOTS: Final = 4096
_LIMITS: Final = Limits(printed_bytes=1024**3)


@final
@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker runs.

    Args:
        state_dir: folder for identities, spools and task folders of the workers on this host.
        capabilities: kinds of work that it takes.
        worker_id: its durable name; None: one is made once and kept in `state_dir`.
        slots: how many tasks it runs at a time.
        allow: modules that handlers may come from, submodules included.
        labels, resources: what the coordinator may require.
        ttl_ms: how long the worker counts as alive without a heartbeat.
        site: where it belongs to; its id begins with the site's name, but for the default one's.
        environment: what tasks inherit; see `ENVIRONMENT_NAMES` and `tenure.settings.inherited_environment`.
        import_path: folders that handlers are imported from, before the interpreter's own: the worker's current folder
            and its PYTHONPATH.
        max_value_bytes: the largest value that a task may return.
        python: the interpreter for runners and children.
        adopts: whether the agent has its process to itself, and so may end every process that a dead runner left.
        artifacts: address of the store of artifacts; "": what the coordinator announces.
        artifacts_options: a JSON file with options for that store, such as a key.
        secrets_dir: a folder whose files are the secrets that tasks may name.
        limits: the most that any task may use, whatever it asks for.
        output_files: how many files a task may leave among its outputs, or in one checkpoint.
        wall_ms: when it must be gone, by its host's elapsed time; None: whenever somebody ends it.
        lifetime: when it leaves by itself; `wall_ms` goes on top.
    """

    state_dir: Path
    capabilities: tuple[str, ...] = ("default",)
    worker_id: str | None = None
    slots: int = 1
    allow: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    ttl_ms: int = DEFAULT_LEASE_TTL_MS
    site: str = DEFAULT_SITE
    environment: tuple[tuple[str, str], ...] = ()
    import_path: tuple[str, ...] = ()
    max_value_bytes: int = MAX_VALUE_BYTES
    python: str = field(default_factory=lambda: sys.executable)
    adopts: bool = False
    artifacts: str = ""
    artifacts_options: Path | None = None
    secrets_dir: Path | None = None
    limits: Limits = _LIMITS
    output_files: int = 10_000
    wall_ms: int | None = None
    lifetime: Lifetime = ENDLESS

    def __post_init__(self) -> None:
        """Raise `InvalidSettings` for values that cannot be."""
        if not 1 <= self.slots <= _MAX_SLOTS:
            raise InvalidSettings(f"a worker cannot have {self.slots} slots", f"Give it 1 to {_MAX_SLOTS}")
        if not re.fullmatch(SITE_NAME, self.site):
            raise InvalidSettings(
                f"{self.site[:80]!r} cannot be the name of a site", "Use up to 32 letters, digits, '_' and '-'"
            )
        if not self.capabilities:
            raise InvalidSettings("a worker needs a capability", "Name at least one kind of work, such as `default`")
        if not 0 < self.output_files <= MAX_FILES:
            raise InvalidSettings(
                f"{self.output_files} files among a task's outputs cannot be", f"Choose 1 to {MAX_FILES}"
            )
        if not 0 < self.max_value_bytes <= MAX_VALUE_BYTES:
            raise InvalidSettings(
                f"a value limit of {self.max_value_bytes} bytes cannot be", f"The wire allows up to {MAX_VALUE_BYTES}"
            )
