"""The connection to an RQ queue, and the few things that are asked of the library.

The library is imported here, when a launcher is made, and nowhere else. Nothing is asked twice by the driver: a request
that timed out may have been carried out, and the launcher knows how to find out.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tenure.broker.url import BrokerUrl
from tenure.errors import InvalidSettings, MissingExtra
from tenure.launchers.rq_plan import FUNCTION, NO_TIME_LIMIT, NOT_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tenure.launchers.rq_plan import RqOptions, RqPlan

_CALLED: Final = "The RQ URL"
_TIMEOUT_S: Final = 5
_MAX_FILE_BYTES: Final = 4_000
_STOPPING_S: Final = 10
"""Longer than RQ takes to notice an end and to write it down; a command that was lost is given again after that."""


class Job(Protocol):
    """What is used of `rq.job.Job`."""

    key: bytes
    worker_name: str | None
    meta: dict[str, Any]

    def get_status(self, refresh: bool = True) -> object:  # noqa: FBT001, FBT002 - as in the library
        """A member of `JobStatus`, which is a text; None when the job is gone."""
        ...

    def latest_result(self) -> object:
        """The newest `Result`, or None."""
        ...

    def cancel(self) -> object:
        """Take it out of its queue. Raises `InvalidJobOperation` when it is cancelled."""
        ...

    def delete(self) -> None:
        """Take it out of its queue, with all its records."""
        ...


@final
@dataclass(frozen=True, slots=True)
class RqLink:
    """One queue of one Redis. Every method raises the driver's errors as they are, and those of RQ named here."""

    connection: Any
    prefix: str
    fetch_job: Callable[..., Job]
    queue_of: Callable[..., Any]
    stop: Callable[..., None]
    serializer: object
    no_such_job: type[Exception]
    duplicate_job: type[Exception]
    invalid_operation: type[Exception]

    def enqueue(self, plan: RqPlan) -> None:
        """Put the job into its queue, once. Raises `duplicate_job` when RQ has a job of that name."""
        queue = self.queue_of(plan.queue, connection=self.connection, serializer=self.serializer)
        queue.enqueue_call(
            FUNCTION,
            args=(list(plan.argv), dict(plan.environment)),
            timeout=NO_TIME_LIMIT,
            result_ttl=NOT_KEPT,
            failure_ttl=plan.record_ttl_s,
            description=plan.name,
            job_id=plan.name,
            unique=True,
        )

    def mark_of(self, name: str) -> str:
        """The key of our own mark of a launch, under the prefix of RQ's keys, so that RQ's rights suffice."""
        return f"{self.prefix}tenure:{name}"

    def stop_mark_of(self, name: str) -> str:
        """The key that says that a job's worker was told to end it a moment ago."""
        return f"{self.mark_of(name)}:stop"

    def job(self, name: str) -> Job:
        """The job of that name. Raises `no_such_job`."""
        return self.fetch_job(name, connection=self.connection, serializer=self.serializer)

    def worker_has_left(self, name: str) -> bool:
        """Whether RQ has noted the end of a worker of that name.

        One that was killed leaves no note, and one that was cut off for long has none, and may still work.
        """
        return bool(self.connection.hexists(f"{self.prefix}worker:{name}", "death"))

    def send_stop(self, name: str) -> None:
        """Have the RQ worker kill the work-horse that runs the job, unless it was told to a moment ago.

        A worker of RQ that is told so while it has no work-horse, for it has not made it yet or has just waited for its
        end, kills its own process group. So this is for jobs that have begun, and nothing is said twice in a row.

        Raises `no_such_job`, `invalid_operation`.
        """
        if self.connection.set(self.stop_mark_of(name), b"", nx=True, ex=_STOPPING_S):
            self.stop(self.connection, name, serializer=self.serializer)


def open_link(options: RqOptions) -> RqLink:
    """The link that the options describe; nothing is connected yet. Raises `MissingExtra`, `InvalidSettings`."""
    url = _url(options)
    try:
        job, command = import_module("rq.job"), import_module("rq.command")
        exceptions, queue = import_module("rq.exceptions"), import_module("rq.queue")
        serializers = import_module("rq.serializers")
    except ImportError:
        raise MissingExtra("the launcher 'rq' needs the library rq", "pip install 'tenure[rq]'") from None
    return RqLink(
        connection=_connection(url),
        prefix=job.Job.redis_job_namespace_prefix.removesuffix("job:"),
        fetch_job=job.Job.fetch,
        queue_of=queue.Queue,
        stop=command.send_stop_job_command,
        serializer=serializers.JSONSerializer,
        no_such_job=exceptions.NoSuchJobError,
        duplicate_job=exceptions.DuplicateJobError,
        invalid_operation=exceptions.InvalidJobOperation,
    )


def _url(options: RqOptions) -> BrokerUrl:
    if options.redis_url is None:
        return BrokerUrl(_first_line(cast("Path", options.redis_url_file).expanduser()), called=_CALLED)
    url = BrokerUrl(options.redis_url, called=_CALLED)
    if "password" in url.parts():
        raise InvalidSettings(
            "the option redis_url of the launcher 'rq' holds a password, which everybody on this host can read",
            "Write the URL into a file of mode 0600, and give redis_url_file",
        )
    return url


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_FILE_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidSettings(f"the URL of RQ's Redis cannot be read from {path}: {reason}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidSettings(f"{path} is open to others than its owner", f"chmod 600 {path}")
    if not text.strip():
        raise InvalidSettings(f"{path} holds no URL", "Write one line into it, such as redis://user:password@host:6379")
    return text.strip().splitlines()[0].strip()


def _connection(url: BrokerUrl) -> object:
    parts = url.parts()
    if "path" in parts:
        parts["unix_socket_path"] = parts.pop("path")
    elif url.encrypted:
        parts["ssl"] = True
    return cast("Callable[..., object]", redis.Redis)(
        **parts,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
    )
