"""What may be said about how a task runs, by its decorator or by the submitter; the submitter has the last word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, final

from tenure.errors import UsageError
from tenure.protocol.durations import Duration, duration_ms

if TYPE_CHECKING:
    from tenure.protocol.artifact import Input
    from tenure.protocol.envelope import Limits, Retry

Start: TypeAlias = Literal["granted", "claimed"]


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of `tenure.task` and, with a few more, of `Client.using`."""

    capability: str
    """The named kind of work; workers say which ones they take. Default "default"."""
    lease_ttl: Duration
    """How long a silent worker keeps the right to run the task. Default 30 seconds."""
    retry: Retry
    """What may follow a lost or failed attempt without asking a person. Default: nothing."""
    start: Start
    """"granted" waits for the coordinator's word before the task runs (default); "claimed" starts at once."""
    exclusive: bool
    """Whether even a split broker must never let two holders run. Needs start="granted"."""
    timeout: Duration
    """The longest that one attempt may run. Default: no limit."""
    priority: int
    """From -1000 to 1000; higher goes first. Default 0."""
    delay: Duration
    """How long after its submission the task may be offered at the earliest. Default 0."""
    worker: str
    """The id of the one worker that may run it."""
    labels: Mapping[str, str]
    """Labels that the worker must carry."""
    resources: Mapping[str, int]
    """Whole amounts that the worker must have free, by name."""
    label: str
    """Free text shown in lists."""
    files: bool
    """Whether a function gets a folder of its own for outputs and checkpoints (`tenure.current().outputs`); inputs and
    secrets bring one, too, and a program always has one. Default: no."""
    secrets: Iterable[str]
    """Names of secrets that the worker's host must know; the task finds their values as files."""
    limits: Limits
    """What one attempt may use. Default: what the worker allows."""
    keep_folder: bool
    """Whether the worker keeps the task's folder after the attempt, for a person to look at."""


@final
@dataclass(frozen=True, slots=True)
class TaskDefaults:
    """Checked options; None and empty mean "not said". Durations are in milliseconds."""

    capability: str | None = None
    lease_ttl_ms: int | None = None
    retry: Retry | None = None
    start: Start | None = None
    exclusive: bool | None = None
    timeout_ms: int | None = None
    priority: int | None = None
    delay_ms: int | None = None
    worker: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    label: str | None = None
    files: bool | None = None
    secrets: tuple[str, ...] = ()
    limits: Limits | None = None
    keep_folder: bool | None = None
    inputs: tuple[Input, ...] = ()

    def under(self, later: TaskDefaults) -> TaskDefaults:
        """These defaults, with everything that `later` says put over them."""
        return TaskDefaults(*(_said(getattr(later, f.name), getattr(self, f.name)) for f in fields(self)))


def defaults_of(options: TaskOptions) -> TaskDefaults:
    """The options as a value.

    Raises:
        UsageError: an option is unknown, a duration or mapping is malformed, or two options contradict each other.
    """
    unknown = options.keys() - TaskOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(TaskOptions.__annotations__))
        raise UsageError(f"unknown option {min(unknown)!r}", f"Known options are: {known}")
    said: dict[str, Any] = dict(options)
    for name in ("lease_ttl", "timeout", "delay"):
        if said.get(name) is not None:
            said[f"{name}_ms"] = duration_ms(said[name], name)
        said.pop(name, None)
    for name in ("labels", "resources"):
        said[name] = _pairs(name, said.get(name))
    said["secrets"] = _names("secrets", said.get("secrets"))
    if said.get("exclusive") and said.get("start") == "claimed":
        raise UsageError(
            'exclusive=True contradicts start="claimed"', "An exclusive task starts on a grant; drop one of the two"
        )
    return TaskDefaults(**said)


def _said(later: object, earlier: object) -> Any:  # noqa: ANN401 - one of the two, whatever the field's type is
    return earlier if later is None or later == () else later


def _names(name: str, given: Iterable[str] | None) -> tuple[str, ...]:
    if isinstance(given, str):
        raise UsageError(f"{name} is one text", f'Give names one by one: {name}=["{given[:40]}"]')
    return tuple(dict.fromkeys(given or ()))


def _pairs(name: str, given: Mapping[str, Any] | None) -> tuple[tuple[Any, Any], ...]:
    if given is None:
        return ()
    try:
        return tuple(sorted(given.items()))
    except (AttributeError, TypeError):
        raise UsageError(f"{name} must be a mapping from texts", f'Write {name}={{"name": value}}') from None
