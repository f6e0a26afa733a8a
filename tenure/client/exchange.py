"""Requests and their answers: sent, sent again while unanswered, given up when nobody is there.

A request is repeated under its own id, which is safe by the protocol, so a lost request, a lost answer and a broker
that was away all look the same here. What is given up is *unknown*, not failed: the error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Final, final

from tenure.broker.base import ClientBroker
from tenure.clock import Clock, Entropy
from tenure.errors import BrokerError, BrokerRefused, CoordinatorUnreachable, StreamMissing, TenureError, UsageError
from tenure.protocol.client_messages import REQUEST, Ask, Reply, Request

OnReply = Callable[[Reply], None]

_RETRY_MS: Final = 100
_ASLEEP_MS: Final = 30_000
_LONGEST_RESEND_MS: Final = 30_000
_PATIENCE_PER_REQUEST: Final = 6
"""How many times the usual patience one request may take while the coordinator answers others."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, and how patiently."""

    client_id: str
    namespace: str
    principal: str
    patience_ms: int
    resend_ms: int


@final
@dataclass(slots=True)
class Pending:
    """One request without an answer. `future` gets the reply, or the error that stands in its place."""

    request_id: str
    raw: bytes
    on_reply: OnReply | None
    asked_ms: int | None = None
    """Since when an answer is waited for; None while the thread that asks is still sending it for the first time."""
    due_ms: int = 0
    tries: int = 0
    problem: BrokerError | None = None
    future: Future[Reply] = field(default_factory=Future[Reply])


@final
class Exchange:
    """The requests of one client. Safe to share between threads; sending is one at a time.

    Args:
        broker: what requests are sent through; a connection of its own.
        identity: who asks.
        clock: what timeouts are judged by.
        entropy: what spreads repetitions, so that many clients do not all come back at once.
    """

    def __init__(self, broker: ClientBroker, identity: Identity, clock: Clock, entropy: Entropy) -> None:
        self._broker = broker
        self._identity = identity
        self._clock = clock
        self._entropy = entropy
        self._numbers = count(1)
        self._sending = Lock()
        self._lock = Lock()
        self._pending: dict[str, Pending] = {}
        self._failed: TenureError | None = None
        self._upkeep_ms = clock.elapsed_ms()
        self.news_ms = clock.elapsed_ms()
        """When the coordinator was last heard of, on the elapsed clock."""

    def next_id(self) -> str:
        """A request id that this client has not used."""
        return f"r{next(self._numbers)}"

    def post(self, request_id: str, ask: Ask, on_reply: OnReply | None = None) -> Future[Reply]:
        """Send a request; the future ends with its reply, refusals included, or with what went wrong.

        Args:
            request_id: from `next_id`.
            ask: what is asked.
            on_reply: called in the reading thread before anything that came after the reply is looked at.
        """
        identity = self._identity
        request = Request.model_construct(
            client_id=identity.client_id, request_id=request_id, principal=identity.principal, ask=ask
        )
        pending = Pending(request_id, _bytes_of(request), on_reply)
        began_ms = self._clock.elapsed_ms()
        try:
            with self._lock:
                failed = self._failed
                if failed is None:
                    self._pending[request_id] = pending
            if failed is not None:
                pending.future.set_exception(failed)
                return pending.future
            self._send(pending)
            # Until now the reading thread left it alone: it would send it twice, or give up what was never sent.
            pending.asked_ms = began_ms if pending.problem else self._clock.elapsed_ms()
        except BaseException:  # such as Ctrl-C: nobody will ever ask for its answer
            self._forget(pending)
            raise
        return pending.future

    def collect(self, reply: Reply) -> Pending | None:
        """The request that this answers, which is over now; None when it was answered before."""
        with self._lock:
            pending = self._pending.pop(reply.request_id, None)
        if pending is not None and pending.on_reply is not None:
            pending.on_reply(reply)
        return pending

    def upkeep(self) -> None:
        """Send again what is due, and give up what has waited too long."""
        with self._lock:
            waiting = [
                (pending, asked_ms) for pending in self._pending.values() if (asked_ms := pending.asked_ms) is not None
            ]
        now_ms = self._clock.elapsed_ms()
        if now_ms - self._upkeep_ms > _ASLEEP_MS:
            # The host was suspended or this process stopped: that nobody answered meanwhile says nothing.
            self.news_ms = now_ms
        self._upkeep_ms = now_ms
        for pending, asked_ms in waiting:
            if self._is_hopeless(asked_ms, now_ms):
                self._end(pending, self._verdict(pending))
            elif pending.due_ms <= now_ms and not self._send(pending):
                self._postpone(other for other, _ in waiting)

    def hurry(self) -> None:
        """Make every waiting request due now: the broker came back, and may have lost what it held."""
        with self._lock:
            for pending in self._pending.values():
                pending.due_ms = 0

    def marker(self) -> str:
        """The broker's incarnation marker. Raises BrokerError."""
        with self._sending:
            return self._broker.marker()

    def fail(self, error: TenureError) -> None:
        """End everything that waits with `error`, and what is asked from now on: nobody reads answers any more."""
        with self._lock:
            self._failed = error
            waiting = list(self._pending.values())
            self._pending.clear()
        for pending in waiting:
            pending.future.set_exception(error)

    def __len__(self) -> int:
        return len(self._pending)

    def _send(self, pending: Pending) -> bool:
        """Send once; answers False when the broker did not take it, which the next ones need not find out again."""
        try:
            with self._sending:
                self._broker.ask(pending.raw)
        except BrokerRefused as error:
            self._end(pending, error)
            return False
        except BrokerError as error:
            pending.problem = error
            self._postpone([pending])
            return False
        pending.problem = None
        delay_ms = min(self._identity.resend_ms << pending.tries, _LONGEST_RESEND_MS)
        pending.tries = min(pending.tries + 1, 10)
        pending.due_ms = self._clock.elapsed_ms() + delay_ms
        return True

    def _postpone(self, waiting: Iterable[Pending]) -> None:
        now_ms = self._clock.elapsed_ms()
        for pending in waiting:
            pending.due_ms = now_ms + _RETRY_MS + self._entropy.below(4 * _RETRY_MS)

    def _is_hopeless(self, asked_ms: int, now_ms: int) -> bool:
        patience_ms = self._identity.patience_ms
        quiet_ms = now_ms - max(asked_ms, self.news_ms)
        return quiet_ms >= patience_ms or now_ms - asked_ms >= patience_ms * _PATIENCE_PER_REQUEST

    def _verdict(self, pending: Pending) -> TenureError:
        namespace, patience_s = self._identity.namespace, self._identity.patience_ms / 1000
        match pending.problem:
            case None:
                return CoordinatorUnreachable(
                    f"no coordinator of the namespace {namespace!r} answered within {patience_s:g} s; whether the "
                    "request was carried out is unknown",
                    "Start one with `tenure up` or `tenure coordinator`, then ask again",
                )
            case StreamMissing():
                return CoordinatorUnreachable(
                    f"no coordinator has made the namespace {namespace!r} on this broker",
                    "Start one with `tenure up` or `tenure coordinator`, or check TENURE_NAMESPACE",
                )
            case BrokerError() as problem:
                return problem

    def _end(self, pending: Pending, error: TenureError) -> None:
        if self._forget(pending):
            pending.future.set_exception(error)

    def _forget(self, pending: Pending) -> bool:
        """Whether it still waited."""
        with self._lock:
            return self._pending.pop(pending.request_id, None) is not None


def _bytes_of(request: Request) -> bytes:
    try:
        return REQUEST.dump_json(request)
    except ValueError:  # of pydantic: nothing else in a request has no JSON form
        raise UsageError(
            "the request cannot be sent: a text in it holds half of a surrogate pair", "Give texts that are UTF-8"
        ) from None
