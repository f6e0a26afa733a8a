"""The child's event loop: async calls side by side, until none is left."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, final

from tenure.handlers.context import running
from tenure.workers.calls import MAX_PACKET_BYTES, Call, Dropped, FromChild, Returned, read_packet
from tenure.workers.child_failures import failed, rendered
from tenure.workers.child_run import Run, Stopped

if TYPE_CHECKING:
    from tenure.handlers.resolve import Handler
    from tenure.workers.child import Child


@final
class Loop:
    """Runs async calls in one event loop, which is kept: what handlers bind to it stays usable from call to call.

    While none is running the child reads calls one by one, so that sync handlers find no running loop.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._runner = asyncio.Runner()
        self._tasks: dict[int, tuple[asyncio.Task[None], Run]] = {}
        self._idle = asyncio.Event()
        self._deferred: list[Call] = []

    def run(self, first: Call) -> list[Call]:
        """Run `first`, and everything that comes until nothing is running; answers sync calls that came meanwhile."""
        self._runner.run(self._serve(first))
        deferred, self._deferred = self._deferred, []
        return deferred

    async def _serve(self, first: Call) -> None:
        loop = asyncio.get_running_loop()
        self._idle.clear()
        loop.add_reader(self._child.calls.fileno(), self._read)
        try:
            self._start(first)
            await self._idle.wait()
        finally:
            loop.remove_reader(self._child.calls.fileno())

    def _read(self) -> None:
        try:
            packet = self._child.calls.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not packet:
            # The agent is gone; the child's own loop sees the end of the socket again.
            self._idle.set()
            return
        message = read_packet(packet)
        if isinstance(message, Call):
            self._start(message)
            return
        if message.call in self._tasks:
            task, context = self._tasks[message.call]
            context.note_cancelled()
            task.cancel()

    def _start(self, call: Call) -> None:
        began_ms = self._child.clock.elapsed_ms()
        try:
            handler = self._child.handler(call.handler)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 - importing runs user code, which may raise anything
            self._child.send(failed(call.call, self._child.clock.elapsed_ms() - began_ms, error, self._child.given))
            return
        loop = asyncio.get_running_loop()
        if not handler.is_async:
            # It may want to run a loop of its own, so it waits for the end of this one, and so do those behind it.
            self._deferred.append(call)
            loop.remove_reader(self._child.calls.fileno())
            return
        context = self._child.context(call)
        task = loop.create_task(self._run(call, handler, context))
        self._tasks[call.call] = (task, context)
        task.add_done_callback(lambda _: self._ended(call))

    async def _run(self, call: Call, handler: Handler, context: Run) -> None:
        began_ms = self._child.clock.elapsed_ms()
        try:
            try:
                with running(context):
                    value = await handler.call(call.arguments)
            finally:
                self._child.prints.end(context)
            message: FromChild = Returned(call.call, self._elapsed_ms(began_ms), rendered(value, self._child.given))
        except Stopped:
            raise
        except asyncio.CancelledError as error:
            if self._child.ending:
                raise
            if context.stopped:
                message = Dropped(call.call, self._elapsed_ms(began_ms))
            else:
                message = failed(call.call, self._elapsed_ms(began_ms), error, self._child.given)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            message = failed(call.call, self._elapsed_ms(began_ms), error, self._child.given)
        self._child.send(message)

    def _elapsed_ms(self, began_ms: int) -> int:
        return self._child.clock.elapsed_ms() - began_ms

    def _ended(self, call: Call) -> None:
        del self._tasks[call.call]
        if not self._tasks:
            self._idle.set()
