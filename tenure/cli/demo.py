"""`tenure demo`: a real sweep and the story of a worker that falls silent, on real processes, in under a minute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenure.cli.desk import with_desk
from tenure.errors import FleetError

if TYPE_CHECKING:
    from tenure.cli.demo_stage import Stage
    from tenure.cli.desk import Desk


class DemoFailed(FleetError):
    """The records do not show what the demo promises to show."""

    code = "demo_failed"


@click.command(short_help="See it work: a real sweep, and a worker that falls silent.")
@with_desk
def demo(desk: Desk) -> None:
    """Run a small fleet on this machine and show what it is for, in under a minute.

    First a sweep over a chaotic system; then one worker is stopped in the middle of a task, another takes over, and the
    first one wakes up and is not believed. The files that it brings wait in quarantine until somebody adopts them.
    Every number shown is read from the coordinator's records and from the store of files.
    """
    from tenure.cli.demo_stage import open_stage

    desk.runs_own_broker()
    started_ms = desk.session.clock.elapsed_ms()
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder, open_stage(desk, Path(folder)) as stage:
        report = _acts(stage)
    report["seconds"] = round((desk.session.clock.elapsed_ms() - started_ms) / 1000, 1)
    if desk.output.as_json:
        desk.output.json(report)
    desk.output.say(f"\nThat took {report['seconds']} seconds. Nothing is left running. Next: `tenure up`", bold=True)


def _acts(stage: Stage) -> dict[str, Any]:
    from tenure.cli.demo_files import begin_recording, bring_in
    from tenure.cli.demo_story import tell_story
    from tenure.cli.demo_sweep import sweep

    swept = sweep(stage)
    recording = begin_recording(stage)
    told = tell_story(stage, recording)
    brought = bring_in(stage, recording["task_id"])
    problems = [*swept.problems(), *told.problems(), *brought.problems()]
    if problems:
        raise DemoFailed(f"the demo did not go as it must: {'; '.join(problems)}", "Please report it")
    return {**told.facts(), **brought.facts(), "lorenz": swept.facts()}
