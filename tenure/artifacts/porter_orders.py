"""What a porter is told: its settings in the first frame, orders in those that follow. It answers with `Ended`s.

The settings hold secrets. They travel over an inherited socket, and nowhere else: not in argv, not in the environment,
both of which other processes of the same user can read.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from tenure.artifacts.jobs import AnyJob, Number
from tenure.protocol.message import Message, Name

MAX_ORDER_BYTES: Final = 256 * 1024 * 1024
"""A collection names everything that is to be kept."""


class PorterSettings(Message):
    """What a porter works with."""

    address: str
    """Where artifacts are kept; see `tenure.artifacts.addresses`."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    """What the library of an object store is to be told."""
    broker_url: str = Field(default="", repr=False)
    """Where the broker is: for `broker:`, and for logs."""
    broker_url_file: str = ""
    """The file that this was read from, if any: it is read again for each new connection."""
    namespace: Name = "main"
    """The fleet's name at the broker."""
    copies: str = ""
    """The folder of the coordinator in which copies of what is kept at the broker are; only its porter has one.

    Such a porter also makes a store's folder that is not there.
    """
    environment: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    """Variables that libraries of object stores read; see `tenure.settings.storage_environment`."""


class Begin(Message):
    """Do a job."""

    kind: Literal["begin"] = "begin"
    job: AnyJob


class Cancel(Message):
    """Give up a job."""

    kind: Literal["cancel"] = "cancel"
    number: Number


Order = Begin | Cancel
SETTINGS: Final = TypeAdapter(PorterSettings)
ORDER: Final[TypeAdapter[Order]] = TypeAdapter(Annotated[Order, Field(discriminator="kind")])
