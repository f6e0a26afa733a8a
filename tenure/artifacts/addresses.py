"""The forms that the address of a store may have, told apart before anything is loaded or opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tenure.errors import InvalidSettings

BROKER: Final = "broker:"
"""Small files in the broker itself."""

FORMS: Final = "An address is `broker:`, an absolute folder such as /srv/artifacts, or a URL such as s3://bucket/prefix"


def folder_of(address: str) -> Path | None:
    """The folder that the address names; None for one that names something else. Raises `InvalidSettings`."""
    if address == BROKER:
        return None
    if "://" not in address:
        return _absolute(address)
    parts = _split(address)
    if parts[0] != "file":
        return None
    if parts[1] not in {"", "localhost"}:
        raise InvalidSettings("A file:// address of artifacts names another host", FORMS)
    return _absolute(unquote(parts[2]))


def checked_url(address: str) -> str:
    """The protocol of a URL that is fit to be told to everybody. Raises `InvalidSettings`."""
    protocol, netloc, path = _split(address)
    if "@" in netloc:
        raise InvalidSettings(
            f"The {protocol}:// address of artifacts carries a user or password",
            "Put them into the options file: addresses are told to every worker and client",
        )
    if not protocol or not (netloc or path.strip("/")):
        raise InvalidSettings("The address of artifacts cannot be read", FORMS)
    if {".", ".."} & set(path.split("/")):
        raise InvalidSettings(f"The {protocol}:// address of artifacts holds '.' or '..'", FORMS)
    return protocol


def _absolute(text: str) -> Path:
    folder = Path(text)
    if not folder.is_absolute() or folder == Path("/") or ".." in folder.parts:
        raise InvalidSettings(f"{text[:200]!r} is no address of artifacts", FORMS)
    return folder


def _split(address: str) -> tuple[str, str, str]:
    try:
        parts = urlsplit(address)
    except ValueError:
        raise InvalidSettings("The address of artifacts cannot be read", FORMS) from None
    return parts.scheme, parts.netloc, parts.path
