"""Texts that can travel: those that have a form in UTF-8."""

from __future__ import annotations


def is_utf8(text: str) -> bool:
    """Whether a text can be written in UTF-8; halves of surrogate pairs, which Python keeps bytes in, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
