"""Sites that go away and come back: each behind a line of its own, and what may happen to it, to the broker and to the
coordinator meanwhile.

An outage is begun and ended; in between, whatever was running runs on. Everybody has real credentials: a site's address
leads through its line, and the broker holds each to its own keys.
"""

import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from tenure.broker.credentials import digest_of
from tenure.broker.keys import DEFAULT_PERSON
from tenure.broker.principals import Principal
from tenure.errors import CoordinatorUnreachable
from tenure.protocol.principal_messages import IssueSite, SiteKind
from tests.fault.instrument import Records
from tests.fault.proxy import Proxy
from tests.fixtures_fleet import orphans_adopted, resume
from tests.fixtures_services import require_program
from tests.fixtures_sites import Office, SiteFleet
from tests.secured import SecuredBroker, launch_secured
from tests.waiting import wait_until

T = TypeVar("T")
TTL_MS = 2_000
"""How long a worker may be silent; the leases of what it runs are far longer."""
PATIENCE_S = 300
"""How long a busy machine may take for what takes a second."""


@dataclass
class Lab:
    """One site with one worker."""

    name: str
    line: Proxy
    fleet: SiteFleet

    @property
    def worker_id(self) -> str:
        return f"{self.name}.host"

    @property
    def spool(self) -> Path:
        return self.folder / "spool.jsonl"

    @property
    def folder(self) -> Path:
        return self.fleet.folder / "hosts" / self.name / "workers" / self.worker_id

    def start(self) -> None:
        """Start its agent, or the next one, and wait until the fleet knows it."""
        self.fleet.start_worker(self.name, "host", "--capability", self.name, slots=1, ttl_ms=TTL_MS)

    def lose_power(self) -> None:
        """End the agent and all that it has started, at once, and let the next agent find another boot of its host."""
        agent = psutil.Process(self.fleet.processes[self.worker_id].pid)
        everything = [agent, *agent.children(recursive=True)]
        resume(everything)
        for process in everything:
            with suppress(psutil.NoSuchProcess):  # work that has ended ends its processes meanwhile
                process.kill()
        psutil.wait_procs(everything[1:])
        self.fleet.processes[self.worker_id].wait()
        place = self.folder / "place"
        place.write_text(f"yesterday {place.read_text()}")


@dataclass
class Labs:
    """All sites, the line of the coordinator, and the broker."""

    kind: str
    fleet: SiteFleet
    labs: list[Lab]
    coordinator_line: Proxy
    server_options: tuple[str, ...] = ()
    frozen: list[psutil.Process] = field(default_factory=list[psutil.Process])

    def stop_broker(self) -> None:
        """Kill it: what was not on disk is gone."""
        self.fleet.server.stop()

    def start_broker(self) -> None:
        """Start it again where it was, with the users that it had."""
        program, port = require_program(self.kind), self.fleet.server.port
        self.fleet.server = launch_secured(program, self.fleet.folder, *self.server_options, port=port).server

    def freeze(self, pid: int) -> None:
        """Let a process do nothing until `thaw`."""
        process = psutil.Process(pid)
        process.send_signal(signal.SIGSTOP)
        self.frozen.append(process)

    def thaw(self) -> None:
        """Let all go on that were frozen."""
        resume(self.frozen)
        self.frozen.clear()


@contextmanager
def open_labs(folder: Path, kind: str, count: int, *server_options: str) -> Generator[Labs]:
    """A secured fleet whose sites and coordinator reach the broker through lines of their own."""
    folder.mkdir()
    office = Office(folder / "credentials", folder / "home")
    office.folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(Proxy(0))) for _ in range(count + 1)]
        stack.enter_context(orphans_adopted())
        secured = launch_secured(require_program(kind), folder, *server_options)
        fleet = SiteFleet(folder, secured.server, office)
        stack.callback(fleet.close)
        for line in lines:
            line.target = secured.server.port
        office.credential("operator").write_text(secured.person_url(DEFAULT_PERSON))
        office.credential("coordinator").write_text(_through(lines[0], secured, secured.coordinator_url))
        fleet.start_coordinator()
        wait_until_served(fleet)
        labs = [Lab(f"lab{number}", line, fleet) for number, line in enumerate(lines[1:], 1)]
        for lab in labs:
            _issue(lab, secured)
        together(labs, Lab.start)
        found = Labs(kind, fleet, labs, lines[0], server_options)
        stack.callback(found.thaw)
        yield found


def wait_until_served(fleet: SiteFleet) -> None:
    """Wait until the coordinator answers: a busy machine takes its time to start one."""
    wait_until(lambda: _is_served(fleet), "the coordinator answers", PATIENCE_S)


def _is_served(fleet: SiteFleet) -> bool:
    try:
        return bool(fleet.rows("status"))
    except CoordinatorUnreachable:
        return False


def _issue(lab: Lab, secured: SecuredBroker) -> None:
    """What `tenure sites issue` does, without a process for each."""
    url = secured.site_url(lab.name, (lab.name,))
    digest = digest_of(secured.secrets[Principal(secured.namespace, "site", lab.name)])
    ask = IssueSite(site=lab.name, site_kind=SiteKind.LAB, capabilities=(lab.name,), secret_digest=digest)
    lab.fleet.client().ask(ask)
    lab.fleet.office.credential(lab.name).write_text(_through(lab.line, secured, url))


def _through(line: Proxy, secured: SecuredBroker, url: str) -> str:
    return url.replace(f":{secured.server.port}/", f":{line.port}/")


def together(things: Sequence[T], act: Callable[[T], object]) -> None:
    """Do the same with all of them at once; raises what went wrong first."""
    with ThreadPoolExecutor(max(1, len(things))) as pool:
        for _ in pool.map(act, things):
            pass


# --- outages -------------------------------------------------------------------------------------

Act = Callable[[], None]


@dataclass(frozen=True)
class Outage:
    """What happens, and how it ends. With `needs_results` its end ends what runs, so results must be spooled before."""

    name: str
    begin: Act
    end: Act
    needs_results: bool = False


def nothing() -> None:
    """Nothing happens."""


def of_site(lab: Lab) -> list[Outage]:
    """What may happen to one site."""

    def deafen() -> None:
        lab.line.down = False

    def silence() -> None:
        lab.line.up = False

    def boot() -> None:
        lab.lose_power()
        lab.line.heal()
        lab.start()

    return [
        Outage("untouched", nothing, nothing),
        Outage("cut off", lab.line.lead_nowhere, lab.line.heal),
        Outage("hears nothing", deafen, lab.line.heal),
        Outage("is not heard", silence, lab.line.heal),
        Outage("lines reset", lab.line.cut, lab.line.cut),
        Outage("lines half-closed", lab.line.half_close, lab.line.heal),
        Outage("cut off, then rebooted", lab.line.lead_nowhere, boot, needs_results=True),
    ]


def of_broker(labs: Labs) -> list[Outage]:
    """What may happen to the broker."""
    return [
        Outage("untouched", nothing, nothing),
        Outage("untouched", nothing, nothing),
        Outage("killed and started again", labs.stop_broker, labs.start_broker),
        Outage("frozen", lambda: labs.freeze(labs.fleet.server.process.pid), labs.thaw),
    ]


def of_coordinator(labs: Labs) -> list[Outage]:
    """What may happen to the coordinator."""
    process = labs.fleet.processes["coordinator"]

    def start() -> None:
        labs.fleet.start_coordinator()

    return [
        Outage("untouched", nothing, nothing),
        Outage("untouched", nothing, nothing),
        Outage("killed and started again", process.kill, start),
        Outage("frozen", lambda: labs.freeze(process.pid), labs.thaw),
        Outage("cut off", labs.coordinator_line.lead_nowhere, labs.coordinator_line.heal),
    ]


def wait_for_spool(lab: Lab, task_id: str) -> None:
    """Wait until the site has put the result of a task where it survives a reboot, or has been rid of it before."""

    def is_safe() -> bool:
        return is_accepted(lab, task_id) or is_spooled(lab, task_id)

    wait_until(is_safe, f"{lab.name} has spooled the result of {task_id}", PATIENCE_S)


def is_accepted(lab: Lab, task_id: str) -> bool:
    """Whether the result of a task is on record."""
    return Records(lab.fleet.database).count("SELECT COUNT(*) FROM result WHERE task_id = ?", task_id) > 0


def is_spooled(lab: Lab, task_id: str) -> bool:
    """Whether the site keeps the result of a task where it survives a reboot."""
    return task_id in lab.spool.read_text()
