"""A TCP proxy on loopback whose line a test can cut, slow down, deafen in one direction, or let lead nowhere."""

import selectors
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, RLock, Thread

from tenure.clock import SystemClock

_LOOK_S = 0.005
_CHUNK = 256 * 1024


@dataclass
class Leg:
    """One direction of a connection: what came from `source` and is on its way to `sink`."""

    source: socket.socket
    sink: socket.socket
    is_up: bool
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque[tuple[int, bytes]])


class Proxy:
    """Passes connections on to `target`, a port or the path of a socket; `up` is towards it, `down` is back.

    What is not passed on stays where a slow network would keep it, and comes late when the line is good again.
    """

    def __init__(self, target: int | str) -> None:
        self.target = target
        self.up = True
        self.down = True
        self.delay_ms = 0
        self._clock = SystemClock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._legs: dict[socket.socket, Leg] = {}
        self._lock = RLock()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.cut()
        self._selector.close()
        self._listener.close()

    # --- what a test does to the line -----------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection that there is; new ones are made at once."""
        with self._lock:
            for end in list(self._legs):
                if end in self._legs:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    self._drop(end)

    def half_close(self) -> None:
        """End the direction back to whoever connected, and leave the other one open."""
        with self._lock:
            for leg in self._legs.values():
                if not leg.is_up:
                    with suppress(OSError):
                        leg.sink.shutdown(socket.SHUT_WR)

    def lead_nowhere(self) -> None:
        """Take everything and pass nothing on, in both directions; connections seem to be made."""
        self.up = self.down = False

    def heal(self) -> None:
        """Pass everything on again, also what has been waiting."""
        self.up = self.down = True
        self.delay_ms = 0

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            ready = self._selector.select(_LOOK_S)
            with self._lock:
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._legs:
                        self._take(self._legs[key.fileobj])
                for leg in list(self._legs.values()):
                    self._pass_on(leg)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = self._reach()
        except OSError:
            near.close()
            return
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for end in (near, far):
            end.setblocking(True)  # noqa: FBT003 - the standard library takes it by position only
        self._legs[near] = Leg(near, far, is_up=True)
        self._legs[far] = Leg(far, near, is_up=False)
        for end in (near, far):
            self._selector.register(end, selectors.EVENT_READ)

    def _reach(self) -> socket.socket:
        if isinstance(self.target, int):
            far = socket.create_connection(("127.0.0.1", self.target), timeout=1)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return far
        far = socket.socket(socket.AF_UNIX)
        far.settimeout(1)
        far.connect(self.target)
        return far

    def _take(self, leg: Leg) -> None:
        try:
            data = leg.source.recv(_CHUNK)
        except OSError:
            data = b""
        if data:
            leg.waiting.append((self._clock.elapsed_ms() + self.delay_ms, data))
        else:
            self._drop(leg.source)

    def _pass_on(self, leg: Leg) -> None:
        while leg.waiting and (self.up if leg.is_up else self.down) and leg.waiting[0][0] <= self._clock.elapsed_ms():
            try:
                leg.sink.sendall(leg.waiting.popleft()[1])
            except OSError:
                self._drop(leg.source)
                return

    def _drop(self, end: socket.socket) -> None:
        leg = self._legs.pop(end, None)
        if leg is None:
            return
        with suppress(KeyError, ValueError):
            self._selector.unregister(end)
        end.close()
        self._drop(leg.sink)
