"""The greeting: how a worker introduces itself to the coordinator, and when it does so again.

Whatever kind of worker it is: one that runs its tasks itself, or one whose launcher starts executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.workers.holds import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenure.protocol.control_messages import HelloRefused, Registered
    from tenure.protocol.worker_messages import Held, Hello

_HELLO_PATIENCE_MS: Final = 1_000
_MOST_DOUBLINGS: Final = 6


@final
class Greeting:
    """The hellos of one agent, and whether the newest one is answered."""

    def __init__(self, hello: Hello, generation: int) -> None:
        self._hello = hello
        self._generation = generation
        self._registered_ms = NEVER
        self._ordinal = 0
        self._due_ms = 0
        self._unanswered = 0
        self.registered = False
        """Whether the coordinator has answered the newest hello."""

    def say(self, held: Iterable[Held], now_ms: int) -> Hello:
        """The next hello, with everything that the worker holds."""
        self.registered = False
        self._ordinal += 1
        self._due_ms = now_ms + (_HELLO_PATIENCE_MS << min(self._unanswered, _MOST_DOUBLINGS))
        self._unanswered += 1
        return self._hello.model_copy(update={"held": tuple(held), "ordinal": self._ordinal})

    def answered(self, order: Registered, now_ms: int) -> bool:
        """Whether that is the answer to the newest hello; if so, the worker is registered."""
        if not self._is_newest(order):
            return False
        self.registered = True
        self._registered_ms = now_ms
        self._unanswered = 0
        return True

    def is_refused(self, order: HelloRefused) -> bool:
        """Whether this agent can never be registered, so that it must end."""
        return self._is_newest(order)

    def is_outranked(self, order: Registered) -> bool:
        """Whether a newer agent of this id has said hello, so that this one must end at once."""
        return order.generation > self._generation

    def is_due(self, echoed_ms: int, now_ms: int) -> bool:
        """Whether to say hello: the last one stays unanswered, or the coordinator may have forgotten this worker.

        It may have when it has echoed no heartbeat for long; `echoed_ms` is when the newest echoed one was sent.
        """
        if not self.registered:
            return now_ms >= self._due_ms
        return now_ms - max(self._registered_ms, echoed_ms) > 2 * self._hello.ttl_ms

    def _is_newest(self, order: Registered | HelloRefused) -> bool:
        return order.generation == self._generation and order.ordinal == self._ordinal
