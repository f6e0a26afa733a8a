"""Substrates for the suites that every launcher passes: one bench per launcher, each in a module of its own.

The bench of the launcher NAME is `tests/launcher_NAME.py`. It has a function `open_bench(premises)`, a context manager
of a `LauncherBench`, and `EXEMPT`, which says of cases of the parity suite why they cannot be with this substrate. What
it needs and the machine lacks ends the test by `unavailable(...)`. What several benches share is started by a function
`prepare()`, if it has one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from tests.fixtures_services import unavailable

LAUNCHERS = ("local", "rq", "ray", "kubernetes")
COLUMNS = (*LAUNCHERS, "site")
"""What the parity suite runs on: `site` is the local launcher at a compute site that has a credential."""
EXECUTOR = (sys.executable, "-P", "-m", "tenure")
"""The words that start `tenure` on this machine."""


@dataclass(frozen=True)
class Premises:
    """What a bench is built on.

    Args:
        folder: for whatever it keeps.
        broker_url: the broker of the fleet; it holds a password where a substrate is given a secret of it.
        program: the words that executors are started with: `EXECUTOR`, or a program that stands in for it.
    """

    folder: Path
    broker_url: str
    program: tuple[str, ...] = EXECUTOR


class LauncherBench(Protocol):
    """One substrate on this machine: executors are processes here, so that a test can find and kill them."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The launcher's options for this substrate, as they may stand in its file."""
        ...

    @property
    def queues(self) -> bool:
        """Whether what was launched can wait on this substrate before it runs."""
        ...

    @property
    def environment(self) -> frozenset[str]:
        """Names of variables that executors have here beside those that the command says."""
        ...

    def hold(self) -> None:
        """Let what is launched from now on wait there."""
        ...

    def let_go(self) -> None:
        """Let what waits run."""
        ...


class BenchModule(Protocol):
    """What a module `tests/launcher_NAME.py` has."""

    EXEMPT: Mapping[str, str]

    def open_bench(self, premises: Premises) -> AbstractContextManager[LauncherBench]: ...


def bench_module(name: str) -> BenchModule | None:
    """The module of that launcher's bench; None while there is none."""
    module = f"tests.launcher_{name}"
    return cast("BenchModule", import_module(module)) if find_spec(module) is not None else None


def open_bench(name: str, premises: Premises) -> AbstractContextManager[LauncherBench]:
    """The bench of that launcher; ends the test where there is none."""
    module = bench_module(name) or unavailable(f"there is no bench for the launcher {name} yet")
    return module.open_bench(premises)


def prepare_bench(name: str) -> None:
    """Start what outlives the bench, if its module says so: a fleet owns all processes that start after it."""
    getattr(bench_module(name), "prepare", lambda: None)()


def as_toml(options: Mapping[str, Any]) -> str:
    """A launcher's file."""
    return "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in options.items())


def _toml(value: object) -> str:
    match value:
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in pairs) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_toml, cast("list[object]", value))) + "]"
        case bool() | int() | float() | str():
            return json.dumps(value)
        case _:
            return json.dumps(str(value))
