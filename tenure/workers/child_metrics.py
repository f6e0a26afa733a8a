"""What a handler tells about its progress in numbers, as JSON text. It never raises: telling must not fail a task.

Numbers and short texts stay what they are. What has no JSON form (a tensor, NaN) becomes its number or its text, and
what is over the limit is left out, the last first.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, SupportsFloat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_CHARACTERS: Final = 4_000
"""What `tenure.protocol.metrics.MAX_METRICS` allows, which a child does not load."""
_MAX_TEXT: Final = 200
_MAX_INT: Final = 2**63


def rendered(metrics: Mapping[str, object], masked: Callable[[str], str] = str) -> str:
    """The metrics as the JSON text of an object; "" when there are none. Every text in it is `masked`."""
    if not metrics:
        return ""
    plain = {_whole(masked(str(name)))[:_MAX_TEXT]: _plain(value, masked) for name, value in metrics.items()}
    text = json.dumps(plain, separators=(",", ":"))
    while len(text) > MOST_CHARACTERS:
        plain.popitem()
        text = json.dumps(plain, separators=(",", ":"))
    return text


def _plain(value: object, masked: Callable[[str], str]) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool):
        return value
    number = _number(value)
    text = _text(value) if number is None else str(number)
    told = _whole(masked(text))
    return number if number is not None and told == text else told[:_MAX_TEXT]


def _whole(text: str) -> str:
    """The text without halves of surrogate pairs, which go through no wire."""
    return text.encode(errors="replace").decode()


def _number(value: object) -> int | float | None:
    """The number that it is; None when it is none, or has no JSON form."""
    if isinstance(value, int):
        return value if abs(value) < _MAX_INT else None
    try:
        number = float(value) if isinstance(value, SupportsFloat) else math.nan
    except Exception:  # noqa: BLE001 - the user's own __float__
        return None
    return number if math.isfinite(number) else None


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the user's own __str__
        return f"({type(value).__name__})"
