"""`tenure broker`: a broker of one's own, in the foreground; and `tenure broker secure`, for any broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.arguments import LocalPath
from tenure.cli.broker_secure import secure
from tenure.cli.desk import with_desk

if TYPE_CHECKING:
    from tenure.broker.embedded import EmbeddedBroker, EmbeddedOptions
    from tenure.cli.desk import Desk

_LONGEST_SOCKET: Final = 100
_LOOK_MS: Final = 1_000
_MEGABYTE: Final = 1024 * 1024
_LEAST_MEMORY_MB: Final = 16


@click.group(invoke_without_command=True)
@click.option("--data", "folder", type=LocalPath(path_type=Path), metavar="DIR", help="Where it keeps its data.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), metavar="N", default=0, help="A loopback port; any free one by default."
)
@click.option("--unix-socket", type=LocalPath(path_type=Path), metavar="PATH", help="Listen there in place of a port.")
@click.option(
    "--max-memory",
    default="512MiB",
    show_default=True,
    metavar="SIZE",
    help="With more data than this it refuses writes, such as 2GiB; at least 16MiB.",
)
@with_desk
def broker(desk: Desk, folder: Path | None, port: int, unix_socket: Path | None, max_memory: str) -> None:
    """Run an embedded broker until Ctrl-C. Says where its address is kept."""
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        _run(desk, folder, port, unix_socket, memory_mb(max_memory))
    else:
        _refuse_own_options(context)


broker.add_command(secure)


def _refuse_own_options(context: click.Context) -> None:
    """The options of a broker of one's own mean nothing to a subcommand, which works on the broker at an address."""
    from tenure.errors import UsageError

    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.expose_value
        and context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"`tenure broker {context.invoked_subcommand}` runs no broker and takes no {' and no '.join(given)}",
            "Leave it out, and say with --broker-url-file which broker is meant",
        )


def _run(desk: Desk, folder: Path | None, port: int, unix_socket: Path | None, max_memory_mb: int) -> None:
    from tenure.broker.embedded import EmbeddedBroker, EmbeddedOptions
    from tenure.cli.signals import Signals
    from tenure.errors import BrokerUnreachable

    desk.runs_own_broker()
    folder = (folder or desk.settings.data_dir / "broker").absolute()
    options = EmbeddedOptions(folder=folder, port=port, unix_socket=unix_socket, max_memory_mb=max_memory_mb)
    with (
        Signals() as signals,
        EmbeddedBroker(options, clock=desk.session.clock, entropy=desk.session.entropy) as server,
    ):
        url_file = write_url_file(folder, server.url)
        try:
            desk.output.answer(
                {"url_file": str(url_file)}, f"The broker runs. Others find it with TENURE_BROKER_URL_FILE={url_file}"
            )
            while not signals.asked_to_end:
                signals.wait(_LOOK_MS)
                if not server.running:
                    raise BrokerUnreachable("the broker has ended by itself", f"See {folder / 'server.log'}")
        finally:
            url_file.unlink(missing_ok=True)


def memory_mb(text: str) -> int:
    """How much `--max-memory` allows, in whole mebibytes. Raises `UsageError`."""
    from tenure.errors import UsageError
    from tenure.protocol.sizes import size_bytes

    megabytes = size_bytes(text, "--max-memory") // _MEGABYTE
    if megabytes < _LEAST_MEMORY_MB:
        raise UsageError(f"--max-memory {text} is too little for a broker", "Give 16MiB or more, with the unit")
    return megabytes


def embedded(desk: Desk, folder: Path) -> EmbeddedBroker:
    """A broker for parts on this machine: on a unix socket where its path fits, on a loopback port else."""
    from tenure.broker.embedded import EmbeddedBroker

    return EmbeddedBroker(_options(folder), clock=desk.session.clock, entropy=desk.session.entropy)


def write_url_file(folder: Path, url: str) -> Path:
    """Leave the address where only its owner can read it."""
    import os

    from tenure.settings import BROKER_URL_FILE

    path = folder / BROKER_URL_FILE
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{url}\n")
    return draft.replace(path)


def _options(folder: Path) -> EmbeddedOptions:
    from tenure.broker.embedded import EmbeddedOptions

    socket = folder / "broker.sock"
    fits = len(bytes(socket)) <= _LONGEST_SOCKET
    return EmbeddedOptions(folder=folder, unix_socket=socket if fits else None)
