"""Handlers that the measurements call."""

from __future__ import annotations


def noop(i: int, x: str) -> dict[str, int]:
    """Answer the number that was given and the length of its ballast."""
    return {"i": i, "n": len(x)}
