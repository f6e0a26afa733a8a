"""A line to the broker: one connection, one thread, one duty, repeated until the agent ends.

When the broker fails, the line is closed, waits a little longer each time (with jitter, so that a fleet does not come
back as one), and is opened again. Duties only raise `BrokerError`; they never retry by themselves.
"""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol, final

from tenure.errors import BrokerError, StreamMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.broker.base import WorkerBroker
    from tenure.clock import Entropy
    from tenure.workers.admission import Admission

_LOG: Final = logging.getLogger(__name__)
_FIRST_PAUSE_MS: Final = 50
_LONGEST_PAUSE_MS: Final = 2_000
_WORTH_A_LINE: Final = 3
"""How many failures in a row are more than a hiccup."""
_STREAM_PAUSE_MS: Final = 250
"""A missing stream is made by a coordinator that is coming up; asking again costs next to nothing."""


class Duty(Protocol):
    """What a line does."""

    @property
    def name(self) -> str:
        """What it is called in logs."""
        ...

    def opened(self, *, again: bool) -> None:
        """A connection was made; `again` when an earlier one failed, or its streams were missing."""
        ...

    def turn(self, broker: WorkerBroker) -> None:
        """Do the duty once; may block. Raises `BrokerError`."""
        ...

    def closing(self, broker: WorkerBroker) -> None:
        """The agent ends in good order: say what is left to say."""
        ...


@final
class Line:
    """Runs a duty in a thread of its own."""

    def __init__(
        self, duty: Duty, open_broker: Callable[[], WorkerBroker], entropy: Entropy, admission: Admission
    ) -> None:
        self._duty = duty
        self._admission = admission
        self._open_broker = open_broker
        self._entropy = entropy
        self._halt = Event()
        self._broker: WorkerBroker | None = None
        self._thread = Thread(target=self._run, name=f"tenure-{duty.name}", daemon=True)
        self._failures = 0
        self._again = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def halt(self) -> None:
        """Ask the thread to end after its turn."""
        self._halt.set()

    def cut(self) -> None:
        """End a read that is waiting."""
        broker = self._broker
        if broker is not None:
            broker.close()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread; cut the connection when it does not end by itself."""
        if self._thread.ident is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.cut()
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._halt.is_set():
            try:
                self._serve()
            except BrokerError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - see below
                # A worker whose heartbeat or reader has silently died would be worse than one that tries again.
                _LOG.exception("%s: an error that should not be", self._duty.name)
                self._failed(error)
            finally:
                self._close()

    def _serve(self) -> None:
        self._broker = self._open_broker()
        self._duty.opened(again=self._again)
        while not self._halt.is_set():
            try:
                self._duty.turn(self._broker)
            except StreamMissing as error:
                self._failed(error)
                self._duty.opened(again=True)
            else:
                if self._failures >= _WORTH_A_LINE:
                    _LOG.warning("%s: the broker answers again", self._duty.name)
                self._failures = 0
                self._admission.passed(self._duty.name)
        self._duty.closing(self._broker)

    def _close(self) -> None:
        if self._broker is not None:
            try:
                self._broker.close()
            except BrokerError as error:
                _LOG.debug("%s: closing failed: %s", self._duty.name, error)
            self._broker = None

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        is_said = isinstance(error, BrokerError) and self._admission.met(self._duty.name, error, self._failures)
        if self._halt.is_set():
            return
        self._again = True
        says = self._failures == _WORTH_A_LINE and not is_said
        level = logging.WARNING if says else logging.DEBUG
        _LOG.log(level, "%s: %s", self._duty.name, error)
        longest_ms = _STREAM_PAUSE_MS if isinstance(error, StreamMissing) else _LONGEST_PAUSE_MS
        pause_ms = min(_FIRST_PAUSE_MS << min(self._failures - 1, 10), longest_ms)
        self._halt.wait((pause_ms + self._entropy.below(pause_ms)) / 1000)
