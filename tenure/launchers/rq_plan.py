"""What is put into an RQ queue for one assignment. Knows nothing of the library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self, final

from pydantic import Field, model_validator

from tenure.launchers.options import LauncherOptions
from tenure.protocol.message import Name

if TYPE_CHECKING:
    from tenure.launchers.base import ExecutorCommand, LaunchOrder

FUNCTION: Final = "tenure.launchers.rq_job.run_assignment"
"""What an RQ worker imports and calls; its workers need Tenure installed, and nothing else of ours."""
BEGUN: Final = "tenure_begun"
"""What the function notes with its job when it begins."""

NO_TIME_LIMIT: Final = -1
NOT_KEPT: Final = 0
_A_DAY_S: Final = 24 * 3600


class RqOptions(LauncherOptions):
    """The options of the RQ launcher.

    Args:
        redis_url_file: a file of mode 0600 that holds the URL of the Redis that RQ uses, password included.
        redis_url: the same URL, when it holds no password.
        queue: the queue that the RQ workers listen on.
        record_ttl_s: for how long RQ keeps the record of a failed job, if nobody clears it away before.
    """

    redis_url_file: Path | None = None
    redis_url: str | None = None
    queue: Name = "tenure"
    record_ttl_s: Annotated[int, Field(ge=60, le=365 * _A_DAY_S)] = _A_DAY_S

    @model_validator(mode="after")
    def _names_one_redis(self) -> Self:
        if (self.redis_url is None) == (self.redis_url_file is None):
            message = "give redis_url_file or redis_url: the Redis that the RQ workers use"
            raise ValueError(message)
        return self


@final
@dataclass(frozen=True, slots=True)
class RqPlan:
    """One job: which function is called with what, and that RQ does nothing by itself about its end."""

    name: str
    queue: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    record_ttl_s: int

    def shown(self) -> str:
        """See `Plan.shown`."""
        return json.dumps(
            {
                "queue": self.queue,
                "job_id": self.name,
                "function": FUNCTION,
                "args": [list(self.argv), dict(self.environment)],
                "serializer": "json",
                "unique": True,
                "retry": None,
                "job_timeout": NO_TIME_LIMIT,
                "result_ttl": NOT_KEPT,
                "failure_ttl": self.record_ttl_s,
            },
            indent=2,
        )


def render(order: LaunchOrder, executor: ExecutorCommand, options: RqOptions) -> RqPlan:
    """The job for one assignment. RQ knows nothing of what a task needs: its workers are all alike."""
    ticket = order.ticket
    return RqPlan(ticket.name, options.queue, executor.argv(ticket), executor.environment, options.record_ttl_s)
