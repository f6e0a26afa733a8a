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

    def run(self, first: Call) -> None:
        """Run `first`, and everything that comes until nothing is running."""
        self._runner.run(self._serve(first))

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
        running_call = self._tasks.get(message.call)
        if running_call is not None:
            task, context = running_call
            context.note_cancelled()
            task.cancel()

    def _start(self, call: Call) -> None:
        context = self._child.context(call)
        task = asyncio.get_running_loop().create_task(self._run(call, context))
        self._tasks[call.call] = (task, context)
        task.add_done_callback(lambda _: self._ended(call))

    async def _run(self, call: Call, context: Run) -> None:
        began_ms = self._child.clock.elapsed_ms()
        try:
            handler = self._child.handler(call.handler)
            with running(context):
                value = handler.call(call.arguments)
                if handler.is_async:
                    value = await value
            message: FromChild = Returned(call.call, self._elapsed_ms(began_ms), rendered(value))
        except Stopped:
            raise
        except asyncio.CancelledError as error:
            if self._child.ending:
                raise
            if context.stopped:
                message = Dropped(call.call, self._elapsed_ms(began_ms))
            else:
                message = failed(call.call, self._elapsed_ms(began_ms), error)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            message = failed(call.call, self._elapsed_ms(began_ms), error)
        self._child.send(message)

    def _elapsed_ms(self, began_ms: int) -> int:
        return self._child.clock.elapsed_ms() - began_ms

    def _ended(self, call: Call) -> None:
        del self._tasks[call.call]
        if not self._tasks:
            self._idle.set()
