"""The history of one simulation: facts in the order in which they became true. The checker reads nothing else.

Times are true time, which no part of the fleet knows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from tests.simulation.engine import Engine


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that became true at `at`."""

    at: int


@final
@dataclass(frozen=True, slots=True)
class Submitted(Fact):
    """A client asked for a task under this key; `kind` is how it starts, or "exclusive"."""

    key: str
    kind: str
    lost_budget: int
    failed_budget: int
    ttl_ms: int
    timeout_ms: int | None


@final
@dataclass(frozen=True, slots=True)
class Started(Fact):
    """User code began to run."""

    run: int
    task: str
    fence: int
    attempt: int
    nonce: str
    worker: str
    kind: str
    checkpoint: str = ""
    """The digest of the checkpoint that it begins from."""


@final
@dataclass(frozen=True, slots=True)
class Ended(Fact):
    """User code stopped running, for good: `how` is value, failure, cancelled, killed or died."""

    run: int
    how: str
    value: str


@final
@dataclass(frozen=True, slots=True)
class Saved(Fact):
    """An executor has staged a bundle, whole: its outputs, or a checkpoint."""

    task: str
    fence: int
    nonce: str
    digest: str


@final
@dataclass(frozen=True, slots=True)
class Missing(Fact):
    """An executor tells of a bundle that it has never staged."""

    task: str
    fence: int
    nonce: str


@final
@dataclass(frozen=True, slots=True)
class Stored(Fact):
    """A bundle has become an object of the store."""

    digest: str


@final
@dataclass(frozen=True, slots=True)
class Removed(Fact):
    """An object was removed from the store."""

    digest: str


@final
@dataclass(frozen=True, slots=True)
class Frozen(Fact):
    """User code stands still (`frozen`), or goes on again."""

    run: int
    frozen: bool


@final
@dataclass(frozen=True, slots=True)
class TaskRow(Fact):
    """A commit made a task's row this."""

    task: str
    key: str
    state: str
    lost: int
    failed: int
    digest: str


@final
@dataclass(frozen=True, slots=True)
class LeaseRow(Fact):
    """A commit made a lease's row this."""

    task: str
    fence: int
    attempt: int
    state: str
    worker: str
    nonce: str
    cause: str
    start: str
    site: str


@final
@dataclass(frozen=True, slots=True)
class SiteRow(Fact):
    """A commit made a site's row this."""

    site: str
    state: str


@final
@dataclass(frozen=True, slots=True)
class DirectiveRow(Fact):
    """A commit made a directive's row this."""

    task: str
    next_attempt: int
    state: str
    reason: str
    by: str
    name: str = ""


@final
@dataclass(frozen=True, slots=True)
class ResultRow(Fact):
    """A commit accepted this result; a failure that another attempt follows has `final` False."""

    task: str
    fence: int
    attempt: int
    worker: str
    nonce: str
    value: str
    final: bool

    @property
    def is_failure(self) -> bool:
        """Whether it says that the task failed; values here are strings, failures are objects."""
        return self.value.startswith("{")

    @property
    def failure_kind(self) -> str:
        """What kind of failure it is; empty for a value."""
        return str(json.loads(self.value)["kind"]) if self.is_failure else ""

    @property
    def said(self) -> tuple[str, str]:
        """The value, or the message of the failure."""
        return self.value, str(json.loads(self.value)["message"]) if self.is_failure else ""


@final
@dataclass(frozen=True, slots=True)
class Quarantined(Fact):
    """A commit kept a rejected result as evidence."""

    quarantine: str
    task: str
    fence: int
    worker: str
    reason: str


@final
@dataclass(frozen=True, slots=True)
class ArtifactRow(Fact):
    """A commit made an artifact's row this."""

    task: str
    fence: int
    kind: str
    ordinal: int
    state: str
    digest: str
    place_fence: int
    nonce: str


@final
@dataclass(frozen=True, slots=True)
class Judgement(Fact):
    """A commit recorded a decision about a rejected result of `of_fence`; `fence` is what its adoption was given."""

    decision: str
    quarantine: str
    task: str
    action: str
    fence: int
    of_fence: int
    nonce: str
    by: str = ""


@final
@dataclass(frozen=True, slots=True)
class Told(Fact):
    """A worker put a report into its spool: a result ("finished") or an end without one ("released")."""

    worker: str
    task: str
    fence: int
    nonce: str
    what: str
    value: str


@final
@dataclass(frozen=True, slots=True)
class Answered(Fact):
    """A worker read the coordinator's answer about an attempt: granted, refused, or a verdict."""

    worker: str
    task: str
    fence: int
    nonce: str
    answer: str
    reason: str


@final
@dataclass(frozen=True, slots=True)
class Lie(Fact):
    """The liar reported this result; `wrong` names what in it is not so, besides its sender and its nonce."""

    value: str
    worker: str
    task: str
    fence: int
    nonce: str
    wrong: str


@final
@dataclass(frozen=True, slots=True)
class Ruled(Fact):
    """A person ruled about what was lost; whoever cancels allows no further attempt."""

    task: str
    by: str
    approve: bool
    next_attempt: int = 0
    """Which directive was named; 0 for whichever of the task is pending."""


@final
@dataclass(frozen=True, slots=True)
class Judged(Fact):
    """A person wanted a rejected result adopted, or dropped."""

    quarantine: str
    by: str
    action: str


@final
@dataclass(frozen=True, slots=True)
class Outcome(Fact):
    """A client's handle came to its end."""

    key: str
    task: str
    state: str
    value: str


@final
@dataclass(frozen=True, slots=True)
class Fault(Fact):
    """Something went wrong, on purpose."""

    kind: str
    detail: str = ""


@final
@dataclass(frozen=True, slots=True)
class Quiet(Fact):
    """From here on nothing goes wrong any more."""


@final
@dataclass(frozen=True, slots=True)
class Closed(Fact):
    """The simulation ended; `settled` says that nothing was left to do."""

    settled: bool


@final
@dataclass(frozen=True, slots=True)
class Broken(Fact):
    """Something became true that never may: a row is gone, or a part of the fleet ended with an error of its own."""

    what: str


@final
@dataclass(slots=True)
class History:
    """All facts so far."""

    engine: Engine
    facts: list[Fact] = field(default_factory=list[Fact])

    def add(self, fact: Fact) -> None:
        """Add a fact; it must not be earlier than the last one."""
        self.facts.append(fact)

    def fault_before(self, place: int, kind: str, detail: str) -> None:
        """Something went wrong now, before the facts that followed from it."""
        self.facts.insert(place, Fault(self.engine.now, kind, detail))

    def fault(self, kind: str, detail: str = "") -> None:
        """Something goes wrong now."""
        self.facts.append(Fault(self.engine.now, kind, detail))


def render(fact: Fact) -> str:
    """One line of a trace."""
    parts: list[str] = []
    for each in fields(fact):
        value = getattr(fact, each.name)
        if each.name == "at" or value == "":
            continue
        text = str(value)
        if each.name in {"task", "nonce"}:
            text = text[-6:]
        parts.append(f"{each.name}={text}")
    return f"{fact.at:>7} {type(fact).__name__:<12} {' '.join(parts)}"
