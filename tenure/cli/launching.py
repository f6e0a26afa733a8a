"""The options of `tenure worker --launcher NAME`: which launcher it has, and how executors are started."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, final
from urllib.parse import urlsplit

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.records import pairs
from tenure.errors import InvalidSettings, UsageError, WritesDisabled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenure.cli.desk import Desk
    from tenure.cli.execution import ExecutionForm
    from tenure.launchers.base import ExecutorCommand, Launcher
    from tenure.settings import Settings
    from tenure.workers.launch_shift import Launching

_C = TypeVar("_C", bound="Callable[..., Any]")
_EXECUTOR: Final = "executor"
_DEFAULT_TIMEOUT: Final = "5m"
_SHORTEST_TIMEOUT_MS: Final = 1_000
_IN_IMAGES: Final = frozenset({"kubernetes"})
"""The launchers whose executors see nothing of this host."""

_WRITERS: Final = frozenset({"kubernetes"})
"""The launchers that change something which others may share, and must be allowed to."""


@final
@dataclass(frozen=True, slots=True)
class LaunchForm:
    """The options that `launch_options` declares."""

    launcher: str | None = None
    launcher_file: Path | None = None
    launcher_option: tuple[str, ...] = ()
    enable_writes: bool = False
    launch_timeout: str = _DEFAULT_TIMEOUT


_OPTIONS: Final[tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]] = (
    click.option(
        "--launcher", metavar="NAME", help="Start an executor for each task elsewhere; see `tenure launchers`."
    ),
    click.option(
        "--launcher-file",
        type=LocalPath(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The launcher's options, as TOML.",
    ),
    click.option("--launcher-option", multiple=True, metavar="KEY=VALUE", help="One of its options; repeatable."),
    click.option("--enable-writes", is_flag=True, help="Let the launcher change a cluster."),
    click.option(
        "--launch-timeout",
        default=_DEFAULT_TIMEOUT,
        show_default=True,
        metavar="DURATION",
        help="How long an executor may take to start there.",
    ),
)


def launch_options(function: _C) -> _C:
    """Give a command the options of `LaunchForm`."""
    command: Callable[..., Any] = function
    for option in reversed(_OPTIONS):
        command = option(command)
    return cast("_C", command)


def launching(desk: Desk, form: LaunchForm, execution: ExecutionForm) -> Launching | None:
    """What a parent needs, or None for a worker that runs its tasks itself. Raises `UsageError`."""
    if form.launcher is None:
        timed = form.launch_timeout != _DEFAULT_TIMEOUT
        if form.launcher_file or form.launcher_option or form.enable_writes or timed:
            raise UsageError("an option of a launcher was given, and no launcher", "Name one with --launcher")
        return None
    from tenure.launchers.catalog import require_launcher, require_library
    from tenure.protocol.durations import duration_ms
    from tenure.workers.launch_shift import Launching

    name, settings = form.launcher, desk.settings
    require_launcher(name)
    require_library(name)
    if name in _WRITERS and not form.enable_writes:
        raise WritesDisabled(
            f"a worker with the launcher {name} changes the cluster",
            "Allow it with --enable-writes; `tenure workers render-launch` shows what would be created",
        )
    executor, options = launcher_tables(form)

    def make(folder: Path) -> Launcher[Any]:
        from tenure.launchers.base import LauncherSettings
        from tenure.launchers.catalog import make_launcher

        command = executor_command(name, settings, execution, folder, executor)
        session = desk.session
        return make_launcher(
            name, LauncherSettings(command, folder, session.clock, session.entropy, options, form.enable_writes)
        )

    timeout_ms = duration_ms(form.launch_timeout, "--launch-timeout")
    if timeout_ms < _SHORTEST_TIMEOUT_MS:
        raise UsageError("--launch-timeout is less than a second", "No substrate starts an executor in that time")
    return Launching(make, settings.namespace, timeout_ms)


def launcher_tables(form: LaunchForm) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What is said of executors, and the launcher's own options, from its file and from the command line.

    Raises:
        InvalidSettings: the file cannot be read or is not as it should be.
    """
    return _split(form.launcher or "", _table(form), form)


def executor_command(
    launcher: str, settings: Settings, execution: ExecutionForm, folder: Path, table: Mapping[str, Any]
) -> ExecutorCommand:
    """How executors are started: with this worker's own options, and with what the launcher's file says otherwise.

    Raises:
        UsageError: the file's table `executor` holds something else than it may.
        InvalidSettings: it names the broker where the launcher does that.
    """
    from tenure.launchers.base import ExecutorCommand
    from tenure.processes.interpreters import import_path, python_argv
    from tenure.settings import inherited_environment
    from tenure.workers.options import ENVIRONMENT_NAMES

    said = _Executor.of(table)
    if launcher in _IN_IMAGES:
        # Neither this host's folders nor its variables mean anything there; the address is a file of the launcher's.
        _require_no_address(launcher, said)
        store = ("--artifacts", settings.artifacts) if settings.artifacts else ()
        words = (*store, *_execution(replace(execution, secrets_dir=None)), *said.arguments)
        return ExecutorCommand(said.program or ("tenure",), words, tuple(sorted(said.environment.items())))
    environment = inherited_environment((*ENVIRONMENT_NAMES, "PYTHONPATH"))
    program: tuple[str, ...] = ("tenure",)
    if launcher == "local":
        program = tuple(python_argv(sys.executable, "tenure"))
        environment |= import_path(tuple(filter(None, (environment.get("PYTHONPATH"),))))
    return ExecutorCommand(
        said.program or program,
        (*_address(launcher, settings, folder), *_store(settings), *_execution(execution), *said.arguments),
        tuple(sorted({**environment, **said.environment}.items())),
    )


@final
@dataclass(frozen=True, slots=True)
class _Executor:
    """The table `executor` of a launcher's file."""

    program: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> _Executor:
        from tenure.cli.desk import collect

        known = tuple(each.name for each in fields(cls))
        if foreign := sorted(table.keys() - set(known)):
            raise InvalidSettings(
                f"the table `{_EXECUTOR}` has no option {foreign[0][:80]!r}", f"It has: {', '.join(known)}"
            )
        return collect(cls, table)


def _require_no_address(launcher: str, said: _Executor) -> None:
    """See that nobody names a broker that the executors would not be told of."""
    for word in said.arguments:
        option = word.partition("=")[0]
        if option in {"--broker-url", "--broker-url-file"}:
            raise InvalidSettings(
                f"{option} in `arguments` of the table `{_EXECUTOR}` means nothing to the launcher {launcher}: "
                "its executors read the broker's address from the mounted Secret",
                "Leave it out; `secret_name`, `secret_key` and `secret_path` say which Secret, and where",
            )


def _address(launcher: str, settings: Settings, folder: Path) -> tuple[str, ...]:
    """Where executors read the broker's address: never from their command line when it holds a password."""
    source = settings.broker_url_source()
    if source is not None:
        return ("--broker-url-file", str(source))
    url = settings.resolve_broker_url()
    if launcher != "local" and urlsplit(url).password is None:
        return ("--broker-url", url)
    private = folder / "broker.url"
    private.unlink(missing_ok=True)
    private.touch(mode=0o600, exist_ok=False)
    private.write_text(f"{url}\n", encoding="utf-8")
    return ("--broker-url-file", str(private))


def _store(settings: Settings) -> tuple[str, ...]:
    where = ("--artifacts", settings.artifacts) if settings.artifacts else ()
    options = settings.artifacts_options_file
    return (*where, *(("--artifacts-options-file", str(options)) if options is not None else ()))


def _execution(form: ExecutionForm) -> tuple[str, ...]:
    said = {
        "--secrets-dir": form.secrets_dir.absolute() if form.secrets_dir is not None else None,
        "--max-memory": form.max_memory,
        "--max-disk": form.max_disk,
        "--max-file-size": form.max_file_size,
        "--max-file-count": form.max_file_count,
        "--max-printed": form.max_printed,
        "--max-outputs": form.max_outputs,
    }
    allowed = [word for module in form.allow for word in ("--allow", module)]
    return (*allowed, *(word for name, value in said.items() if value is not None for word in (name, str(value))))


def _table(form: LaunchForm) -> dict[str, Any]:
    if form.launcher_file is None:
        return {}
    try:
        return tomllib.loads(form.launcher_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"the launcher's file {form.launcher_file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the launcher's file {form.launcher_file} is not TOML: {error}") from error


def _split(name: str, table: Mapping[str, Any], form: LaunchForm) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What the file says of executors, and the launcher's own options: its table if it has one, else the rest."""
    executor = _as_table(table.get(_EXECUTOR, {}))
    if executor is None:
        raise InvalidSettings(f"`{_EXECUTOR}` in {form.launcher_file} is no table", f"Write [{_EXECUTOR}] above it")
    options = _as_table(table.get(name))
    if options is None:
        options = {key: value for key, value in table.items() if key != _EXECUTOR}
    return executor, {**options, **dict(pairs(form.launcher_option, "--launcher-option"))}


def _as_table(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
