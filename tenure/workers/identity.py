"""Who this agent is: a durable worker id, the number of this agent, and the locks that keep it alone.

Two locks, both held by being open. `agent.lock` is this process's: a second agent of the same id on this host is
refused at once. `runners.lock` is handed to every runner: a new agent waits for it, so that it runs nothing before
everything that its predecessor left behind is gone.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tenure.broker.keys import DEFAULT_SITE
from tenure.errors import InvalidSettings, WorkerBusy

if TYPE_CHECKING:
    from tenure.clock import Clock, Entropy

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_RUNNERS_PATIENCE_MS: Final = 60_000
_LOOK_AGAIN_MS: Final = 50


@final
class Kind(StrEnum):
    """What a worker does with an assignment, by the file in its folder that says what it has begun."""

    RUNNER = "spool.jsonl"
    PARENT = "launches.jsonl"

    @property
    def other(self) -> Kind:
        """The other one."""
        return Kind.PARENT if self is Kind.RUNNER else Kind.RUNNER


_ABILITIES: Final = {Kind.RUNNER: "runs tasks itself", Kind.PARENT: "starts them through a launcher"}


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """A worker's id, the number of its agent, its folder, and the open locks.

    The number is the wall clock's reading at the start, or one more than the last number that this folder knows if that
    is higher. So two machines that were given one id by mistake do not use the same numbers: the coordinator keeps the
    later one, and the other ends.
    """

    worker_id: str
    generation: int
    folder: Path
    agent_lock: int
    runners_lock: int
    predecessor: int = 0
    """The number of the agent before this one in this folder, if all that it had started is proved gone, else 0: the
    locks say so, but only for the boot of the host that they were taken in."""

    def records(self, kind: Kind) -> Path:
        """Where a worker of that kind keeps what it has begun.

        Neither kind can read what the other has begun, so that it would begin that again: a worker's id is of one kind.

        Raises:
            InvalidSettings: a worker of the other kind has run under this id.
        """
        if (self.folder / kind.other).exists():
            raise self.wrong_kind(kind)
        return self.folder / kind

    def wrong_kind(self, kind: Kind) -> InvalidSettings:
        """What to say to an agent of that kind when a worker of the other kind has run under this id."""
        what = f"is one that {_ABILITIES[kind.other]}, and cannot be one that {_ABILITIES[kind]}"
        return InvalidSettings(f"worker {self.worker_id} {what}", "Give this one a name of its own with --worker-id")

    def never_began(self) -> None:
        """This agent ends before it told anybody its number: the next one follows the one before it.

        Where that cannot be written down, the next one follows this one, and what was lost before waits for its lease.
        """
        if self.predecessor:
            with suppress(OSError):
                _keep_number(self.folder, self.predecessor)

    def note_outranked(self, generation: int) -> None:
        """An agent of that number runs under this id: the next agent of this folder gets a higher one."""
        (self.folder / "outranked").write_text(f"{generation}\n", encoding="ascii")

    def release(self) -> None:
        """Let another agent take over, as soon as all runners have ended."""
        os.close(self.runners_lock)
        os.close(self.agent_lock)


def assume(
    state_dir: Path, worker_id: str | None, clock: Clock, entropy: Entropy, *, site: str = DEFAULT_SITE
) -> Identity:
    """Become that worker of the site, or the one that `state_dir` remembers when no id is given.

    Raises:
        InvalidSettings: the id is no name, or the folder cannot be written.
        WorkerBusy: another agent of that id runs on this host, or its processes do not end.
    """
    try:
        name = of_site(site, worker_id or _remembered_name(state_dir, entropy))
        if not _NAME.fullmatch(name):
            raise InvalidSettings(f"{name!r} cannot be a worker's id", "Use up to 64 letters, digits, '.', '_' and '-'")
        folder = state_dir / "workers" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as locks:
            agent_lock = _lock(folder / "agent.lock", name)
            locks.callback(os.close, agent_lock)
            runners_lock = _wait_for_runners(folder / "runners.lock", name, clock)
            locks.callback(os.close, runners_lock)
            same_place = _same_place(folder / "place", agent_lock)
            before, generation = _next_generation(folder, clock)
            predecessor = before if same_place else 0
            identity = Identity(name, generation, folder, agent_lock, runners_lock, predecessor)
            locks.pop_all()
    except OSError as error:
        raise InvalidSettings(f"the worker's folder {state_dir} cannot be used: {error.strerror}") from error
    return identity


def of_site(site: str, name: str) -> str:
    """A worker's id: at a site of its own it begins with the site's name, so that no other site can take it."""
    return name if site == DEFAULT_SITE or name.startswith(f"{site}.") else f"{site}.{name}"


def _remembered_name(state_dir: Path, entropy: Entropy) -> str:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = state_dir / "worker-id"
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().partition(".")[0])[:40].strip("-") or "worker"
    try:
        with path.open("x", encoding="ascii") as file:
            file.write(f"{host}-{entropy.token(4)}\n")
    except FileExistsError:
        pass
    return path.read_text(encoding="ascii").strip()


def _lock(path: Path, name: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise WorkerBusy(
            f"another agent runs as worker {name} on this host", "Stop it first, or start this one under another id"
        ) from None
    return descriptor


def _wait_for_runners(path: Path, name: str, clock: Clock) -> int:
    give_up_ms = clock.elapsed_ms() + _RUNNERS_PATIENCE_MS
    while True:
        try:
            return _lock(path, name)
        except WorkerBusy:
            if clock.elapsed_ms() >= give_up_ms:
                raise WorkerBusy(
                    f"processes that an earlier agent of worker {name} started do not end",
                    "Look for processes of `tenure.workers.runner` and what they run",
                ) from None
            clock.sleep_ms(_LOOK_AGAIN_MS)


def _same_place(path: Path, agent_lock: int) -> bool:
    """Whether the folder was last used here: in this boot of this host, with these very locks.

    A folder that was copied, or that another host shares, was not, and its locks prove nothing about the last agent.
    """
    status = os.fstat(agent_lock)
    here = f"{_BOOT_ID.read_text(encoding='ascii').strip()} {status.st_dev}:{status.st_ino}"
    before = path.read_text(encoding="ascii").strip() if path.exists() else ""
    path.write_text(f"{here}\n", encoding="ascii")
    return before == here


def _next_generation(folder: Path, clock: Clock) -> tuple[int, int]:
    """The last agent's number, 0 for none, and this one's."""
    before, outranked = _number(folder / "generation"), _number(folder / "outranked")
    generation = max(before + 1, outranked + 1, clock.now_ms())
    _keep_number(folder, generation)
    return before, generation


def _keep_number(folder: Path, generation: int) -> None:
    fresh = folder / "generation.new"
    with fresh.open("w", encoding="ascii") as file:
        file.write(f"{generation}\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(folder / "generation")


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii")) if path.exists() else 0
