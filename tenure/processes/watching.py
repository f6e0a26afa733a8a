"""Knowing a process that is no child of this one: by its number and when it started, in one boot of one host.

A number alone is used again; with the time of its start it never is. Both mean something only in the boot and in the
process namespace that they were read in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
_STATE, _START = 0, 19
"""Places of the fields of /proc/PID/stat that follow the program's name."""
_OVER: Final = frozenset("ZX")


@final
class ProcessMark(NamedTuple):
    """One process of this host."""

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Whether it runs; one that has ended and is not waited for does not."""
        fields = _fields(self.pid)
        return fields is not None and int(fields[_START]) == self.start_ticks and fields[_STATE] not in _OVER


def mark_of(pid: int) -> ProcessMark | None:
    """The mark of a process, also of one that has ended and is not waited for; None when there is none."""
    fields = _fields(pid)
    return None if fields is None else ProcessMark(pid, int(fields[_START]))


def this_place() -> str:
    """Names this boot of this host, and the namespace that process numbers are of."""
    return f"{_BOOT_ID.read_text(encoding='ascii').strip()}:{_NAMESPACE.stat().st_ino}"


def started_with(argument: str, user: int) -> ProcessMark | None:
    """A process of that user that has this very text among its arguments; None when there is none.

    Everybody can read arguments, and start something with the same.
    """
    wanted = argument.encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in words and _user_of(folder) == user:
            return mark_of(int(folder.name))
    return None


def _user_of(folder: Path) -> int | None:
    # Not the folder's owner, which is root where a process lets nobody look into it.
    try:
        lines = (folder / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
