"""The people's side: a real client session, driven step by step, and what people do with it.

Real here: `Session`, `Exchange`, `Tracker` and `Handle`; only the thread that would call `Session.step` is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, cast, final

from tenure.broker.base import ClientAddress
from tenure.broker.keys import DEFAULT_PERSON
from tenure.broker.memory_store import START
from tenure.client.exchange import Identity
from tenure.client.handle import Handle, Ties
from tenure.client.session import Session, Wiring
from tenure.errors import BrokerError, TaskAbandoned, TaskCancelled, TaskFailed, TaskLost, TenureError
from tenure.protocol.client_messages import Adopt, Cancel, Decide, DrainWorker, Drop, Item, Submit
from tests.simulation.history import Judged, Outcome, Ruled
from tests.simulation.hosts import Process
from tests.simulation.network import unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.broker.base import ClientBroker, EntryId
    from tenure.protocol.client_messages import Ask, Reply
    from tests.simulation.dice import Dice
    from tests.simulation.history import History
    from tests.simulation.hosts import Host
    from tests.simulation.network import Network

_READ_MS: Final = 500
_WATCH_MS: Final = 2_000
_PATIENCE_MS: Final = 600_000
PEOPLE: Final = ("ada", "grace")
"""Who asks, now one and now the other: what is recorded about a decision must name the one who has made it."""
_STATES: Final[dict[type[TenureError], str]] = {
    TaskFailed: "FAILED",
    TaskLost: "LOST",
    TaskCancelled: "CANCELLED",
    TaskAbandoned: "ABANDONED",
}


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """One task that a client wants done."""

    key: str
    envelope: str


@final
class GuardedClientBroker:
    """A client's face over the simulated network; its calls take no time, but they fail."""

    def __init__(self, client: ClientProcess) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Every call passes through the client's process."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._client.call(name, args, kwargs)

        self.__dict__[name] = call
        return call


@final
class ClientProcess(Process):
    """One client from its start to its end."""

    def __init__(self, host: Host, network: Network, name: str, dice: Dice, history: History) -> None:
        super().__init__(network.engine, host)
        self.network = network
        self.client_id = name
        self.dice = dice
        self.history = history
        wiring = Wiring(lambda _: cast("ClientBroker", GuardedClientBroker(self)), host.clock, dice)
        self.identity = Identity(name, "main", PEOPLE[0], patience_ms=_PATIENCE_MS, resend_ms=1_000)
        self.session = Session(wiring, self.identity, watch_ms=_WATCH_MS)
        self.session._thread = Thread()  # never started: the simulation takes the steps
        self.handles: dict[str, Handle[Any]] = {}
        """By key."""
        self._planned = -1
        self._stepping = False
        self._read_up_to = START

    # --- what people ask ------------------------------------------------------------------------

    def submit(self, wanted: Sequence[Wanted]) -> None:
        """Submit tasks in one request; asking again under the same keys is safe."""
        handles: list[Handle[Any]] = [Handle(Ties(lambda _: None), lost="wait") for _ in wanted]
        for each, handle in zip(wanted, handles, strict=True):
            self.handles[each.key] = handle
            handle.add_done_callback(partial(self._ended, each.key))
        items = tuple(Item(key=each.key, envelope=each.envelope) for each in wanted)

        def admitted(reply: Reply) -> None:
            if reply.refusal is not None:
                return
            for handle, one in zip(handles, reply.admitted, strict=True):
                handle.admit(one.task_id, one.state)
            self.session.tracker.add(handles)
            self.session.watch([one.task_id for one in reply.admitted if not one.fresh] or [handles[0].task_id])

        self._ask(Submit(items=items), admitted)

    def cancel(self, key: str) -> None:
        """Cancel a task, if its id is known."""
        handle = self.handles.get(key)
        if handle is not None and handle.task_id:
            by = self._somebody()
            self.history.add(Ruled(self.engine.now, handle.task_id, by, approve=False))
            self._ask(Cancel(task_ids=(handle.task_id,)))

    def decide(self, task_id: str, *, approve: bool, named: tuple[str, int] | None) -> None:
        """Decide about what was lost: about a directive that was looked at, or about whichever is pending."""
        name, next_attempt = named or (task_id, 0)
        self.history.add(Ruled(self.engine.now, task_id, self._somebody(), approve, next_attempt))
        self._ask(Decide(directives=(name,), approve=approve))

    def judge(self, ask: Adopt | Drop) -> None:
        """Decide about a rejected result."""
        self.history.add(Judged(self.engine.now, ask.quarantine_id, self._somebody(), ask.kind))
        self._ask(ask)

    def drain(self, worker_id: str) -> None:
        """Ask a worker to leave."""
        self._ask(DrainWorker(worker_id=worker_id))

    def _somebody(self) -> str:
        """Whose name all requests carry from now on."""
        person = self.dice.pick(PEOPLE)
        self.session._exchange._identity = replace(self.identity, principal=person)
        return person

    def _ask(self, ask: Ask, on_reply: Callable[[Reply], None] | None = None) -> None:
        future = self.session.post(ask, on_reply)
        future.add_done_callback(lambda done: done.exception())
        self.wake(1)

    # --- steps ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read."""
        self.wake(1)

    def wake(self, delay_ms: int) -> None:
        """Step soon; earlier than planned, if it is."""
        when = self.engine.now + delay_ms
        if self._stepping or self.engine.now <= self._planned <= when:
            return
        self._planned = when

        def step() -> None:
            if self._planned == when and not self._stepping:
                self._step()

        self.engine.at(when, lambda: self.deliver(step))

    def has_news(self) -> bool:
        """Whether an answer waits that it has not read."""
        return self._newest() != self._read_up_to

    def _newest(self) -> EntryId:
        return self.network.server_of(self.host).newest_answer(ClientAddress(DEFAULT_PERSON, self.client_id))

    def _step(self) -> None:
        self._planned, self._stepping = -1, True
        self._read_up_to = self._newest()
        self.session.step()
        self._stepping = False
        self.wake(_READ_MS)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call to the broker."""
        network = self.network
        if self.host.cut or network.struck("lost_request"):
            raise unreachable()
        server = network.server_of(self.host)
        value = getattr(server.broker.client(client_id=self.client_id), name)(*args, **kwargs)
        if name == "ask":
            server.reported()
            if network.struck("duplicate"):
                longest_ms = self.dice.pick((1_000, 1_000, 12_000))  # of a client that was cut off it comes late
                self.engine.after(self.dice.between(1, longest_ms), lambda: self._again(args))
        if network.struck("lost_reply"):
            raise unreachable()
        return value

    def _again(self, args: tuple[Any, ...]) -> None:
        try:
            self.network.server_of(self.host).broker.client(client_id=self.client_id).ask(*args)
        except BrokerError:
            return

    # --- ends -----------------------------------------------------------------------------------

    def _ended(self, key: str, handle: Any) -> None:
        if not self.alive:
            return
        try:
            value, state = str(handle.result(0)), "SUCCEEDED"
        except TenureError as error:
            value, state = error.message, _STATES.get(type(error), type(error).__name__)
        self.history.add(Outcome(self.engine.now, key, handle.task_id, state, value))
