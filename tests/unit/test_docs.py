"""The docs say what the code does: diagrams, commands, options and test names are compared with what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from tenure.cli.commands import tenure as command_line

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)


def _commands() -> Iterator[tuple[Path, list[str]]]:
    for page in PAGES:
        for line in re.findall(r"^\$ (?:\S*/)?(tenure .*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            yield page, re.split(r"\s+#", line)[0].split()[1:]


def _resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    command: click.Command = command_line
    context = click.Context(command)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            break
        command = found
        rest.pop(0)
    return command, rest


def test_the_state_diagrams_are_drawn_from_the_tables() -> None:
    """`docs/state_machines.md` is exactly what `make docs` writes."""
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=False)

    assert done.returncode == 0, "run `make docs` and commit docs/state_machines.md"


@pytest.mark.parametrize(("page", "words"), list(_commands()))
def test_every_command_in_the_docs_exists(page: Path, words: list[str]) -> None:
    """A `$ tenure ...` line names a command and only options that it has."""
    command, rest = _resolve(words)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0] for word in rest[: rest.index("--") if "--" in rest else None] if word.startswith("--")}

    is_complete = not isinstance(command, click.Group) or command.invoke_without_command
    assert is_complete, f"{page.name}: {' '.join(words)} stops at a group"
    assert used - known - {"--help", "--json"} == set()


def test_every_test_named_in_the_docs_exists() -> None:
    """A test file or folder that a page points to is there."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"tests/[\w/]+(?:\.py)?(?![\w<*])", text))

    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_every_link_between_pages_leads_somewhere() -> None:
    """A relative link names a file that exists."""
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    assert broken == []
