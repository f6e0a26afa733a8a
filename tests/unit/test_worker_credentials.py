"""Which site a worker belongs to, by its credential and by what it is told."""

import pytest

from tenure.cli.execution import site_for
from tenure.errors import InvalidSettings
from tenure.settings import load_settings

LAB = "redis://tenure.main.site.lab:secret@h"


@pytest.mark.parametrize(
    ("url", "said", "setting", "site"),
    [
        ("redis://h", None, None, "default"),
        ("redis://h", "lab", None, "lab"),
        ("redis://h", "lab", "yard", "lab"),
        ("redis://h", None, "yard", "yard"),
        ("redis://someone:secret@h", None, None, "default"),
        ("redis://tenure.other.site.lab:secret@h", None, None, "default"),
        (LAB, None, None, "lab"),
        (LAB, "lab", None, "lab"),
        (LAB, "lab", "yard", "lab"),
        (LAB, None, "lab", "lab"),
    ],
)
def test_a_worker_belongs_to_the_site_whose_credential_it_holds(
    url: str, said: str | None, setting: str | None, site: str
) -> None:
    assert site_for(load_settings(broker_url=url, site=setting), said) == site


@pytest.mark.parametrize(("said", "setting"), [("yard", None), ("default", None), (None, "yard")])
def test_a_credential_of_another_site_is_an_error(said: str | None, setting: str | None) -> None:
    with pytest.raises(InvalidSettings, match="credential of site lab") as caught:
        site_for(load_settings(broker_url=LAB, site=setting), said)
    assert "secret" not in f"{caught.value} {caught.value.remedy}"


@pytest.mark.parametrize(
    ("user", "whose"),
    [("client.ada", "person ada"), ("coordinator", "the coordinator"), ("provisioner", "the provisioner")],
)
def test_a_worker_with_somebody_else_s_credential_is_told_whose_it_is(user: str, whose: str) -> None:
    settings = load_settings(broker_url=f"redis://tenure.main.{user}:secret@h")
    with pytest.raises(InvalidSettings, match=f"credential of {whose}, and a worker needs a site's") as caught:
        site_for(settings, None)
    assert "secret" not in f"{caught.value} {caught.value.remedy}"
