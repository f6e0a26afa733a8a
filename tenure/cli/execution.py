"""What a worker and an executor are told alike: how tasks run on this host, and the most that one may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import click

from tenure.cli.arguments import LocalPath
from tenure.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.broker.redis_worker import RedisWorker
    from tenure.settings import Settings
    from tenure.workers.options import WorkerOptions

_C = TypeVar("_C", bound="Callable[..., Any]")


@final
@dataclass(frozen=True, slots=True)
class ExecutionForm:
    """The options that `execution_options` declares."""

    allow: tuple[str, ...] = ()
    secrets_dir: Path | None = None
    max_memory: str | None = None
    max_disk: str | None = None
    max_file_size: str | None = None
    max_file_count: int | None = None
    max_printed: str | None = None
    max_outputs: int = 10_000

    def limits(self) -> dict[str, int]:
        """What was said about the most that a task may use here, whatever it asks for. Raises `UsageError`."""
        from tenure.protocol.sizes import size_bytes

        sizes = {
            "memory_bytes": (self.max_memory, "--max-memory"),
            "disk_bytes": (self.max_disk, "--max-disk"),
            "file_bytes": (self.max_file_size, "--max-file-size"),
            "printed_bytes": (self.max_printed, "--max-printed"),
        }
        said = {name: size_bytes(text, option) for name, (text, option) in sizes.items() if text is not None}
        if self.max_file_count is not None:
            said["files"] = self.max_file_count
        return said


_OPTIONS: Final = (
    click.option(
        "--allow", multiple=True, metavar="MODULE", help="A module whose functions may be called; repeatable."
    ),
    click.option(
        "--secrets-dir",
        type=LocalPath(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Secrets that tasks may name: one file each, called like the secret, readable by its owner only.",
    ),
    click.option("--max-memory", metavar="SIZE", help="The most memory of one task, such as 8GiB."),
    click.option("--max-disk", metavar="SIZE", help="The most that one task's folder may hold."),
    click.option("--max-file-size", metavar="SIZE", help="The largest file of a task."),
    click.option("--max-file-count", type=click.IntRange(1), metavar="N", help="The most files of a task's folder."),
    click.option("--max-printed", metavar="SIZE", help="The most that one task may print; 1GiB when not given."),
    click.option(
        "--max-outputs",
        type=click.IntRange(1, 100_000),
        default=10_000,
        show_default=True,
        metavar="N",
        help="The most files that one task may leave.",
    ),
)


def execution_options(function: _C) -> _C:
    """Give a command the options of `ExecutionForm`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def execution_of(form: ExecutionForm, settings: Settings, state_dir: Path) -> WorkerOptions:
    """The part of a worker's options that says how tasks run here. Raises `UsageError`."""
    from tenure.settings import inherited_environment
    from tenure.workers.options import ENVIRONMENT_NAMES, WorkerOptions

    python_path = inherited_environment(("PYTHONPATH",)).get("PYTHONPATH", "")
    plain = WorkerOptions(state_dir=state_dir)
    return WorkerOptions(
        state_dir=state_dir,
        allow=form.allow,
        environment=tuple(sorted(inherited_environment(ENVIRONMENT_NAMES).items())),
        adopts=True,
        artifacts=settings.artifacts or "",
        artifacts_options=settings.artifacts_options_file,
        secrets_dir=form.secrets_dir.absolute() if form.secrets_dir is not None else None,
        limits=plain.limits.model_copy(update=form.limits()),
        output_files=form.max_outputs,
        import_path=(str(Path.cwd()), *(folder for folder in python_path.split(os.pathsep) if folder)),
    )


def site_for(settings: Settings, said: str | None) -> str:
    """The site that a worker of these settings belongs to: the one that its credential is of, if it has one.

    `said` is what an option or a ticket says, which counts before the settings. Raises `InvalidSettings` when that and
    the credential do not agree, and for a credential that is no site's.
    """
    from tenure.broker.keys import DEFAULT_SITE
    from tenure.broker.principals import principal_of
    from tenure.broker.url import BrokerUrl

    principal = principal_of(BrokerUrl.of(settings).user, settings.namespace)
    if principal is not None and principal.part != "site":
        raise InvalidSettings(
            f"the broker's address holds the credential of {principal.whose}, and a worker needs a site's",
            "Give it the file that `tenure sites issue` wrote for its site",
        )
    held = principal.name if principal is not None else DEFAULT_SITE
    wanted = said or (settings.site if settings.site != DEFAULT_SITE else held)
    if held not in {DEFAULT_SITE, wanted}:
        raise InvalidSettings(
            f"the broker's address holds the credential of site {held}, and not of {wanted}",
            f"Give the worker the file that was issued for {wanted}, or leave the site out",
        )
    return wanted


def worker_connector(settings: Settings, options: WorkerOptions) -> Callable[[str], RedisWorker]:
    """Makes a connection to the broker for a worker id, in the settings' namespace and the options' site."""
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import RedisConnection
    from tenure.broker.redis_worker import RedisWorker
    from tenure.broker.url import BrokerUrl
    from tenure.protocol.timing import broker_timeout_ms

    url, keys = BrokerUrl.of(settings), Keys(settings.namespace)
    timeout_ms = broker_timeout_ms(options.ttl_ms)

    def connect(worker_id: str) -> RedisWorker:
        connection = RedisConnection(url, timeout_ms=timeout_ms)
        return RedisWorker(connection, keys, site=options.site, worker_id=worker_id)

    return connect
