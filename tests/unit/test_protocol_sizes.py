"""Sizes as people write and read them."""

from typing import Any

import pytest

from tenure.errors import UsageError
from tenure.protocol.sizes import size_bytes, size_text


@pytest.mark.parametrize(
    ("written", "size"),
    [
        *(("2GiB", 2 * 2**30), ("500MiB", 500 * 2**20), ("10k", 10_000), ("1.5G", 1_500_000_000), ("1 KiB", 1_024)),
        *(("7", 7), ("7B", 7), ("3MB", 3_000_000), ("1TiB", 2**40), (4_096, 4_096), ("0.5KiB", 512)),
    ],
)
def test_sizes_are_read(written: Any, size: int) -> None:
    assert size_bytes(written) == size


@pytest.mark.parametrize("written", ["", "GiB", "2gib", "-1", "1,5G", "1.2345k", "0", 0, -1, 1.5, True, None, "2 G iB"])
def test_wrong_sizes_are_refused(written: Any) -> None:
    with pytest.raises(UsageError, match="--memory is not a size"):
        size_bytes(written, "--memory")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (3_670_016, "3.5 MiB"),
        (2**31, "2.0 GiB"),
        (2**52, "4096.0 TiB"),
    ],
)
def test_sizes_are_shown(size: int, text: str) -> None:
    assert size_text(size) == text
