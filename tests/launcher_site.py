"""The bench of a compute site with a credential of its own: this machine, by the local launcher."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from tests import launcher_local
from tests.fixtures_launchers import LauncherBench, Premises

EXEMPT: Mapping[str, str] = launcher_local.EXEMPT


def open_bench(premises: Premises) -> AbstractContextManager[LauncherBench]:
    """See `fixtures_launchers.BenchModule`."""
    return launcher_local.open_bench(premises)
