"""The demo's second act: a worker falls silent, another one takes over, and the first one comes back too late.

Nothing here is played: the first worker's agent is stopped by SIGSTOP while its child process goes on computing, which
is what a host that hangs looks like from outside. Every sentence is made of the coordinator's records.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import tenure
from tenure.cli import demo_tasks
from tenure.cli.demo_stage import CAPABILITY, FIRST, LEASE_TTL, SECOND
from tenure.cli.explain import print_story

if TYPE_CHECKING:
    from tenure.cli.demo_stage import Stage

_STEPS: Final = 60_000


@final
@dataclass(frozen=True, slots=True)
class Told:
    """The records that the story ended with."""

    task: dict[str, Any]
    leases: list[dict[str, Any]]
    """In order of their fences."""
    directive: dict[str, Any]
    late: dict[str, Any] = field(default_factory=dict[str, Any])

    def facts(self) -> dict[str, Any]:
        """The story in figures."""
        first, second = self.leases[0], self.leases[-1]
        return {
            "task_id": self.task["task_id"],
            "attempt_1": first["attempt"],
            "fence_1": first["fence"],
            "worker_1": first["worker_id"],
            "lease_status_1": first["state"],
            "retry_reason": self.directive["reason"],
            "retry_decided_by": self.directive["decided_by"],
            "attempt_2": second["attempt"],
            "fence_2": second["fence"],
            "worker_2": second["worker_id"],
            "stale_result_rejected": bool(self.late),
            "rejection_reason": self.late.get("reason"),
            "final_task_status": self.task["state"],
            "final_lease_status": second["state"],
            "accepted_results": sum(lease["state"] == "COMPLETED" for lease in self.leases),
        }

    def problems(self) -> list[str]:
        """What is not as it must be."""
        facts = self.facts()
        must = {
            "attempt_1": 1,
            "worker_1": FIRST,
            "lease_status_1": "EXPIRED",
            "attempt_2": 2,
            "worker_2": SECOND,
            "stale_result_rejected": True,
            "final_task_status": "SUCCEEDED",
            "final_lease_status": "COMPLETED",
            "accepted_results": 1,
        }
        found = [f"{name} is {facts[name]}, not {value}" for name, value in must.items() if facts[name] != value]
        return found if facts["fence_2"] > facts["fence_1"] else [*found, "the fence did not grow"]


def tell_story(stage: Stage, recording: dict[str, Any]) -> Told:
    """Play the act; `recording` is the lease of what the first worker does besides."""
    stage.say("\nAct 2. A worker falls silent.", bold=True)
    submitter = stage.client.using(
        capability=CAPABILITY, lease_ttl=LEASE_TTL, run="story", retry=tenure.Retry(lost=1), label="the story"
    )
    task_id = submitter.submit(demo_tasks.exponent, 28.0, _STEPS, str(stage.enough)).task_id
    _fall_silent(stage, task_id, recording)
    _take_over(stage, task_id)
    told = _come_back(stage, task_id)
    stage.say("\nThe same in the coordinator's words (`tenure explain`):", bold=True)
    print_story(stage.desk.output, task_id, stage.story_of(task_id))
    return told


def _fall_silent(stage: Stage, task_id: str, recording: dict[str, Any]) -> None:
    lease = stage.first("leases", "the first lease", task_id=task_id, state="ACTIVE")
    stage.wait("the first progress", lambda: stage.rows("tasks", task_id=task_id)[0]["progress"] is not None)
    agent = stage.fleet.part(FIRST)
    agent.signal(signal.SIGSTOP)
    stage.enough.touch()
    stage.say(f"{lease['worker_id']} got the lease on attempt {lease['attempt']}, under fence {lease['fence']}.")
    stage.say(f"Its other slot records an orbit into files, under fence {recording['fence']}: see act 3.")
    stage.say(
        f"Now its agent (process {agent.pid}) is stopped: no heartbeat will come. "
        "The process that computes does not know and goes on."
    )
    stage.start_worker(SECOND, 1)
    stage.say(f"{SECOND} has started. It gets nothing yet: the lease is {_lease(stage, task_id, lease)['state']}.")


def _take_over(stage: Stage, task_id: str) -> None:
    first = stage.first("leases", "the end of the first lease", task_id=task_id, state="EXPIRED")
    silence = (first["ended_at_ms"] - first["bound_at_ms"]) / 1000
    stage.say(f"After {silence:.1f} s the lease under fence {first['fence']} is {first['state']}: {first['cause']}.")
    directive = stage.first("directives", "the directive", task_id=task_id)
    stage.say(
        f"A directive is on record: attempt {directive['next_attempt']}, because of {directive['reason']}; "
        f"{directive['state']} by {directive['decided_by']}."
    )
    second = stage.first("leases", "the second attempt", task_id=task_id, state="COMPLETED")
    stage.say(
        f"{second['worker_id']} did attempt {second['attempt']} under fence {second['fence']}; "
        f"that lease is {second['state']}: its result was accepted."
    )


def _come_back(stage: Stage, task_id: str) -> Told:
    stage.fleet.part(FIRST).signal(signal.SIGCONT)
    stage.say(f"Now {FIRST} is woken up. It has a result of the first attempt and hands it in.")
    late = stage.first("quarantine", "the late result", task_id=task_id)
    stage.say(
        f"The result of attempt {late['attempt']} from {late['worker_id']} (fence {late['fence']}) was rejected: "
        f"{late['reason']}. It is kept as evidence ({late['quarantine_id']}) and counts for nothing."
    )
    task = stage.first("tasks", "the task", task_id=task_id)
    leases = sorted(stage.rows("leases", task_id=task_id), key=lambda row: row["fence"])
    told = Told(task, leases, stage.first("directives", "the directive", task_id=task_id), late)
    stage.say(f"The task is {task['state']}, with {told.facts()['accepted_results']} accepted result.")
    return told


def _lease(stage: Stage, task_id: str, lease: dict[str, Any]) -> dict[str, Any]:
    rows = stage.rows("leases", task_id=task_id)
    return next((row for row in rows if row["fence"] == lease["fence"]), lease)
