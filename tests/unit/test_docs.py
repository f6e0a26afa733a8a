"""The docs say what the code does: diagrams, commands, options and test names are compared with what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from tenure.broker.embedded_server import settings
from tenure.cli.commands import tenure as command_line
from tests.servers import HARDENED

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


def test_what_the_docs_take_from_the_code_is_up_to_date() -> None:
    """The diagrams of `docs/state_machines.md`, and numbers in other pages, are exactly what `make docs` writes."""
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=False)

    assert done.returncode == 0, "run `make docs` and commit what it changes in docs/"


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


def test_the_limits_of_a_broker_are_the_same_wherever_they_stand() -> None:
    """What is recommended is what our own brokers have, and what the attacks of a hostile site are made under."""
    limits = {f"{name.removeprefix('--')} {value}" for name, value in zip(HARDENED[::2], HARDENED[1::2], strict=True)}
    page = (ROOT / "docs" / "sites.md").read_text(encoding="utf-8")
    recommended = {" ".join(line.split()[:2]) for line in page.splitlines()}
    container = set((ROOT / "deploy" / "container" / "broker.conf").read_text(encoding="utf-8").splitlines())
    embedded = set(settings(folder=ROOT, users=ROOT, port=1, unix_socket=None, max_memory_mb=1))

    assert [limits - where for where in (recommended, container, embedded)] == [set()] * 3
    assert page.count("proto-max-bulk-len") == 1
