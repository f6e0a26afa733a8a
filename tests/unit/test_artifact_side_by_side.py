"""Doing many small things at once."""

from threading import Barrier

import pytest

from tenure.artifacts.side_by_side import SMALL_BYTES, side_by_side, small_side_by_side


def test_answers_come_in_order_and_small_things_are_done_at_once() -> None:
    together = Barrier(4)

    def work(item: int) -> int:
        if item < 4:
            together.wait(20)
        return item * 2

    assert side_by_side(work, range(2_000)) == [item * 2 for item in range(2_000)]


def test_large_things_come_last_and_one_by_one() -> None:
    done: list[int] = []
    sizes = [SMALL_BYTES + 1, 5, SMALL_BYTES + 2, SMALL_BYTES, 0]
    small_side_by_side(done.append, sizes, lambda size: size)
    assert sorted(done[:3]) == [0, 5, SMALL_BYTES]
    assert done[3:] == [SMALL_BYTES + 1, SMALL_BYTES + 2]


def test_the_first_error_ends_it() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 3:
            raise ValueError(item)
        done.append(item)

    with pytest.raises(ValueError, match="3"):
        side_by_side(work, range(100_000))
    assert len(done) < 1_000
