"""Settings: arguments over variables over the file over defaults, and errors that say where a bad value came from."""

import stat
from pathlib import Path

import pytest

from tenure.errors import InvalidSettings
from tenure.settings import BROKER_URL_FILE, broker_url, inherited_environment, load_settings


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a settings file, an environment without TENURE_*, and a data folder of the test's own."""
    names = ("BROKER_URL", "BROKER_URL_FILE", "NAMESPACE", "SITE", "PRINCIPAL", "ANSWER_TIMEOUT_S", "CAMPAIGN")
    for name in (*names, "ARTIFACTS", "ARTIFACTS_OPTIONS_FILE"):
        monkeypatch.delenv(f"TENURE_{name}", raising=False)
    monkeypatch.setenv("TENURE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(settings_file: Path | None = None, **overrides: object) -> InvalidSettings:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(settings_file=settings_file, **overrides)
    assert "\n" not in str(caught.value)
    return caught.value


def test_defaults_need_nothing() -> None:
    settings = load_settings()
    assert (settings.namespace, settings.site) == ("main", "default")
    assert settings.principal


def test_each_layer_wins_over_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tenure.toml").write_text('namespace = "from-file"\nsite = "from-file"\nprincipal = "from-file"')
    monkeypatch.setenv("TENURE_NAMESPACE", "from-variable")
    monkeypatch.setenv("TENURE_SITE", "from-variable")
    settings = load_settings(namespace="from-argument", site=None)
    assert (settings.namespace, settings.site, settings.principal) == ("from-argument", "from-variable", "from-file")


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_NAMESPACE", "")
    assert load_settings().namespace == "main"


def test_a_file_given_as_an_argument_wins_over_an_address_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text("redis://from-file:1/0\n")
    monkeypatch.setenv("TENURE_BROKER_URL", "redis://from-variable:1/0")
    assert broker_url(broker_url_file=tmp_path / "url") == "redis://from-file:1/0"


def test_the_address_that_up_left_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused_url() == "no broker is known"
    (tmp_path / "data" / "up").mkdir(parents=True)
    (tmp_path / "data" / "up" / BROKER_URL_FILE).write_text("unix:///run/broker.sock")
    assert broker_url() == "unix:///run/broker.sock"
    monkeypatch.setenv("TENURE_BROKER_URL", "redis://elsewhere:6379/0")
    assert broker_url() == "redis://elsewhere:6379/0"


def refused_url(**overrides: object) -> str:
    with pytest.raises(InvalidSettings) as caught:
        broker_url(settings_file=None, **overrides)
    return caught.value.message


def test_a_bad_value_is_blamed_on_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "an argument" in refused(namespace="no spaces").message
    (tmp_path / "tenure.toml").write_text('namespace = "no spaces"')
    assert "tenure.toml" in refused().message
    monkeypatch.setenv("TENURE_NAMESPACE", "no spaces")
    assert "TENURE_NAMESPACE" in refused().message


def test_an_unknown_setting_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "tenure.toml").write_text('brokr_url = "redis://x"')
    error = refused()
    assert "tenure.toml" in error.message
    assert "brokr_url" in error.message
    assert "broker_url_file" in error.remedy


@pytest.mark.parametrize("text", ["namespace =", "\x00", "= 3"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "tenure.toml").write_text(text)
    assert "tenure.toml" in refused().message


def test_a_given_file_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "nowhere.toml" in refused(settings_file=tmp_path / "nowhere.toml").message


def test_paths_in_the_file_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tenure.toml").write_text('broker_url_file = "secret/url"')
    settings = load_settings(settings_file=tmp_path / "conf" / "tenure.toml")
    assert settings.broker_url_file == tmp_path / "conf" / "secret" / "url"


@pytest.mark.parametrize("url", ["http://host", "redis://", "localhost:6379", "unix://", "redis://h:99999", "x" * 300])
def test_a_wrong_address_is_refused_without_repeating_it(url: str) -> None:
    message = refused_url(broker_url=url)
    assert url not in message
    assert "as given by an argument, is not the address of a broker" in message


@pytest.mark.parametrize(
    "url", ["redis://h:6379/0", "rediss://:pw@h:6380/0", "unix:///run/r.sock?db=0", "valkey://[::1]:7000"]
)
def test_addresses_of_brokers_are_taken(url: str) -> None:
    assert broker_url(broker_url=url) == url


def test_a_password_is_in_no_text_about_the_settings() -> None:
    settings = load_settings(broker_url="redis://:hunter2@host:6379/0")
    assert "hunter2" not in repr(settings) + str(settings)


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_an_address_file_that_is_missing_or_empty_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "url").write_text(text)
    assert str(tmp_path / "url") in refused_url(broker_url_file=tmp_path / "url")


def test_it_is_said_who_writes_an_address_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as caught:
        broker_url(broker_url_file=tmp_path / "url")
    assert "`tenure up` and `tenure broker` write it" in caught.value.remedy


def test_an_address_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "url").mkdir(mode=stat.S_IRWXU)
    assert str(tmp_path / "url") in refused_url(broker_url_file=tmp_path / "url")


def test_both_forms_of_the_address_in_one_place_are_refused() -> None:
    error = refused(broker_url="redis://h", broker_url_file="f")
    assert "both" in error.message


def test_only_the_named_variables_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_NAME", "1")
    monkeypatch.setenv("ANOTHER", "2")
    assert inherited_environment(("A_NAME", "NOT_SET_AT_ALL")) == {"A_NAME": "1"}


# --- artifacts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["broker:", "/srv/files", "file:///srv/files", "s3://bucket/prefix"])
def test_addresses_of_stores_are_taken_as_they_are(address: str) -> None:
    assert load_settings(artifacts=address).artifacts == address


def test_a_folder_of_files_is_known_by_its_whole_path(tmp_path: Path) -> None:
    assert load_settings(artifacts="files").artifacts == str(tmp_path / "files")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "tenure.toml").write_text('artifacts = "files"\nartifacts_options_file = "keys.json"\n')
    settings = load_settings(settings_file=tmp_path / "deep" / "tenure.toml")
    assert settings.artifacts == str(tmp_path / "deep" / "files")
    assert settings.artifacts_options_file == tmp_path / "deep" / "keys.json"


@pytest.mark.parametrize("address", ["s3://key:hunter2@bucket/x", "s3://hunter2@bucket/x"])
def test_an_address_that_everybody_is_told_holds_no_password(address: str) -> None:
    error = refused(artifacts=address)
    assert "artifacts_options_file" in str(error)
    assert "hunter2" not in str(error)


def options_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "keys.json"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_options_of_the_store_come_from_their_file(tmp_path: Path) -> None:
    assert load_settings().artifacts_options() == {}
    path = options_file(tmp_path, '{"key": "k", "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}}')
    found = load_settings(artifacts_options_file=path).artifacts_options()
    assert found == {"key": "k", "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}}


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ('{"secret": "hunter2"}', 0o640, "chmod 600"),
        ('{"secret": "hunter2"}', 0o604, "open to others"),
        ('["hunter2"]', 0o600, "no JSON object"),
        ("hunter2", 0o600, "no JSON object"),
        ('{"secret": "' + "hunter2" * 20_000 + '"}', 0o600, "no JSON object"),
    ],
)
def test_an_options_file_that_will_not_do_is_named_and_not_repeated(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    settings = load_settings(artifacts_options_file=options_file(tmp_path, text, mode))
    with pytest.raises(InvalidSettings) as caught:
        settings.artifacts_options()
    assert words in str(caught.value)
    assert "keys.json" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_options_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"keys\.json cannot be read"):
        load_settings(artifacts_options_file=tmp_path / "keys.json").artifacts_options()
