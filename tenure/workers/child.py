"""The child: a reused process that imports handlers and runs calls.

Sync handlers run one at a time in the main thread; async handlers run side by side in one event loop. Results go out at
once, over a socket of their own, and with them what calls print; whatever else is printed goes to the worker's own log.

User code may do anything here. It may end the process (the runner reports that), raise anything (a failure like any
other), fork (a copy that comes back from a handler ends at once), or spoil the descriptors (the agent then ends the
tree). On SIGTERM a handler that has ever asked `current().cancelled()` is left to end by itself; any other gets
`Stopped` raised where it is, so that its `finally` blocks run.

Started by the runner as `python -m tenure.workers.child [--allow <module>]... <calls descriptor> <results descriptor>`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from threading import RLock
from typing import TYPE_CHECKING, Final, final

from tenure.clock import SystemClock
from tenure.handlers.context import running
from tenure.handlers.resolve import Handler, load
from tenure.processes.frames import frame
from tenure.workers.calls import MAX_PACKET_BYTES, Call, FromChild, Imported, Ready, Returned, read_packet, write_frame
from tenure.workers.child_failures import failed, rendered
from tenure.workers.child_prints import Prints, capture
from tenure.workers.child_run import Run, Stopped
from tenure.workers.child_secrets import GivenSecrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.clock import Clock
    from tenure.workers.child_async import Loop


@final
class Child:
    """Serves calls until the agent closes the socket.

    Args:
        calls: packets with calls; also read by the agent, so its flags are never changed.
        results: the stream of frames to the agent.
        allowed: modules that handlers may come from.
        clock: for durations.
    """

    def __init__(self, calls: socket.socket, results: socket.socket, allowed: Sequence[str], clock: Clock) -> None:
        self.calls: Final = calls
        self.clock: Final = clock
        self._results = results
        # Reentrant, because a signal handler may tell something while its thread does.
        self._sending = RLock()
        self.given: Final = GivenSecrets()
        """The secrets that calls were given."""
        self.prints: Final = Prints(self.send, clock, self.given)
        """What calls print."""
        self._allowed = allowed
        self._handlers: dict[str, Handler] = {}
        self._pid = os.getpid()
        self._run: Run | None = None
        self._loop: Loop | None = None
        self.ending = False

    def serve(self) -> None:
        """Run calls until there are no more to come."""
        signal.signal(signal.SIGTERM, self._on_term)
        self.send(Ready())
        while packet := self.calls.recv(MAX_PACKET_BYTES):
            message = read_packet(packet)
            if isinstance(message, Call):
                self.run(message)

    def run(self, call: Call) -> None:
        """Run one call to its end; an async one together with all that come meanwhile."""
        began_ms = self.clock.elapsed_ms()
        try:
            handler = self.handler(call.handler)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 - importing runs user code, which may raise anything
            self.send(failed(call.call, self.clock.elapsed_ms() - began_ms, error, self.given))
            return
        if handler.is_async:
            self._run_loop(call)
        else:
            self.send(self._run_sync(handler, call))

    def _run_sync(self, handler: Handler, call: Call) -> FromChild:
        began_ms = self.clock.elapsed_ms()
        try:
            self._run = run = self.context(call)
            try:
                with running(run):
                    value = handler.call(call.arguments)
            finally:
                self.prints.end(run)
            return Returned(call.call, self.clock.elapsed_ms() - began_ms, rendered(value, self.given))
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            return failed(call.call, self.clock.elapsed_ms() - began_ms, error, self.given)
        finally:
            self._run = None

    def handler(self, reference: str) -> Handler:
        """The handler of that reference, imported once. Raises what `tenure.handlers.resolve.load` raises."""
        handler = self._handlers.get(reference)
        if handler is None:
            handler = load(reference, self._allowed)
            self._handlers[reference] = handler
            self.send(Imported(reference, handler.is_async))
        return handler

    def context(self, call: Call) -> Run:
        """What `tenure.current()` gives to that call."""
        return Run(call, self.send, self.clock, self.given)

    def send(self, message: FromChild) -> None:
        """Send a message to the agent; never from a forked copy of this process."""
        if os.getpid() != self._pid:
            os._exit(1)
        data = frame(write_frame(message))
        with self._sending:
            self._results.sendall(data)

    def _run_loop(self, first: Call) -> None:
        # Loaded here: asyncio doubles the time that a child with sync handlers takes to start.
        from tenure.workers.child_async import Loop

        if self._loop is None:
            self._loop = Loop(self)
        for call in self._loop.run(first):
            self.run(call)

    def _on_term(self, *_: object) -> None:
        context = self._run
        if context is None:
            self.ending = True
            raise Stopped
        context.stop()


def main(arguments: list[str]) -> int:
    """Run a child until its agent closes the socket."""
    *options, calls, results = arguments
    allowed = [module for flag, module in zip(options[::2], options[1::2], strict=True) if flag == "--allow"]
    for descriptor in (int(calls), int(results)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003
    os.dup2(2, 1)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    child = Child(socket.socket(fileno=int(calls)), socket.socket(fileno=int(results)), allowed, SystemClock())
    capture(child.prints)
    try:
        child.serve()
    except (Stopped, OSError):
        return 1
    finally:
        child.prints.close()
    return 0


if __name__ == "__main__":
    # Handlers' exit functions and left-over threads must not keep the process: the runner would have to kill it.
    os._exit(main(sys.argv[1:]))
