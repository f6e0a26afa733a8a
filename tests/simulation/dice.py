"""Randomness of a simulation: the same draws for the same seed, on every Python and every machine.

SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), because it is ten times faster than a hash and its streams can be
forked by name: each part of the simulation draws from a stream of its own, so that taking one fault away changes as
little as possible of the rest of a history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15


@final
class Dice:
    """A stream of draws. Serves as a `tenure.clock.Entropy`, too."""

    def __init__(self, seed: int) -> None:
        self._seed = seed & _MASK
        self._state = (seed * _STEP + 1) & _MASK

    def fork(self, name: str) -> Dice:
        """An independent stream for a part of that name."""
        return Dice((self._seed << 32) ^ self._seed ^ crc32(name.encode()) * 0x5DEECE66D)

    def draw(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + _STEP) & _MASK
        value = self._state
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        return value ^ (value >> 31)

    def below(self, bound: int) -> int:
        """A number from 0 up to, not including, `bound`."""
        return (self.draw() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, per_mille: int) -> bool:
        """True that often in a thousand."""
        return per_mille > 0 and self.below(1000) < per_mille

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""
        return options[self.below(len(options))]

    def token(self, size_bytes: int) -> str:
        """That many bytes, as hexadecimal digits."""
        words = -(-size_bytes // 8)
        return "".join(f"{self.draw():016x}" for _ in range(words))[: size_bytes * 2]
