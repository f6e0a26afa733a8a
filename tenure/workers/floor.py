"""The floor: the worker's slots, and which of them takes a hold that may start.

A slot runs one command, or short calls one after the other, or async calls side by side. A call is put behind others
in the same child only when all of them are known to be short; nothing is ever put behind an unknown handler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from tenure.protocol.envelope import CallWork
from tenure.protocol.timing import grace_ms
from tenure.protocol.worker_messages import Cause
from tenure.workers.actions import AllowUntil, StartCall, StartCommand
from tenure.workers.conclusions import give_back
from tenure.workers.holds import NEVER, Hold, Stage
from tenure.workers.pace import SOCKET_MS
from tenure.workers.provision import works_with_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.workers.ledger import Ledger
    from tenure.workers.pace import Pace
    from tenure.workers.rights import Rights

_UNKNOWN_MS: Final = 1e9
_LONG_MS: Final = 100
_FIRST_PAUSE_MS: Final = 250
_LONGEST_PAUSE_MS: Final = 30_000


@final
@dataclass(slots=True, eq=False)
class Slot:
    """One slot. `placed` holds what its process was given and has not ended, in order, by call number."""

    index: int
    placed: dict[int, Hold] = field(default_factory=dict[int, Hold])
    backlog_ms: float = 0.0
    is_async: bool = False
    is_command: bool = False
    is_alone: bool = False
    """Whether what runs here, a call with files, has the slot to itself."""
    is_ready: bool = False
    """Whether the slot's child has started; what is placed before does not run yet."""
    waiting_since_ms: int = NEVER
    recalling: bool = False
    ending: bool = False
    until_ms: int | None = None
    failures: int = 0
    usable_ms: int = 0

    def head(self) -> Hold | None:
        """What runs, of a slot that runs one thing after the other."""
        return next(iter(self.placed.values()), None)

    def busy_for_ms(self, now_ms: int) -> int:
        """How long the oldest running thing has been running."""
        head = self.head()
        return now_ms - head.began_ms if head is not None and head.began_ms != NEVER else 0


@final
class Floor:
    """The slots of one worker."""

    def __init__(self, slots: int, ledger: Ledger, pace: Pace, rights: Rights) -> None:
        self.slots: Final = tuple(Slot(index) for index in range(slots))
        self._ledger = ledger
        self._pace = pace
        self._rights = rights
        self._async_handlers: dict[str, bool] = {}
        self._learning: dict[str, Hold] = {}

    def window(self, now_ms: int) -> int:
        """How many assignments the worker wants in hand."""
        usable = [slot for slot in self.slots if slot.usable_ms <= now_ms]
        long = sum(slot.busy_for_ms(now_ms) > _LONG_MS for slot in usable if not slot.is_async)
        return self._pace.window(quick_slots=len(usable) - long, long_slots=long)

    def pump(self, now_ms: int) -> None:
        """Place every hold that may start and for which there is room."""
        ready = self._ledger.ready
        waiting: list[Hold] = []
        while ready:
            hold = ready.popleft()
            if hold.stage is not Stage.READY:
                continue
            if now_ms >= self._rights.deadline_ms(hold):
                hold.detail = "its right to run had passed before there was a place for it"
                give_back(self._ledger, hold, Cause.SELF_FENCED, now_ms)
                continue
            slot = self._slot_for(hold, now_ms) if self._may_start(hold) else None
            if slot is None:
                waiting.append(hold)
                if len(waiting) > len(self.slots) + 1 and not self._free():
                    break
            else:
                self._place(hold, slot, now_ms)
        ready.extendleft(reversed(waiting))

    def remove(self, slot: Slot, hold: Hold, now_ms: int) -> None:
        """A hold has left the slot's process."""
        if slot.placed.pop(hold.call, None) is None:
            return
        slot.backlog_ms -= hold.expected_ms
        self._learned(hold)
        head = slot.head()
        if head is None:
            slot.is_async = slot.is_command = slot.is_alone = False
            slot.backlog_ms, slot.waiting_since_ms = 0.0, NEVER
        elif head.began_ms == NEVER and slot.is_ready:
            head.began_ms = now_ms

    def child_ready(self, slot: Slot, now_ms: int) -> None:
        """The slot's child has started: what waits for it begins now."""
        slot.is_ready, slot.waiting_since_ms = True, NEVER
        for index, hold in enumerate(slot.placed.values()):
            if index == 0 or slot.is_async:
                hold.began_ms = now_ms

    def handler_seen(self, slot: Slot, handler: str, *, is_async: bool) -> None:
        """A child has imported a handler; async ones may from now on run side by side."""
        self._async_handlers[handler] = is_async
        self._learning.pop(handler, None)
        if is_async and slot.placed and not slot.is_command and not slot.is_alone:
            slot.is_async = True

    def push_deadlines(self) -> None:
        """Tell every runner until when what it runs may run."""
        for slot in self.slots:
            if slot.placed:
                until_ms: int | None = min(map(self._rights.deadline_ms, slot.placed.values()))
            else:
                until_ms = None
            self._allow(slot, until_ms)

    def ended(self, slot: Slot, now_ms: int, *, useless: bool) -> None:
        """The slot's process tree has ended; `useless` says that it never began anything, so that a pause is due."""
        slot.ending = slot.recalling = slot.is_ready = False
        slot.waiting_since_ms = NEVER
        slot.until_ms = None
        if useless:
            slot.usable_ms = now_ms + min(_FIRST_PAUSE_MS << min(slot.failures, 10), _LONGEST_PAUSE_MS)
            slot.failures += 1

    def blocked(self, now_ms: int, limit_ms: int) -> bool:
        """Whether there is no room, and everything that takes room has been running for `limit_ms`."""
        if self._free() > 0 and any(not slot.placed for slot in self._open(now_ms)):
            return False
        return all(slot.busy_for_ms(now_ms) > limit_ms for slot in self.slots if slot.placed)

    def _free(self) -> int:
        busy = sum(len(slot.placed) if slot.is_async else bool(slot.placed) for slot in self.slots)
        return len(self.slots) - busy

    def _may_start(self, hold: Hold) -> bool:
        older = hold.predecessor
        if older is not None and older.stage is not Stage.OVER:
            return False
        hold.predecessor = None
        # The first call of a handler tells whether it is async: until then a crowd of them would fill all slots.
        return not (isinstance(hold.work, CallWork) and hold.work.handler in self._learning)

    def _learned(self, hold: Hold) -> None:
        if isinstance(hold.work, CallWork) and self._learning.get(hold.work.handler) is hold:
            del self._learning[hold.work.handler]

    def _slot_for(self, hold: Hold, now_ms: int) -> Slot | None:
        free = self._free()
        needs_all = works_with_files(hold.work, hold.provision)
        if isinstance(hold.work, CallWork):
            handler = hold.work.handler
            hold.expected_ms = self._pace.expected_ms(handler) or _UNKNOWN_MS
            if self._async_handlers.get(handler) and not needs_all:
                packed = next((slot for slot in self._open(now_ms) if slot.is_async), None) if free > 0 else None
                if packed is not None:
                    return packed
        else:
            hold.expected_ms = _UNKNOWN_MS
        if free > 0:
            empty = next((slot for slot in self._open(now_ms) if not slot.placed), None)
            if empty is not None:
                return empty
        return None if needs_all else self._short_queue(hold, now_ms)

    def _short_queue(self, hold: Hold, now_ms: int) -> Slot | None:
        best: Slot | None = None
        for slot in self._open(now_ms):
            if slot.is_async or slot.is_alone or not slot.placed or slot.recalling:
                continue
            if slot.backlog_ms + hold.expected_ms <= SOCKET_MS and (best is None or slot.backlog_ms < best.backlog_ms):
                best = slot
        if best is None or best.busy_for_ms(now_ms) > SOCKET_MS * 2:
            return None
        return best

    def _open(self, now_ms: int) -> Iterator[Slot]:
        return (slot for slot in self.slots if not slot.ending and slot.usable_ms <= now_ms)

    def _place(self, hold: Hold, slot: Slot, now_ms: int) -> None:
        work = hold.work
        if work is None:
            return
        slot.is_alone = works_with_files(work, hold.provision)
        is_async = isinstance(work, CallWork) and self._async_handlers.get(work.handler, False) and not slot.is_alone
        alone = not slot.placed
        if not isinstance(work, CallWork):
            # The child, if there is one, is ended to make room.
            slot.is_command, slot.is_ready = True, False
        elif not slot.is_ready and alone:
            slot.waiting_since_ms = now_ms
        hold.stage, hold.slot = Stage.PLACED, slot.index
        hold.began_ms = now_ms if slot.is_command or (slot.is_ready and (alone or is_async)) else NEVER
        slot.placed[hold.call] = hold
        slot.backlog_ms += hold.expected_ms
        slot.is_async = slot.is_async or is_async
        until_ms = self._rights.deadline_ms(hold)
        if slot.until_ms is None or until_ms < slot.until_ms:
            self._allow(slot, until_ms)
        if isinstance(work, CallWork):
            if work.handler not in self._async_handlers and self._pace.expected_ms(work.handler) is None:
                self._learning[work.handler] = hold
            self._ledger.act(StartCall(slot.index, hold.call, hold.binding, work, hold.provision))
        else:
            self._ledger.act(StartCommand(slot.index, hold.call, hold.binding, work, hold.provision))

    def _allow(self, slot: Slot, until_ms: int | None) -> None:
        if until_ms == slot.until_ms:
            return
        slot.until_ms = until_ms
        shortest_ms = min((hold.ttl_ms for hold in slot.placed.values()), default=0)
        self._ledger.act(AllowUntil(slot.index, until_ms, grace_ms(shortest_ms)))
