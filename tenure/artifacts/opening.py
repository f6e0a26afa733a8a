"""From the address of a store to the store. What a kind of store needs is loaded only when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.artifacts.addresses import BROKER, checked_url, folder_of
from tenure.artifacts.folder import FolderStore
from tenure.errors import ArtifactStoreUnreachable, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tenure.artifacts.base import Store
    from tenure.broker.url import BrokerUrl


def open_store(
    address: str,
    options: Mapping[str, object] | None = None,
    broker: BrokerUrl | None = None,
    namespace: str = "main",
    *,
    make_folder: bool = False,
) -> Store:
    """The store at that address.

    Args:
        address: see `tenure.artifacts.addresses`; holds nothing secret.
        options: what the library of an object store is to be told, such as keys; may be secret.
        broker: where the broker is, for `broker:`.
        namespace: the fleet's name at the broker.
        make_folder: whether a folder that is not there is made, below one that is.

    Raises:
        InvalidSettings: the address or the options cannot be used.
        MissingExtra: the library for this kind of address is not installed.
        ArtifactStoreUnreachable: a folder is not there.
    """
    if address == BROKER:
        return _at_broker(broker, namespace)
    folder = folder_of(address)
    if folder is not None:
        return FolderStore(_ready(folder, make=make_folder))
    checked_url(address)
    from tenure.artifacts.objects import open_objects

    return open_objects(address, dict(options or {}))


def _at_broker(broker: BrokerUrl | None, namespace: str) -> Store:
    if broker is None:
        raise InvalidSettings("Artifacts are kept at the broker, and the broker's address is not known here")
    from tenure.artifacts.broker import BrokerStore
    from tenure.broker.keys import ContentKeys
    from tenure.clock import SystemEntropy

    return BrokerStore(broker, ContentKeys(namespace), SystemEntropy())


def _ready(folder: Path, *, make: bool) -> Path:
    if folder.is_dir():
        return folder
    if not make:
        raise ArtifactStoreUnreachable(
            f"The folder of artifacts {folder} is not there", "Mount it on this host, or set TENURE_ARTIFACTS"
        )
    try:
        # Not those above it: a mount that is missing must not be replaced by a folder on the local disk.
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ArtifactStoreUnreachable(
            f"The folder of artifacts {folder} cannot be made: {error.strerror}", "Make it, or choose another"
        ) from error
    return folder
