"""The network between hosts and the broker, and the broker behind it.

A call travels to the broker, takes effect there, and its reply travels back. Either way may take long or be cut: then
the caller gives up after its timeout, and the call may still take effect, earlier or later. Blocking reads wait at the
broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import START, MemoryStore
from tenure.errors import BrokerError, BrokerRefused, BrokerUnreachable
from tests.simulation.groups import GroupMissing, make_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.broker.base import ClientAddress, EntryId, Readers, Stream
    from tenure.broker.keys import Keys
    from tenure.broker.memory import MemoryWorker
    from tests.simulation.dice import Dice
    from tests.simulation.engine import Engine
    from tests.simulation.history import History
    from tests.simulation.hosts import Host, HostClock, Process
    from tests.simulation.profile import Profile

REMEMBERED_WRITES: Final = 60


def unreachable() -> BrokerUnreachable:
    """What a caller is told when it does not hear in time."""
    return BrokerUnreachable("the simulated broker did not answer", "Wait")


@final
@dataclass(slots=True, eq=False)
class Call:
    """One call on its way."""

    process: Process
    act: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Callable[[BrokerError], None]
    timeout_ms: int
    block_ms: int
    ready: Callable[[], bool] | None
    expires: int
    open: bool = True
    loses_reply: bool = False
    back_ms: int = 1
    waits: bool = False


@final
class Server:
    """One broker server: its data, and the reads that wait for news of it."""

    def __init__(self, engine: Engine, store: MemoryStore, keys: Keys) -> None:
        self.engine = engine
        self.store = store
        self.broker = MemoryBroker(store, keys)
        self.coordinator = self.broker.coordinator()
        self.readers: list[Call] = []
        self.listeners: list[Callable[[], None]] = []
        """Called when something was written; for those who read without waiting at the broker."""
        self.met_no_group: Callable[[str], None] = _ignore
        """Told of every read that was refused because its group is gone."""
        self._faces: dict[tuple[str, str], MemoryWorker] = {}

    def reported(self) -> None:
        """Something was written for the coordinator, or by it for people; those who wait at the broker are workers."""
        for listener in self.listeners:
            listener()

    def written(self) -> None:
        """Something was written: whoever waits for it gets it now."""
        self.reported()
        if not self.readers:
            return
        waiting, self.readers = self.readers, []
        for call in waiting:
            if call.waits and call.ready is not None and call.ready():
                call.waits = False
                call.process.engine.after(0, partial(_execute, self, call))
            elif call.waits:
                self.readers.append(call)

    def unread(self, readers: Readers) -> bool:
        """Whether the coordinator has anything to read; what is gone, or away, counts: it is told of that."""
        keys = self.broker.keys
        inboxes = (*map(keys.inbox, readers.sites), *map(keys.rpc, readers.people))
        try:
            found = [self.store.stream(key) for key in inboxes]
            return any(stream is None or stream.undelivered for stream in found)
        except (BrokerUnreachable, GroupMissing):
            return True

    def ensured(self, *, readers: Readers, assignments: Sequence[Stream] = ()) -> None:
        """The coordinator has made these streams, and with them the groups that were gone."""
        keys = self.broker.keys
        sources = (*map(keys.inbox, readers.sites), *map(keys.rpc, readers.people))
        for key in (*sources, *map(keys.assignments, assignments)):
            make_group(self.store, key)

    def face(self, site: str, worker_id: str) -> MemoryWorker:
        """The face of a worker; always the same, for it keeps nothing."""
        found = self._faces.get((site, worker_id))
        if found is None:
            found = self._faces[site, worker_id] = self.broker.worker(site=site, worker_id=worker_id)
        return found

    def newest_answer(self, client: ClientAddress) -> EntryId:
        """The id of the last entry for a client; the very first one when there is none, or no broker."""
        try:
            stream = self.store.stream(self.broker.keys.reply(client))
        except BrokerUnreachable:
            return START
        return START if stream is None else stream.last_id

    def interrupt(self) -> None:
        """End every waiting read now, as a lost stream or connection does."""
        waiting, self.readers = self.readers, []
        for call in waiting:
            if call.waits:
                call.waits = False
                self.engine.after(0, partial(_execute, self, call))


@final
class Network:
    """Carries calls. `server` is where the coordinator's side is; `other` is the rest of a split broker."""

    def __init__(self, engine: Engine, clock: HostClock, keys: Keys, dice: Dice, profile: Profile) -> None:
        self.engine = engine
        self.keys = keys
        self.clock = clock
        self.dice = dice
        self.profile = profile
        self.history: History | None = None
        remembered = REMEMBERED_WRITES if profile.has("failover") else 0
        self.server = Server(engine, MemoryStore(clock, remembered_writes=remembered), keys)
        self.server.met_no_group = self.met_no_group
        self.other: Server | None = None
        self.beyond: set[str] = set()
        """Names of the hosts that talk to the other half."""
        self.barred: set[str] = set()
        """Sites that the broker does not let in any more."""
        self.noisy = bool(profile.kinds & {"lost_request", "lost_reply", "late", "duplicate"})
        self.held: dict[str, list[Callable[[], None]]] = {}
        """What the cut wire of each host holds back until it is whole again."""

    def server_of(self, host: Host) -> Server:
        """The server that a host's connections end at."""
        if self.other is not None and host.name in self.beyond:
            return self.other
        return self.server

    def face(self, host: Host, site: str, worker_id: str) -> MemoryWorker:
        """A worker's connection to the server that its host reaches. Raises `BrokerRefused` when its site is barred."""
        if site in self.barred:
            raise BrokerRefused("the simulated broker knows no such user", "Ask for a credential")
        return self.server_of(host).face(site, worker_id)

    def met_no_group(self, what: str) -> None:
        """A read has met a group that is gone."""
        if self.history is not None:
            self.history.fault("no_group", what)

    def bar(self, site: str) -> None:
        """Let a site in no more, and close its connections, also those that wait."""
        self.barred.add(site)
        self.server.interrupt()
        if self.other is not None:
            self.other.interrupt()

    def struck(self, kind: str) -> bool:
        """Whether this message is struck by a fault of that kind."""
        if self.noisy and kind in self.profile.kinds and self.dice.chance(self.profile.per_mille):
            if self.history is not None:
                self.history.fault(kind)
            return True
        return False

    def call(
        self,
        process: Process,
        act: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[BrokerError], None],
        *,
        timeout_ms: int,
        block_ms: int = 0,
        ready: Callable[[], bool] | None = None,
        repeatable: bool = False,
    ) -> None:
        """Send a call; exactly one of `done` and `failed` is called, unless the process dies."""
        expires = self.engine.now + timeout_ms + block_ms
        call = Call(process, act, done, failed, timeout_ms, block_ms, ready, expires)
        there_ms = self.dice.between(0, 3)
        if self.noisy:
            if self.struck("lost_request"):
                self._expire_later(call)
                return
            if self.struck("late"):
                there_ms += self.dice.between(50, 4_000)
            if self.struck("late"):
                call.back_ms += self.dice.between(50, 4_000)
            if repeatable and self.struck("duplicate"):
                twice = Call(process, act, _ignore, _ignore, timeout_ms, block_ms, ready, expires)
                self.engine.after(there_ms + self.dice.between(0, 2_000), lambda: self._arrive(twice))
            call.loses_reply = self.struck("lost_reply")
        if there_ms + call.back_ms > timeout_ms or call.loses_reply:
            self._expire_later(call)
        self.engine.after(there_ms, lambda: self._arrive(call))

    def heal(self, host: Host) -> None:
        """A host's wire is whole again; what it held back arrives now."""
        host.cut = False
        for act in self.held.pop(host.name, []):
            act()

    def _arrive(self, call: Call) -> None:
        host = call.process.host
        if host.cut:
            self._expire_later(call)
            if self.dice.chance(500):
                self.held.setdefault(host.name, []).append(lambda: self._arrive(call))
            return
        server = self.server_of(host)
        if call.ready is not None and call.block_ms and not server.store.down and not _is_ready(call):
            call.waits = True
            server.readers.append(call)
            self.engine.after(call.block_ms, lambda: self._end_wait(server, call))
            return
        _execute(server, call)

    def _end_wait(self, server: Server, call: Call) -> None:
        if call.waits:
            call.waits = False
            server.readers.remove(call)
            _execute(server, call)

    def _expire_later(self, call: Call) -> None:
        self.engine.at(call.expires, lambda: call.process.deliver(lambda: _fail(call, unreachable())))


def _is_ready(call: Call) -> bool:
    try:
        return call.ready is None or call.ready()
    except BrokerError:
        return True


def _execute(server: Server, call: Call) -> None:
    host = call.process.host
    try:
        value = call.act()
    except BrokerError as error:
        if isinstance(error, GroupMissing):
            server.met_no_group(error.what)
        _answer(server, call, partial(_fail, call, error))
        return
    if host.cut or call.loses_reply:
        engine = server.engine
        engine.at(call.expires, lambda: call.process.deliver(lambda: _fail(call, unreachable())))
        return
    _answer(server, call, partial(_finish, call, value))


def _answer(server: Server, call: Call, act: Callable[[], None]) -> None:
    server.engine.after(call.back_ms, lambda: call.process.deliver(act))


def _finish(call: Call, value: object) -> None:
    if call.open:
        call.open = False
        call.done(value)


def _fail(call: Call, error: BrokerError) -> None:
    if call.open:
        call.open = False
        call.failed(error)


def _ignore(_: object) -> None:
    """Nobody waits for this."""
