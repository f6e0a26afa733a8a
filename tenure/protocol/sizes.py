"""Sizes as people write them ("2GiB", "500k", "1.5G"), as whole bytes, and bytes as people read them.

KiB, MiB, GiB and TiB count by 1024; k, M, G and T by 1000, with or without a B behind them. Whole numbers are bytes.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final, TypeAlias

from tenure.errors import UsageError

Size: TypeAlias = str | int
"""A text such as "2GiB" or "500M", or whole bytes."""

_BINARY: Final = MappingProxyType({"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40})
_DECIMAL: Final = MappingProxyType({"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12})
_UNITS: Final = MappingProxyType({"": 1, "B": 1, **_BINARY, **_DECIMAL, **{f"{u}B": n for u, n in _DECIMAL.items()}})
_WHOLE: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?\s?([A-Za-z]*)")
_STEP: Final = 1024
_REMEDY: Final = 'Write it like "2GiB", "500MiB", "10k" or "1.5G", or give whole bytes'


def size_bytes(value: Size, name: str = "a size") -> int:
    """`value` in whole bytes, at least 1.

    Args:
        value: a number with a unit (KiB, MiB, GiB, TiB, k, M, G, T), or whole bytes.
        name: what the size is for, for the error's text.

    Raises:
        UsageError: the value is none of these, or not even one byte.
    """
    size = _parsed(value)
    if size is None or size < 1:
        raise UsageError(f"{name} is not a size: {_shown(value)}", _REMEDY)
    return size


def size_text(size: int) -> str:
    """Bytes as people read them: "17 B", "3.5 MiB"."""
    if size < _STEP:
        return f"{size} B"
    amount, unit = float(size), ""
    for unit in _BINARY:  # noqa: B007 - the last unit is used after the loop
        amount /= _STEP
        if amount < _STEP:
            break
    return f"{amount:.1f} {unit}"


def _parsed(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[3] not in _UNITS:
        return None
    unit, decimals = _UNITS[match[3]], match[2] or ""
    return int(match[1] + decimals) * unit // int("1" + "0" * len(decimals))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."  # noqa: PLR2004 - only how much of a wrong value is shown
