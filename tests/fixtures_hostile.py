"""A broker with users, an honest site at work, and a hostile one beside it: see `tests/hostile_site.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenure.broker.credentials import digest_of
from tenure.broker.principals import Principal
from tenure.clock import SystemClock
from tenure.protocol.client_messages import Query
from tenure.protocol.principal_messages import IssueSite
from tenure.protocol.worker_messages import Binding
from tests import fixtures_fleet_handlers as handlers
from tests.fault.instrument import Records
from tests.fixtures_fleet import ROOT, Fleet, Worker, open_fleet
from tests.hostile_site import CAPABILITY, SITE, VICTIM
from tests.secured import ADMIN, PASSWORD, SecuredBroker
from tests.servers import HARDENED

MINUTES = float(os.environ.get("HOSTILE_MINUTES", "0"))
"""How long it goes on; 0 for the short form."""

PATIENCE_S = 60.0
TASKS_AT_LEAST = 20


@dataclass
class Scene:
    """The fleet, the honest site's times, and what the hostile one tells."""

    fleet: Fleet
    address: Path
    known: Path
    quiet_ms: list[float] = field(default_factory=list[float])
    attacked_ms: list[float] = field(default_factory=list[float])
    told: list[dict[str, dict[str, int]]] = field(default_factory=list[dict[str, dict[str, int]]])
    tasks: dict[str, int] = field(default_factory=dict[str, int])
    late_ms: int = 0
    """How late a process beside all that was woken, 99 times in 100 at the most."""

    @property
    def records(self) -> Records:
        return Records(self.fleet.database)

    def site(self, name: str) -> dict[str, Any]:
        (row,) = self.fleet.client.ask(Query(what="sites", where=(("site", name),))).rows
        return row

    def work(self, seconds: float, times: list[float]) -> None:
        """The honest site does one task after the other, and the hostile one is told all about them."""
        clock = SystemClock()
        client = self.fleet.client.using(capability=CAPABILITY, labels={"site": VICTIM})
        until_ms, count = clock.elapsed_ms() + int(seconds * 1_000), 0
        while clock.elapsed_ms() < until_ms or count < TASKS_AT_LEAST:
            began_ms, number = clock.elapsed_ms(), len(self.tasks)
            handle = client.submit(handlers.count, number)
            self.tasks[handle.task_id] = number
            self._tell_all()
            assert handle.result(PATIENCE_S) == number
            times.append(clock.elapsed_ms() - began_ms)
            count += 1

    def attack(self, seconds: float, tricks: Sequence[str] = ()) -> None:
        """The same while the hostile site does its worst, or only these tricks."""
        files = (str(self.address), str(self.known))
        argv = [sys.executable, "-P", "-m", "tests.hostile_site", *files, str(seconds), *tricks]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        # Something to hold back: these it is really offered, and nobody else ever will be.
        self.fleet.client.using(capability=CAPABILITY, labels={"site": SITE}).map(handlers.count, range(3))
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, cwd=ROOT, text=True) as attacker:
            while attacker.poll() is None:
                self.work(0.2, self.attacked_ms)
            told, _ = attacker.communicate()
        assert attacker.returncode == 0
        self.told.append(json.loads(told))

    def done(self, trick: str) -> int:
        return sum(each["done"].get(trick, 0) for each in self.told)

    def refused(self, trick: str) -> int:
        return sum(each["refused"].get(trick, 0) for each in self.told)

    def _tell_all(self) -> None:
        """What no other site should ever know: everything about the newest leases."""
        rows = self.records.rows(
            "SELECT task_id, attempt, fence, digest, nonce FROM lease WHERE nonce <> '' ORDER BY fence DESC LIMIT 10"
        )
        names = ("task_id", "attempt", "fence", "digest", "nonce")
        lines = [Binding.model_validate(dict(zip(names, row, strict=True))).model_dump_json() for row in rows]
        draft = self.known.with_suffix(".new")
        draft.write_text("\n".join(lines))
        draft.replace(self.known)


@contextmanager
def open_scene(folder: Path, kind: str) -> Generator[Scene]:
    """Two sites with the same capability, and one worker of the honest one."""
    users = folder / "users.acl"
    users.write_text(f"user default off\nuser {ADMIN} on #{digest_of(PASSWORD)} ~* &* +@all\n")
    secrets: dict[Principal, str] = {}
    address = folder / "hostile.url"
    worker = Worker(f"{VICTIM}.w1", slots=2, ttl_ms=10_000, capability=CAPABILITY)

    def prepare(fleet: Fleet) -> None:
        secured = SecuredBroker(fleet.server, folder, secrets=secrets)
        secured.open()
        fleet.address = secured.person_url("default")
        fleet.addresses["coordinator"] = secured.coordinator_url
        fleet.addresses[worker.name] = secured.site_url(VICTIM, (CAPABILITY,))
        address.write_text(secured.site_url(SITE, (CAPABILITY,)))

    options = ("--aclfile", str(users), *HARDENED)
    with open_fleet(folder, (), kind=kind, server_options=options, prepare=prepare) as fleet:
        for site in (VICTIM, SITE):
            digest = digest_of(secrets[Principal("main", "site", site)])
            fleet.client.ask(IssueSite(site=site, capabilities=(CAPABILITY,), secret_digest=digest))
        fleet.start_worker(worker)
        fleet.wait_for_workers(worker.name)
        yield Scene(fleet, address, folder / "known.json")
