"""What users of the broker are granted, as rules; `tests/contract/test_broker_acl.py` tries the same on servers."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tenure.broker.acl import (
    Rights,
    coordinator_rights,
    person_rights,
    provisioner_rights,
    setuser,
    site_grant,
    site_rights,
)
from tenure.broker.base import ClientAddress, LogKey, Stream, WorkerAddress
from tenure.broker.credentials import address_for, digest_of, new_secret, write_credential
from tenure.broker.keys import ContentKeys, Keys
from tenure.broker.principals import Principal, is_held_to_its_own, principal_of
from tenure.broker.url import BrokerUrl
from tenure.errors import InvalidSettings
from tenure.protocol.principal_messages import Role
from tenure.testing import SeededEntropy

KEYS, CONTENTS = Keys("main"), ContentKeys("main")
TASK = "0" * 26
LAB = site_rights("main", "lab", ["cpu", "gpu", "cpu"])


def may(rights: Rights, command: str, key: str, need: str) -> bool:
    """Whether one selector allows the command and the key, to read (`R`), to write (`W`) or both (`RW`)."""
    for selector in rights.selectors:
        if command not in selector.commands:
            continue
        for spelled in selector.keys:
            mode, _, pattern = spelled.partition("~")
            if set(need) <= set(mode.removeprefix("%") or "RW") and fnmatchcase(key, pattern):
                return True
    return False


def of_site(site: str) -> dict[str, str]:
    worker = WorkerAddress(site, f"{site}.w1")
    return {
        "cpu": KEYS.assignments(Stream(site, "cpu")),
        "gpu": KEYS.assignments(Stream(site, "gpu")),
        "secret": KEYS.assignments(Stream(site, "secret")),
        "own": KEYS.assignments(Stream(site, worker_id=worker.worker_id)),
        "inbox": KEYS.inbox(site),
        "control": KEYS.control(worker),
        "heartbeat": KEYS.heartbeat(worker),
        "echo": KEYS.echo(worker),
        "log": CONTENTS.log(LogKey(site, TASK, 7)),
        "staged": CONTENTS.staged(f"{site}:{TASK}:7:{'a' * 16}", "d" * 64),
    }


NEEDED = {
    "cpu": {("xreadgroup", "R"), ("xrange", "R")},
    "gpu": {("xreadgroup", "R"), ("xrange", "R")},
    "own": {("xreadgroup", "R"), ("xrange", "R")},
    "inbox": {("xadd", "W")},
    "control": {("xread", "R")},
    "heartbeat": {("set", "W"), ("del", "W")},
    "echo": {("get", "R")},
    "log": {("xadd", "W"), ("xtrim", "W"), ("expire", "W")},
    "staged": {(command, "W") for command in ("set", "setrange", "pexpire", "strlen", "exists")},
}
COMMANDS = sorted(
    {command for selector in LAB.selectors for command in selector.commands} | {"rename", "renamenx", "unlink", "xdel"}
)


@pytest.mark.parametrize("name", sorted(of_site("lab")))
def test_a_site_may_do_with_its_own_keys_what_its_workers_do(name: str) -> None:
    key = of_site("lab")[name]

    allowed = {(command, need) for command in COMMANDS for need in "RW" if may(LAB, command, key, need)}

    assert allowed == NEEDED.get(name, set())


@pytest.mark.parametrize("site", ["lab2", "la", "default"])
def test_a_site_may_do_nothing_with_the_keys_of_another(site: str) -> None:
    for name, key in of_site(site).items():
        assert [command for command in COMMANDS if may(LAB, command, key, "")] == [], name


def test_all_streams_that_a_worker_takes_from_stand_in_one_selector() -> None:
    """One command reads them all, and a command must be wholly allowed by one selector."""
    (taking,) = [each for each in LAB.selectors if "xreadgroup" in each.commands]

    assert len(taking.keys) == len(set(taking.keys)) == 3


def test_a_site_reads_what_all_may_read_and_changes_none_of_it() -> None:
    for key in (CONTENTS.store(), KEYS.incarnation()):
        assert may(LAB, "get", key, "R")
    assert may(LAB, "getrange", CONTENTS.stored("d" * 64), "R")
    for key in (CONTENTS.store(), KEYS.incarnation(), CONTENTS.stored("d" * 64), KEYS.rpc("anna")):
        assert not any(may(LAB, command, key, "W") for command in COMMANDS)


@pytest.mark.parametrize("role", list(Role))
def test_a_person_asks_and_is_answered_by_streams_of_ones_own(role: Role) -> None:
    rights = person_rights("main", "anna", role)
    reply = KEYS.reply(ClientAddress("anna", "c1"))

    assert may(rights, "xadd", KEYS.rpc("anna"), "W")
    assert may(rights, "xread", reply, "R")
    assert may(rights, "xtrim", reply, "W")
    assert may(rights, "del", reply, "W")
    assert may(rights, "xread", of_site("lab")["log"], "R")
    for key in (KEYS.rpc("bert"), KEYS.reply(ClientAddress("bert", "c1")), KEYS.inbox("anna"), KEYS.inbox("lab")):
        assert not any(may(rights, command, key, "") for command in COMMANDS)


@pytest.mark.parametrize("role", list(Role))
def test_only_who_may_submit_may_upload_and_only_by_places_of_ones_own(role: Role) -> None:
    rights = person_rights("main", "anna", role)
    uploads = role is not Role.OBSERVER
    own = CONTENTS.staged(f"@anna:{TASK}:1:{'a' * 16}", "d" * 64)

    assert may(rights, "setrange", own, "W") is uploads
    assert may(rights, "renamenx", own, "RW") is uploads
    assert may(rights, "renamenx", CONTENTS.stored("d" * 64), "W") is uploads
    assert may(rights, "persist", CONTENTS.stored("d" * 64), "W") is uploads
    assert not any(may(rights, "rename", key, "") for key in (own, CONTENTS.stored("d" * 64)))
    for place in ("anna", "@bert", "lab", "@"):
        foreign = CONTENTS.staged(f"{place}:{TASK}:1:{'a' * 16}", "d" * 64)
        assert not any(may(rights, command, foreign, "W") for command in COMMANDS)
    assert not any(may(rights, command, CONTENTS.stored("d" * 64), "R") for command in ("renamenx", "set", "unlink"))


def test_the_coordinator_makes_nobody_and_reaches_no_other_namespace() -> None:
    rights = coordinator_rights("main")
    commands = {*rights.commands, *(command for selector in rights.selectors for command in selector.commands)}

    assert not [
        each for each in commands if each.split("|")[0] in {"acl", "client", "config", "eval", "flushall", "keys"}
    ]
    assert may(rights, "xadd", KEYS.inbox("lab"), "RW")
    assert not may(rights, "xadd", Keys("side").inbox("lab"), "")


def test_the_provisioner_touches_no_key() -> None:
    assert provisioner_rights().selectors == ()


def test_a_user_is_made_anew_each_time() -> None:
    command = setuser(site_grant("main", "lab", ["cpu"], ["a" * 64, "b" * 64]))

    assert command[:3] == ("ACL", "SETUSER", "tenure.main.site.lab")
    assert command[3:9] == ("reset", "on", f"#{'a' * 64}", f"#{'b' * 64}", "resetchannels", "-@all")
    assert "(+xadd %W~tenure:{main}:inbox:lab)" in command


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "principal",
    [
        Principal("main", "site", "lab"),
        Principal("main", "client", "anna-2"),
        Principal("a.b", "site", "lab"),
        Principal("main", "coordinator"),
        Principal("main", "provisioner"),
    ],
)
def test_a_user_is_told_by_its_name(principal: Principal) -> None:
    assert principal_of(principal.user, principal.namespace) == principal
    assert principal_of(principal.user, "other") is None
    assert is_held_to_its_own(principal.user, principal.namespace) is (principal.part in {"site", "client"})


@pytest.mark.parametrize(
    "user",
    [
        "",
        "default",
        "tenure.main",
        "tenure.main.site",
        "tenure.main.site.",
        "tenure.main.site.a.b",
        "tenure.main.other.x",
    ],
)
def test_other_users_are_nobody_of_ours(user: str) -> None:
    assert principal_of(user, "main") is None


@pytest.mark.parametrize("name", ["coordinator", "provisioner"])
def test_no_site_is_called_like_the_coordinator_of_a_fleet_with_a_longer_name(name: str) -> None:
    assert Principal("a.site", "coordinator").user == "tenure.a.site.coordinator"
    with pytest.raises(InvalidSettings, match=name):
        Principal("a", "site", name)
    assert principal_of(f"tenure.a.site.{name}", "a") is None


# --- credentials ---------------------------------------------------------------------------------


def test_a_secret_is_long_and_its_digest_is_what_the_broker_takes() -> None:
    secret = new_secret(SeededEntropy())

    assert len(secret) == 64
    assert digest_of("secret") == "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"


def test_an_address_names_the_user_and_keeps_place_and_options() -> None:
    here = BrokerUrl("rediss://admin:old@[::1]:7/0?ssl_ca_certs=/ca.pem&ssl_certfile=/own.pem")

    told = BrokerUrl(address_for(here, Principal("main", "site", "lab"), "s/e"))

    assert told.parts() == here.parts() | {"username": "tenure.main.site.lab", "password": "s/e"}


def test_a_credential_is_its_owners_alone_and_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "lab.url"
    path.write_text("redis://old\n")
    path.chmod(0o644)

    assert write_credential(path, "redis://new") == path

    assert path.read_text() == "redis://new\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InvalidSettings, match="cannot be written"):
        write_credential(tmp_path / "missing" / "lab.url", "redis://new")
