"""The loop: receive a batch, decide and commit once, then talk.

`step` does one turn. Errors of the broker leave it (`BrokerUnreachable`, `StreamMissing`, `BrokerFull`); the next step
then first looks the broker over as at a start. Errors of the store undo the turn: nothing was sent or settled, so
everything is read again. `Superseded` means that a newer coordinator is at work, and this one must end.
"""

from __future__ import annotations

import logging
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Final, final

from tenure.broker.incarnation import Incarnation, compare, require_safe
from tenure.broker.keys import DEFAULT_PERSON, DEFAULT_SITE
from tenure.coordinator import (
    collection,
    consequences,
    heartbeats,
    leases,
    mass_cancellation,
    recovery,
    registry,
    remnants,
    reports,
    requests,
    scheduler,
    sites,
    sweeper,
)
from tenure.coordinator.curator import Curator
from tenure.coordinator.intake import Intake
from tenure.coordinator.journal import COORDINATOR, Step, person_actor, site_actor
from tenure.coordinator.limits import InboxLimits
from tenure.coordinator.listening import Listener
from tenure.coordinator.people_limits import PeopleLimits
from tenure.coordinator.quotas import Quotas
from tenure.coordinator.turn import Memory, Outgoing, Turn
from tenure.coordinator.watchers import Watchers
from tenure.coordinator.wire import Wire
from tenure.errors import BrokerFull, BrokerUnreachable, StoreError, StreamMissing, UsageError
from tenure.protocol.client_messages import REQUEST
from tenure.protocol.message import decode
from tenure.protocol.worker_messages import REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tenure.artifacts.base import Porter
    from tenure.broker.base import BrokerState, CoordinatorBroker, Delivery
    from tenure.clock import Clock, Entropy
    from tenure.coordinator.curator import End
    from tenure.coordinator.fleet import WorkerView
    from tenure.coordinator.intake import Portion
    from tenure.coordinator.live import LiveLease
    from tenure.coordinator.options import CoordinatorOptions
    from tenure.coordinator.store.database import Database
    from tenure.protocol.worker_messages import Heartbeat

LOG: Final = logging.getLogger("tenure.coordinator")

_LARGEST_GAP_MS: Final = 2_000
"""A longer pause between two looks means that this process was stopped: all leases then get a full term."""

_SEEN_EVERY_MS: Final = 30_000

_ENSURE_EVERY_MS: Final = 5_000
"""A group that somebody destroyed is missed by nobody but the workers, who may not make it."""

_BUSY_BLOCK_MS: Final = 20
"""While the porter is at work, its ends are looked for this often."""

_REFUSED: Final = (sqlite3.IntegrityError, OverflowError, RecursionError, ValueError)
"""What comes of an entry that breaks a rule of the database, or holds what cannot be read, written down or sent.

Every door refuses such an entry; should one get past them, it is dropped like any other, or it would come back at every
start and nobody would ever be heard again.
"""

News = list[tuple["WorkerView", "Heartbeat"]]


@final
class Coordinator:
    """One coordinator over one database and one broker, with a porter if there is a store. Use from one thread."""

    def __init__(
        self,
        options: CoordinatorOptions,
        *,
        store: Database,
        broker: CoordinatorBroker,
        clock: Clock,
        entropy: Entropy,
        porter: Porter | None = None,
    ) -> None:
        self._options = options
        self._store = store
        self._broker = broker
        self._clock = clock
        self._entropy = entropy
        self._world = recovery.open_world(store, options.namespace, clock.now_ms())
        self._wire = Wire(broker)
        self._offers = sweeper.UnclaimedOffers(broker, options.unclaimed_ms)
        self._curator = Curator(porter, options.artifacts)
        self._limits = InboxLimits(options.site_limits, free=(DEFAULT_SITE,))
        self._quotas = Quotas(options.site_quotas, free=(DEFAULT_SITE,))
        self._listener = Listener(broker, self._limits)
        people_limits = PeopleLimits(options.person_limits, (DEFAULT_PERSON,), clock)
        self._intake = Intake(broker, self._limits, people_limits, clock, options.batch_limit)
        self._began_ms = clock.now_ms()
        self._wall_ahead_ms = clock.now_ms() - clock.elapsed_ms()
        self._memory = self._load()
        self._blind = True
        self._is_full = False
        self._broker_known: BrokerState | None = None
        self._looked_ms = clock.elapsed_ms()
        self._seen_ms = self._looked_ms
        self._ensured_ms = self._looked_ms

    @property
    def epoch(self) -> int:
        """This coordinator's number among all that ever ran on the database."""
        return self._store.epoch

    def step(self, block_ms: int | None = None) -> int:
        """One turn, waiting up to `block_ms` for something to come; answers how many entries were received."""
        try:
            if self._blind:
                self._regain()
            self._wire.publish()
            received = self._intake.receive(self._memory.sites.readers(), self._block_ms(block_ms))
            self._turn(received, look=self._look_due())
        except (BrokerFull, BrokerUnreachable, StreamMissing):
            self._blind = True
            raise
        except StoreError:
            self._reload()
            self._blind = True
            raise
        return len(received.taken)

    def _turn(self, received: Portion, *, look: bool) -> None:
        if look:
            self._intake.tend(self._memory.sites.readers())
        news = self._look() if look else None
        remarks = self._intake.remarks() if look else []
        due: list[LiveLease] = []
        if look and not self._wire.unpublished():  # what waits for room on the broker is unclaimed for that reason
            due = self._offers.examine(list(self._memory.leases), self._clock.elapsed_ms())
        turn = self._new_turn()
        ends = self._curator.listen()
        idle = not received and news is None and not ends and self._curator.gathering is None
        if idle and not scheduler.wanted(turn):
            return
        try:
            with turn.transaction():
                scheduler.follow_clock(turn)
                for delivery in received:
                    self._take(turn, delivery)
                _record(turn, remarks)
                if news is not None:
                    self._apply_news(turn, news)
                    self._offers.settle(turn, due)
                self._curate(turn, ends, look=news is not None)
                mass_cancellation.go_on(turn, self._options.cancel_portion)
                scheduler.schedule(turn)
        except _REFUSED:
            LOG.exception("a turn was refused by the database; its entries are taken one by one")
            began_ms = self._clock.elapsed_ms()
            self._reload()
            self._one_by_one([*received.taken, *received.left()], ends, began_ms)
            if remarks:
                self._alone(partial(_record, remarks=remarks), "What is remarked of inboxes")
            self._intake.recorded(remarks)
            return
        self._intake.recorded(remarks)
        self._settle_ends(turn, ends)
        self._talk(turn, received.taken, news or [])

    def _curate(self, turn: Turn, ends: Sequence[End], *, look: bool) -> None:
        """Take up what the porter has ended, and what is due of its work."""
        for end in ends:
            consequences.follow(turn, end)
        if look or ends:
            consequences.look(turn, self._options.quarantine_retention_ms, self._began_ms)
        collection.go_on(turn)

    def _settle_ends(self, turn: Turn, ends: Sequence[End]) -> None:
        """After the commit: what was taken up is over, and what was decided begins."""
        self._curator.settle(ends)
        if turn.out.gathered:
            self._curator.gathering = None
        self._curator.gathering = turn.out.gathering or self._curator.gathering
        self._curator.begin(turn.out.errands)

    def _take(self, turn: Turn, delivery: Delivery) -> None:
        site, person = delivery.site, delivery.person
        turn.actor = site_actor(site) if site else person_actor(person)
        self._memory.attended = turn.actor.principal
        try:
            if site:
                reports.take(turn, site, decode(REPORT, delivery.raw))
            else:
                requests.take(turn, person, decode(REQUEST, delivery.raw))
        except UsageError as error:
            self._limits.charge_unreadable(delivery)
            where = f"the inbox of {site}" if site else f"the requests of {person}"
            if self._memory.is_first_refusal(where, error.message):
                text = f"An entry on {where} was dropped: {error.message}"
                turn.record("malformed", text, step=Step(reason=error.code))
                LOG.warning("an entry on %s was dropped: %s", where, error.message)
        turn.actor = COORDINATOR
        self._memory.attended = COORDINATOR.principal

    def _one_by_one(self, received: Sequence[Delivery], ends: Sequence[End], began_ms: int) -> None:
        """Some entry or end breaks a rule of the store: find it, record it, and let the others through.

        Who sent such an entry pays for all the time since `began_ms`: without it the turn would have been over.
        """
        refused: list[Delivery] = []
        for delivery in received:
            turn, is_refused = self._alone(partial(self._take, delivery=delivery), f"An entry on {_where(delivery)}")
            if is_refused:
                refused.append(delivery)
            self._settle_ends(turn, ())
            self._talk(turn, [delivery], [])
        self._intake.charge_refused(refused, self._clock.elapsed_ms() - began_ms)
        for end in ends:
            turn, _ = self._alone(partial(consequences.follow, end=end), f"What follows from a {end[0].key[0]} job")
            self._settle_ends(turn, [end])
            self._talk(turn, (), [])

    def _alone(self, act: Callable[[Turn], None], what: str) -> tuple[Turn, bool]:
        """One thing in a transaction of its own; when the store refuses it, which is answered, that is recorded."""
        turn, is_refused = self._new_turn(), False
        try:
            with turn.transaction():
                scheduler.follow_clock(turn)
                act(turn)
        except _REFUSED as error:
            LOG.exception("%s was refused by the database", what)
            is_refused = True
            self._reload()
            turn, actor = self._new_turn(), turn.actor
            turn.actor = actor
            with turn.transaction():
                turn.record("refused", f"{what} was refused by the store: {error}")
        return turn, is_refused

    def _talk(self, turn: Turn, received: Sequence[Delivery], news: News) -> None:
        self._wall_ahead_ms = self._memory.wall_ahead_ms
        echoes = {worker.address: heartbeats.echo(self.epoch, worker) for worker, _ in news}
        echo_ttl_ms = max((worker.ttl_ms for worker, _ in news), default=1_000) * 2
        self._wire.add(turn.out.publications, turn.out.withdrawals)
        self._wire.ensure(turn.out.streams, self._memory.sites.readers())
        self._wire.publish()
        self._wire.post(turn.out.mailings, echoes, echo_ttl_ms)
        self._wire.settle(received, turn.out.departed)
        sites.clear(self._store, self._broker.sites, self._memory.sites, (turn.now_ms, turn.elapsed_ms))

    def _look_due(self) -> bool:
        ttl_ms = self._memory.leases.smallest_ttl_ms(8_000)
        interval_ms = max(100, min(1_000, ttl_ms // 8))
        return self._clock.elapsed_ms() - self._looked_ms >= interval_ms

    def _look(self) -> News:
        """The heartbeats that are news. A pause since the last look gives every lease a full term."""
        elapsed_ms = self._clock.elapsed_ms()
        if elapsed_ms - self._looked_ms > _LARGEST_GAP_MS:
            recovery.full_term(self._memory, elapsed_ms)
        workers = [worker for worker in self._memory.fleet if not worker.by_hand]
        if elapsed_ms - self._ensured_ms >= _ENSURE_EVERY_MS:
            self._ensured_ms = elapsed_ms
            self._check_streams()
        news = self._listener.listen(workers, self._memory.leases, elapsed_ms)
        self._looked_ms = elapsed_ms
        self._try_to_write(elapsed_ms)
        return news

    def _try_to_write(self, elapsed_ms: int) -> None:
        """Before anyone can be given up for silence, see whether the broker would have taken a heartbeat.

        One that can be read and refuses writes proves nothing, like one that is away: every lease gets a full term. It
        costs nothing, for nobody could be offered the work meanwhile.
        """
        worker = next(iter(self._memory.fleet), None)
        if worker is None or not (self._is_full or self._memory.leases.have_silent(elapsed_ms)):
            return
        taken = self._wire.post([], {worker.address: heartbeats.echo(self.epoch, worker)}, worker.ttl_ms * 2)
        if not taken:
            recovery.full_term(self._memory, elapsed_ms)
            if not self._is_full:
                LOG.warning("the broker refuses writes, so that workers cannot be heard: nobody is given up meanwhile")
        self._is_full = not taken

    def _check_streams(self) -> None:
        """Make streams and groups again that are gone; when all data is gone, making them may not hide that."""
        if compare(self._broker_known, self._broker.state()) is not Incarnation.SAME:
            raise StreamMissing("the broker restarted or lost its data", "It is looked over and filled again")
        self._wire.forget_streams()
        self._wire.ensure(recovery.all_streams(self._memory))

    def _apply_news(self, turn: Turn, news: News) -> None:
        for worker, beat in news:
            heartbeats.apply(turn, worker, beat)
        turn.memory.heard_until_ms = self._looked_ms
        sweeper.sweep(turn)
        remnants.settle(turn)
        if turn.elapsed_ms - self._seen_ms >= _SEEN_EVERY_MS:
            self._seen_ms = turn.elapsed_ms
            rows = [(turn.now_ms - (turn.elapsed_ms - w.seen_ms), w.worker_id) for w in turn.fleet]
            self._store.run_many("worker_seen", rows)

    def _regain(self) -> None:
        """Look the broker over: its settings, its identity, its streams, what was left unsettled."""
        state = self._broker.state()
        require_safe(state)
        self._wire.forget_streams()
        turn = self._new_turn()
        recovery.full_term(self._memory, turn.elapsed_ms)
        self._broker_known = recovery.take_stock(turn, self._broker, self._wire, state)
        self._looked_ms = turn.elapsed_ms
        self._curator.restore()
        self._wire.publish()
        self._blind = False
        self._intake.start_over(self._memory.sites.readers())

    def _new_turn(self) -> Turn:
        return Turn(
            store=self._store,
            memory=self._memory,
            entropy=self._entropy,
            world=self._world,
            now_ms=self._clock.now_ms(),
            elapsed_ms=self._clock.elapsed_ms(),
            out=Outgoing(epoch=self.epoch),
        )

    def _reload(self) -> None:
        """After a turn that was undone: what the store says, and the answers that were given before."""
        answered, self._memory = self._memory.answered, self._load()
        self._memory.answered = answered

    def _load(self) -> Memory:
        elapsed_ms = self._clock.elapsed_ms()
        live = leases.load(self._store, elapsed_ms)
        memory = Memory(
            fleet=registry.load(self._store, elapsed_ms),
            leases=live,
            curator=self._curator,
            sites=sites.load(self._store, live),
            inboxes=self._limits,
            quotas=self._quotas,
            watchers=Watchers(self._options.person_limits.watches),
            cancellations=mass_cancellation.load(self._store),
            remnants=remnants.load(self._store, elapsed_ms),
            retention_ms=self._options.quarantine_retention_ms,
            campaigns_only=self._options.campaigns_only,
            heard_until_ms=elapsed_ms,
            wall_ahead_ms=self._wall_ahead_ms,
        )
        recovery.count_holdings(memory)
        memory.ready.update(str(row[0]) for row in self._store.rows("queued_capabilities"))
        return memory

    def _block_ms(self, wanted_ms: int | None) -> int:
        if wanted_ms == 0:
            return 0
        limit_ms = self._options.idle_block_ms if wanted_ms is None else wanted_ms
        if self._curator.busy():
            limit_ms = min(limit_ms, _BUSY_BLOCK_MS)
        due_ms = self._memory.next_due_ms
        if due_ms > 0:
            limit_ms = min(limit_ms, max(1, due_ms - self._clock.now_ms()))
        return 0 if scheduler.wanted(self._new_turn()) else limit_ms


def _record(turn: Turn, remarks: Sequence[tuple[str, str]]) -> None:
    """Write down what people should know of inboxes."""
    for site, remark in remarks:
        turn.record("flooded", remark, step=Step(site=site))


def _where(delivery: Delivery) -> str:
    """The stream that an entry came on, for people."""
    return f"the inbox of {delivery.site}" if delivery.site else f"the requests of {delivery.person}"
