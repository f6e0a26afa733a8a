"""The program that stands in for `tenure run-assignment`: it notes its start, waits for its exit code, and ends.

Started by what a launcher starts, with its folder as the first word. `tests/stand_in.py` is its other side. It needs
nothing but the standard library, and ends by itself when its folder is gone.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

_STEP_S = 0.01


def stand_in(folder: Path) -> None:
    """Note the start, and end with the code that the folder comes to name."""
    me = folder / str(os.getpid())

    def drain(*_: object) -> None:
        me.with_suffix(".drained").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, drain)
    note = {"pid": os.getpid(), "parent": os.getppid(), "argv": sys.argv, "environment": dict(os.environ)}
    me.with_suffix(".new").write_text(json.dumps(note))
    me.with_suffix(".new").rename(me.with_suffix(".started"))
    while folder.exists() and not (folder / "code").exists():
        time.sleep(_STEP_S)
    sys.exit(int((folder / "code").read_text()))


if __name__ == "__main__":
    stand_in(Path(sys.argv[1]))
