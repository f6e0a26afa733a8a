"""How progress is told in a sentence."""

import pytest

from tenure.coordinator.live import Progress


@pytest.mark.parametrize(
    ("message", "metrics", "words"),
    [
        ("", "", "43 % done"),
        ("at 7", '{"loss":0.5,"epoch":3}', "43 % done: at 7 (loss 0.5, epoch 3)"),
        ("at 7", "{}", "43 % done: at 7"),
        ("at 7", "no json", "43 % done: at 7"),
        ("at 7", "[1]", "43 % done: at 7"),
        ("at 7", "[" * 4_000, "43 % done: at 7"),
        ("at 7", '{"a":' + "[" * 900 + "]" * 900 + "}", "43 % done: at 7"),
        ("at 7", '{"a":"\\ud800"}', "43 % done: at 7"),
        ("at 7", '{"a":[[1],{"b":2}]}', "43 % done: at 7 (a [[1], {'b': 2}])"),
        ("", '{"x":"' + "y" * 900 + '"}', "43 % done (x " + "y" * 198 + ")"),
    ],
)
def test_progress_in_words(message: str, metrics: str, words: str) -> None:
    assert str(Progress(1, 430_000, message, metrics)) == words
