"""What an RQ worker calls: it runs one executor, and says nothing about the task.

Importable by name with two arguments of plain JSON, so that the queue needs no pickle. It answers None whatever became
of the task. It fails only when the executor could not be started or did not come to its own end, and RQ's record of
that is a hint, never a decision.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from redis.exceptions import RedisError

from tenure.launchers.on_site import run_on_site
from tenure.launchers.rq_plan import BEGUN


def run_assignment(argv: list[str], environment: dict[str, str]) -> None:
    """Run `tenure run-assignment` to its end. Raises `LaunchRefused` and `LaunchError`, see `run_on_site`."""
    _say_begun()
    run_on_site(argv, environment)


def _say_begun() -> None:
    """Note with the job that there is a work-horse: RQ calls it started before, and may not be told to kill it yet."""
    job = import_module("rq").get_current_job()
    if job is not None:
        job.meta[BEGUN] = True
        with suppress(RedisError):
            job.save_meta()
