"""Submitting under one set of options: calls to envelopes, envelopes to requests, requests in a bounded pipeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, Unpack, final, overload

from tenure.client.calls import Call, CallTemplate, Command, Form, Function, command_work, envelope_text
from tenure.client.contents import Contents
from tenure.client.counting import Counted
from tenure.client.handle import Handle, Ties
from tenure.client.options import ClientOptions, CommandOptions
from tenure.client.session import Session
from tenure.errors import TenureError, UsageError
from tenure.handlers.options import TaskDefaults
from tenure.protocol.client_messages import Admitted, Item, Reply, Submit
from tenure.protocol.envelope import Scope, Work
from tenure.protocol.states import TERMINAL_TASK_STATES, TaskState
from tenure.protocol.texts import is_utf8

P = ParamSpec("P")
T = TypeVar("T")


_LONGEST_KEY: Final = 128
_SETTLED: Final = TERMINAL_TASK_STATES | {TaskState.LOST}


class Prepared(NamedTuple):
    """A task that is ready to be sent."""

    envelope: str
    key: str
    handle: Handle[Any]


@final
@dataclass(frozen=True, slots=True)
class Desk:
    """What all submitters of one client share."""

    session: Session
    client_id: str
    options: ClientOptions
    functions: dict[Callable[..., Any] | str, Function]
    ties: Ties
    contents: Contents

    def function(self, function: Callable[..., Any] | str) -> Function:
        """What is known of a function, looked up once per client."""
        known = self.functions.get(function)
        if known is None:
            known = self.functions[function] = Function(function)
        return known


@final
class Submitter:
    """Submits tasks under one set of options; made by `Client.using`. Keep it: it remembers encoded envelopes.

    Every method returns when the coordinator has stored the tasks, so they will run even if this process ends. Errors
    of all of them: UnknownHandler, InvalidArguments, PayloadTooLarge and UsageError before anything is sent;
    OutsideCampaign and OverBudget when the campaign does not allow a request's tasks, of which none was stored then;
    CoordinatorUnreachable and BrokerError when nobody answered: then it is unknown whether the tasks were stored, and
    submitting again under the same `key` is safe.
    """

    def __init__(
        self, desk: Desk, said: TaskDefaults, scope: Scope, key: str = "", counted: Counted | None = None
    ) -> None:
        self._desk = desk
        self._said = said
        self._scope = scope
        self._key = key
        self._counted = counted or Counted()
        self._templates: dict[Function, CallTemplate] = {}

    @overload
    def submit(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...
    @overload
    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Handle[T]: ...
    @overload
    def submit(self, function: str, /, *args: object, **kwargs: object) -> Handle[Any]: ...
    def submit(self, function: Callable[..., Any] | str, /, *args: object, **kwargs: object) -> Handle[Any]:
        """Submit one call of a function, or of "package.module:function". See the class for errors."""
        return self._send([self._prepared(Call(function, args, kwargs, self._key))])[0]

    def submit_many(self, calls: Iterable[Call]) -> list[Handle[Any]]:
        """Submit calls, in order. At a wrong one it stops; a note on the error says how many were stored before."""
        return self._send(self._prepared(call) for call in calls)

    @overload
    def map(self, function: Callable[..., Coroutine[Any, Any, T]], /, *iterables: Iterable[Any]) -> list[Handle[T]]: ...
    @overload
    def map(self, function: Callable[..., T], /, *iterables: Iterable[Any]) -> list[Handle[T]]: ...
    @overload
    def map(self, function: str, /, *iterables: Iterable[Any]) -> list[Handle[Any]]: ...
    def map(self, function: Callable[..., Any] | str, /, *iterables: Iterable[Any]) -> list[Handle[Any]]:
        """Submit one call per tuple of the zipped iterables, up to the shortest; they are read as requests go out."""
        return self.submit_many(Call(function, args) for args in zip(*iterables, strict=False))

    @overload
    def command(
        self, argv: Iterable[str], *, form: Literal["folder", "lines"], **options: Unpack[CommandOptions]
    ) -> Handle[Any]: ...
    @overload
    def command(
        self, argv: Iterable[str], *, form: Literal["stdout"] = "stdout", **options: Unpack[CommandOptions]
    ) -> Handle[str]: ...
    @overload
    def command(self, argv: Iterable[str], *, form: Form, **options: Unpack[CommandOptions]) -> Handle[Any]: ...
    def command(self, argv: Iterable[str], *, form: Form = "stdout", **options: Unpack[CommandOptions]) -> Handle[Any]:
        """Submit one program run. What it is given and what becomes of its files: docs/task_folder.md.

        Args:
            argv: the program and its arguments; no shell reads them.
            form: how it gives its value: "stdout", the text that it prints; "folder", the JSON of its `result.json`;
                "lines", a line `{"result": ...}` among the JSON lines that it prints.
            options: see `CommandOptions`.
        """
        work = command_work(Command(argv, form=form, **options))
        return self._send([self._prepared_work(work, self._key)])[0]

    def submit_work(self, works: Iterable[Work]) -> list[Handle[Any]]:
        """Submit works as they are, in order: calls and commands, unchecked against any function."""
        return self._send(self._prepared_work(work) for work in works)

    # --- one task -----------------------------------------------------------------------------------------------------

    def _prepared(self, call: Call) -> Prepared:
        function = self._desk.function(call.function)
        arguments = function.parameters.bind(call.args, call.kwargs)
        handle: Handle[Any] = Handle(
            self._desk.ties,
            args=call.args,
            kwargs=call.kwargs,
            returns=function.returns,
            lost=self._desk.options.lost,
        )
        return Prepared(self._template(function).envelope(arguments), checked_key(call.key), handle)

    def _prepared_work(self, work: Work, key: str = "") -> Prepared:
        desk = self._desk
        handle: Handle[Any] = Handle(desk.ties, lost=desk.options.lost)
        return Prepared(envelope_text(work, self._said, self._scope), key, handle)

    def _template(self, function: Function) -> CallTemplate:
        template = self._templates.get(function)
        if template is None:
            options = function.defaults.under(self._said)
            template = CallTemplate(function.reference, options, self._scope)
            self._templates[function] = template
        return template

    # --- many tasks ---------------------------------------------------------------------------------------------------

    def _send(self, tasks: Iterable[Prepared]) -> list[Handle[Any]]:
        self._desk.session.refuse_own_thread()
        pipeline = _Pipeline(self._desk, self._key, self._counted)
        try:
            for batch in _batches(tasks, self._desk.options):
                pipeline.send(batch)
            pipeline.finish()
        except TenureError as error:
            pipeline.give_up()
            if pipeline.stored:
                error.add_note(f"{pipeline.stored} of this call's tasks were stored before; they go on")
            raise
        return pipeline.handles


@final
class _Pipeline:
    """Requests sent ahead of their answers, a bounded number at a time."""

    def __init__(self, desk: Desk, key: str, counted: Counted) -> None:
        self._desk = desk
        self._key = key
        self._counted = counted
        self._in_flight: deque[Future[Reply]] = deque()
        self.handles: list[Handle[Any]] = []
        self.stored = 0

    def send(self, batch: list[Prepared]) -> None:
        """Send one request, first waiting for the oldest one when enough are on their way."""
        if len(self._in_flight) >= self._desk.options.requests_in_flight:
            self._in_flight.popleft().result()
        session = self._desk.session
        request_id = session.next_id()
        items = tuple(
            Item.model_construct(key=task.key or self._key_of(request_id, place), envelope=task.envelope)
            for place, task in enumerate(batch)
        )
        handles = [task.handle for task in batch]
        self.handles += handles
        ask = Submit.model_construct(items=items, campaign=self._counted.campaign, cost=self._counted.cost)
        self._in_flight.append(session.post(ask, partial(self._admit, handles), request_id))

    def finish(self) -> None:
        """Wait for everything that is on its way."""
        while self._in_flight:
            self._in_flight.popleft().result()

    def give_up(self) -> None:
        """Wait for what is on its way, whatever becomes of it, so that `stored` is exact."""
        for future in self._in_flight:
            with suppress(TenureError):
                future.result()

    def _key_of(self, request_id: str, place: int) -> str:
        if self._key:
            return checked_key(f"{self._key}:{len(self.handles) + place}")
        return f"{self._desk.client_id}:{request_id}:{place}"

    def _admit(self, handles: list[Handle[Any]], reply: Reply) -> None:
        """Runs in the reading thread, before any notice about these tasks is looked at."""
        if reply.refusal is not None:
            return
        for handle, admitted in zip(handles, reply.admitted, strict=True):
            handle.admit(admitted.task_id, admitted.state)
        self._desk.session.tracker.add(handles)
        self.stored += len(handles)
        self._ask_about_finished(reply.admitted)

    def _ask_about_finished(self, admitted: Iterable[Admitted]) -> None:
        """A repeated key may name a task that is over already, whose notice went out long ago."""
        over = [task.task_id for task in admitted if task.state in _SETTLED]
        if over:
            self._desk.session.watch(over)


def checked_key(key: str) -> str:
    """The key, or a UsageError when it is too long or is no UTF-8."""
    if not is_utf8(key):
        raise UsageError("the key holds half of a surrogate pair", "Choose one of plain letters")
    if len(key) > _LONGEST_KEY:
        raise UsageError(f"the key is {len(key)} characters long", f"Choose one of at most {_LONGEST_KEY}")
    return key


def _batches(tasks: Iterable[Prepared], options: ClientOptions) -> Iterator[list[Prepared]]:
    batch: list[Prepared] = []
    room_bytes = options.batch_bytes
    for task in tasks:
        size_bytes = _size_in_request(task.envelope)
        if batch and (size_bytes > room_bytes or len(batch) >= options.batch_tasks):
            yield batch
            batch, room_bytes = [], options.batch_bytes
        batch.append(task)
        room_bytes -= size_bytes
    if batch:
        yield batch


def _size_in_request(envelope: str) -> int:
    """How many bytes the envelope takes as a quoted text inside a request, with its key."""
    size_bytes = len(envelope) if envelope.isascii() else len(envelope.encode())
    return size_bytes + envelope.count('"') + envelope.count("\\") + _LONGEST_KEY + 32
