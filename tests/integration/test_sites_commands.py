"""The commands about sites and people on real servers: what they make at the broker, and what the doctor says of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenure.broker.keys import Keys
from tenure.broker.principals import Principal
from tenure.broker.redis_connection import RedisConnection, Reply
from tenure.broker.redis_coordinator import RedisCoordinator
from tenure.broker.url import BrokerUrl
from tenure.cli.main import run
from tenure.clock import SystemClock, SystemEntropy
from tenure.coordinator.options import CoordinatorOptions
from tenure.coordinator.service import run_coordinator
from tenure.errors import BrokerError, BrokerRefused
from tests.fixtures_services import require_program
from tests.servers import KINDS, Server, launch
from tests.waiting import wait_until


@dataclass
class Office:
    """What an operator has. Commands run in this process, over real connections."""

    server: Server
    folder: Path
    capsys: pytest.CaptureFixture[str] | None = None

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.url"

    def url(self, name: str) -> str:
        return self.file(name).read_text().strip()

    @property
    def provisioner(self) -> tuple[str, str]:
        return "--provisioner-url-file", str(self.file("provisioner"))

    def run(self, *arguments: str, person: str = "operator") -> tuple[int, Any, str]:
        """The exit code, what was said as JSON, and what was remarked."""
        assert self.capsys is not None
        self.capsys.readouterr()
        code = run([*arguments, "--json", "--broker-url-file", str(self.file(person))])
        captured = self.capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    def fine(self, *arguments: str, person: str = "operator") -> Any:
        code, told, remarks = self.run(*arguments, person=person)
        assert code == 0, remarks
        return told

    def issue(self, noun: str, name: str, *more: str) -> str:
        """Issue a credential; its address."""
        self.fine(noun, "issue", name, *more, *self.provisioner, "--out", str(self.file(name)))
        return self.url(name)

    def call(self, person: str, *command: str) -> Reply:
        with closing(RedisConnection(BrokerUrl(self.url(person)))) as connection:
            return connection.call(*command)

    def bad(self) -> list[str]:
        """What the doctor finds wrong with the broker's users."""
        _, found, _ = self.run("doctor", *self.provisioner)
        return [row["text"] for row in found if row["about"] == "credentials" and row["level"] != "ok"]


@contextmanager
def coordinating(url_file: Path, database: Path) -> Generator[None]:
    """A coordinator in a thread of this process, which reads its credential again whenever it connects."""
    stop = threading.Event()
    options = CoordinatorOptions(database=database, namespace="main")
    broker = RedisCoordinator(RedisConnection(BrokerUrl(url_file.read_text().strip(), url_file)), Keys("main"))
    arguments = (options, broker, SystemClock(), SystemEntropy(), stop)
    thread = threading.Thread(target=run_coordinator, args=arguments)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("sites")
    (folder / "users.acl").touch(0o600)
    server = launch(require_program(request.param), folder, "--aclfile", str(folder / "users.acl"))
    secure = ["broker", "secure", "--out", str(folder / "c"), "--broker-url", server.url, "--json"]
    try:
        assert run(secure) == 0
        office = Office(server, folder / "c")
        with coordinating(office.file("coordinator"), folder / "fleet.db"):
            yield office
    finally:
        server.stop()


@pytest.fixture
def office(shared: Office, capsys: pytest.CaptureFixture[str]) -> Office:
    shared.capsys = capsys
    return shared


def lets_in(url: str) -> bool:
    with closing(RedisConnection(BrokerUrl(url))) as connection:
        try:
            return bool(connection.call("PING"))
        except BrokerRefused:
            return False


def test_a_secured_broker_lets_in_nobody_without_a_credential(office: Office) -> None:
    assert not lets_in(office.server.url)
    assert all(lets_in(office.url(name)) for name in ("coordinator", "provisioner", "operator"))
    assert {path.stat().st_mode & 0o777 for path in office.folder.glob("*.url")} == {0o600}


def test_securing_again_keeps_the_secrets_that_are_out(office: Office) -> None:
    before = {path: path.read_text() for path in office.folder.glob("*.url")}
    told = office.fine("broker", "secure", "--out", str(office.folder), person="provisioner")
    assert (told["default_is_off"], told["is_kept"]) == (True, True)
    assert {path: path.read_text() for path in before} == before


@pytest.mark.parametrize("name", ["coordinator", "provisioner", "operator"])
def test_a_credential_of_the_fleet_itself_is_rotated_and_the_old_one_withdrawn(office: Office, name: str) -> None:
    before = {each: office.url(each) for each in ("coordinator", "provisioner", "operator")}
    secure = ("broker", "secure", "--out", str(office.folder))
    told = office.fine(*secure, "--rotate", name, person="provisioner")
    assert (told["still_good"], told["ended"]) == ([name], [])
    assert {each for each in before if office.url(each) != before[each]} == {name}
    assert lets_in(before[name])
    assert lets_in(office.url(name))
    with closing(RedisConnection(BrokerUrl(before[name]))) as stolen:
        stolen.call("PING")
        told = office.fine(*secure, person="provisioner")
        assert (told["still_good"], told["ended"]) == ([], [name])
        with pytest.raises(BrokerError):
            stolen.call("PING")
    assert not lets_in(before[name])
    assert all(lets_in(office.url(each)) for each in before)
    assert office.bad() == []


def test_what_a_site_is_granted_changes_while_its_connections_stay(office: Office) -> None:
    url = office.issue("sites", "grown", "--capability", "cpu", "--device", "arm")
    office.issue("sites", "other", "--capability", "gpu")
    key = "tenure:{main}:cap:grown:gpu"
    with closing(RedisConnection(BrokerUrl(url))) as connection:
        with pytest.raises(BrokerRefused):
            connection.call("XRANGE", key, "-", "+")
        words = ("--capability", "gpu", "--device", "laser", "--most-leases", "2")
        told = office.fine("sites", "grant", "grown", *words, *office.provisioner)
        assert (told["capabilities"], told["devices"], told["most_leases"]) == (["gpu"], ["laser"], 2)
        assert connection.call("XRANGE", key, "-", "+") == []
        with pytest.raises(BrokerRefused):
            connection.call("XRANGE", "tenure:{main}:cap:grown:cpu", "-", "+")
    shown = office.fine("sites", "show", "grown")
    assert (shown["capabilities"], shown["devices"], shown["most_leases"]) == (["gpu"], ["laser"], 2)
    assert office.bad() == []


def test_a_role_changes_while_its_holders_connections_stay(office: Office) -> None:
    url = office.issue("clients", "eve", "--role", "observer")
    key = "tenure:{main}:stg:@eve:x:1:y:z"
    with closing(RedisConnection(BrokerUrl(url))) as connection:
        with pytest.raises(BrokerRefused):
            connection.call("SET", key, "x")
        office.fine("clients", "role", "eve", "submitter", *office.provisioner)
        connection.call("SET", key, "x")
        office.fine("clients", "role", "eve", "observer", *office.provisioner)
        with pytest.raises(BrokerRefused):
            connection.call("SET", key, "x")
    assert office.fine("clients", "show", "eve")["role"] == "observer"
    assert office.bad() == []


def test_a_site_comes_by_its_own_credential_and_sees_only_its_own(office: Office) -> None:
    office.issue("sites", "north", "--capability", "cpu")
    office.call("north", "XADD", "tenure:{main}:inbox:north", "*", "m", "x")
    for key in ("tenure:{main}:inbox:south", "tenure:{main}:rpc:default", "tenure:{main}:cap:north:gpu"):
        with pytest.raises(BrokerRefused):
            office.call("north", "XADD", key, "*", "m", "x")


def test_a_rotation_has_two_good_secrets_until_it_is_finished(office: Office) -> None:
    old = office.issue("sites", "east", "--capability", "cpu")
    rotate = ("sites", "rotate", "east", *office.provisioner)
    office.fine(*rotate, "--out", str(office.file("east")))
    new = office.url("east")
    assert (old != new, lets_in(old), lets_in(new)) == (True, True, True)
    with closing(RedisConnection(BrokerUrl(old))) as open_by_old:
        open_by_old.call("PING")
        office.fine(*rotate, "--finish")
        with pytest.raises(BrokerError):
            open_by_old.call("PING")
    assert (lets_in(old), lets_in(new)) == (False, True)
    assert office.bad() == []


def test_a_revocation_cuts_open_connections_and_a_name_is_never_used_again(office: Office) -> None:
    url = office.issue("clients", "ada", "--role", "observer")
    with closing(RedisConnection(BrokerUrl(url))) as connection:
        connection.call("PING")
        assert office.fine("clients", "revoke", "ada", *office.provisioner)["state"] == "REVOKED"
        with pytest.raises(BrokerError):
            connection.call("PING")
    assert not lets_in(url)
    code, _, remarks = office.run("clients", "issue", "ada", *office.provisioner)
    assert (code, "never used again" in remarks) == (2, True)
    assert office.fine("clients", "revoke", "ada", *office.provisioner)["state"] == "REVOKED"


def test_a_role_reaches_no_further_than_it_is_issued(office: Office) -> None:
    office.issue("clients", "sam", "--role", "submitter")
    assert office.fine("tasks", "list", person="sam") == []
    code, _, remarks = office.run("sites", "issue", "mine", "--capability", "cpu", *office.provisioner, person="sam")
    assert (code, json.loads(remarks.splitlines()[-1])["error"]["code"]) == (2, "not_allowed")
    assert Principal("main", "site", "mine").user not in str(office.call("provisioner", "ACL", "USERS"))


def test_what_the_broker_forgot_is_made_again_with_the_secrets_that_are_out(office: Office) -> None:
    url = office.issue("sites", "south", "--capability", "cpu")
    user = Principal("main", "site", "south").user
    office.call("provisioner", "ACL", "DELUSER", user)
    assert [text for text in office.bad() if user in text]
    assert {"name": "south", "step": "made"} in office.fine("sites", "sync", *office.provisioner)
    assert lets_in(url)
    assert office.bad() == []


def test_whoever_was_let_in_past_the_record_is_found_and_ended(office: Office) -> None:
    office.issue("clients", "dora", "--role", "observer")
    mallory, dora = Principal("main", "site", "mallory").user, Principal("main", "client", "dora").user
    office.call("provisioner", "ACL", "SETUSER", mallory, "on", ">guessed", "~*", "+@all")
    office.call("provisioner", "ACL", "SETUSER", dora, ">another", "+flushall")
    found = " ".join(office.bad())
    assert f"the broker lets in {mallory}" in found
    assert f"lets in {dora} with a secret that is not on record" in found
    assert f"{dora} may do something else" in found

    assert {"name": "mallory", "step": "ended"} in office.fine("sites", "sync", *office.provisioner)
    office.fine("clients", "sync", "dora", *office.provisioner)
    assert office.bad() == []


def test_a_provisioner_that_is_away_keeps_nobody_from_being_refused(office: Office, tmp_path: Path) -> None:
    office.issue("sites", "west", "--capability", "cpu")
    nowhere = tmp_path / "nowhere.url"
    nowhere.write_text("redis://tenure.main.provisioner:x@127.0.0.1:1/0\n")
    nowhere.chmod(0o600)
    code, _, remarks = office.run("sites", "revoke", "west", "--provisioner-url-file", str(nowhere))
    assert (code, "nothing of it is taken any more" in remarks) == (3, True)
    assert office.fine("sites", "show", "west")["state"] == "REVOKED"
    assert lets_in(office.url("west"))
    office.fine("sites", "revoke", "west", *office.provisioner)
    assert not lets_in(office.url("west"))
    wait_until(lambda: office.bad() == [], "nobody is there who should not be")
