"""How the command line starts porters: with the settings in their first message, and nothing in argv or environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tenure.artifacts.base import Porter
    from tenure.clock import Clock
    from tenure.settings import Settings


def porter_factory(settings: Settings, clock: Clock, copies: Path | None = None) -> Callable[[str], Porter]:
    """Starts a porter for the store at an address.

    Args:
        settings: the porter's.
        clock: time.
        copies: the coordinator's folder for copies of what is kept at the broker; a worker has none.

    Raises:
        InvalidSettings: the store's options cannot be read.
    """
    from tenure.artifacts.porter_link import PorterLink
    from tenure.artifacts.porter_orders import PorterSettings
    from tenure.broker.url import BrokerUrl
    from tenure.settings import storage_environment

    # Read once, here: a file that others may read is a mistake that is told at the start, not by the first task.
    options, broker, environment = settings.artifacts_options(), BrokerUrl.of(settings), storage_environment()

    def porter_for(address: str) -> Porter:
        chosen = PorterSettings(
            address=address,
            options=options,
            broker_url=broker.url,
            broker_url_file=str(broker.source or ""),
            namespace=settings.namespace,
            copies=str(copies) if copies is not None else "",
            environment=environment,
        )
        return PorterLink(chosen, clock)

    return porter_for
