"""`tenure doctor`: each finding with a level and, where one is needed, a remedy."""

from pathlib import Path
from typing import Any

import pytest

from tenure.artifacts.base import Store
from tenure.cli import checks
from tenure.client.contents import Contents
from tenure.errors import ArtifactStoreUnreachable, CoordinatorUnreachable
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_cli import START_MS, CommandLine, FakeFleet

STATUS: dict[str, Any] = {
    "world": "main",
    "epoch": 3,
    "tasks": {},
    "workers": {"w1": "ACTIVE", "w2": "STALE"},
    "slots": 4,
    "capabilities": ["default"],
    "artifacts": {"address": "/srv/files"},
    "now_ms": START_MS,
}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENURE_BROKER_URL", "redis://nowhere:1")
    monkeypatch.setenv("TENURE_DATA_DIR", str(tmp_path))

    def fine(_: str) -> list[checks.Finding]:
        return [checks.ok("broker", "valkey 9.1 answers")]

    monkeypatch.setattr(checks, "broker", fine)


def levels(found: list[dict[str, str]]) -> dict[str, str]:
    return {row["about"]: row["level"] for row in found}


@pytest.mark.usefixtures("broker")
def test_every_finding_has_a_level_and_warnings_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {
        "status": [STATUS],
        "capabilities": [{"capability": "gpu", "state": "QUEUED", "tasks": 1}],
        "directives": [{"directive_id": "d", "state": "PENDING"}],
    }
    tenure = CommandLine(FakeFleet(rows=rows), capsys)
    found = tenure("doctor", "--json")
    assert found.code == 0
    assert levels(found.json())["coordinator"] == "ok"
    assert {row["about"]: row["remedy"] for row in found.json() if row["level"] == "warn"} == {
        "workers": "See `tenure workers show w2`",
        "capabilities": "tenure worker --capability gpu",
        "directives": "See `tenure directives list --state pending`",
    }
    text = tenure("doctor").out
    assert "warn  workers: w2 has fallen silent. See `tenure workers show w2`." in text
    assert "It works; see the warnings." in text


@pytest.mark.usefixtures("broker")
def test_no_coordinator_is_bad_and_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = CommandLine(FakeFleet(error=CoordinatorUnreachable("nobody answered")), capsys)
    printed = tenure("doctor")
    assert printed.code == 3
    assert "bad   coordinator: nobody answered. Start it with `tenure coordinator`." in printed.out


@pytest.mark.usefixtures("broker")
def test_clocks_that_are_apart_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"status": [STATUS | {"now_ms": START_MS - 60_000}]}
    found = CommandLine(FakeFleet(rows=rows), capsys)("doctor", "--json")
    assert levels(found.json())["clocks"] == "warn"


def test_no_broker_is_bad(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENURE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("TENURE_BROKER_URL", raising=False)
    monkeypatch.delenv("TENURE_BROKER_URL_FILE", raising=False)
    printed = CommandLine(FakeFleet(), capsys)("doctor")
    assert printed.code == 3
    assert "bad   settings: no broker is known" in printed.out


@pytest.mark.parametrize(
    ("info", "level", "words"),
    [
        ({"redis_version": "7.0.15"}, "ok", "redis 7.0.15 answers"),
        ({"redis_version": "6.2.14"}, "bad", "too old"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "ok", "valkey 9.1.2 answers"),
    ],
)
def test_versions(info: dict[str, str], level: str, words: str) -> None:
    found = checks._version(info)
    assert found.level == level
    assert words in found.text


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"maxmemory_policy": "noeviction", "maxmemory": "1000000000", "used_memory": "1"}, ["ok", "ok"]),
        ({"maxmemory_policy": "noeviction", "maxmemory": "0"}, ["ok", "warn"]),
        ({"maxmemory_policy": "noeviction", "maxmemory": "100", "used_memory": "90"}, ["ok", "warn"]),
        ({"maxmemory_policy": "volatile-lru", "maxmemory": "0"}, ["bad", "warn"]),
    ],
)
def test_memory(info: dict[str, str], expected: list[str]) -> None:
    assert [found.level for found in checks._memory(info)] == expected


def test_a_broker_that_forgets_is_told() -> None:
    assert [found.level for found in checks._persistence({"aof_enabled": "0"})] == ["warn"]
    assert not list(checks._persistence({"aof_enabled": "1"}))


def test_a_file_that_is_no_database_is_bad(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_text("x" * 5000)
    assert next(iter(checks.database(tmp_path / "t.db"))).level == "bad"
    assert next(iter(checks.database(tmp_path / "none.db"))).level == "bad"
    assert not list(checks.database(None))


# --- the store of files -----------------------------------------------------------------------------------------------


def about_the_store(capsys: pytest.CaptureFixture[str], fleet: FakeFleet, *arguments: str) -> list[tuple[str, str]]:
    found = CommandLine(fleet, capsys)("doctor", "--json", *arguments).json()
    return [
        (row["level"], f"{row['text']}. {row['remedy']}") for row in found if row["about"] in {"artifacts", "secrets"}
    ]


@pytest.mark.usefixtures("broker")
def test_a_store_is_tried_and_left_empty(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FakeFleet(rows={"status": [STATUS]})
    ((level, text),) = about_the_store(capsys, fleet)
    assert (level, "/srv/files takes a file and gives it back" in text) == ("ok", True)
    assert not list(fleet.store.places())
    assert not list(fleet.store.objects())


@pytest.mark.usefixtures("broker")
def test_a_fleet_without_a_store_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FakeFleet(rows={"status": [STATUS | {"artifacts": {"address": ""}}]})
    ((level, text),) = about_the_store(capsys, fleet)
    assert (level, "--artifacts ADDRESS" in text) == ("warn", True)


@pytest.mark.usefixtures("broker")
def test_another_address_than_the_coordinators_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = about_the_store(capsys, FakeFleet(rows={"status": [STATUS]}), "--artifacts", "/mnt/files")
    assert [level for level, _ in found] == ["warn", "ok"]
    assert "this host keeps files at /mnt/files, the coordinator at /srv/files" in found[0][1]


@pytest.mark.usefixtures("broker")
def test_a_store_that_is_away_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FakeFleet(rows={"status": [STATUS]})

    def away() -> Store:
        raise ArtifactStoreUnreachable("the folder is not there", "Mount it")

    fleet.contents = Contents(away, ManualClock(), SeededEntropy(1))
    assert about_the_store(capsys, fleet) == [("bad", "the folder is not there. Mount it")]
    assert CommandLine(fleet, capsys)("doctor").code == 3


@pytest.mark.usefixtures("broker")
def test_files_that_others_may_read_are_bad(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keys, secrets = tmp_path / "keys.json", tmp_path / "secrets"
    secrets.mkdir()
    for path in (keys, secrets / "token"):
        path.write_text("{}")
        path.chmod(0o644)
    fleet = FakeFleet(rows={"status": [STATUS]})
    arguments = ("--artifacts-options-file", str(keys), "--secrets-dir", str(secrets))
    found = about_the_store(capsys, fleet, *arguments)
    assert [level for level, _ in found] == ["bad", "bad"]
    assert all("chmod 600" in text for _, text in found)
    for path in (keys, secrets / "token"):
        path.chmod(0o600)
    assert [level for level, _ in about_the_store(capsys, fleet, *arguments)] == ["ok", "ok"]
