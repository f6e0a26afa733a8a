"""One client's conversation with the coordinator: a thread that reads answers and looks after what is outstanding.

What may be relied on: every handle hears of its task's end although notices may be lost. After a reconnect, a broker
that lost its data, a new coordinator, and whenever there was no news for a while, the session asks again about all
outstanding tasks. Answers of a coordinator that has been superseded (a lower epoch than one seen before) are ignored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import Lock, Thread, current_thread
from typing import Final, TypeAlias, final

from tenure.artifacts.base import Store
from tenure.broker.base import ClientBroker, EntryId
from tenure.broker.keys import DEFAULT_PERSON
from tenure.client.exchange import Exchange, Identity, OnReply, Pending
from tenure.client.refusals import error_of
from tenure.client.tracker import Tracker
from tenure.clock import Clock, Entropy
from tenure.errors import BrokerError, FleetError, MalformedMessage, PayloadTooLarge, UsageError
from tenure.protocol.client_messages import MAIL, Ask, Mail, Reply, Watch
from tenure.protocol.message import decode

Connect: TypeAlias = Callable[[str], ClientBroker]
"""Gives a new connection to the broker for the client id given."""

_LOG: Final = logging.getLogger("tenure")
_BUSY_BLOCK_MS: Final = 250
_IDLE_BLOCK_MS: Final = 1_000
_LONGEST_WATCH_MS: Final = 60_000
_WATCH_CHUNK: Final = 5_000
_JOIN_S: Final = 5.0
_START: Final = EntryId(0, 0)


@final
@dataclass(frozen=True, slots=True)
class Wiring:
    """What a client stands on: connections, time and randomness."""

    connect: Connect
    clock: Clock
    entropy: Entropy
    open_store: Callable[[], Store] | None = None
    """Opens the store of files; None: the client moves none."""
    person: str = DEFAULT_PERSON
    """Whose credential the connections show."""


@final
class Session:
    """See the module. The thread starts with the first request and ends with `close`.

    Args:
        wiring: connections (one to read and one to ask), time and randomness.
        identity: who asks, and how patiently.
        watch_ms: after how long without news outstanding tasks are asked about.
        on_warning: called with each new warning.
    """

    def __init__(
        self,
        wiring: Wiring,
        identity: Identity,
        *,
        watch_ms: int,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._reader = wiring.connect(identity.client_id)
        self._asker = wiring.connect(identity.client_id)
        self._clock = clock = wiring.clock
        self._entropy = wiring.entropy
        self._on_warning = on_warning
        self._first_watch_ms = self._watch_after_ms = watch_ms
        self._exchange = Exchange(self._asker, identity, clock, wiring.entropy)
        self.tracker: Final = Tracker()
        self.warnings: Final[deque[str]] = deque(maxlen=100)
        """The latest warnings, each text once."""
        self._cursor = _START
        self._epoch = 0
        self._marker = ""
        self._failures = 0
        self._watched_ms = self._checked_ms = clock.elapsed_ms()
        self._watching: list[Future[Reply]] = []
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    def next_id(self) -> str:
        """A request id that this client has not used."""
        return self._exchange.next_id()

    def post(self, ask: Ask, on_reply: OnReply | None = None, request_id: str = "") -> Future[Reply]:
        """Send a request without waiting; the future ends with the reply or with the error that it was refused with.

        Raises:
            UsageError: the client is closed.
        """
        self._ensure_started()
        return self._exchange.post(request_id or self.next_id(), ask, on_reply)

    def call(self, ask: Ask, on_reply: OnReply | None = None) -> Reply:
        """Send a request and wait for its reply.

        Raises:
            UsageError: the client is closed, or this is the client's own thread, which would wait for itself.
            TenureError: the refusal, or why there was no answer.
        """
        self.refuse_own_thread()
        return self.post(ask, on_reply).result()

    def refuse_own_thread(self) -> None:
        """Raise UsageError in the thread that reads answers: waiting for one there would never end."""
        if self.is_own_thread():
            raise UsageError(
                "a handle's callback asked the fleet and would wait for itself", "Do it in a thread of your own"
            )

    def is_own_thread(self) -> bool:
        """Whether this is the thread that reads answers, in which handles' callbacks run."""
        return current_thread() is self._thread

    def close(self) -> None:
        """Stop reading and delete the reply stream; handles that are still open end with a FleetError. Idempotent."""
        with self._lock:
            already_closed, self._closed = self._closed, True
            thread = self._thread
        if already_closed:
            return
        for broker in (self._reader, self._asker):
            with suppress(BrokerError):
                broker.close()
        if thread is not None and not self.is_own_thread():
            thread.join(_JOIN_S)
        self._abandon(FleetError("the client was closed", "The task goes on; attach to it with Client.handle(task_id)"))

    def step(self) -> None:
        """Read once and look after what is outstanding. The thread does nothing else."""
        try:
            self._read()
        except BrokerError as error:
            self._stumble(error)
        self._exchange.upkeep()
        self._watch_if_quiet()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        busy = len(self._exchange) > 0 or bool(self.tracker)
        deliveries = self._reader.answers(after=self._cursor, block_ms=_BUSY_BLOCK_MS if busy else _IDLE_BLOCK_MS)
        if self._failures:
            self._failures = 0
            self._cursor = _START  # the stream may be a new one, with lower ids
            self._resume("the broker is back")
        for delivery in deliveries:
            self._cursor = delivery.entry_id
            self._take(delivery.raw)

    def _take(self, raw: bytes) -> None:
        try:
            mail = decode(MAIL, raw)
        except (MalformedMessage, PayloadTooLarge) as error:
            _LOG.warning("an answer of the coordinator was ignored: %s", error)
            return
        if mail.epoch < self._epoch:
            return
        is_new_coordinator = 0 < self._epoch < mail.epoch
        self._epoch = mail.epoch
        self._exchange.news_ms = self._clock.elapsed_ms()
        self._open(mail)
        if is_new_coordinator:
            self._resume("a new coordinator has taken over")

    def _open(self, mail: Mail) -> None:
        answered: list[tuple[Pending, Reply]] = []
        for answer in mail.answers:
            if isinstance(answer, Reply):
                pending = self._exchange.collect(answer)
                if pending is not None:
                    answered.append((pending, answer))
                    self._warn(answer.warnings)
            elif self.tracker.settle(answer.done):
                self._watch_after_ms = self._first_watch_ms
        # Waiters wake up last, so that they find their handles as the whole mail describes them.
        for pending, reply in answered:
            if reply.refusal is None:
                pending.future.set_result(reply)
            else:
                pending.future.set_exception(error_of(reply.refusal))

    def _warn(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            if warning not in self.warnings:
                self.warnings.append(warning)
                _LOG.warning("%s", warning)
                self._tell(warning)

    def _tell(self, warning: str) -> None:
        if self._on_warning is None:
            return
        try:
            self._on_warning(warning)
        except Exception:  # noqa: BLE001 - somebody else's code must not end this thread
            _LOG.exception("on_warning raised; the client goes on")

    # --- looking after what is outstanding ----------------------------------------------------------------------------

    def watch(self, task_ids: Sequence[str]) -> Future[Reply]:
        """Ask for the ends of these tasks, at most 5,000; a refusal ends the handles of the tasks it is about."""

        def refused(reply: Reply) -> None:
            if reply.refusal is None:
                return
            if len(task_ids) == 1:
                self.tracker.fail(task_ids, error_of(reply.refusal))
                return
            # One unknown task refuses the whole request: find it by halves.
            middle = len(task_ids) // 2
            self._watching += [self.watch(task_ids[:middle]), self.watch(task_ids[middle:])]

        return self.post(Watch.model_construct(task_ids=tuple(task_ids)), refused)

    def _watch_if_quiet(self) -> None:
        now_ms = self._clock.elapsed_ms()
        quiet_ms = now_ms - max(self._exchange.news_ms, self._checked_ms)
        if quiet_ms < self._first_watch_ms or not (self.tracker or len(self._exchange)):
            return
        self._checked_ms = now_ms
        if self._has_lost_data():
            self._cursor = _START  # the stream is a new one, perhaps with lower ids
            self._resume("the broker has lost its data")
            return
        self._watching = [future for future in self._watching if not future.done()]
        if now_ms - max(self._exchange.news_ms, self._watched_ms) >= self._watch_after_ms and not self._watching:
            self._watch_after_ms = min(self._watch_after_ms * 2, _LONGEST_WATCH_MS)
            self._watch_all()

    def _has_lost_data(self) -> bool:
        try:
            marker = self._exchange.marker()
        except BrokerError:
            return False  # the next read will say so, too
        known, self._marker = self._marker, marker or self._marker
        return bool(known) and bool(marker) and marker != known

    def _watch_all(self) -> None:
        self._watched_ms = self._clock.elapsed_ms()
        outstanding = iter(self.tracker.outstanding())
        while chunk := list(islice(outstanding, _WATCH_CHUNK)):
            self._watching.append(self.watch(chunk))

    def _resume(self, why: str) -> None:
        _LOG.info("%s; asking again about what is outstanding", why)
        self._watch_after_ms = self._first_watch_ms
        self._exchange.hurry()
        self._watch_all()

    def _stumble(self, error: BrokerError) -> None:
        self._failures += 1
        if self._closed:
            return
        if self._failures == 1:
            _LOG.info("the broker cannot be read, trying on: %s", error)
        longest_ms = min(100 << min(self._failures, 4), 1_000)
        self._clock.sleep_ms(longest_ms // 2 + self._entropy.below(longest_ms // 2))

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _ensure_started(self) -> None:
        with self._lock:
            if self._closed:
                raise UsageError("the client is closed", "Make a new one; open tasks can be attached to by their ids")
            if self._thread is None:
                # A daemon: a program that forgets to close its client must still be able to end.
                self._thread = Thread(target=self._run, name="tenure-client", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closed:
                self.step()
        except Exception as error:
            if self._closed:
                return  # closed while this thread was asking: nobody waits for the answer
            _LOG.exception("the client's thread has stopped")
            self._abandon(FleetError(f"the client's thread has stopped: {type(error).__name__}", "Make a new client"))
            self._closed = True
            raise

    def _abandon(self, error: FleetError) -> None:
        self._exchange.fail(error)
        self.tracker.fail(self.tracker.outstanding(), error)
