"""Keeping the values of secrets out of what leaves the runner. Loaded by the runner, so it stays small.

What a task prints may hold the exact bytes of a secret; they are replaced before anything is passed on, also when they
arrive in pieces. A program that changes a secret before it prints it cannot be helped.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORTEST: Final = 4
"""Shorter values occur by chance; replacing them would garble everything and hide nothing."""
_GLANCE: Final = 4


@final
class Mask:
    """What is to be replaced: the values by name, also as they are written inside JSON text and by Python's `repr`."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self._labels: dict[bytes, bytes] = {}
        for name, value in secrets.items():
            for form in _forms(value.rstrip(b"\r\n")):
                if len(form) >= _SHORTEST:
                    self._labels.setdefault(form, f"[secret {name}]".encode())
        longest_first = sorted(self._labels, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, longest_first)))

    def all_of(self, data: bytes) -> bytes:
        """The whole of `data`, masked."""
        done, rest = self.beginning_of(data)
        # The rest is only the beginning of a secret, unless a shorter secret is in it.
        return done + self._pattern.sub(self._label, rest) if self._labels else data

    def beginning_of(self, data: bytes) -> tuple[bytes, bytes]:
        """As much of `data` as can be masked now, and the rest, which may be the beginning of a secret."""
        if not self._labels:
            return data, b""
        undecided = min(_undecided(data, value) for value in self._labels)
        pieces: list[bytes] = []
        at = 0
        for match in self._pattern.finditer(data):
            if match.start() >= undecided:
                break
            pieces += [data[at : match.start()], self._label(match)]
            at = match.end()
        end = max(at, undecided)
        return b"".join([*pieces, data[at:end]]), data[end:]

    def _label(self, match: re.Match[bytes]) -> bytes:
        return self._labels[match.group()]


@final
class MaskedStream:
    """Masks one stream that arrives in pieces; holds back what may be the beginning of a secret."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        done, self._rest = self._mask.beginning_of(self._rest + data if self._rest else data)
        return done

    def finish(self) -> bytes:
        """What was held back, when nothing more will come."""
        rest, self._rest = self._rest, b""
        return self._mask.all_of(rest)


def _forms(value: bytes) -> list[bytes]:
    text = value.decode(errors="surrogateescape")
    escaped = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
    return [value, *(form.encode(errors="surrogateescape") for form in (*escaped, repr(text)[1:-1]))]


def _undecided(data: bytes, value: bytes) -> int:
    """Where the longest end of `data` begins that is a beginning of `value`; the length of `data` if none is."""
    at = max(0, len(data) - len(value) + 1)
    while at < len(data):
        beginning = value[: min(_GLANCE, len(data) - at)]
        at = data.find(beginning, at) if len(beginning) == _GLANCE else at
        if at < 0:
            at = len(data) - _GLANCE + 1
            continue
        if value.startswith(data[at:]):
            return at
        at += 1
    return len(data)
