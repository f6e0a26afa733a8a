"""Writes what the docs take from the code: state diagrams, the number of mutants. `--check` only says if it is true."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

from tenure.protocol.states import TABLES, diagram, drawing
from tenure.workers.launch_stages import LAUNCH

DOCS = Path(__file__).parent
PAGE = DOCS / "state_machines.md"
COUNTED = DOCS / "simulation.md"

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


def counted() -> str:
    """The page about mutants, with as many as there are."""
    sys.path.insert(0, str(DOCS.parent))
    mutants = import_module("tests.mutants.__main__").MUTANTS
    return re.sub(r"There are \d+ mutants", f"There are {len(mutants)} mutants", COUNTED.read_text(encoding="utf-8"))


def main() -> int:
    """Write the pages, or with `--check` compare them; 1 when one is out of date."""
    wanted = {PAGE: page(), COUNTED: counted()}
    if "--check" in sys.argv[1:]:
        return 0 if all(path.read_text(encoding="utf-8") == text for path, text in wanted.items()) else 1
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
