"""One campaign, called x, in a fleet whose every step is written by the test."""

from __future__ import annotations

from typing import Any

from tenure.protocol.campaign_messages import Budget, CreateCampaign
from tenure.protocol.client_messages import Reply, Submit
from tenure.protocol.envelope import Envelope
from tests.scripted_fleet import ScriptedFleet, envelope


def create(fleet: ScriptedFleet, *, budget: Budget | None = None, **terms: Any) -> Reply:
    return fleet.client.ask(CreateCampaign(campaign="x", budget=budget or Budget(), **terms))


def submission(fleet: ScriptedFleet, *envelopes: Envelope, cost: int | None = None, key: str = "") -> Submit:
    items = fleet.client.submission(*(envelopes or (envelope(),)), key=key).items
    return Submit(items=items, campaign="x", cost=cost)


def submit(
    fleet: ScriptedFleet, *envelopes: Envelope, cost: int | None = None, by: str = "ada", key: str = ""
) -> Reply:
    return fleet.client.ask(submission(fleet, *envelopes, cost=cost, key=key), principal=by)


def admitted(fleet: ScriptedFleet, *envelopes: Envelope, cost: int | None = None) -> str:
    reply = submit(fleet, *envelopes, cost=cost)
    assert reply.refusal is None, reply.refusal
    return reply.admitted[0].task_id


def refused(reply: Reply, code: str) -> str:
    assert reply.refusal is not None
    assert reply.refusal.code == code
    return reply.refusal.message


def tasks(fleet: ScriptedFleet) -> int:
    ((count,),) = fleet.records.rows("SELECT COUNT(*) FROM task")
    return int(count)


def sums(fleet: ScriptedFleet) -> tuple[int, ...]:
    """Reserved and used tasks, milliseconds and cost."""
    (row,) = fleet.records.rows(
        "SELECT reserved_tasks, used_tasks, reserved_ms, used_ms, reserved_cost, used_cost FROM campaign"
    )
    return tuple(map(int, row))
