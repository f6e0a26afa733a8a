"""What every command works at: the settings, the output, and a connection to the fleet that is opened when first used.

`with_desk` gives a command the options that all of them share (`--json`, and where the broker is) and passes the desk
as its first argument. `Session` is what a test replaces: how clients are made, and which clock is read.
"""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, Unpack, cast, final
from urllib.parse import urlsplit

import click

from tenure.cli import failures
from tenure.cli.arguments import LocalPath, require_texts, require_utf8
from tenure.cli.output import Output, harmless
from tenure.clock import SystemClock, SystemEntropy
from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tenure.broker.url import BrokerUrl
    from tenure.cli.credentials import Nodes
    from tenure.client.contents import Contents
    from tenure.client.handle import Handle
    from tenure.client.logs import LogReader
    from tenure.client.options import SubmitOptions
    from tenure.client.submitter import Submitter
    from tenure.clock import Clock, Entropy
    from tenure.protocol.client_messages import Ask, Reply
    from tenure.settings import Settings

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_C = TypeVar("_C", bound="Callable[..., Any]")
_KEPT: Final = "tenure.shared"


class Fleet(Protocol):
    """What commands need of a client. See `tenure.client.client.Client`."""

    def ask(self, request: Ask) -> Reply:
        """Ask the coordinator; raises its refusals."""
        ...

    def using(self, **options: Unpack[SubmitOptions]) -> Submitter:
        """A submitter whose tasks run under these options."""
        ...

    def handle(self, task_id: str) -> Handle[Any]:
        """Attach to a task."""
        ...

    @property
    def contents(self) -> Contents:
        """The store of files."""
        ...

    @property
    def log_reader(self) -> LogReader:
        """What tasks print."""
        ...


def _open_client(settings: Settings) -> AbstractContextManager[Fleet]:
    from tenure.cli.connecting import open_client

    return open_client(settings)


def _open_nodes(urls: Sequence[BrokerUrl]) -> AbstractContextManager[Nodes]:
    from tenure.cli.credentials import open_provisioner

    return open_provisioner(urls)


@final
@dataclass(frozen=True, slots=True)
class Session:
    """What commands are given by the program, and fakes by tests."""

    open_client: Callable[[Settings], AbstractContextManager[Fleet]] = _open_client
    open_nodes: Callable[[Sequence[BrokerUrl]], AbstractContextManager[Nodes]] = _open_nodes
    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)


@final
class Desk:
    """One command's place of work."""

    def __init__(self, session: Session, shared: Mapping[str, Any]) -> None:
        self.session = session
        as_json = bool(shared.get("json"))
        self.output = Output(sys.stdout, as_json=as_json, terminal=sys.stdout.isatty())
        self._shared = shared
        self._stack = ExitStack()
        self._settings: Settings | None = None
        self._client: Fleet | None = None

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def settings(self) -> Settings:
        """The settings, read once. Raises `InvalidSettings`."""
        if self._settings is None:
            from tenure.settings import load_settings

            names = ("broker_url", "broker_url_file", "namespace", "artifacts", "artifacts_options_file", "data_dir")
            given = {name: self._shared.get(name) for name in names}
            self._settings = load_settings(settings_file=self._shared.get("settings"), **given)
        return self._settings

    def runs_own_broker(self) -> None:
        """Refuse an address given on the command line to a command that brings its own broker. Raises `UsageError`."""
        if self._shared.get("broker_url") or self._shared.get("broker_url_file"):
            raise UsageError(
                "this command runs a broker of its own and takes no address",
                "Leave the option out, or run `tenure coordinator` and `tenure worker` with it",
            )

    @property
    def fleet(self) -> Fleet:
        """The client, connected once."""
        if self._client is None:
            self._client = self._stack.enter_context(self.session.open_client(self.settings))
        return self._client

    def ask(self, ask: Ask) -> Reply:
        """Ask the coordinator."""
        return self.fleet.ask(ask)

    def remark(self, text: str) -> None:
        """Say something that is no result, on standard error; also with `--json`."""
        click.echo(harmless(text), err=True)


def _keep(context: click.Context, parameter: click.Parameter, value: _T) -> _T:
    """Put a shared option where the desk finds it, so that commands need not carry it through."""
    require_utf8(parameter.get_error_hint(context), value)
    if value is not None:
        context.meta.setdefault(_KEPT, {})[str(parameter.name)] = value
    return value


def _without_password(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        holds_password = value is not None and urlsplit(value).password is not None
    except ValueError:
        holds_password = False
    if holds_password:
        raise UsageError(
            "a password on the command line can be read by everyone on this host",
            "Put the address into a file and give --broker-url-file, or set TENURE_BROKER_URL",
        )
    return _keep(context, parameter, value)


def _shared(*names: str, **attributes: Any) -> Callable[[Callable[..., _R]], Callable[..., _R]]:  # noqa: ANN401 - click's own keywords
    attributes.setdefault("callback", _keep)
    return click.option(*names, expose_value=False, **attributes)


_OPTIONS: Final = (
    _shared("--json", is_flag=True, default=None, help="Print JSON."),
    _shared(
        "--broker-url", metavar="URL", callback=_without_password, help="The broker's address, without a password."
    ),
    _shared("--broker-url-file", metavar="FILE", type=LocalPath(path_type=Path), help="A file that holds the address."),
    _shared("--namespace", metavar="NAME", help="The fleet's name on the broker."),
    _shared("--settings", metavar="FILE", type=LocalPath(path_type=Path), help="In place of ./tenure.toml."),
)


_STORE_OPTIONS: Final = (
    _shared(
        "--artifacts", metavar="ADDRESS", help="Where files are kept: broker:, a folder, or a URL such as s3://b/p."
    ),
    _shared(
        "--artifacts-options-file",
        metavar="FILE",
        type=LocalPath(path_type=Path),
        help="Options of that store as JSON, such as its keys.",
    ),
)


def store_options(function: _C) -> _C:
    """Give a command the options that say where files are kept; they end up in the desk's settings."""
    command: Callable[..., Any] = function
    for option in reversed(_STORE_OPTIONS):
        command = option(command)
    return cast("_C", command)


def with_desk(function: Callable[Concatenate[Desk, _P], _R]) -> Callable[_P, _R]:
    """Give the command the shared options, and its desk as first argument."""

    @functools.wraps(function)
    def at_desk(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        context = click.get_current_context()
        require_texts(context)
        session = context.find_object(Session) or Session()
        try:
            with Desk(session, context.meta.get(_KEPT, {})) as desk:
                return function(desk, *args, **kwargs)
        except BrokenPipeError:
            # click would exit with 1, which is the code of a failed task.
            failures.silence_stdout()
            raise click.exceptions.Exit(failures.NOBODY_READS) from None

    command: Callable[..., _R] = at_desk
    for option in reversed(_OPTIONS):
        command = option(command)
    return cast("Callable[_P, _R]", command)


def collect(kind: type[_T], options: Mapping[str, object]) -> _T:
    """A command's options as one checked, frozen value. Raises `UsageError`."""
    from pydantic import TypeAdapter, ValidationError

    from tenure.protocol.message import describe

    try:
        return TypeAdapter(kind).validate_python(dict(options))
    except ValidationError as error:
        raise UsageError(f"an option does not fit: {describe(error)}") from None
