"""Every implementation of a store of artifacts, with what a test may do to it behind its back."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError

import pytest

from tenure.artifacts.base import Place, Store
from tenure.artifacts.memory import MemoryStore
from tenure.artifacts.opening import open_store
from tenure.broker.keys import ContentKeys
from tenure.broker.url import BrokerUrl
from tenure.protocol.artifact import Blob
from tenure.testing import ManualClock
from tests.servers import Server, free_port
from tests.waiting import wait_until

STORES = ("memory", "folder", "broker", "fsspec", "s3")
PLACE = Place("lab", "0" * 25 + "A", 7, "a" * 16)
LATER = Place("lab", "0" * 25 + "A", 8, "b" * 16)
BUCKET = "artifacts"
KEYS = {"key": "an-access-key", "secret": "a-very-secret-key"}


def blob_of(raw: bytes) -> Blob:
    return Blob(digest=hashlib.sha256(raw).hexdigest(), size=len(raw))


def cut(raw: bytes, size: int = 100_000) -> Iterator[bytes]:
    return (raw[start : start + size] for start in range(0, len(raw), size))


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that look like nothing, the same for the same seed."""
    return hashlib.shake_256(f"noise {seed}".encode()).digest(size)


@dataclass(frozen=True)
class S3Server:
    """A running S3-compatible server."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def options(self) -> dict[str, object]:
        """What a store is to be told to use it."""
        return {**KEYS, "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{self.port}", "region_name": "us-east-1"}}

    def reset(self) -> None:
        """Forget everything, and make the bucket anew."""
        base = f"http://127.0.0.1:{self.port}"
        for url, method in ((f"{base}/moto-api/reset", "POST"), (f"{base}/{BUCKET}", "PUT")):
            with urllib.request.urlopen(urllib.request.Request(url, method=method)) as answer:  # noqa: S310 - loopback
                answer.read()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def launch_s3(folder: Path) -> S3Server:
    """Start a server and wait until it answers."""
    port = free_port()
    with (folder / "s3.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.defpath, "TMPDIR": str(folder)},
        )
    server = S3Server(process, port)
    wait_until(lambda: _answers(server), f"an S3 server answers on port {port}", 30)
    return server


def _answers(server: S3Server) -> bool:
    assert server.process.poll() is None, "the S3 server ended; see its log"
    try:
        server.reset()
    except (URLError, OSError):
        return False
    return True


class StoreBench(Protocol):
    """One implementation, empty at first."""

    store: Store

    def reopen(self) -> Store: ...
    def spoil_staged(self, place: Place, blob: Blob) -> None: ...
    def age(self, ms: int) -> None: ...


class MemoryStoreBench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store: Store = MemoryStore(self.clock)

    def reopen(self) -> Store:
        return self.store

    def spoil_staged(self, place: Place, blob: Blob) -> None:
        self.store.stage(place, blob, 0, [b"\0" * blob.size])

    def age(self, ms: int) -> None:
        self.clock.advance_ms(ms)


class OpenedStoreBench:
    """A store of an address; `age` makes everything in it older."""

    def __init__(self, make: Callable[[], Store], age: Callable[[int], None]) -> None:
        self._make = make
        self._age = age
        self.store = make()

    def reopen(self) -> Store:
        return self._make()

    def spoil_staged(self, place: Place, blob: Blob) -> None:
        self.store.stage(place, blob, 0, [b"\0" * blob.size])

    def age(self, ms: int) -> None:
        self._age(ms)


def folder_bench(folder: Path) -> OpenedStoreBench:
    def age(ms: int) -> None:
        for path in folder.rglob("*"):
            state = path.lstat()
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns - ms * 1_000_000))

    return OpenedStoreBench(lambda: open_store(str(folder)), age)


def broker_bench(server: Server, namespace: str) -> OpenedStoreBench:
    def age(ms: int) -> None:
        for pattern in (ContentKeys(namespace).stored("*"), ContentKeys(namespace).staged("*", "*")):
            for key in server.admin_list("KEYS", pattern):
                assert isinstance(key, bytes)
                left_ms = server.admin("PTTL", key)
                assert isinstance(left_ms, int)
                server.admin("PEXPIRE", key, left_ms - ms)

    return OpenedStoreBench(lambda: open_store("broker:", {}, BrokerUrl(server.url), namespace), age)


def fsspec_bench(name: str) -> OpenedStoreBench:
    def age(ms: int) -> None:
        held: dict[str, Any] = import_module("fsspec.implementations.memory").MemoryFileSystem.store
        for path, file in held.items():
            if path.startswith(f"/{name}/"):
                file.created -= timedelta(milliseconds=ms)

    return OpenedStoreBench(lambda: open_store(f"memory://{name}"), age)


def s3_bench(server: S3Server, prefix: str) -> OpenedStoreBench:
    def age(ms: int) -> None:
        pytest.skip("the time of a file in S3 cannot be set")

    return OpenedStoreBench(lambda: open_store(f"s3://{BUCKET}/{prefix}", server.options), age)
