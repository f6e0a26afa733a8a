"""The scanner: the secret of a credential is in the file that it was handed over in, and nowhere else.

A fleet is secured by the command line, sites and a person are issued, rotated and revoked, tasks run and fail, and a
wrong credential is tried. Meanwhile every process of the host is looked at, and afterwards everything that the fleet
has written or keeps. A plain marker that takes the same ways has to be found: it proves that the scanner sees.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil
import pytest

from tests import fixtures_fleet_handlers as handlers
from tests import fixtures_launched_handlers as launched
from tests.fixtures_e2e import Printed
from tests.fixtures_sites import SiteFleet, open_sites
from tests.secret_search import MARKER, ProcessWatch, found, found_below
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
PATIENCE_S = 60.0
SHOW = f"""
env; cat /proc/$PPID/environ; echo {MARKER}
NOTE={MARKER} sh -c 'while [ ! -e "$0" ]; do sleep 0.05; done' "$0"
"""
"""Shows all that a program can find out, and waits for a file in a process that has the marker in its environment."""


@dataclass
class Story:
    """A fleet in which credentials have been used in every way."""

    sites: SiteFleet
    watch: ProcessWatch
    secrets: set[str]
    printed: list[Printed]
    limits: dict[tuple[str, int], tuple[int, int]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("fleet")
    kept = ("--appendonly", "yes", "--rdbcompression", "no", "--loglevel", "verbose")
    with ProcessWatch() as watch, open_sites(folder, "valkey", *kept) as sites:
        secrets = set(sites.office.secrets().values())
        printed = live_through(sites, watch, secrets)
        yield Story(sites, watch, secrets, printed, core_limits(sites))


def live_through(sites: SiteFleet, watch: ProcessWatch, secrets: set[str]) -> list[Printed]:
    """Everything that is done with credentials, whose secrets are added; what commands have printed."""
    office = sites.office
    office.issue_site("lab")
    office.issue_person("ann", "submitter")
    secrets |= set(office.secrets().values())
    sites.start_worker("lab", "w1", "--label", f"note={MARKER}")
    rotated = office.fine("sites", "rotate", "lab", "--out", str(office.credential("lab")), *office.provisioner)
    secrets |= set(office.secrets().values())
    failed = do_work(sites, watch)
    return [
        rotated,
        *try_wrong_credentials(sites),
        office.fine("sites", "show", "lab", "--json"),
        office.fine("clients", "list"),
        office.fine("events", "list", "--json"),
        office.fine("explain", failed),
    ]


def do_work(sites: SiteFleet, watch: ProcessWatch) -> str:
    """Tasks that look for secrets; the one that fails."""
    ann, gate = sites.client("ann"), sites.folder / "gate"
    assert ann.submit(handlers.count, 3).result(PATIENCE_S) == 3
    environment = ann.submit(launched.environment)
    failed = ann.submit(launched.fail)
    command = ann.command(["/bin/sh", "-c", SHOW, str(gate)])
    wait_until(lambda: MARKER in watch.seen([])["environ"], "the marker is seen in an environment", PATIENCE_S, 100)
    gate.touch()
    for handle in (environment, failed, command):
        wait_until(handle.done, "it is over", PATIENCE_S)
    return failed.task_id


def try_wrong_credentials(sites: SiteFleet) -> list[Printed]:
    """Nobody's name with a person's secret, and a person's name with a site's secret: the broker is told both."""
    office, secrets = sites.office, sites.office.secrets()
    ann, printed = office.url("ann"), list[Printed]()
    for wrong in (ann.replace("client.ann", "client.nobody"), ann.replace(secrets["ann"], secrets["lab"])):
        assert wrong != ann
        office.credential("wrong").touch(0o600)
        office.credential("wrong").write_text(wrong)
        refused = office.run("tasks", "list", person="wrong")
        assert (refused.code, "refuses this user or password" in refused.err) == (3, True), refused
        printed.append(refused)
    out = str(office.credential("never"))
    again = office.run("sites", "issue", "lab", "--capability", "x", *office.provisioner, "--out", out)
    assert again.code == 2, again
    return [*printed, again]


def core_limits(sites: SiteFleet) -> dict[tuple[str, int], tuple[int, int]]:
    """How large a core each process of the fleet may leave, soft and hard, by the part of the fleet and process."""
    limits: dict[tuple[str, int], tuple[int, int]] = {}
    for name in ("coordinator", "lab.w1"):
        top = psutil.Process(sites.processes[name].pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(ProcessLookupError):  # a child without work may end
                limits[name, process.pid] = resource.prlimit(process.pid, resource.RLIMIT_CORE)
    return limits


def test_the_secrets_are_as_long_as_they_should_be(story: Story) -> None:
    assert len(story.secrets) >= 6  # three of the broker's, two sites', one person's
    assert all(len(secret) >= 43 for secret in story.secrets)


def test_no_secret_is_in_an_argv_or_an_environment(story: Story) -> None:
    assert story.watch.rounds > 5
    assert story.watch.seen(story.secrets) == {"cmdline": {MARKER}, "environ": {MARKER}}


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
    seen = found_below(folder, story.secrets, without=folder / "credentials")
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
    parts = [name for name, _ in story.limits]
    assert parts.count("coordinator") >= 2  # itself and its porter
    assert parts.count("lab.w1") >= 2  # agent and runner
    assert set(story.limits.values()) == {(0, 0)}
