"""What each user of the broker may do and may not do, each tried for real, one by one, on every server.

The tables say it in full: whatever a row does not name is refused. `NOPERM` is the only answer that counts as a
refusal; a wrong type or a missing group means that the command was let through.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import cast

import pytest
from redis.exceptions import ExecAbortError, NoPermissionError

from tenure.broker.principals import Principal
from tenure.broker.redis_connection import Answer, Command, RedisConnection
from tenure.protocol.principal_messages import Role
from tests.secured import SecuredBroker

TASK = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
PLACE = f"{TASK}:7:{'a' * 16}:{'d' * 64}"

# Everything that a fleet's streams and strings are called, of two sites and two people whose names begin alike.
OWN_STREAMS = ("cap:lab:cpu", "cap:lab:gpu", "own:lab:lab.w1", "own:lab:lab.w2")
CONTENT = f"obj:{'d' * 64}"
STAGED = f"stg:lab:{PLACE}"
UPLOAD = f"stg:@anna:{PLACE}"
LOG = f"log:lab:{TASK}:7"
FOREIGN_LOG = f"log:lab2:{TASK}:7"
FOREIGN_STAGED = f"stg:lab2:{PLACE}"
FOREIGN_UPLOAD = f"stg:@bert:{PLACE}"
REPLY = "reply:anna:c1"
NAMES = (
    *(*OWN_STREAMS, "cap:lab:secret", "cap:lab2:cpu", "own:lab2:lab2.w1", "inbox:lab", "inbox:lab2", "inbox:anna"),
    *("ctl:lab:lab.w1", "ctl:lab2:lab2.w1", "hb:lab:lab.w1", "hb:lab2:lab2.w1", "echo:lab:lab.w1", "echo:lab2:lab2.w1"),
    *(LOG, FOREIGN_LOG, STAGED, FOREIGN_STAGED, UPLOAD, FOREIGN_UPLOAD, f"stg:@:{PLACE}", f"stg:anna:{PLACE}"),
    *("rpc:anna", "rpc:bert", "rpc:lab", REPLY, "reply:bert:c1", CONTENT, "store", "incarnation"),
)
ELSEWHERE = (
    *(f"tenure:{{side}}:{name}" for name in ("inbox:lab", "rpc:anna", "hb:lab:lab.w1", "store", CONTENT)),
    *("STREAMS", "NOACK", "GROUP", "foreign", "tenure:", ""),
)
KEYS = (*(f"tenure:{{main}}:{name}" for name in NAMES), *ELSEWHERE)

READS = {"exists": {CONTENT}, "getrange": {CONTENT}, "pttl": {CONTENT}, "strlen": {CONTENT}}

SITE: Mapping[str, set[str]] = {
    "xreadgroup": {*OWN_STREAMS},
    "xrange": {*OWN_STREAMS},
    "xread": {"ctl:lab:lab.w1"},
    "xadd": {"inbox:lab", LOG},
    "xtrim": {LOG},
    "expire": {LOG},
    "set": {"hb:lab:lab.w1", STAGED},
    "del": {"hb:lab:lab.w1"},
    "get": {"echo:lab:lab.w1", "store", "incarnation"},
    "setrange": {STAGED},
    "pexpire": {STAGED},
    "exists": {CONTENT, STAGED},
    "strlen": {CONTENT, STAGED},
    "getrange": {CONTENT},
    "pttl": {CONTENT},
}
OBSERVER: Mapping[str, set[str]] = {
    "xadd": {"rpc:anna"},
    "xread": {REPLY, LOG, FOREIGN_LOG},
    "xtrim": {REPLY},
    "del": {REPLY},
    "get": {"store", "incarnation"},
    **{
        command: {CONTENT, *(name for name in NAMES if name.startswith("stg:"))}
        for command in ("exists", "getrange", "pttl", "strlen")
    },
}
SUBMITTER: Mapping[str, set[str]] = {
    **OBSERVER,
    "set": {UPLOAD},
    "setrange": {UPLOAD},
    "pexpire": {UPLOAD},
    "unlink": {UPLOAD},
    "persist": {CONTENT},
}
_COORDINATOR_COMMANDS = (
    *("del", "exists", "expire", "get", "getrange", "memory|usage", "mget", "mset", "pexpire", "pttl", "set"),
    *("setrange", "strlen", "unlink", "xack", "xadd", "xdel", "xgroup|create", "xinfo|groups", "xinfo|stream", "xlen"),
    *("xpending", "xrange", "xread", "xreadgroup", "xtrim"),
)
COORDINATOR: Mapping[str, set[str]] = {command: set(NAMES) for command in _COORDINATOR_COMMANDS}

ANYWHERE: Mapping[str, set[str]] = {
    "site": {"ping"},
    "observer": {"ping"},
    "submitter": {"ping", "renamenx"},
    "operator": {"ping", "renamenx"},
    "coordinator": {"discard", "exec", "info", "multi", "ping", "rename", "scan"},
    "provisioner": {
        *("acl|deluser", "acl|dryrun", "acl|getuser", "acl|save", "acl|setuser", "acl|users", "acl|whoami"),
        *("client|kill", "info", "ping"),
    },
}
TABLES: Mapping[str, Mapping[str, set[str]]] = {
    "site": SITE,
    "observer": OBSERVER,
    "submitter": SUBMITTER,
    "operator": SUBMITTER,
    "coordinator": COORDINATOR,
    "provisioner": {},
}
KINDS_OF_USER = tuple(TABLES)

ARGUMENTS: Mapping[str, str] = {
    "del": "DEL {}",
    "exists": "EXISTS {}",
    "expire": "EXPIRE {} 100",
    "get": "GET {}",
    "getrange": "GETRANGE {} 0 1",
    "memory|usage": "MEMORY USAGE {} SAMPLES 0",
    "mget": "MGET {}",
    "mset": "MSET {} v",
    "persist": "PERSIST {}",
    "pexpire": "PEXPIRE {} 100000",
    "pttl": "PTTL {}",
    "set": "SET {} v PX 100000",
    "setrange": "SETRANGE {} 0 v",
    "strlen": "STRLEN {}",
    "unlink": "UNLINK {}",
    "xack": "XACK {} tenure 1-1",
    "xadd": "XADD {} NOMKSTREAM * m v",
    "xdel": "XDEL {} 1-1",
    "xgroup|create": "XGROUP CREATE {} tenure 0 MKSTREAM",
    "xinfo|groups": "XINFO GROUPS {}",
    "xinfo|stream": "XINFO STREAM {}",
    "xlen": "XLEN {}",
    "xpending": "XPENDING {} tenure - + 1",
    "xrange": "XRANGE {} - +",
    "xread": "XREAD COUNT 1 STREAMS {} 0",
    "xreadgroup": "XREADGROUP GROUP tenure w COUNT 1 STREAMS {} >",
    "xtrim": "XTRIM {} MAXLEN = 10",
}


def url_of(secured: SecuredBroker, kind: str) -> str:
    """The address of a user of that kind, which is made by this."""
    if kind == "site":
        return secured.site_url("lab", ("cpu", "gpu"))
    if kind in {"coordinator", "provisioner"}:
        return secured.url_of(Principal("main", "coordinator" if kind == "coordinator" else "provisioner"))
    return secured.person_url("anna", Role(kind))


@pytest.fixture(params=KINDS_OF_USER)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connection(secured_broker: SecuredBroker, kind: str) -> Iterator[RedisConnection]:
    """A connection by a user of each kind."""
    with closing(secured_broker.connect(url_of(secured_broker, kind))) as connection:
        yield connection


def refused(answer: Answer) -> bool:
    # A transaction says so in a way of its own.
    return isinstance(answer, NoPermissionError) or (isinstance(answer, ExecAbortError) and "NOPERM" in str(answer))


def named(key: str) -> str:
    return key.removeprefix("tenure:{main}:")


# --- keys ----------------------------------------------------------------------------------------


def test_each_command_is_let_through_for_its_own_keys_and_refused_for_all_others(
    connection: RedisConnection, kind: str
) -> None:
    """Every command of the faces with every kind of key, of one's own and of others, of this fleet and of another."""
    tries = [(command, key) for command in ARGUMENTS for key in KEYS]

    answers = connection.call_all([command_for(command, key) for command, key in tries])

    allowed = {
        (command, named(key)) for (command, key), answer in zip(tries, answers, strict=True) if not refused(answer)
    }
    assert allowed == {(command, name) for command, names in TABLES[kind].items() for name in names}


def command_for(command: str, key: str) -> Command:
    return tuple(key if word == "{}" else word for word in ARGUMENTS[command].split())


@pytest.mark.parametrize("command", ["RENAME", "RENAMENX"])
def test_a_content_gets_its_name_only_from_a_place_of_ones_own(
    connection: RedisConnection, kind: str, command: str
) -> None:
    """These take a name away and give another; only `RENAME`, the coordinator's, ends what had that name before."""
    tries = [(source, target) for source in KEYS for target in KEYS]

    answers = connection.call_all([(command, source, target) for source, target in tries])

    allowed = {
        (named(source), named(target))
        for (source, target), answer in zip(tries, answers, strict=True)
        if not refused(answer)
    }
    assert allowed == set(renamings(kind, command))


def renamings(kind: str, command: str) -> Iterable[tuple[str, str]]:
    if kind == "coordinator" and command == "RENAME":
        return ((source, target) for source in NAMES for target in NAMES)
    uploads = kind in {"submitter", "operator"} and command == "RENAMENX"
    return ((UPLOAD, target) for target in (UPLOAD, CONTENT)) if uploads else ()


@pytest.mark.parametrize(
    "command",
    [
        "XREADGROUP GROUP tenure w STREAMS {main}cap:lab:cpu {main}cap:lab2:cpu > >",
        "XREADGROUP GROUP tenure w STREAMS {main}own:lab:lab.w1 {main}cap:lab:secret > >",
        "XREADGROUP GROUP tenure w STREAMS {main}own:lab:lab.w1 {main}inbox:lab > >",
        "XREAD STREAMS {main}ctl:lab:lab.w1 {main}ctl:lab2:lab2.w1 0 0",
        "DEL {main}hb:lab:lab.w1 {main}hb:lab2:lab2.w1",
        "SET {main}hb:lab:lab.w1 v GET",
    ],
)
def test_one_foreign_key_among_ones_own_is_enough_to_be_refused(secured_broker: SecuredBroker, command: str) -> None:
    words = command.replace("{main}", "tenure:{main}:").split()

    with closing(secured_broker.connect(url_of(secured_broker, "site"))) as site:
        (answer,) = site.call_all([words])

    assert refused(answer)


# --- commands ------------------------------------------------------------------------------------


def test_every_command_of_the_server_that_a_user_does_not_need_is_refused(
    secured_broker: SecuredBroker, connection: RedisConnection, kind: str
) -> None:
    """All that the server knows, to the last subcommand; a command is refused before anybody looks at its keys."""
    needed = set(TABLES[kind]) | ANYWHERE[kind]
    commands = {name: words for name, words in all_commands(secured_broker).items() if name not in needed}
    assert len(commands) > 200

    answers = connection.call_all(list(commands.values()))

    assert [name for name, answer in zip(commands, answers, strict=True) if not refused(answer)] == []


def test_every_command_that_a_user_needs_without_a_key_is_let_through(
    secured_broker: SecuredBroker, connection: RedisConnection, kind: str
) -> None:
    commands = all_commands(secured_broker)
    answers = connection.call_all([commands[name] for name in sorted(ANYWHERE[kind] - {"rename", "renamenx"})])

    assert not any(map(refused, answers))


def all_commands(secured: SecuredBroker) -> dict[str, Command]:
    """Every command and subcommand of the server, each with as many words as it wants.

    Left out are those that everybody may send before anybody has said who they are: AUTH, HELLO, QUIT and RESET.
    """
    found: dict[str, Command] = {}
    for entry in cast("list[list[object]]", secured.admin("COMMAND")):
        for name, arity, flags in leaves(entry):
            if b"no_auth" not in flags:
                words = name.split("|")
                found[name] = (*words, *["0"] * (abs(arity) - len(words)))
    return found


def leaves(entry: list[object]) -> Iterator[tuple[str, int, list[bytes]]]:
    subcommands = cast("list[list[object]]", entry[9])
    for each in subcommands or [entry]:
        yield cast("bytes", each[0]).decode(), cast("int", each[1]), cast("list[bytes]", each[2])


@pytest.mark.parametrize("kind", ["site", "observer", "submitter", "operator"], indirect=True)
def test_nobody_listens_to_what_the_server_tells_of_others(connection: RedisConnection, kind: str) -> None:
    answers = connection.call_all([("SUBSCRIBE", "__keyspace@0__:x"), ("PUBLISH", "x", "y"), ("MONITOR",)])

    assert all(map(refused, answers))


def test_without_a_credential_nothing_is_answered(secured_broker: SecuredBroker) -> None:
    commands = all_commands(secured_broker)
    with (
        socket.create_connection(("127.0.0.1", secured_broker.server.port)) as stranger,
        stranger.makefile("rb") as said,
    ):
        stranger.sendall("".join(f"{' '.join(map(str, words))}\r\n" for words in commands.values()).encode())
        answers = [said.readline() for _ in commands]

    assert [name for name, line in zip(commands, answers, strict=True) if b"NOAUTH" not in line] == []
