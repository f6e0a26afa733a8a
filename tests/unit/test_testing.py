"""The public stand-ins for time and randomness."""

import pytest

from tenure.clock import Clock, Entropy
from tenure.testing import ManualClock, SeededEntropy


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock: Clock = ManualClock(1_000)
    assert (clock.now_ms(), clock.elapsed_ms()) == (1_000, 0)
    clock.sleep_ms(50)
    assert (clock.now_ms(), clock.elapsed_ms()) == (1_050, 50)


def test_the_wall_clock_jumps_alone() -> None:
    clock = ManualClock(1_000)
    clock.advance_ms(50)
    clock.jump_wall_ms(-500)
    assert (clock.now_ms(), clock.elapsed_ms()) == (550, 50)


def test_elapsed_time_never_goes_back() -> None:
    with pytest.raises(ValueError, match="jump_wall_ms"):
        ManualClock().advance_ms(-1)


def test_seeded_entropy_repeats_itself() -> None:
    def draw(entropy: Entropy) -> list[object]:
        return [entropy.token(8), entropy.below(10), entropy.token(3)]

    assert draw(SeededEntropy(1)) == draw(SeededEntropy(1)) != draw(SeededEntropy(2))
    assert SeededEntropy(0).token(4) == "e4950a14"


def test_seeded_entropy_fits_what_is_asked_of_it() -> None:
    entropy = SeededEntropy()
    assert len(entropy.token(10)) == 20
    assert {entropy.below(3) for _ in range(100)} == {0, 1, 2}
