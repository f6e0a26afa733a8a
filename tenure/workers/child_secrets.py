"""The secrets that calls were given in this child, kept out of what the child tells: logs, progress, values, failures.

What was handed out once is masked for all calls that follow, because a module may remember it. A call that changes a
secret before it tells it cannot be helped.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import TYPE_CHECKING, cast, final

from tenure.workers.masking import Mask

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class GivenSecrets:
    """The values that were handed out so far. Used by any thread."""

    def __init__(self) -> None:
        self._adding = Lock()
        self._values: dict[str, bytes] = {}
        self._mask = Mask({})

    def add(self, name: str, value: str) -> None:
        """A call gets this value now."""
        raw = value.encode()
        with self._adding:
            if raw not in self._values.values():
                # A secret that was changed meanwhile has two values, and both are to be masked.
                label = name if name not in self._values else f"{name} {len(self._values)}"
                self._values = {**self._values, label: raw}
                self._mask = Mask(self._values)

    def text(self, text: str) -> str:
        """The text, masked."""
        if not self._values:
            return text
        return _text(self._mask.all_of(_raw(text)))

    def beginning_of(self, text: str) -> tuple[str, str]:
        """As much of the text as can be told now, and the rest, which may be the beginning of a secret."""
        if not self._values:
            return text, ""
        done, rest = self._mask.beginning_of(_raw(text))
        return _text(done), _text(rest)

    def json(self, text: str) -> str:
        """The JSON text, masked; it stays JSON, also where a number looks like a secret."""
        masked = self.text(text)
        if masked == text:
            return text
        try:
            json.loads(masked)
        except ValueError:
            told = json.dumps(_masked(json.loads(text), self.text), ensure_ascii=False, separators=(",", ":"))
            # A secret may be JSON itself, and the value what it says.
            return told if self.text(told) == told else json.dumps(masked, ensure_ascii=False)
        return masked


def _masked(value: object, text: Callable[[str], str]) -> object:
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {text(key): _masked(each, text) for key, each in members.items()}
    if isinstance(value, list):
        return [_masked(each, text) for each in cast("list[object]", value)]
    if isinstance(value, str):
        return text(value)
    plain = json.dumps(value)
    masked = text(plain)
    return value if masked == plain else masked


# What is no text, such as half a pair of surrogates, passes through and is looked after where texts are sent.
def _raw(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogatepass")
