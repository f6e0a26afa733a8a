"""What a worker is told about its own end: when it must be gone, and for how long it may have nothing to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import click

from tenure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.clock import Clock
    from tenure.workers.options import WorkerOptions

_C = TypeVar("_C", bound="Callable[..., Any]")


@final
@dataclass(frozen=True, slots=True)
class LifetimeForm:
    """The options that `lifetime_options` declares."""

    max_idle: str | None = None
    drain_for: str | None = None
    walltime: str | None = None
    gone_by: int | None = None


_LATEST_S: Final = 253_402_300_799
"""The end of the year 9999; what is later was given in milliseconds or less."""

_OPTIONS: Final = (
    click.option("--max-idle", metavar="DURATION", help="Leave when it has had nothing in hand for that long."),
    click.option(
        "--drain-for",
        metavar="DURATION",
        help="When it is asked to end, let what runs go on for that long at most; to its end when not given.",
    ),
    click.option(
        "--walltime",
        metavar="DURATION",
        help="Be gone that long after the start; no task is begun that may run longer.",
    ),
    click.option(
        "--gone-by",
        type=click.IntRange(0, _LATEST_S),
        metavar="SECONDS",
        help="Be gone by that moment, in seconds since 1970, such as Slurm's $SLURM_JOB_END_TIME.",
    ),
)


def lifetime_options(function: _C) -> _C:
    """Give a command the options of `LifetimeForm`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def with_lifetime(options: WorkerOptions, form: LifetimeForm, clock: Clock) -> WorkerOptions:
    """The worker's options, with the earlier of the ends that the form names. Raises `UsageError`."""
    from tenure.protocol.durations import duration_ms
    from tenure.workers.lifetime import Lifetime, walled

    now_ms = clock.elapsed_ms()
    left_ms: list[int] = []
    if form.walltime is not None:
        left_ms.append(duration_ms(form.walltime, "--walltime"))
    if form.gone_by is not None:
        left_ms.append(max(form.gone_by * 1000 - clock.now_ms(), 0))
        if left_ms[-1] == 0:
            raise UsageError(
                f"--gone-by {form.gone_by} is in the past",
                "Give a moment to come, in seconds since 1970",
            )
    wall_ms = now_ms + min(left_ms) if left_ms else None
    lifetime = Lifetime(
        max_idle_ms=duration_ms(form.max_idle, "--max-idle") if form.max_idle is not None else None,
        drain_ms=duration_ms(form.drain_for, "--drain-for") if form.drain_for is not None else None,
    )
    if wall_ms is not None and not walled(lifetime, wall_ms, ttl_ms=options.ttl_ms, now_ms=now_ms).remaining_ms(now_ms):
        raise UsageError(
            f"the worker would have no time for any task: it is to be gone in {min(left_ms) / 1000:g} s, and needs "
            "that to end what runs and to tell of it",
            "Give it more with --walltime or --gone-by, or a shorter --ttl",
        )
    return replace(options, wall_ms=wall_ms, lifetime=lifetime)
