"""A scripted fleet for tests of the client: takes requests, remembers tasks, and fails on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any

from tenure.broker.base import Delivery, EntryId, LogChunk, LogKey
from tenure.errors import BrokerError, BrokerUnreachable
from tenure.protocol.client_messages import (
    MAIL,
    REQUEST,
    Admitted,
    Answer,
    Ask,
    Cancel,
    Done,
    Mail,
    Notice,
    Query,
    Refusal,
    Reply,
    Submit,
    Watch,
)
from tenure.protocol.envelope import Envelope, open_envelope
from tenure.protocol.message import decode
from tenure.protocol.states import TERMINAL_TASK_STATES, TaskState
from tenure.protocol.worker_messages import Failure, FailureKind
from tenure.testing import ManualClock

Work = Callable[[Envelope], str | None]


class ScriptedFleet:
    """Coordinator and broker in one. Waiting readers move the clock, so that timeouts need no waiting."""

    def __init__(self, clock: ManualClock, *, time_passes: bool = True) -> None:
        self.clock = clock
        self.time_passes = time_passes
        self.condition = Condition()
        self.asks: list[Ask] = []
        self.raw_requests: list[bytes] = []
        self.principals: set[str] = set()
        self.tasks: dict[str, Done] = {}
        self.envelopes: dict[str, Envelope] = {}
        self.keys: dict[str, str] = {}
        self.epoch = 1
        self.mark = "first"
        self.work: Work | None = None
        """Ends each task at once with the JSON text that it gives."""
        self.down: BrokerError | None = None
        self.down_until_ms = 2**60
        self.silent = False
        self.while_sending: Callable[[], None] | None = None
        """What happens between the begin and the end of each sending."""
        self.drop_replies = 0
        self.drop_notices = False
        self.refusal: Refusal | None = None
        self.warnings: tuple[str, ...] = ()
        self.mails: list[tuple[EntryId, bytes]] = []
        self.closed: list[str] = []
        self.logs: dict[LogKey, list[LogChunk]] = {}
        self.store_address = ""
        self.rows: dict[str, list[dict[str, Any]]] = {}
        """What queries are answered with, by list."""
        self._next_entry = 1

    def connect(self, client_id: str) -> ScriptedBroker:
        return ScriptedBroker(self, client_id)

    def submitted(self) -> list[Submit]:
        return [ask for ask in self.asks if isinstance(ask, Submit)]

    def watched(self) -> list[Watch]:
        return [ask for ask in self.asks if isinstance(ask, Watch)]

    def post(self, *answers: Answer, epoch: int | None = None) -> None:
        mail = Mail(epoch=self.epoch if epoch is None else epoch, answers=answers)
        self.post_raw(MAIL.dump_json(mail))

    def post_raw(self, raw: bytes) -> None:
        with self.condition:
            self.mails.append((EntryId(self._next_entry, 0), raw))
            self._next_entry += 1
            self.condition.notify_all()

    def end(self, task_id: str, state: TaskState = TaskState.SUCCEEDED, value: str | None = None) -> None:
        failure = Failure(kind=FailureKind.EXCEPTION, message="ValueError: no", trace="Traceback ...")
        self.tasks[task_id] = Done(
            task_id=task_id,
            state=state,
            attempt=1,
            fence=7,
            value=value if state is TaskState.SUCCEEDED else None,
            failure=failure if state is TaskState.FAILED else None,
        )
        if not self.drop_notices:
            self.post(Notice(done=(self.tasks[task_id],)))

    def take(self, raw: bytes) -> None:
        self.raw_requests.append(raw)
        request = decode(REQUEST, raw)
        self.asks.append(request.ask)
        self.principals.add(request.principal)
        if self.silent:
            return
        reply, ended = self._answer(request.request_id, request.ask)
        if self.drop_replies:
            self.drop_replies -= 1
            return
        self.post(reply)
        if ended and (isinstance(request.ask, Watch) or not self.drop_notices):
            self.post(Notice(done=tuple(ended)))

    def _answer(self, request_id: str, ask: Ask) -> tuple[Reply, list[Done]]:
        if self.refusal is not None:
            return Reply(request_id=request_id, refusal=self.refusal), []
        match ask:
            case Submit():
                known = set(self.tasks)
                admitted = tuple(self._admit(item.key, item.envelope) for item in ask.items)
                fresh = [task.task_id for task in admitted if task.task_id not in known]
                ended = [self.tasks[task_id] for task_id in fresh if self._is_over(task_id)]
                return Reply(request_id=request_id, admitted=admitted, warnings=self.warnings), ended
            case Watch():
                return self._watch(request_id, ask.task_ids)
            case Cancel():
                ended = [Done(task_id=i, state=TaskState.CANCELLED) for i in ask.task_ids if self._is_queued(i)]
                self.tasks.update({done.task_id: done for done in ended})
                rows = tuple({"task_id": i, "state": str(self.tasks[i].state)} for i in ask.task_ids)
                return Reply(request_id=request_id, rows=rows), ended
            case Query() if ask.what in self.rows:
                return Reply(request_id=request_id, rows=tuple(self.rows[ask.what])), []
            case _:
                return Reply(request_id=request_id, rows=({"asked": ask.kind},)), []

    def _watch(self, request_id: str, task_ids: Sequence[str]) -> tuple[Reply, list[Done]]:
        if any(task_id not in self.tasks for task_id in task_ids):
            return Reply(request_id=request_id, refusal=Refusal(code="unknown_task", message="no such task")), []
        return Reply(request_id=request_id), [self.tasks[i] for i in task_ids if self._is_over(i)]

    def _is_queued(self, task_id: str) -> bool:
        return self.tasks[task_id].state is TaskState.QUEUED

    def _is_over(self, task_id: str) -> bool:
        return self.tasks[task_id].state in TERMINAL_TASK_STATES | {TaskState.LOST}

    def _admit(self, key: str, envelope: str) -> Admitted:
        task_id = self.keys.get(key)
        if task_id is not None:
            return Admitted(task_id=task_id, state=self.tasks[task_id].state, fresh=False)
        task_id = self.keys[key] = f"{len(self.keys):026d}"
        opened = self.envelopes[task_id] = open_envelope(envelope.encode())
        value = self.work(opened) if self.work else None
        state = TaskState.QUEUED if value is None else TaskState.SUCCEEDED
        self.tasks[task_id] = Done(task_id=task_id, state=state, value=value, fence=None if value is None else 7)
        return Admitted(task_id=task_id, state=TaskState.QUEUED, fresh=True)


class ScriptedBroker:
    """A `ClientBroker` on a `ScriptedFleet`."""

    def __init__(self, fleet: ScriptedFleet, client_id: str) -> None:
        self._fleet = fleet
        self._client_id = client_id
        self._closed = False

    def ask(self, raw: bytes) -> None:
        if self._fleet.while_sending is not None:
            self._fleet.while_sending()
        self._check()
        self._fleet.take(raw)

    def answers(self, *, after: EntryId, block_ms: int) -> list[Delivery]:
        self._check()
        fleet = self._fleet
        with fleet.condition:
            if not any(entry_id > after for entry_id, _ in fleet.mails) and not self._closed:
                fleet.condition.wait(0.002)
            found = [Delivery(entry_id, raw) for entry_id, raw in fleet.mails if entry_id > after]
        if not found and fleet.time_passes:
            fleet.clock.advance_ms(block_ms)
        return found

    def printed(self, log: LogKey, *, after: EntryId, block_ms: int) -> list[tuple[EntryId, LogChunk]]:
        self._check()
        chunks = self._fleet.logs.get(log, [])
        found = [(EntryId(1, n), chunk) for n, chunk in enumerate(chunks, start=1) if EntryId(1, n) > after]
        if not found and self._fleet.time_passes:
            self._fleet.clock.advance_ms(block_ms)
        return found

    def store_address(self) -> str:
        self._check()
        return self._fleet.store_address

    def marker(self) -> str:
        self._check()
        return self._fleet.mark

    def close(self) -> None:
        self._closed = True
        self._fleet.closed.append(self._client_id)

    def _check(self) -> None:
        if self._closed:
            raise BrokerUnreachable("closed")
        if self._fleet.down is not None and self._fleet.clock.elapsed_ms() < self._fleet.down_until_ms:
            raise self._fleet.down
