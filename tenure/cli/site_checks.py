"""What `tenure doctor` looks at with a site's credential, which may ask the coordinator nothing.

It sees the broker, the marker that a coordinator leaves there, and the streams that the site was granted. The rest
takes a person's credential, and the doctor says so, for a check that was left out is no check that was passed.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from tenure.broker.base import EntryId, Stream, StreamEntry
from tenure.broker.keys import DEFAULT_SITE, Keys
from tenure.broker.principals import site_of
from tenure.broker.redis_connection import BrokerUrl, RedisConnection
from tenure.broker.redis_worker import RedisWorker
from tenure.cli.checks import bad, ok, warn
from tenure.errors import BrokerRefused, TenureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tenure.broker.base import WorkerBroker
    from tenure.cli.checks import Finding
    from tenure.settings import Settings

_TIMEOUT_MS: Final = 3_000


def site_of_address(url: str, settings: Settings) -> str | None:
    """The site whose credential the broker's address holds, if it holds one of a site."""
    site = site_of(BrokerUrl(url).user, settings.namespace)
    return None if site == DEFAULT_SITE else site


def site(settings: Settings, name: str, capabilities: Sequence[str]) -> Iterator[Finding]:
    """Whether a worker of this site would find a coordinator, and be let at what it is to offer."""
    connection = RedisConnection(BrokerUrl.of(settings), timeout_ms=_TIMEOUT_MS)
    with closing(RedisWorker(connection, Keys(settings.namespace), site=name, worker_id=f"{name}.doctor")) as broker:
        try:
            yield _coordinator(broker)
            for capability in dict.fromkeys(capabilities):
                yield _grant(broker, name, capability)
        except TenureError as error:
            yield bad("site", error.message, error.remedy)
    if not capabilities:
        yield ok("grants", "not looked at; name with --capability what the worker is to offer")


def left_out(name: str, provisioners: Sequence[Path]) -> Iterator[Finding]:
    """What was not looked at, and why."""
    yield ok(
        "site",
        f"this is the credential of site {name}, which may ask the coordinator nothing: whether it answers, its workers"
        " and its store of files were not looked at",
    )
    if provisioners:
        yield warn(
            "credentials",
            "what is on record may not be asked with a site's credential, so the broker's users were not compared",
            "Give the --broker-url-file of an operator",
        )


def _coordinator(broker: WorkerBroker) -> Finding:
    if broker.marker():
        return ok("coordinator", "one has announced itself at this broker")
    return bad("coordinator", "none has announced itself at this broker", "Start it with `tenure coordinator`")


def _grant(broker: WorkerBroker, name: str, capability: str) -> Finding:
    try:
        broker.look(StreamEntry(Stream(name, capability), EntryId(0, 1)))
    except BrokerRefused:
        return bad(
            "grants",
            f"site {name} was not granted capability {capability}",
            f"Offer what it was granted: an operator sees it with `tenure sites show {name}`",
        )
    return ok("grants", f"site {name} may take work of capability {capability}")
