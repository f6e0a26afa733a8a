"""How a client behaves: where it asks, how long it is patient, how much it sends at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict, final

from tenure.errors import UsageError
from tenure.handlers.options import TaskOptions

if TYPE_CHECKING:
    from tenure.client.contents import Given
    from tenure.protocol.amounts import Amount
    from tenure.settings import Settings


@final
@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Everything that may be chosen about a client. None means: as the settings say.

    Raises:
        UsageError: a number does not fit.
    """

    namespace: str | None = None
    """The fleet's name on the broker."""
    principal: str | None = None
    """Who asks; recorded with submissions and decisions."""
    run: str = "default"
    """The group that submissions belong to. Fixed, so that a repeated key meets the same envelope."""
    patience_ms: int | None = None
    """How long a request waits without any sign of a coordinator before it fails."""
    resend_ms: int = 2_000
    """After how long an unanswered request is sent again; doubles each time."""
    watch_ms: int = 5_000
    """After how long without news the client asks about its outstanding tasks; doubles up to a minute."""
    cancel_wait_ms: int = 500
    """How long `Handle.cancel` waits to be told whether the task is cancelled."""
    batch_tasks: int = 500
    """The most tasks in one request."""
    batch_bytes: int = 384 * 1024
    """The most bytes in one request; at least one task is always sent."""
    requests_in_flight: int = 8
    """How many requests `map` sends ahead before it waits for the first one's answer."""
    campaign: str | None = None
    """The campaign that submissions count against, where `using` names no other; "" for none."""
    lost: Literal["raise", "wait"] = "raise"
    """A LOST task: "raise" ends its handle with `TaskLost`; "wait" leaves it pending until somebody has decided."""
    on_warning: Callable[[str], None] | None = None
    """Called, in the client's own thread, with each new warning; warnings are logged in any case."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch_tasks <= 2_000:  # noqa: PLR2004 - the most that one Submit carries
            raise UsageError(f"batch_tasks is {self.batch_tasks}", "Choose from 1 to 2000")
        if not 1 <= self.batch_bytes <= 512 * 1024:
            raise UsageError(f"batch_bytes is {self.batch_bytes}", "Choose from 1 to 524288")
        positive = (self.resend_ms, self.watch_ms, self.requests_in_flight)
        if min(positive) < 1 or self.cancel_wait_ms < 0 or (self.patience_ms is not None and self.patience_ms < 1):
            raise UsageError("a duration or number of the client's options is not positive", "Choose 1 or more")

    def completed_by(self, settings: Settings) -> ClientOptions:
        """The same options with what was not said taken from the settings."""
        return replace(
            self,
            namespace=self.namespace or settings.namespace,
            principal=settings.principal if self.principal is None else self.principal,
            patience_ms=self.patience_ms or int(settings.answer_timeout_s * 1000),
            campaign=settings.campaign if self.campaign is None else self.campaign,
        )


class SubmitOptions(TaskOptions, total=False):
    """The keyword arguments of `Client.using`: what the task decorator takes, and some more."""

    run: str
    """The group that these submissions belong to."""
    key: str
    """The idempotency key: the same key never makes a second task. Several tasks get `<key>:0`, `<key>:1`, ..."""
    campaign: str
    """The campaign that these submissions count against; "" for none, where the client's options name one."""
    cost: Amount
    """What each of these tasks costs, in the unit of the campaign's budget, with up to three decimals."""
    inputs: Mapping[str, Given]
    """What the task finds below `inputs/`, by path: a file or folder of this host, uploaded once, or a `Blob` or
    `Bundle` of `Client.upload`."""


class CommandOptions(TypedDict, total=False):
    """The keyword arguments of `Submitter.command` beyond `form`."""

    env: Mapping[str, str]
    """Variables that are added to an otherwise nearly empty environment."""
    stdin: str
    """Text given to the program; not with the form "lines", whose first line is the task."""
    parameters: object
    """A JSON value that the program finds in `task.json`, or in the line that it reads."""
