"""Time, randomness and ids."""

import pytest

from tenure.clock import SystemClock, SystemEntropy, sortable_id
from tenure.testing import SeededEntropy


def test_the_system_clock_goes_forward() -> None:
    clock = SystemClock()
    before = clock.elapsed_ms()
    clock.sleep_ms(2)
    assert clock.elapsed_ms() >= before + 1
    assert clock.now_ms() > 1_700_000_000_000


def test_system_entropy_has_the_size_asked_for() -> None:
    entropy = SystemEntropy()
    assert len(entropy.token(16)) == 32
    assert entropy.token(16) != entropy.token(16)
    assert {entropy.below(2) for _ in range(200)} == {0, 1}


def test_ids_sort_by_time_and_have_the_ulid_form() -> None:
    entropy = SeededEntropy(3)
    ids = [sortable_id(now_ms, entropy) for now_ms in (0, 1, 1_700_000_000_000, 2**48 - 1)]
    assert ids == sorted(ids)
    assert all(len(made) == 26 and made.isalnum() and made.isupper() for made in ids[1:])
    assert ids[-1].startswith("7ZZZZZZZZZ")


@pytest.mark.parametrize(("now_ms", "start"), [(1_469_918_176_385, "01ARYZ6S41"), (0, "0000000000")])
def test_the_time_is_spelt_as_the_ulid_specification_says(now_ms: int, start: str) -> None:
    assert sortable_id(now_ms, SeededEntropy()).startswith(start)
