"""Secrets of the broker's users: drawn, digested, and written where only their owner reads them.

A secret exists in two places: in the file that its holder is given, which is a whole broker URL, and in the memory of
the process that wrote it. Whoever else has to know it knows its SHA-256 digest, which is what the broker keeps.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from tenure.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.broker.principals import Principal
    from tenure.broker.url import BrokerUrl
    from tenure.clock import Entropy

_SECRET_BYTES: Final = 32
_OWNER_ONLY: Final = 0o600


def new_secret(entropy: Entropy) -> str:
    """A secret that nobody guesses, of letters and digits only."""
    return entropy.token(_SECRET_BYTES)


def digest_of(secret: str) -> str:
    """What may be told of a secret: its SHA-256 as the broker spells it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def address_for(broker: BrokerUrl, principal: Principal, secret: str) -> str:
    """The URL by which a principal reaches this broker: the same place and options, with its own name and secret."""
    return broker.for_user(principal.user, secret, with_key=True)


def write_credential(path: Path, address: str) -> Path:
    """Write a broker URL into a new file that only its owner can read, complete or not at all.

    An older credential at that path is replaced, so that whoever reads it again finds the new one.

    Raises:
        InvalidSettings: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w") as file:
            file.write(f"{address}\n")
            file.flush()
            os.fsync(file.fileno())
        return draft.replace(path)
    except OSError as error:
        raise InvalidSettings(
            f"the credential cannot be written to {path}: {error.strerror}", "Name a file in a folder of yours"
        ) from error
