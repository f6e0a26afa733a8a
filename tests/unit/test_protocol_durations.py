"""Durations that are none: whoever wrote one is told how to write it, in the words of where it was written."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.errors import UsageError
from tenure.protocol.durations import duration_ms


@pytest.mark.parametrize("text", ["90", "7x", "-1s", "2 minutes", ""])
def test_a_text_is_told_of_texts_only(text: str) -> None:
    """On a command line nobody can write a number or a timedelta; "90" is a text there, and is refused."""
    with pytest.raises(UsageError, match="--ttl is not a duration") as caught:
        duration_ms(text, "--ttl")
    assert caught.value.remedy == 'Write it like "500ms", "30s", "2m" or "1h30m"'


@pytest.mark.parametrize("value", [-1, timedelta(seconds=-1), 1.5, None, True])
def test_other_values_are_told_of_all_types(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        duration_ms(value)
    assert caught.value.remedy.endswith("or give whole milliseconds or a timedelta")
