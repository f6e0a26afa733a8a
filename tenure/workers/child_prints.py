"""What calls print: attributed to the call that runs where something is printed, and sent to the agent in few frames.

`sys.stdout`, `sys.stderr` and the task's logger follow the call's context, like `tenure.current()`: into coroutines
side by side and into threads that copied the context. Everything else (bare threads, forked copies, the descriptors 1
and 2 themselves) goes to the worker's own log.

Lines are sent at once as long as they are few. When there are many they are gathered, and when there are too many the
oldest are left out; positions show how much. A thread is started only when something was gathered.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import suppress
from threading import RLock, Thread, get_ident
from typing import TYPE_CHECKING, Final, TextIO, cast, final

from tenure.handlers.context import current
from tenure.workers.calls import Printed
from tenure.workers.child_run import Run
from tenure.workers.child_sheet import MOST_WAITING, Sheet

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from tenure.clock import Clock
    from tenure.workers.child_secrets import GivenSecrets

TICK_MS: Final = 50
"""The shortest time between two rounds of sending."""
_TICK_CHARACTERS: Final = 64 * 1024
_FRAME_COST: Final = 256


@final
class _Turn:
    """A lock that knows who is inside: a signal handler may print in the middle of its own thread's print."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._holder = 0
        self._pid = os.getpid()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder = get_ident()

    def __exit__(self, *_: object) -> None:
        self._holder = 0
        self._lock.release()

    def can_be_had(self) -> bool:
        """Not in a forked copy, where it may be taken for ever, and not by who has it."""
        return os.getpid() == self._pid and self._holder != get_ident()


@final
class Prints:
    """The printed output of all calls of one child. Any thread may print.

    Args:
        send: takes a message to the agent.
        clock: what rounds are timed by.
        given: the secrets that must not be printed.
    """

    def __init__(self, send: Callable[[Printed], None], clock: Clock, given: GivenSecrets) -> None:
        self.given: Final = given
        self._send = send
        self._clock = clock
        self._turn = _Turn()
        self._waiting: dict[Run, Sheet] = {}
        self._next_ms = 0
        self._thread: Thread | None = None

    def write(self, run: Run, stream: int, text: str) -> bool:
        """Take what a call has printed; False when it cannot be attributed here and now."""
        if not self._turn.can_be_had():
            return False
        with self._turn:
            return self._write(run, stream, text)

    def flush(self, run: Run) -> None:
        """Send a call's unfinished line, soon."""
        if run.sheet is not None and self._turn.can_be_had():
            with self._turn:
                self._send_soon()

    def end(self, run: Run) -> None:
        """The call is over: send what waits, before its result goes out."""
        sheet = run.sheet
        if sheet is not None and self._turn.can_be_had():
            with self._turn:
                sheet.finish()
                self._waiting.pop(run, None)
                while printed := sheet.take():
                    self._pass_on(printed)

    def close(self) -> None:
        """The child ends: send what waits."""
        for run in list(self._waiting):
            self.end(run)

    def _write(self, run: Run, stream: int, text: str) -> bool:
        sheet = run.sheet
        if sheet is None:
            sheet = run.sheet = Sheet(run.number, self.given)
        if sheet.ended:
            return False
        sheet.write(stream, text)
        self._waiting[run] = sheet
        if "\n" in text or "\r" in text or len(text) >= MOST_WAITING:
            self._send_soon()
        return True

    def _send_soon(self) -> None:
        if self._clock.elapsed_ms() >= self._next_ms:
            self._round()
        if self._waiting and self._thread is None:
            self._thread = Thread(target=self._gather, name="tenure-prints", daemon=True)
            self._thread.start()

    def _gather(self) -> None:
        """Send what waits, round after round, until nothing does."""
        while True:
            self._clock.sleep_ms(max(self._next_ms - self._clock.elapsed_ms(), 1))
            with self._turn:
                self._round()
                if not self._waiting:
                    self._thread = None
                    return

    def _round(self) -> None:
        self._next_ms = self._clock.elapsed_ms() + TICK_MS
        room = _TICK_CHARACTERS
        while room > 0 and self._waiting:
            run = next(iter(self._waiting))
            # Each call gets its turn: what is left of this one comes after the others.
            sheet = self._waiting.pop(run)
            printed = sheet.take()
            if printed is not None:
                self._waiting[run] = sheet
                room -= len(printed.text) + _FRAME_COST
                self._pass_on(printed)

    def _pass_on(self, printed: Printed) -> None:
        # Without an agent there is no log, and soon no child; that is no error of whoever printed.
        with suppress(OSError):
            self._send(printed)


@final
class CallStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a child. `plain` takes what belongs to no call."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, number: int, plain: TextIO, prints: Prints) -> None:
        super().__init__()
        self._number = number
        self._plain = plain
        self._prints = prints
        self.buffer: Final = _CallBytes(self)
        """The stream of bytes below; what is written there is text in UTF-8."""

    def write(self, text: str, /) -> int:
        """Print."""
        run = current()
        if not text or not isinstance(run, Run) or not self._prints.write(run, self._number, text):
            self._plain.write(self._prints.given.text(text))
        return len(text)

    def flush(self) -> None:
        """Send what was printed, soon."""
        run = current()
        if isinstance(run, Run):
            self._prints.flush(run)
        else:
            self._plain.flush()

    def close(self) -> None:
        """Only flush: the next call prints, too."""
        self.flush()

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Never."""
        return False

    def fileno(self) -> int:
        """The descriptor of the worker's own log, for what must be given one."""
        return self._plain.fileno()

    def reconfigure(self, **_: object) -> None:
        """Nothing to choose: text goes out as it is."""


@final
class _CallBytes(io.BufferedIOBase):
    def __init__(self, text: CallStream) -> None:
        super().__init__()
        self._text = text

    def write(self, data: Buffer, /) -> int:
        raw = bytes(data)
        self._text.write(raw.decode(errors="replace"))
        return len(raw)

    def flush(self) -> None:
        self._text.flush()

    def close(self) -> None:
        self._text.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()


@final
class TaskRecords(logging.StreamHandler[TextIO]):
    """Prints what tasks log, from INFO on, unless the program has handlers of its own that do."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        if not logging.getLogger().handlers:
            self.stream = sys.stderr
            super().emit(record)


def capture(prints: Prints) -> None:
    """Put the streams of calls in the place of this process's own."""
    sys.stdout = cast("TextIO", CallStream(1, sys.stdout, prints))
    sys.stderr = cast("TextIO", CallStream(2, sys.stderr, prints))
    logger = logging.getLogger("tenure.task")
    logger.setLevel(logging.INFO)
    logger.addHandler(TaskRecords())
