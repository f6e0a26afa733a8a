"""What a client's submissions count against: said per client, per submission, or by the settings."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.errors import OutsideCampaign, OverBudget, TenureError, UsageError
from tenure.protocol.client_messages import Refusal
from tenure.settings import load_settings
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_client import ScriptedFleet
from tests.fixtures_handlers import exponent


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet(ManualClock(), time_passes=False)


def client_of(fleet: ScriptedFleet, **options: Any) -> Client:
    return Client.over(fleet.connect, ClientOptions(**options), clock=fleet.clock, entropy=SeededEntropy(1))


def counted(fleet: ScriptedFleet) -> list[tuple[str | None, int | None]]:
    return [(ask.campaign, ask.cost) for ask in fleet.submitted()]


def test_nothing_is_said_unless_it_is_said(fleet: ScriptedFleet) -> None:
    with client_of(fleet) as client:
        client.submit(exponent, 1.0)
        client.using(priority=1).submit(exponent, 1.0)
    assert counted(fleet) == [(None, None), (None, None)]


def test_the_submission_has_the_last_word(fleet: ScriptedFleet) -> None:
    with client_of(fleet, campaign="night") as client:
        client.submit(exponent, 1.0)
        client.using(cost=0.25).command(["wc"])
        client.using(campaign="day", cost=Decimal("1.5")).map(exponent, [1.0, 2.0])
        client.using(campaign="").submit(exponent, 1.0)
    assert counted(fleet) == [("night", None), ("night", 250), ("day", 1_500), (None, None)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"campaign": "no name"}, "this cannot be counted"),
        ({"cost": -1}, "the cost is not an amount"),
        ({"cost": 10_000_001}, "this cannot be counted"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(
    fleet: ScriptedFleet, options: dict[str, Any], words: str
) -> None:
    with client_of(fleet) as client, pytest.raises(UsageError, match=words):
        client.using(**options)
    with pytest.raises(UsageError, match="this cannot be counted"):
        client_of(fleet, campaign="no name")
    assert fleet.asks == []


@pytest.mark.parametrize("kind", [OverBudget, OutsideCampaign])
def test_a_refusal_is_raised_as_what_it_is(fleet: ScriptedFleet, kind: Callable[..., TenureError]) -> None:
    error = kind("campaign 'x' has 0 of 5 tasks left", "See it")
    fleet.refusal = Refusal(code=error.code, message=error.message, remedy=error.remedy)
    with client_of(fleet, campaign="x") as client, pytest.raises(type(error)) as caught:
        client.submit(exponent, 1.0)
    assert str(caught.value) == str(error)


def test_the_settings_name_the_campaign_of_those_who_name_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENURE_CAMPAIGN", "from-variable")
    settings = load_settings(broker_url="redis://localhost:1/0")
    assert ClientOptions().completed_by(settings).campaign == "from-variable"
    assert ClientOptions(campaign="").completed_by(settings).campaign == ""
    assert ClientOptions(campaign="own").completed_by(settings).campaign == "own"
    (tmp_path / "tenure.toml").write_text('campaign = "from-file"')
    monkeypatch.delenv("TENURE_CAMPAIGN")
    assert load_settings().campaign == "from-file"
