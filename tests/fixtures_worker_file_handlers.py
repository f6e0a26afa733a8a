"""Handlers that read and leave files, for tests of workers."""

import os
import time
from pathlib import Path

import tenure


def copy_in_capitals() -> list[str]:
    run = tenure.current()
    text = (run.inputs / "data" / "a.txt").read_text()
    (run.outputs / "b.txt").write_text(text.upper())
    return sorted(path.name for path in run.folder.iterdir())


def count_to(goal: int, until: int, how: str) -> list[int]:
    """Count from the last checkpoint; end badly, in that way, after `until`."""
    run = tenure.current()
    before = run.checkpoint
    start = int((before / "count").read_text()) if before is not None else 0
    for number in range(start + 1, goal + 1):
        folder = run.folder / "checkpoint" / f"step-{number}"
        folder.mkdir()
        (folder / "count").write_text(str(number))
        run.save_checkpoint(folder.name)
        if number == until:
            if how == "die":
                time.sleep(0.5)
                os._exit(3)
            raise ValueError(how)
    return [start, goal]


def reveal(name: str) -> tuple[int, str]:
    value = tenure.current().secret(name)
    return len(value), value


def where() -> str:
    return str(tenure.current().folder)


async def leave_later() -> str:
    (tenure.current().outputs / "x").write_text("x")
    return "left"


def leave_and_wait(note: str) -> None:
    Path(note).write_text(str(tenure.current().folder))
    time.sleep(60)
