"""What `tenure doctor` looks at where files are kept: the store's address, whether it takes and gives, and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tenure.artifacts.base import Place, uploads_of
from tenure.artifacts.content import blob_of
from tenure.broker.principals import person_of
from tenure.broker.url import BrokerUrl
from tenure.cli.checks import bad, ok, warn
from tenure.clock import sortable_id
from tenure.errors import TenureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tenure.artifacts.base import Store
    from tenure.cli.checks import Finding
    from tenure.cli.desk import Desk

_ABOUT: Final = "artifacts"
_PROBE_BYTES: Final = 4_096


def store(desk: Desk, status: Mapping[str, Any]) -> Iterator[Finding]:
    """Where files are kept, whether this host means the same place, and whether that takes a file and gives it back."""
    known: Mapping[str, Any] = status.get("artifacts") or {}
    announced = str(known.get("address", ""))
    local = desk.settings.artifacts
    if not announced:
        yield warn(_ABOUT, "the coordinator keeps no files", "Start it with `tenure coordinator --artifacts ADDRESS`")
        return
    if local is not None and local != announced:
        yield warn(
            _ABOUT,
            f"this host keeps files at {local}, the coordinator at {announced}",
            "Fine when both are one place under two names; else unset TENURE_ARTIFACTS",
        )
    try:
        desk.settings.artifacts_options()
        took_ms = _tried(
            desk, desk.fleet.contents.store, person_of(BrokerUrl.of(desk.settings).user, desk.settings.namespace)
        )
    except TenureError as error:
        yield bad(_ABOUT, error.message, error.remedy)
        return
    yield ok(_ABOUT, f"{local or announced} takes a file and gives it back in {took_ms} ms")
    last: Mapping[str, Any] = known.get("collection") or {}
    if last.get("problem"):
        yield warn(
            _ABOUT, f"the last collection ended early: {last['problem']}", "Repeat it with `tenure artifacts gc`"
        )


def secrets(folder: Path | None) -> Iterator[Finding]:
    """A worker's secrets: how many there are, and whether anybody else may read them."""
    if folder is None:
        return
    from tenure.workers.host_secrets import known_secrets

    try:
        names = known_secrets(folder)
    except TenureError as error:
        yield bad("secrets", error.message, error.remedy)
        return
    yield ok("secrets", f"{folder} holds {len(names)}: {', '.join(sorted(names)) or '-'}")


def _tried(desk: Desk, opened: Store, person: str) -> int:
    """Stage a small file in a place of its own, read it back, and remove it; answers how long that took."""
    clock, entropy = desk.session.clock, desk.session.entropy
    raw = bytes.fromhex(entropy.token(_PROBE_BYTES))
    blob = blob_of(raw)
    place = Place(uploads_of(person), sortable_id(clock.now_ms(), entropy), 1, entropy.token(16))
    before_ms = clock.elapsed_ms()
    try:
        opened.stage(place, blob, 0, iter([raw]))
        if b"".join(opened.read_staged(place, blob)) != raw:
            raise TenureError("the store gives back other bytes than it was given", "Check its disks and its server")
    finally:
        opened.discard(place)
    return clock.elapsed_ms() - before_ms
