"""One turn of the loop: the open transaction, the time it is, what is in memory, and what to say after the commit.

Nothing collected here is sent before the commit. Everything here but publications may be lost: workers and clients
repeat what was not answered. Publications are kept by the loop until the broker has taken them.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import Mailing
from tenure.coordinator.addresses import address_of
from tenure.coordinator.journal import COORDINATOR, NO_STEP, Actor, Step, seal
from tenure.coordinator.watchers import Watchers
from tenure.protocol.client_messages import MAIL, Done, Mail, Notice, Reply
from tenure.protocol.control_messages import CONTROL, Control

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tenure.broker.base import Publication, Stream, StreamEntry, WorkerAddress
    from tenure.clock import Entropy
    from tenure.coordinator.collection import Gathering
    from tenure.coordinator.curator import Curator
    from tenure.coordinator.errands import Errand
    from tenure.coordinator.fleet import Fleet
    from tenure.coordinator.limits import InboxLimits
    from tenure.coordinator.live import LiveLeases
    from tenure.coordinator.mass_cancellation import MassCancellation
    from tenure.coordinator.membership import Sites
    from tenure.coordinator.quotas import Quotas
    from tenure.coordinator.remnants import Remnants
    from tenure.coordinator.store.database import Database, Row
    from tenure.protocol.control_messages import Order

_MAIL_BYTES: Final = 512 * 1024
"""Notices are split so that one entry stays well under the wire's limit."""

_CONTROL_ORDERS: Final = 2_000
"""Orders are split for the same reason: none is longer than 300 bytes."""

_MOST_REFUSALS: Final = 1_000
"""How many refusals of one principal a coordinator records; a flood of them fills neither log nor memory nor disk."""

_ANSWERS_KEPT: Final = 1_000
"""More than come in while a client waits before it asks again."""


@final
@dataclass(slots=True)
class Memory:
    """What the loop knows besides the store; all of it can be rebuilt from the store."""

    fleet: Fleet
    leases: LiveLeases
    curator: Curator
    inboxes: InboxLimits
    quotas: Quotas
    sites: Sites
    remnants: Remnants
    cancellations: list[MassCancellation]
    """Requests to cancel many tasks that are under way, in order."""
    watchers: Watchers = field(default_factory=Watchers)
    """Clients that asked for a notice besides the submitter."""
    refused: dict[str, set[tuple[str, str]]] = field(default_factory=dict[str, "set[tuple[str, str]]"])
    """Who was refused and why, as far as it is on record, so that repeating it adds nothing; by whose word it was."""
    attended: str = ""
    """The principal whose word is being taken just now."""
    answered: dict[tuple[str, str], Reply] = field(default_factory=dict[tuple[str, str], Reply])
    """Replies to the newest steps that may not be taken twice, by client and request."""
    ready: set[str] = field(default_factory=set[str])
    """Capabilities that may have tasks to publish."""
    directed_ready: bool = True
    directed_passed: int = 0
    """How many directed tasks the scheduler has looked at in vain on its way through all of them."""
    heard_until_ms: int = 0
    """Elapsed time up to which all heartbeats were read and applied; silence is judged as of then, not as of now."""
    wall_ahead_ms: int = 0
    """Wall clock minus elapsed time, as of the last turn that was committed: a change is a jump of the wall clock."""
    retention_ms: int = 0
    """How long the files of a rejected result are kept for a decision."""
    checkpoint_awaited: dict[str, int] = field(default_factory=dict[str, int])
    """Since when, by elapsed time, the next attempt of a task waits for its newest checkpoint to be stored."""
    campaigns_only: bool = False
    """Whether submissions without a campaign are refused."""
    promotion_position: int = 0
    """Up to where the records of what was accepted and is not in the store were looked through."""
    next_due_ms: int = 0
    """Wall-clock moment at which a delayed task becomes ready; 0 when unknown, -1 when there is none."""

    def keep_answers(self, answered: Mapping[tuple[str, str], Reply]) -> None:
        """Keep the replies to steps, for when a client has not heard one and repeats its request."""
        for asked, reply in answered.items():
            self.answered[asked] = reply
            if len(self.answered) > _ANSWERS_KEPT:
                del self.answered[next(iter(self.answered))]

    def is_first_refusal(self, who: str, why: str) -> bool:
        """Whether this refusal is to be recorded: it was not made before, and there are not too many already.

        Each principal has a number of its own, so that nobody can fill the log or hide others' refusals.
        """
        known = self.refused.setdefault(self.attended.partition("/")[0], set())
        if (who, why) in known or len(known) >= _MOST_REFUSALS:
            return False
        known.add((who, why))
        return True


@final
@dataclass(slots=True)
class Outgoing:
    """What a turn will say once it is committed."""

    epoch: int
    publications: list[Publication] = field(default_factory=list["Publication"])
    orders: dict[WorkerAddress, list[Order]] = field(default_factory=dict["WorkerAddress", "list[Order]"])
    replies: dict[str, list[Reply]] = field(default_factory=dict[str, "list[Reply]"])
    done: dict[str, list[Done]] = field(default_factory=dict[str, "list[Done]"])
    withdrawals: list[StreamEntry] = field(default_factory=list["StreamEntry"])
    departed: list[WorkerAddress] = field(default_factory=list["WorkerAddress"])
    """Executors that have left, whose keys at the broker go."""
    streams: set[Stream] = field(default_factory=set["Stream"])
    """The streams of assignments that must exist before anything is published."""
    errands: list[Errand] = field(default_factory=list["Errand"])
    """What the porter is to do."""
    gathering: Gathering | None = None
    """A collection that begins to read what it has to keep."""
    gathered: bool = False
    """Whether a collection has read all that it has to keep."""
    answered: dict[tuple[str, str], Reply] = field(default_factory=dict[tuple[str, str], Reply])
    """Replies to steps that may not be taken twice, to be kept once they are committed."""
    mailings: list[Mailing] = field(default_factory=list["Mailing"])
    """Orders, replies and notices as bytes, once they are sealed."""

    def order(self, worker: WorkerAddress, order: Order) -> None:
        """Tell a worker something."""
        self.orders.setdefault(worker, []).append(order)

    def reply(self, client_id: str, reply: Reply) -> None:
        """Answer a client's request."""
        self.replies.setdefault(client_id, []).append(reply)

    def seal(self) -> None:
        """Make the mailings: orders, replies and notices, in this order. Nothing may be said after this."""
        mail = [
            Mailing(raw=CONTROL.dump_json(Control(epoch=self.epoch, orders=part)), to=worker)
            for worker, orders in self.orders.items()
            for part in _batches(orders)
        ]
        for client_id, replies in self.replies.items():
            mail.extend(self._mail(client_id, reply) for reply in replies)
        for client_id, done in self.done.items():
            mail.extend(self._mail(client_id, Notice(done=part)) for part in _portions(done))
        self.mailings = mail

    def _mail(self, client_id: str, answer: Reply | Notice) -> Mailing:
        raw = MAIL.dump_json(Mail(epoch=self.epoch, answers=(answer,)), exclude_none=True)
        return Mailing(raw=raw, to=address_of(client_id))


def _batches(orders: list[Order]) -> list[tuple[Order, ...]]:
    return [tuple(orders[at : at + _CONTROL_ORDERS]) for at in range(0, len(orders), _CONTROL_ORDERS)]


def _portions(done: list[Done]) -> list[tuple[Done, ...]]:
    portions: list[tuple[Done, ...]] = []
    current: list[Done] = []
    size = 0
    for item in done:
        failure = item.failure.message + item.failure.trace if item.failure else ""
        cost = 700 + len(json.dumps(item.value)) + len(json.dumps(failure)) + len(json.dumps(item.detail))
        if current and size + cost > _MAIL_BYTES:
            portions.append(tuple(current))
            current, size = [], 0
        current.append(item)
        size += cost
    portions.append(tuple(current))
    return portions


@final
@dataclass(slots=True)
class Turn:
    """What every decision gets. `now_ms` is for records, `elapsed_ms` for deadlines; both are read once per turn."""

    store: Database
    memory: Memory
    entropy: Entropy
    world: str
    now_ms: int
    elapsed_ms: int
    out: Outgoing
    actor: Actor = COORDINATOR
    """On whose word it is acting just now."""
    events: list[Row] = field(default_factory=list["Row"])
    """What was recorded, until it is sealed at the end of the transaction."""

    @property
    def leases(self) -> LiveLeases:
        """The live leases."""
        return self.memory.leases

    @property
    def curator(self) -> Curator:
        """What the porter has under way."""
        return self.memory.curator

    @property
    def fleet(self) -> Fleet:
        """The workers."""
        return self.memory.fleet

    def ask_porter(self, errand: Errand) -> None:
        """Have the porter do this after the commit, unless it is under way or there is no store."""
        if self.curator.ready:
            self.out.errands.append(errand)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """One write transaction, with a seal over what was recorded in it.

        What there is to say is put into bytes before the commit: words that have none undo the step that said them.
        """
        with self.store.transaction():
            yield
            seal(self)
            self.out.seal()
        self.memory.keep_answers(self.out.answered)

    def record(
        self, kind: str, text: str, *, task_id: str | None = None, worker_id: str | None = None, step: Step = NO_STEP
    ) -> None:
        """Add to the event log; `text` is a sentence that `tenure explain` shows as it is.

        Whose decision it was, and of which site, is what the turn is attending to, unless `step` says otherwise.
        """
        before, after, reason, principal, site = step
        who, where = principal or self.actor.principal, site or self.actor.site
        self.events.append((self.now_ms, kind, who, where, task_id, worker_id, reason, before, after, text))

    def take_back(self, kind: str, task_id: str) -> bool:
        """Let what was recorded last go, if it is this, for the next event says it, too."""
        if not self.events or self.events[-1][1] != kind or self.events[-1][4] != task_id:
            return False
        self.events.pop()
        return True

    def tell(self, watcher: str, done: Done) -> None:
        """Tell the submitter and everyone who watches that a task is over or lost."""
        others = self.memory.watchers.of(done.task_id)
        if done.state != "LOST":
            self.memory.watchers.forget(done.task_id)
        for client_id in {watcher, *others} - {""}:
            self.out.done.setdefault(client_id, []).append(done)
