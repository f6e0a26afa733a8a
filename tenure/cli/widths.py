"""How a table fits into a terminal: which columns are shown there, and how wide each one is.

An id that is broken over three lines can be neither read nor copied, so that whole words stay whole, and columns that
can be spared are left out where there is no room for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP: Final = 2
_LONGEST_WORD: Final = 26
"""An id's length. What has longer words is broken anyway, and gets less."""
_BROKEN: Final = 20


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """The columns that are shown, by their place in the table, with their widths; and those that are left out."""

    widths: dict[int, int]
    left_out: tuple[int, ...]


def fit(cells: Sequence[Sequence[str]], spare: Sequence[int], width: int) -> Fit:
    """Fit a table into so many characters.

    Args:
        cells: the texts of each column, its heading first.
        spare: for each column when it may be left out: the highest first, and never with 0.
        width: what the terminal has.
    """
    needs = [_needed(texts) for texts in cells]
    shown = list(range(len(cells)))
    left_out: list[int] = []
    while _total(shown, needs) > width and (spared := [index for index in shown if spare[index]]):
        left_out.append(max(spared, key=lambda index: spare[index]))
        shown.remove(left_out[-1])
    widths = {index: needs[index] for index in shown}
    extra = max(0, width - _total(shown, needs))
    natural = {index: max(map(len, cells[index])) for index in shown}
    # Short columns first: a date on one line costs less than a long text on fewer.
    for index in sorted(shown, key=lambda index: natural[index]):
        more = min(extra, natural[index] - widths[index])
        widths[index] += more
        extra -= more
    return Fit(widths, tuple(sorted(left_out)))


def _needed(texts: Sequence[str]) -> int:
    """The least width at which a column can be read."""
    longest = max((len(word) for text in texts for word in text.split()), default=1)
    return longest if longest <= _LONGEST_WORD else _BROKEN


def _total(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[index] for index in shown) + GAP * (len(shown) - 1)
