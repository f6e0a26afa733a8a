"""What `tenure doctor` looks at, each answered by findings: ok, warn or bad, with a remedy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tenure.broker.redis_connection import BrokerUrl, RedisConnection
from tenure.cli.records import query
from tenure.errors import TenureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tenure.cli.desk import Desk
    from tenure.settings import Settings

_TIMEOUT_MS: Final = 3_000
_OLDEST: Final = {"valkey": (7, 2), "redis": (7, 0)}
_CLOCKS_APART_MS: Final = 5_000
_SLOW_MS: Final = 250
_MEGABYTE: Final = 1024 * 1024
_LITTLE_SPACE: Final = 1024 * _MEGABYTE
_NO_SPACE: Final = 64 * _MEGABYTE
_NEARLY_FULL: Final = 0.8


class Finding(NamedTuple):
    """What one check found."""

    level: Literal["ok", "warn", "bad"]
    about: str
    text: str
    remedy: str = ""


class Status(NamedTuple):
    """The coordinator's answer, and how long it took."""

    row: Mapping[str, Any]
    took_ms: int


def ok(about: str, text: str) -> Finding:
    """Nothing is wrong."""
    return Finding("ok", about, text)


def warn(about: str, text: str, remedy: str = "") -> Finding:
    """It works, and somebody should know."""
    return Finding("warn", about, text, remedy)


def bad(about: str, text: str, remedy: str = "") -> Finding:
    """It does not work, or puts work at risk."""
    return Finding("bad", about, text, remedy)


def settings(chosen: Settings) -> Iterator[Finding]:
    """Where the address comes from, and who else may read it."""
    source = chosen.broker_url_source()
    yield ok("settings", f"namespace {chosen.namespace}, address from {source or 'an argument, a variable or a file'}")
    if source is not None and source.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield warn("permissions", f"{source} can be read by others", f"chmod 600 {source}")
    if chosen.data_dir.exists() and not os.access(chosen.data_dir, os.W_OK):
        yield bad("permissions", f"{chosen.data_dir} cannot be written", "Choose another folder with TENURE_DATA_DIR")


def broker(url: str) -> Sequence[Finding]:
    """Whether the broker answers, which one it is, and whether it keeps what it is given."""
    connection = RedisConnection(BrokerUrl(url), timeout_ms=_TIMEOUT_MS)
    try:
        connection.call("PING")
        info = _info(connection)
    except TenureError as error:
        return [bad("broker", error.message, error.remedy)]
    finally:
        connection.close()
    if not info:
        return [ok("broker", "answers; this user may not ask which one it is and how it is set up"), _openness(url)]
    return [_version(info), *_memory(info), *_persistence(info), _openness(url)]


def coordinator_status(desk: Desk) -> Status:
    """Ask the coordinator for its status. Raises what kept it from answering."""
    clock = desk.session.clock
    query(desk, "status")
    before_ms = clock.elapsed_ms()
    row = query(desk, "status")[0]
    return Status(row, clock.elapsed_ms() - before_ms)


def coordinator(status: Status, now_ms: int) -> Iterator[Finding]:
    """Who decides, how quickly it answers, and whether its clock agrees with ours."""
    row = status.row
    text = f"world {row.get('world')}, epoch {row.get('epoch')}, answers in {status.took_ms} ms"
    yield ok("coordinator", text) if status.took_ms < _SLOW_MS else warn("coordinator", f"{text}, which is slow")
    apart_ms = abs(int(row.get("now_ms", now_ms)) - now_ms)
    if apart_ms > _CLOCKS_APART_MS:
        yield warn(
            "clocks",
            f"the coordinator's clock and this one are {apart_ms / 1000:.0f} s apart",
            "Leases do not depend on it, but times in lists will look wrong; set the clocks",
        )
    else:
        yield ok("clocks", f"the coordinator's clock and this one differ by {apart_ms} ms")


def local_database(status: Mapping[str, Any]) -> Path | None:
    """The coordinator's database when it is on this host."""
    path = Path(str(status.get("database", "")))
    return path if path.is_file() else None


def database(path: Path | None) -> Iterator[Finding]:
    """The database file: whether it is one, its version, who may read it, and the space around it."""
    if path is None:
        return
    if not path.is_file():
        yield bad("database", f"{path} does not exist", "Give the file that `tenure coordinator` was started with")
        return
    yield _file(path)
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH) and path.parent.stat().st_mode & (
        stat.S_IXGRP | stat.S_IXOTH
    ):
        yield warn("database", f"{path} can be read by others, with all arguments and results", f"chmod 600 {path}")
    free = shutil.disk_usage(path.parent).free
    text = f"{free // _MEGABYTE} MB are free on the disk of {path}"
    if free < _NO_SPACE:
        yield bad("disk", text, "Free space; the coordinator stops taking work when the disk is full")
    elif free < _LITTLE_SPACE:
        yield warn("disk", text, "Free space soon")
    else:
        yield ok("disk", text)


def workers(desk: Desk, status: Mapping[str, Any]) -> Iterator[Finding]:
    """Who works, who has fallen silent, what waits for nobody, and what waits for a person."""
    states = dict(status.get("workers", {}))
    active = [name for name, state in states.items() if state == "ACTIVE"]
    if active:
        yield ok("workers", f"{len(active)} active with {status.get('slots')} slots: {', '.join(sorted(active)[:8])}")
    else:
        yield warn("workers", "none is active; tasks are stored and wait", "Start one with `tenure worker`")
    for name in sorted(name for name, state in states.items() if state == "STALE"):
        yield warn("workers", f"{name} has fallen silent", f"See `tenure workers show {name}`")
    waiting = {row["capability"] for row in query(desk, "capabilities") if row["state"] == "QUEUED"}
    for name in sorted(waiting - set(status.get("capabilities", ()))):
        yield warn(
            "capabilities", f"tasks wait for {name!r}, which no worker offers", f"tenure worker --capability {name}"
        )
    pending = query(desk, "directives", {"state": "PENDING"}, 1_000)
    if pending:
        yield warn("directives", f"{len(pending)} wait for a decision", "See `tenure directives list --state pending`")


def _info(connection: RedisConnection) -> dict[str, str]:
    try:
        answers = [connection.call("INFO", part) for part in ("server", "memory", "persistence")]
    except TenureError:
        return {}
    lines = b"\n".join(answer for answer in answers if isinstance(answer, bytes)).decode(errors="replace").splitlines()
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}


def _openness(url: str) -> Finding:
    """Whether somebody without any credential is let in."""
    connection = RedisConnection(BrokerUrl(BrokerUrl(url).for_anybody()), timeout_ms=_TIMEOUT_MS)
    try:
        connection.call("PING")
    except TenureError:
        return ok("credentials", "the broker lets in nobody without one")
    finally:
        connection.close()
    # As bad as `acl_checks` calls it: what the exit code says must not depend on who looks.
    return bad(
        "credentials",
        "the broker does what anybody asks who can reach it",
        "Give every site and person a credential of its own: `tenure broker secure`",
    )


def _version(info: Mapping[str, str]) -> Finding:
    kind = "valkey" if "valkey_version" in info else "redis"
    version = info.get(f"{kind}_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    needed = _OLDEST[kind]
    if numbers and numbers < needed:
        return bad("broker", f"{kind} {version} is too old", f"Use {kind} {needed[0]}.{needed[1]} or newer")
    return ok("broker", f"{kind} {version} answers")


def _memory(info: Mapping[str, str]) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy", "")
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if policy != "noeviction":
        yield bad(
            "broker", f"it may throw messages away (maxmemory-policy {policy})", "Set maxmemory-policy noeviction"
        )
    else:
        yield ok("broker", "it never evicts")
    if not most:
        yield warn(
            "broker", "it has no memory limit", "Set maxmemory, so that it refuses writes before the host runs out"
        )
    elif used > _NEARLY_FULL * most:
        yield warn("broker", f"{used // _MEGABYTE} of {most // _MEGABYTE} MB are used", "Raise maxmemory")
    else:
        yield ok("broker", f"{used // _MEGABYTE} of {most // _MEGABYTE} MB are used")


def _persistence(info: Mapping[str, str]) -> Iterator[Finding]:
    if info.get("aof_enabled") == "0":
        yield warn(
            "broker",
            "its messages do not survive a restart (appendonly no)",
            "Nothing is lost, but everything pauses for one lease term after a restart; set appendonly yes",
        )


def _file(path: Path) -> Finding:
    from tenure.coordinator.store.queries import load_migrations

    newest = load_migrations()[-1][0]
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return bad("database", f"{path} cannot be read: {error}")
    size = path.stat().st_size // _MEGABYTE
    if version > newest:
        return bad("database", f"{path} was written by a newer Tenure (version {version})", "Upgrade this one")
    return ok("database", f"{path}, version {version} of {newest}, {size} MB")
