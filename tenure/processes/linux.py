"""The few calls into the Linux kernel that Python has no name for. Loaded by every process, so it stays small."""

from __future__ import annotations

import ctypes
import os
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can escape. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Get that signal when the thread that started this process ends. Raises OSError.

    The parent may be gone before this call: compare `os.getppid()` with the expected parent afterwards.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def forbid_inspection() -> None:
    """Keep other processes of the same user from reading this one's memory and environment. Raises OSError."""
    _prctl(_PR_SET_DUMPABLE, 0)


def give_back_memory(least_bytes: int) -> None:
    """Let every block of that many bytes go back to the system as soon as it is freed, where the C library can do that.

    By itself glibc begins to keep large blocks when it sees that they come and go, per thread, and in pieces.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, least_bytes)
        libc.mallopt(_M_ARENA_MAX, 2)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
