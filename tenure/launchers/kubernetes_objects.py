"""Reading what an API server has answered: whatever is not as it should be counts as left out."""

from __future__ import annotations

from typing import Any, cast

Object = dict[str, Any]
"""An object of the cluster, or a part of one, as its API gives it."""


def part(item: Object, name: str) -> Object:
    """The part of that name; empty when there is none."""
    found: object = item.get(name)
    return cast("Object", found) if isinstance(found, dict) else {}


def parts(item: Object, name: str) -> list[Object]:
    """The list of that name, of objects alone."""
    found: object = item.get(name)
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Object", one) for one in listed if isinstance(one, dict)]


def text(item: Object, name: str) -> str:
    """The text of that name; empty when there is none."""
    found: object = item.get(name)
    return found if isinstance(found, str) else ""
