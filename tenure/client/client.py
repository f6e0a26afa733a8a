"""The client: submits tasks to a fleet, waits for them, and asks the coordinator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Self, TypeVar, Unpack, cast, final, overload

from pydantic import ValidationError

from tenure.client.calls import Form, scope_of
from tenure.client.contents import Contents
from tenure.client.counting import counted
from tenure.client.exchange import Identity
from tenure.client.handle import Handle, Ties
from tenure.client.logs import LogReader
from tenure.client.options import ClientOptions, CommandOptions, SubmitOptions
from tenure.client.progress import Progress, progress_of
from tenure.client.session import Connect, Session, Wiring
from tenure.client.submitter import Desk, Submitter, checked_key
from tenure.clock import Clock, Entropy, SystemClock, SystemEntropy
from tenure.errors import TenureError, UnknownTask, UsageError
from tenure.handlers.options import TaskDefaults, TaskOptions, defaults_of
from tenure.protocol.client_messages import Ask, Cancel, Done, Query, Reply, Watch
from tenure.protocol.message import describe
from tenure.protocol.states import TaskState

if TYPE_CHECKING:
    from tenure.artifacts.base import Store

P = ParamSpec("P")
T = TypeVar("T")

_IDS_AT_ONCE: Final = 5_000
_TASK_ID_LENGTH: Final = 26
_DEFAULT_PATIENCE_MS: Final = 10_000


@final
class Client:
    """A connection to one fleet. Use it in a with block, or call `close`; safe to share between threads.

    Nothing is sent before the first request. A client that is closed leaves its tasks running. Tasks run as their
    function's decorator says; `using` says otherwise, and gives a `Submitter`, which submits in more ways.

    Args:
        url: the broker's address, such as "redis://host:6379"; None: as the settings say (TENURE_BROKER_URL,
            TENURE_BROKER_URL_FILE, tenure.toml, or the fleet that `tenure up` started here).
        options: everything else.
        wiring: connections, time and randomness of your own; then no settings are read. See `over`.

    Raises:
        InvalidSettings: the address or a setting is missing or malformed.
    """

    def __init__(
        self, url: str | None = None, *, options: ClientOptions | None = None, wiring: Wiring | None = None
    ) -> None:
        chosen = options or ClientOptions()
        if wiring is None:
            wiring, chosen = _from_settings(url, chosen)
        self.client_id: Final = f"c-{wiring.entropy.token(10)}"
        """Names this client on the broker."""
        identity = Identity(
            client_id=self.client_id,
            namespace=chosen.namespace or "main",
            principal=chosen.principal or "",
            patience_ms=chosen.patience_ms or _DEFAULT_PATIENCE_MS,
            resend_ms=chosen.resend_ms,
        )
        self._options: Final = chosen
        self._session: Final = Session(wiring, identity, watch_ms=chosen.watch_ms, on_warning=chosen.on_warning)
        self.warnings: Final[deque[str]] = self._session.warnings
        """The latest warnings of the coordinator, such as a capability that no worker offers; each text once."""
        self.contents: Final = Contents(wiring.open_store or _no_store, wiring.clock, wiring.entropy, wiring.person)
        """The store of files, for more than `upload` and `Handle.download` do."""
        self.upload: Final = self.contents.upload
        """Puts a file or folder of this host into the store, as an input of tasks; see `Contents.upload`."""
        self.log_reader: Final = LogReader(
            self.ask, lambda: wiring.connect(f"{self.client_id}-log"), self.contents, wiring.clock
        )
        """What tasks print, with the attempts that printed it; `logs` is all that most programs need."""
        self.logs: Final = self.log_reader.chunks
        """What a task has printed, or is printing; see `LogReader.chunks`."""
        self._ties: Final = Ties(self._ask_to_cancel, self.contents.fetch, self._look)
        self._desk: Final = Desk(self._session, self.client_id, chosen, {}, self._ties, self.contents)
        self._scope: Final = scope_of(identity.namespace, chosen.run)
        self._plain: Final = Submitter(self._desk, TaskDefaults(), self._scope, counted=counted(chosen.campaign))

    @classmethod
    def over(
        cls,
        connect: Connect,
        options: ClientOptions | None = None,
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> Client:
        """A client over connections of your own, for tests and embedding; reads no settings.

        Args:
            connect: gives a connection for a client id; called twice, for reading and for asking.
            options: as for the constructor; namespace "main", no principal and 10 seconds' patience when not said.
            clock: what durations are judged by; None: the host's.
            entropy: where the client's id comes from; None: the operating system.
        """
        return cls(options=options, wiring=Wiring(connect, clock or SystemClock(), entropy or SystemEntropy()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- submitting ---------------------------------------------------------------------------------------------------

    def using(self, **options: Unpack[SubmitOptions]) -> Submitter:
        """A submitter whose tasks run under these options; see `TaskOptions` and `SubmitOptions`.

        Inputs that are files of this host are uploaded here, before anything is submitted. Raises UsageError, and with
        inputs what `upload` raises.
        """
        run = options.pop("run", None)
        key = checked_key(options.pop("key", ""))
        given = options.pop("inputs", None)
        campaign, cost = options.pop("campaign", self._options.campaign), options.pop("cost", None)
        scope = self._scope if run is None else scope_of(self._scope.world, run)
        said = defaults_of(cast("TaskOptions", options))
        if given:
            said = replace(said, inputs=self.contents.inputs(given))
        return Submitter(self._desk, said, scope, key, counted(campaign, cost))

    @overload
    def submit(
        self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...
    @overload
    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Handle[T]: ...
    @overload
    def submit(self, function: str, /, *args: object, **kwargs: object) -> Handle[Any]: ...
    def submit(self, function: Callable[..., Any] | str, /, *args: object, **kwargs: object) -> Handle[Any]:
        """Submit one call of a function, or of "package.module:function"; all arguments are the function's own.

        Returns:
            The task's handle, once the coordinator has stored the task. For errors see `Submitter`.
        """
        return self._plain.submit(function, *args, **kwargs)

    @overload
    def map(self, function: Callable[..., Coroutine[Any, Any, T]], /, *iterables: Iterable[Any]) -> list[Handle[T]]: ...
    @overload
    def map(self, function: Callable[..., T], /, *iterables: Iterable[Any]) -> list[Handle[T]]: ...
    @overload
    def map(self, function: str, /, *iterables: Iterable[Any]) -> list[Handle[Any]]: ...
    def map(self, function: Callable[..., Any] | str, /, *iterables: Iterable[Any]) -> list[Handle[Any]]:
        """Submit one call per tuple of the zipped iterables, up to the shortest; they are read as requests go out."""
        return self._plain.map(function, *iterables)

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
        """Submit one program run; see `Submitter.command`."""
        return self._plain.command(argv, form=form, **options)

    # --- tasks that exist ---------------------------------------------------------------------------------------------

    def handle(self, task_id: str) -> Handle[Any]:
        """Attach to a task, of this client or another.

        Raises:
            UnknownTask: there is none of that id.
            CoordinatorUnreachable, BrokerError: nobody answered.
        """
        if len(task_id) != _TASK_ID_LENGTH or not task_id.isalnum():
            raise UnknownTask(f"{task_id[:40]!r} is not a task's id", "Ids have 26 characters; see `tenure tasks list`")
        handle: Handle[Any] = Handle(self._ties, lost=self._options.lost)
        handle.task_id = task_id

        def follow(reply: Reply) -> None:
            if reply.refusal is None:
                self._session.tracker.add([handle])

        self._session.call(Watch(task_ids=(task_id,)), follow)
        return handle

    def cancel(self, tasks: Iterable[Handle[Any] | str], *, reason: str = "") -> frozenset[str]:
        """Ask the fleet to cancel tasks, given as handles or ids; those that are over stay as they are.

        Returns:
            The ids whose cancellation is proved already; the others' goes on.
        """
        ids = iter(dict.fromkeys(task if isinstance(task, str) else task.task_id for task in tasks))
        proved: set[str] = set()
        while chunk := tuple(islice(ids, _IDS_AT_ONCE)):
            reply = self._session.call(_cancel_of(chunk, reason), self._take_cancelled)
            proved.update(done.task_id for done in _cancelled(reply))
        return frozenset(proved)

    def ask(self, request: Ask) -> Reply:
        """Send any request of the protocol and wait for its reply.

        Raises:
            TenureError: the coordinator refused it (see its `code`), or nobody answered.
        """
        return self._session.call(request)

    def close(self) -> None:
        """Stop listening; the tasks go on. Handles that are still open end with a FleetError. May be called twice."""
        self._session.close()
        self.contents.close()

    def _ask_to_cancel(self, task_id: str) -> None:
        """Ask, and wait a moment for the answer; what goes wrong shows in the handle, which simply stays open."""
        with suppress(TenureError, TimeoutError):
            answer = self._session.post(_cancel_of((task_id,), ""), self._take_cancelled)
            if not self._session.is_own_thread():
                answer.result(self._options.cancel_wait_ms / 1000)

    def _look(self, task_id: str) -> Progress | None:
        rows = self.ask(Query(what="tasks", where=(("task_id", task_id),), limit=1)).rows
        return progress_of(rows[0]) if rows else None

    def _take_cancelled(self, reply: Reply) -> None:
        """The reply proves what the notices after it will say; whoever waits for it should find it so."""
        self._session.tracker.settle(_cancelled(reply))


def _cancel_of(task_ids: tuple[str, ...], reason: str) -> Cancel:
    try:
        return Cancel(task_ids=task_ids, reason=reason)
    except ValidationError as error:
        raise UsageError(f"this cannot be cancelled: {describe(error)}") from None


def _cancelled(reply: Reply) -> list[Done]:
    ids = [str(row["task_id"]) for row in reply.rows if row.get("state") == TaskState.CANCELLED]
    return [Done(task_id=task_id, state=TaskState.CANCELLED) for task_id in ids]


def _no_store() -> Store:
    raise UsageError("this client knows no store of files", "Give its Wiring an open_store")


def _from_settings(url: str | None, options: ClientOptions) -> tuple[Wiring, ClientOptions]:
    # Only here, so that a client over its own connections needs neither settings nor a broker's driver.
    from tenure.client.wiring import wiring_of
    from tenure.settings import load_settings

    settings = load_settings(broker_url=url, namespace=options.namespace)
    return wiring_of(settings), options.completed_by(settings)
