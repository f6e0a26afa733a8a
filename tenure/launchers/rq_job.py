"""What an RQ worker calls: it runs one executor, and says nothing about the task.

Importable by name with two arguments of plain JSON, so that the queue needs no pickle. It answers None whatever became
of the task. It fails only when the executor could not be started or did not come to its own end, and RQ's record of
that is a hint, never a decision.
"""

from __future__ import annotations

from tenure.launchers.on_site import run_on_site


def run_assignment(argv: list[str], environment: dict[str, str]) -> None:
    """Run `tenure run-assignment` to its end. Raises `LaunchRefused` and `LaunchError`, see `run_on_site`."""
    run_on_site(argv, environment)
