"""The metrics that a task tells with its progress: a small JSON object that anybody may have written.

Whoever shows them reads them here, so that nobody shows what another one stumbles over: text that is nested until a
reader gives up, and halves of surrogate pairs, which no database and no wire takes.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

from pydantic_core import from_json

MAX_METRICS: Final = 4_000
"""Characters of the metrics that go with one progress message."""

_DEEPEST: Final = 8
"""Numbers and short texts by name is what they are for; a list of lists may be a value."""


def read_metrics(text: str) -> dict[str, Any]:
    """The object; empty for an empty text. Raises ValueError when it is none, is too long or is nested too deeply."""
    if len(text) > MAX_METRICS:
        raise ValueError(f"metrics have at most {MAX_METRICS} characters")
    try:
        found: object = from_json(text or "{}", allow_inf_nan=False)
    except ValueError:
        raise ValueError("metrics are no JSON that can be read") from None  # not what they are: it may be a secret
    match found:
        case dict():
            _require_shallow(cast("dict[str, Any]", found))
            return cast("dict[str, Any]", found)
        case _:
            raise ValueError("metrics are no JSON object")


def _require_shallow(found: object) -> None:
    level = [found]
    for _ in range(_DEEPEST):
        if math.inf in level or -math.inf in level:
            raise ValueError("metrics hold a number that is too large")
        level = [each for value in level for each in _inside(value)]
    if level:
        raise ValueError("metrics are nested too deeply")


def _inside(value: object) -> list[object]:
    """What is inside of an object or a list; nothing is inside of anything else."""
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else []
