"""The kernel's control group of this process, as far as it says how many processes it has ended for want of memory.

A process that is ended by SIGKILL cannot say why; the group's counter can. Loaded by the runner, so it stays small.
"""

from __future__ import annotations

from typing import Final

_ROOT: Final = "/sys/fs/cgroup"


def memory_kills() -> int | None:
    """How many processes of this group the kernel has ended for want of memory; None when there is no counter."""
    return next((count for path in _counters() if (count := _read(path)) is not None), None)


def _counters() -> list[str]:
    """Where the counter may be, the most telling first: version 2, then 1; in a container the group may be the root."""
    found: list[str] = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except (OSError, ValueError):
        return found
    for number, controllers, path in sorted(groups, reverse=True):
        if "memory" in controllers.split(","):
            found += [f"{_ROOT}/memory{path}/memory.oom_control", f"{_ROOT}/memory/memory.oom_control"]
        elif number == "0":
            found += [f"{_ROOT}{path}/memory.events", f"{_ROOT}/memory.events"]
    return found


def _read(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            lines = [line.split() for line in file]
    except (OSError, ValueError):
        return None
    return next((int(fields[1]) for fields in lines if fields[:1] == ["oom_kill"]), None)
