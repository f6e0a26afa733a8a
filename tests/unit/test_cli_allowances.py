"""What `tenure coordinator` is told about how much each site and each person may make it do and keep."""

import re
from pathlib import Path

import click
import pytest

from tenure.cli.allowances import AllowanceForm, allowance_options, with_allowances
from tenure.cli.coordinator import coordinator
from tenure.coordinator.limits import SiteLimits
from tenure.coordinator.options import CoordinatorOptions
from tenure.coordinator.people_limits import PersonLimits
from tenure.coordinator.quotas import SiteQuotas
from tenure.errors import UsageError

OPTIONS = CoordinatorOptions(Path("fleet.db"))
DOCS = Path(__file__).parents[2] / "docs" / "sites.md"


@click.command()
@allowance_options
def declared(**_options: object) -> None:
    """A command with these options alone."""


def test_what_is_not_given_stays_as_it_is() -> None:
    assert with_allowances(OPTIONS, AllowanceForm()) == OPTIONS


def test_each_option_reaches_the_coordinator() -> None:
    form = AllowanceForm(9, 6_000, "1MiB", 7, 500, "2k", 20, 3)
    given = with_allowances(OPTIONS, form)
    assert given.site_limits == SiteLimits(9, 9, most_waiting=6_000, most_waiting_bytes=2**20)
    assert given.site_quotas == SiteQuotas(workers=7, executors=7, records_per_day=500, evidence_bytes_per_day=2_000)
    assert given.person_limits == PersonLimits(time_ms_per_s=200, watches=3)


def test_a_size_that_is_none_is_refused_by_the_name_of_its_option() -> None:
    with pytest.raises(UsageError, match="--site-evidence"):
        with_allowances(OPTIONS, AllowanceForm(site_evidence="much"))


def test_the_help_says_what_holds_when_nothing_is_given() -> None:
    """And so does the page about sites."""
    page = DOCS.read_text(encoding="utf-8")
    told: dict[str, object] = {}
    for option in declared.params:
        assert isinstance(option, click.Option)
        default = re.search(r"; (\w+) when not given\.$", option.help or "")
        assert default is not None, option.name
        assert re.search(rf"\| `{option.opts[0]}` \|.*\| {default[1]} \|", page), option.opts[0]
        told[str(option.name)] = int(default[1]) if default[1].isdigit() else default[1]

    assert with_allowances(OPTIONS, AllowanceForm(**told)) == OPTIONS  # type: ignore[arg-type]


def test_the_coordinator_has_them_all() -> None:
    names = {option.name for option in coordinator.params}
    assert names >= {option.name for option in declared.params}
