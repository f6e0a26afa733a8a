"""Which secrets a host knows, and which folders of secrets are refused."""

from pathlib import Path

import pytest

from tenure.errors import InvalidSettings
from tenure.workers.host_secrets import known_secrets, secret_labels


def put(folder: Path, name: str, mode: int = 0o600) -> Path:
    file = folder / name
    file.write_text("value")
    file.chmod(mode)
    return file


def test_each_file_is_a_secret_and_becomes_a_label(tmp_path: Path) -> None:
    put(tmp_path, "key", 0o400)
    put(tmp_path, "other.pem")
    put(tmp_path, ".hidden", 0o644)
    names = known_secrets(tmp_path)
    assert names == {"key", "other.pem"}
    assert secret_labels(names) == (("secret:key", "yes"), ("secret:other.pem", "yes"))


def test_a_mounted_secret_is_a_link_to_its_newest_version(tmp_path: Path) -> None:
    (tmp_path / "..version").mkdir()
    put(tmp_path / "..version", "key")
    (tmp_path / "key").symlink_to("..version/key")
    assert known_secrets(tmp_path) == {"key"}


def test_without_a_folder_there_are_none() -> None:
    assert known_secrets(None) == frozenset()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_what_others_can_read_or_change_is_no_secret(tmp_path: Path, mode: int) -> None:
    put(tmp_path, "key", mode)
    with pytest.raises(InvalidSettings, match="chmod 600"):
        known_secrets(tmp_path)


def test_other_things_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        known_secrets(tmp_path / "missing")
    put(tmp_path, "a name")
    with pytest.raises(InvalidSettings, match="cannot be a secret"):
        known_secrets(tmp_path)
    (tmp_path / "a name").unlink()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidSettings, match="no file"):
        known_secrets(tmp_path)
