"""A credential that is somebody else's: said by its name, before the broker refuses it in words of its own."""

from pathlib import Path

import pytest

from tenure.cli.connecting import open_client
from tenure.cli.credentials import provisioner_url
from tenure.errors import InvalidSettings
from tenure.settings import load_settings

ADDRESS = "redis://tenure.main.{user}:secret@h:7/1"


@pytest.mark.parametrize(("user", "whose"), [("site.imaging", "site imaging"), ("provisioner", "the provisioner")])
def test_a_command_of_a_persons_takes_no_other_credential(tmp_path: Path, user: str, whose: str) -> None:
    settings = load_settings(data_dir=tmp_path, broker_url=ADDRESS.format(user=user))
    with pytest.raises(InvalidSettings, match=f"the credential of {whose}, and this takes a person's") as raised:
        open_client(settings).__enter__()
    assert "secret" not in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("user", "whose"),
    [("client.ada", "person ada"), ("site.imaging", "site imaging"), ("coordinator", "the coordinator")],
)
def test_users_are_made_with_the_provisioners_credential(tmp_path: Path, user: str, whose: str) -> None:
    file = tmp_path / "some.url"
    file.touch(mode=0o600)
    file.write_text(ADDRESS.format(user=user))
    with pytest.raises(InvalidSettings, match=f"the credential of {whose}, and the provisioner's is needed") as raised:
        provisioner_url(file, "main")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("user", ["tenure.main.provisioner", "root", "tenure.other.site.imaging"])
def test_whoever_may_make_users_can_be_called_anything_else(tmp_path: Path, user: str) -> None:
    file = tmp_path / "some.url"
    file.touch(mode=0o600)
    file.write_text(f"redis://{user}:secret@h:7/1")
    assert provisioner_url(file, "main").user == user
