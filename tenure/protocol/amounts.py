"""Amounts with up to three decimals, as whole thousandths: costs, and seconds that are counted in milliseconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from tenure.errors import UsageError

if TYPE_CHECKING:
    from decimal import Decimal

Amount: TypeAlias = "int | float | str | Decimal"
"""A number of at most three decimals, or its text."""

_PLAIN: Final = re.compile(r"[0-9]{1,13}(\.[0-9]{1,3})?")
_THOUSAND: Final = 1_000


def thousandths(amount: Amount, name: str) -> int:
    """An amount as thousandths. Raises UsageError when it is no such number, or negative."""
    from decimal import Decimal

    text = str(amount) if not isinstance(amount, Decimal) else format(amount, "f")
    if isinstance(amount, bool) or not _PLAIN.fullmatch(text, 0, 40):
        raise UsageError(f"{name} is not an amount: {text[:40]!r}", 'Write it like "12" or "0.125", from 0 on')
    whole, _, rest = text.partition(".")
    return int(whole) * _THOUSAND + int(rest.ljust(3, "0") or 0)


def decimal_text(amount: int) -> str:
    """Thousandths as people write them: 2500 is "2.5"."""
    whole, rest = divmod(amount, _THOUSAND)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")
