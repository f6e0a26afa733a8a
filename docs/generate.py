"""Writes the parts of the docs that come from the code: the state diagrams. `--check` only says if they are true."""

from __future__ import annotations

import sys
from pathlib import Path

from tenure.protocol.states import TABLES, diagram, drawing
from tenure.workers.launch_stages import LAUNCH

PAGE = Path(__file__).parent / "state_machines.md"

INTRODUCTION = """\
# State machines

Written by `make docs` from the tables in `tenure/protocol/states.py`; a test compares. The database holds the same
tables and its triggers refuse every other step.
"""

LAUNCHES = """\
## Launch

How far a launch has come at the worker whose launcher has started it. The table is in
`tenure/workers/launch_stages.py`; nothing of it is in the database, for it decides nothing.
"""


def page() -> str:
    """The whole page as it should be."""
    sections = [f"## {name.capitalize()}\n\n```mermaid\n{diagram(name)}\n```\n" for name in TABLES]
    return "\n".join([INTRODUCTION, *sections, LAUNCHES, f"```mermaid\n{drawing(LAUNCH)}\n```\n"])


def main() -> int:
    """Write the page, or with `--check` compare it; 1 when it is out of date."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == wanted else 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
