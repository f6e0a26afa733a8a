"""Many small contents at once: each costs a round trip or a write to the disk, and hardly any bytes or memory.

Large contents are dealt with one after the other, because each of them holds parts in memory and fills the line alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_T = TypeVar("_T")
_R = TypeVar("_R")
_AT_ONCE: Final = 8
_PORTION: Final = 512
SMALL_BYTES: Final = 1024 * 1024


def side_by_side(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """The answers in the order of the items. The first error ends it, when what was begun has ended."""
    answers: list[_R] = []
    with ThreadPoolExecutor(_AT_ONCE, "content") as threads:
        for portion in portions(items):
            futures = [threads.submit(work, item) for item in portion]
            try:
                answers.extend(future.result() for future in futures)
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
    return answers


def small_side_by_side(work: Callable[[_T], object], items: Iterable[_T], size: Callable[[_T], int]) -> None:
    """Do the small ones side by side, and then the large ones one by one."""
    listed = list(items)
    side_by_side(work, (item for item in listed if size(item) <= SMALL_BYTES))
    for item in listed:
        if size(item) > SMALL_BYTES:
            work(item)


def portions(items: Iterable[_T]) -> Iterator[list[_T]]:
    """The items, so many at a time that what is begun with them stays small."""
    remaining = iter(items)
    while portion := list(islice(remaining, _PORTION)):
        yield portion
