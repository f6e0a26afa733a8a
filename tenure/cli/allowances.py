"""What `tenure coordinator` is told about how much each site and each person may make it do and keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.coordinator.options import CoordinatorOptions

_C = TypeVar("_C", bound="Callable[..., Any]")


@final
@dataclass(frozen=True, slots=True)
class AllowanceForm:
    """The options that `allowance_options` declares; what is not given stays as `CoordinatorOptions` has it."""

    site_units: int | None = None
    site_waiting: int | None = None
    site_waiting_size: str | None = None
    site_workers: int | None = None
    site_records: int | None = None
    site_evidence: str | None = None
    person_time: int | None = None
    person_watches: int | None = None


_NUMBER: Final = click.IntRange(1)

_OPTIONS: Final = (
    click.option(
        "--site-units",
        type=_NUMBER,
        metavar="N",
        help="How much a site may say per second: an entry, an event and 2 KiB are a unit each; 8000 when not given.",
    ),
    click.option(
        "--site-waiting",
        type=click.IntRange(1_000),
        metavar="N",
        help="How many entries may wait in the inbox of a site before it is cut; 5000 when not given.",
    ),
    click.option(
        "--site-waiting-size",
        metavar="SIZE",
        help="How much the inbox of a site may take up at the broker before it is cut; 64MiB when not given.",
    ),
    click.option(
        "--site-workers", type=_NUMBER, metavar="N", help="How many workers a site may have; 5000 when not given."
    ),
    click.option(
        "--site-records",
        type=click.IntRange(100),
        metavar="N",
        help="How many records of workers and of offers in vain a site may leave per day; 1000000 when not given.",
    ),
    click.option(
        "--site-evidence",
        metavar="SIZE",
        help="How much of a site's rejected results is kept per day; 1GiB when not given.",
    ),
    click.option(
        "--person-time",
        type=click.IntRange(1, 100),
        metavar="PERCENT",
        help="How much of the coordinator's time a person may take for good; 50 when not given.",
    ),
    click.option(
        "--person-watches",
        type=_NUMBER,
        metavar="N",
        help="How many ends of tasks a person's clients may wait for; 200000 when not given.",
    ),
)


def allowance_options(function: _C) -> _C:
    """Give a command the options of `AllowanceForm`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def with_allowances(options: CoordinatorOptions, form: AllowanceForm) -> CoordinatorOptions:
    """The coordinator's options, with what the form says of sites and people. Raises `UsageError`."""
    limits: dict[str, int | None] = {
        "units_per_s": form.site_units,
        "burst": form.site_units,
        "most_waiting": form.site_waiting,
        "most_waiting_bytes": _size(form.site_waiting_size, "--site-waiting-size"),
    }
    quotas: dict[str, int | None] = {
        "workers": form.site_workers,
        "executors": form.site_workers,
        "records_per_day": form.site_records,
        "evidence_bytes_per_day": _size(form.site_evidence, "--site-evidence"),
    }
    people: dict[str, int | None] = {
        "time_ms_per_s": None if form.person_time is None else form.person_time * 10,
        "watches": form.person_watches,
    }
    return replace(
        options,
        site_limits=replace(options.site_limits, **_given(limits)),
        site_quotas=replace(options.site_quotas, **_given(quotas)),
        person_limits=replace(options.person_limits, **_given(people)),
    )


def _given(fields: dict[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in fields.items() if value is not None}


def _size(text: str | None, option: str) -> int | None:
    from tenure.protocol.sizes import size_bytes

    return None if text is None else size_bytes(text, option)
