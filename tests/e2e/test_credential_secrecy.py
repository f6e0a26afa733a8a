"""The scanner: the secret of a credential is in the file that it was handed over in, and nowhere else.

A fleet is secured by the command line, sites and a person are issued, rotated and revoked, tasks run and fail, and a
wrong credential is tried. Meanwhile every process of the host is looked at, and afterwards everything that the fleet
has written or keeps. A plain marker that takes the same ways has to be found: it proves that the scanner sees.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Self

import psutil
import pytest

from tests import fixtures_fleet_handlers as handlers
from tests import fixtures_launched_handlers as launched
from tests.fixtures_e2e import Printed
from tests.fixtures_sites import SiteFleet, open_sites
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
MARKER = "plain-marker"
PATIENCE_S = 60.0


@dataclass
class Watch:
    """Looks at the command line and environment of every process, again and again."""

    secrets: set[str] = field(default_factory=set[str])
    seen: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    rounds: int = 0
    _stop: Event = field(default_factory=Event)

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.rounds += 1
            for kind in ("cmdline", "environ"):
                for path in Path("/proc").glob(f"[0-9]*/{kind}"):
                    self._look(kind, path)

    def _look(self, kind: str, path: Path) -> None:
        if path.parent.name == str(os.getpid()):
            return
        try:
            words = found(path.read_bytes(), self.secrets)
        except OSError:
            return  # it has ended
        self.seen.setdefault(kind, set()).update(words)


def found(data: bytes, secrets: set[str]) -> set[str]:
    """Which of the secrets, and whether the marker, is in there."""
    return {word for word in {*secrets, MARKER} if word.encode() in data}


@dataclass
class Story:
    """A fleet in which credentials have been used in every way."""

    sites: SiteFleet
    watch: Watch
    secrets: set[str]
    printed: list[Printed]
    limits: dict[str, tuple[int, int]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("fleet")
    kept = ("--appendonly", "yes", "--rdbcompression", "no", "--loglevel", "verbose")
    with open_sites(folder, "valkey", *kept) as sites, Watch() as watch:
        watch.secrets |= set(sites.office.secrets().values())
        printed = live_through(sites, watch)
        yield Story(sites, watch, watch.secrets, printed, core_limits(sites))


def live_through(sites: SiteFleet, watch: Watch) -> list[Printed]:
    """Everything that is done with credentials; what commands have printed."""
    office = sites.office
    office.issue_site("lab")
    watch.secrets |= set(office.secrets().values())
    office.issue_person("ann", "submitter")
    watch.secrets |= set(office.secrets().values())
    sites.start_worker("lab", "w1", "--label", f"note={MARKER}")
    printed = [office.fine("sites", "rotate", "lab", "--out", str(office.credential("lab")), *office.provisioner)]
    watch.secrets |= set(office.secrets().values())
    ann = sites.client("ann")
    assert ann.submit(handlers.count, 3).result(PATIENCE_S) == 3
    environment = ann.submit(launched.environment)
    failed = ann.submit(launched.fail)
    command = ann.command(["/bin/sh", "-c", f"env; cat /proc/$PPID/environ; echo {MARKER}"])
    for handle in (environment, failed, command):
        wait_until(handle.done, "it is over", PATIENCE_S)
    wrong = office.credential("lab").with_name("wrong.url")
    wrong.touch(0o600)
    wrong.write_text(office.url("lab").replace("site.lab", "site.nobody"))
    printed += [
        office.run("status", person="wrong"),
        office.fine("sites", "show", "lab", "--json"),
        office.fine("clients", "list"),
        office.fine("events", "list", "--json"),
        office.fine("explain", failed.task_id),
        office.run("sites", "issue", "lab", "--capability", "x", *office.provisioner, "--out", f"{wrong}.2"),
    ]
    assert printed[1].code != 0
    return printed


def core_limits(sites: SiteFleet) -> dict[str, tuple[int, int]]:
    """How large a core each process of the fleet may leave, soft and hard, by its command line."""
    found: dict[str, tuple[int, int]] = {}
    for name in ("coordinator", "lab.w1"):
        top = psutil.Process(sites.processes[name].pid)
        for process in (top, *top.children(recursive=True)):
            found[" ".join(process.cmdline())] = resource.prlimit(process.pid, resource.RLIMIT_CORE)
    return found


def test_the_secrets_are_as_long_as_they_should_be(story: Story) -> None:
    assert len(story.secrets) >= 6  # three of the broker's, two sites', one person's
    assert all(len(secret) >= 43 for secret in story.secrets)


def test_no_secret_is_in_an_argv_or_an_environment(story: Story) -> None:
    assert story.watch.rounds > 5
    assert story.watch.seen == {"cmdline": {MARKER}, "environ": set()}


def test_no_secret_is_at_the_broker_nor_in_its_files(story: Story) -> None:
    """The append-only file has every command that wrote something, also what was deleted since."""
    folder = story.sites.folder
    kept = [folder / "users.acl", *folder.glob("*.log"), *(folder / "appendonlydir").iterdir()]
    seen = {path.name: found(path.read_bytes(), story.secrets) for path in kept}
    assert {name: words - {MARKER} for name, words in seen.items() if words - {MARKER}} == {}
    assert any(MARKER in words for words in seen.values())
    assert b"tenure.main.site.lab" in (folder / "users.acl").read_bytes()


def test_no_secret_is_in_the_database_or_a_log_or_any_other_file(story: Story) -> None:
    folder = story.sites.folder
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(folder / "credentials")]
    seen = {str(path.relative_to(folder)): found(path.read_bytes(), story.secrets) for path in files}
    assert {"fleet.db", "lab.w1.log", "coordinator.log"} <= seen.keys()
    assert {path: words - {MARKER} for path, words in seen.items() if words - {MARKER}} == {}
    assert any(MARKER in words for path, words in seen.items() if path.startswith("fleet.db"))


def test_no_command_prints_a_secret_that_was_written_to_a_file(story: Story) -> None:
    shown = "".join(each.out + each.err for each in story.printed).encode()
    assert found(shown, story.secrets) == set()
    assert b"lab" in shown


def test_credentials_are_readable_by_their_owner_only(story: Story) -> None:
    files = list((story.sites.folder / "credentials").glob("*.url"))
    assert len(files) >= 5
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_no_process_of_the_fleet_leaves_a_core(story: Story) -> None:
    assert any("coordinator" in words for words in story.limits)
    assert len(story.limits) >= 4  # coordinator and porter, agent and runner at least
    assert set(story.limits.values()) == {(0, 0)}
