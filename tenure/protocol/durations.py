"""Durations as people write them ("2m", "1h30m", "500ms"), as whole milliseconds.

Whole numbers are milliseconds already, as everywhere in Tenure; a `timedelta` says its own unit.
"""

from __future__ import annotations

import re
from datetime import timedelta
from types import MappingProxyType
from typing import Final, TypeAlias

from tenure.errors import UsageError

Duration: TypeAlias = str | int | timedelta
"""A text such as "90s" or "1h30m", whole milliseconds, or a `timedelta`."""

_UNITS_MS: Final = MappingProxyType({"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000})
_PART: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")
_REMEDY: Final = 'Write it like "500ms", "30s", "2m" or "1h30m"'
_PYTHON_REMEDY: Final = f"{_REMEDY}, or give whole milliseconds or a timedelta"


def duration_ms(value: Duration, name: str = "a duration") -> int:
    """`value` in whole milliseconds.

    Args:
        value: a text of numbers with units (ms, s, m, h, d), whole milliseconds, or a timedelta.
        name: what the duration is for, for the error's text.

    Raises:
        UsageError: the value is none of these, or it is negative.
    """
    milliseconds = _parsed(value)
    if milliseconds is None or milliseconds < 0:
        # Who has written a text has written it in a file or on a command line, where there are no other types.
        remedy = _REMEDY if isinstance(value, str) else _PYTHON_REMEDY
        raise UsageError(f"{name} is not a duration: {_shown(value)}", remedy)
    return milliseconds


def duration_text(milliseconds: int) -> str:
    """A duration in the words of a sentence, in its two largest units: "45 s", "12 min", "1 h 30 min", "2 d"."""
    parts = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
    first = next((index for index, (unit_ms, _) in enumerate(parts) if milliseconds >= unit_ms), None)
    if first is None:
        return f"{milliseconds} ms"
    unit_ms, name = parts[first]
    text = f"{milliseconds // unit_ms} {name}"
    # Half a minute more or less matters to nobody who has an hour, and much to somebody who has two minutes.
    for smaller_ms, smaller in parts[first + 1 : first + 2]:
        rest = milliseconds % unit_ms // smaller_ms
        text = f"{text} {rest} {smaller}" if rest else text
    return text


def _parsed(value: object) -> int | None:
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(value))
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."  # noqa: PLR2004 - only how much of a wrong value is shown
