"""The command line in tests: run a command line in this process, over a fleet that answers from a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Unpack, cast

import pytest

from tenure.artifacts.memory import MemoryStore
from tenure.broker.acl import Grant
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore as BrokerStore
from tenure.broker.principals import Principal
from tenure.broker.provisioning import User
from tenure.broker.url import BrokerUrl
from tenure.cli.desk import Session
from tenure.cli.main import run
from tenure.client.calls import Call
from tenure.client.contents import Contents
from tenure.client.handle import Handle, Ties
from tenure.client.logs import LogReader
from tenure.client.options import SubmitOptions
from tenure.errors import BrokerError, TenureError
from tenure.protocol.artifact import Bundle
from tenure.protocol.client_messages import Ask, Done, Query, Reply
from tenure.protocol.states import TaskState
from tenure.protocol.worker_messages import Failure, FailureKind
from tenure.settings import Settings
from tenure.testing import ManualClock, SeededEntropy

START_MS = 1_700_000_000_000
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def task_id(number: int, at_ms: int = START_MS) -> str:
    """The id of a task that was submitted at that moment."""
    time = "".join(_DIGITS[(at_ms >> shift) & 31] for shift in range(45, -1, -5))
    return f"{time}{number:016d}"


class Printed(NamedTuple):
    """What one command line did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class FakeTask:
    """A task as the fake fleet keeps it."""

    task_id: str
    key: str
    work: Any
    done: Done | None = None


@dataclass
class FakeFleet:
    """Answers questions with `rows` by kind or list name, and ends tasks as `ends` says."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, "list[dict[str, Any]]"])
    error: TenureError | None = None
    refuses: Literal["everything", "using"] = "everything"
    """What `error` is raised by."""
    now_ms: int = START_MS
    store: MemoryStore = field(default_factory=lambda: MemoryStore(ManualClock()))
    broker: MemoryBroker = field(default_factory=lambda: MemoryBroker(BrokerStore(ManualClock()), Keys("main")))
    """Where tasks' logs are."""
    outputs: Bundle | None = None
    """What tasks leave that end well."""
    asked: list[Ask] = field(default_factory=list["Ask"])
    options: list[SubmitOptions] = field(default_factory=list["SubmitOptions"])
    tasks: dict[str, FakeTask] = field(default_factory=dict[str, FakeTask])
    """By key."""
    ends: Callable[[Any], Any] | None = None
    """Called with the work of a fresh task; its answer is a value, or an exception to fail with, or None to go on."""
    on_credentials: Callable[[FakeFleet], None] = lambda _: None
    """Called before the credentials on record are told: somebody else may have changed them."""

    def __post_init__(self) -> None:
        self.contents = Contents(lambda: self.store, ManualClock(), SeededEntropy(2))
        self.log_reader = LogReader(self.ask, lambda: self.broker.client(client_id="c"), self.contents, ManualClock())

    def ask(self, request: Ask) -> Reply:
        self.asked.append(request)
        if self.error is not None and self.refuses == "everything":
            raise self.error
        name = request.what if isinstance(request, Query) else request.kind
        return Reply(request_id="r1", rows=tuple(self._rows(name, request)))

    def using(self, **options: Unpack[SubmitOptions]) -> Any:
        if self.error is not None:
            raise self.error
        self.options.append(options)
        return FakeSubmitter(self, options)

    def handle(self, task_id: str) -> Handle[Any]:
        task = next(task for task in self.tasks.values() if task.task_id == task_id)
        return self.attached(task)

    def add(self, key: str, work: object) -> Handle[Any]:
        """Submit under a key: a second submission is the first task."""
        if key not in self.tasks:
            task = self.tasks[key] = FakeTask(task_id(len(self.tasks), self.now_ms), key, work)
            task.done = self._end(task)
        return self.attached(self.tasks[key])

    def attached(self, task: FakeTask) -> Handle[Any]:
        handle: Handle[Any] = Handle(Ties(lambda _: None, self.contents.fetch))
        handle.admit(task.task_id, TaskState.QUEUED)
        if task.done is not None:
            handle.settle(task.done)
        return handle

    def _end(self, task: FakeTask) -> Done | None:
        value = self.ends(task.work) if self.ends else None
        if value is None:
            return None
        if isinstance(value, TaskState):
            return Done(task_id=task.task_id, state=value)
        if isinstance(value, Exception):
            failure = Failure(kind=FailureKind.EXCEPTION, message=str(value), trace="Traceback: here")
            return Done(task_id=task.task_id, state=TaskState.FAILED, attempt=1, fence=1, failure=failure)
        return Done(
            task_id=task.task_id,
            state=TaskState.SUCCEEDED,
            attempt=1,
            fence=1,
            value=json.dumps(value),
            outputs=self.outputs,
        )

    def _rows(self, name: str, request: Ask) -> list[dict[str, Any]]:
        if name == "status":
            return self.rows.get(name) or [{"now_ms": self.now_ms}]
        if isinstance(request, Query) and dict(request.where).keys() == {"key"}:
            return [{"task_id": "x"}] if dict(request.where)["key"] in self.tasks else []
        if isinstance(request, Query) and name == "credentials":
            return self._credentials(dict(request.where))[: request.limit]
        if isinstance(request, Query) and name == "directives":
            return [row for row in self.rows.get(name, []) if dict(request.where).items() <= row.items()]
        return self.rows.get(name, [])

    def _credentials(self, where: dict[str, str]) -> list[dict[str, Any]]:
        self.on_credentials(self)
        after = where.pop("after", "")
        found = self.rows.get("credentials", [])
        return [row for row in found if row["name"] > after and where.items() <= row.items()]


@dataclass
class FakeSubmitter:
    """What `using` gives."""

    fleet: FakeFleet
    options: SubmitOptions

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        return self.fleet.add(self.options.get("key", f"k{len(self.fleet.tasks)}"), Call(function, args, kwargs))

    def command(self, argv: Sequence[str], **said: Any) -> Handle[Any]:
        work = (tuple(argv), said) if said else tuple(argv)
        return self.fleet.add(self.options.get("key", f"k{len(self.fleet.tasks)}"), work)

    def submit_many(self, calls: Sequence[Call]) -> list[Handle[Any]]:
        return [self.fleet.add(call.key, call) for call in calls]


def user_of(grant: Grant) -> User:
    """The user that a broker would have by this grant."""
    return User(
        is_on=True, needs_no_secret=False, digests=frozenset(grant.digests), rights=grant.rights, has_more=False
    )


@dataclass
class FakeNodes:
    """The broker's users, as commands make and end them."""

    error: BrokerError | None = None
    """Raised by every step but the look at who is there."""
    keeps: bool = True
    grants: dict[Principal, Grant] = field(default_factory=dict["Principal", "Grant"])
    there: set[Principal] = field(default_factory=set["Principal"])
    steps: list[str] = field(default_factory=list[str])
    urls: list[str] = field(default_factory=list[str])
    addresses: tuple[str, ...] = ("h:1",)
    have: dict[str, User] = field(default_factory=dict[str, "User"])
    """What `found` finds."""
    feeds: int = 0
    deaf: BrokerError | None = None
    """Raised when one looks who is there."""

    def put(self, *grants: Grant) -> bool:
        for grant in grants:
            self._step("put", grant.principal)
            self.grants[grant.principal] = grant
            self.there.add(grant.principal)
        return self.keeps

    def drop(self, *principals: Principal) -> bool:
        for principal in principals:
            self._step("drop", principal)
            self.there.discard(principal)
        return self.keeps

    def disconnect(self, principal: Principal) -> int:
        self._step("disconnect", principal)
        return 1

    def users(self, namespace: str) -> frozenset[Principal]:
        if self.deaf is not None:
            raise self.deaf
        return frozenset(each for each in self.there if each.namespace == namespace)

    def found(self, user: str) -> list[User | None]:
        return [self.have.get(user)]

    def as_granted(self, grant: Grant) -> list[User]:
        return [user_of(grant)]

    def replicas(self) -> int:
        return self.feeds

    def _step(self, what: str, principal: Principal) -> None:
        if self.error is not None:
            raise self.error
        self.steps.append(f"{what} {principal.user}")


class CommandLine:
    """Runs command lines over a fake fleet and tells what they printed."""

    def __init__(self, fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
        self.fleet = fleet
        self.clock = ManualClock(START_MS)
        self.nodes = FakeNodes()
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Printed:
        self._capsys.readouterr()
        with self.session() as session:
            code = run(arguments, session)
        captured = self._capsys.readouterr()
        return Printed(code, captured.out, captured.err)

    @contextmanager
    def session(self) -> Generator[Session]:
        """What commands are given."""

        @contextmanager
        def open_client(_: Settings) -> Generator[Any]:
            yield self.fleet

        @contextmanager
        def open_nodes(urls: Sequence[BrokerUrl]) -> Generator[FakeNodes]:
            self.nodes.urls += [each.url for each in urls]
            yield self.nodes

        yield Session(
            open_client=cast("Any", open_client), open_nodes=open_nodes, clock=self.clock, entropy=SeededEntropy()
        )
