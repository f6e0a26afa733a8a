"""How the command line makes a client; the heavy imports wait here until a command asks the fleet something."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tenure.broker.principals import principal_of
from tenure.broker.url import BrokerUrl
from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.client.wiring import wiring_of
from tenure.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Generator

    from tenure.settings import Settings


@contextmanager
def open_client(settings: Settings) -> Generator[Client]:
    """A client of the fleet that the settings name. Raises `InvalidSettings` for a credential that is no person's."""
    principal = principal_of(BrokerUrl.of(settings).user, settings.namespace)
    if principal is not None and principal.part in {"site", "provisioner"}:
        raise InvalidSettings(
            f"the broker's address holds the credential of {principal.whose}, and this takes a person's",
            "Give it the file that `tenure clients issue` wrote, or operator.url",
        )
    options = ClientOptions(
        namespace=settings.namespace,
        principal=settings.principal,
        patience_ms=round(settings.answer_timeout_s * 1000),
        on_warning=lambda text: click.echo(f"Note: {text}.", err=True),
    )
    # Warnings are shown above, in our own words; without a handler Python would print them once more.
    logging.getLogger("tenure").addHandler(logging.NullHandler())
    # Not by the address alone: the settings may come from a file that only this command line names.
    with Client(options=options, wiring=wiring_of(settings)) as client:
        yield client
