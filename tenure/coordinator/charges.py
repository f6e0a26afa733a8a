"""What a submission would take of its campaign: checked before anything is stored, and refused with the numbers.

Two submissions can never spend the same room: they are decided one after the other, in the transaction that stores
their tasks. A submission that is repeated is answered with the tasks that it has made, and takes nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tenure.coordinator import campaigns
from tenure.coordinator.membership import DEVICE_LABEL
from tenure.errors import OutsideCampaign, OverBudget, UsageError
from tenure.protocol.amounts import decimal_text
from tenure.protocol.states import CampaignState, ChargeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import Submit
    from tenure.protocol.envelope import Envelope, Requirements

Fresh = tuple[str, "Envelope"]
"""A task's id and its envelope."""
Charge = tuple[object, ...]

_SEE: Final = "See `tenure campaigns show {}`"


def of_submission(turn: Turn, ask: Submit, principal: str, fresh: Sequence[Fresh]) -> list[Charge]:
    """The charges of a submission's new tasks, in order; none without a campaign, or when all were there before.

    Raises:
        UnknownCampaign, OutsideCampaign, OverBudget: it may not, or not so much.
        UsageError: it costs something and names no campaign, or does not say what it costs or how long it may take.
    """
    if ask.campaign is None:
        _require_free(turn, ask, fresh)
        return []
    if not fresh:
        return []
    campaign = campaigns.require(turn, ask.campaign)
    _require_open(turn, campaign, principal)
    _require_allowed(turn, campaign, [envelope for _, envelope in fresh])
    charges = [_charge(campaign, ask.cost, principal, task) for task in fresh]
    reserved_ms = sum(int(str(charge[-1])) for charge in charges)
    _require_room(campaign, len(fresh), reserved_ms, len(fresh) * (ask.cost or 0))
    return charges


def require_time_for_another(turn: Turn, task_id: str) -> None:
    """That the campaign of a lost task has the time for an attempt that its retries did not hold. Raises OverBudget."""
    row = turn.store.row("charge", (task_id,))
    if row is None or row[1] != ChargeState.RESERVED or not row[3]:
        return
    _require_room(campaigns.require(turn, row[0]), 0, int(row[3]), 0)


def _require_free(turn: Turn, ask: Submit, fresh: Sequence[Fresh]) -> None:
    if ask.cost:
        raise UsageError("a cost was declared, and no campaign to count it against", "Name one, or declare no cost")
    if fresh and turn.memory.campaigns_only:
        raise OutsideCampaign("this fleet takes only submissions that name a campaign", "See `tenure campaigns list`")


def _require_open(turn: Turn, campaign: dict[str, Any], principal: str) -> None:
    name, starts_ms, ends_ms = campaign["campaign"], campaign["starts_at_ms"], campaign["ends_at_ms"]
    people = json.loads(campaign["people"])
    if campaign["state"] != CampaignState.OPEN:
        raise OutsideCampaign(f"campaign {name!r} is closed", "Choose another; see `tenure campaigns list`")
    if starts_ms is not None and turn.now_ms < starts_ms:
        raise OutsideCampaign(
            f"campaign {name!r} begins on {campaigns.date_text(starts_ms)}", "Submit again from then on"
        )
    if ends_ms is not None and turn.now_ms >= ends_ms:
        raise OutsideCampaign(
            f"campaign {name!r} has ended on {campaigns.date_text(ends_ms)}", "Choose another campaign"
        )
    if people and principal not in people:
        who = principal or "somebody without a name"
        raise OutsideCampaign(f"campaign {name!r} is for {', '.join(people)}, not for {who}", _SEE.format(name))


def _require_allowed(turn: Turn, campaign: dict[str, Any], envelopes: Iterable[Envelope]) -> None:
    """Raise OutsideCampaign unless it allows these kinds of work, and every device that they could end up with."""
    name = campaign["campaign"]
    capabilities = frozenset(json.loads(campaign["capabilities"]))
    devices = frozenset(json.loads(campaign["devices"]))
    for capability, needs in dict.fromkeys((envelope.capability, envelope.requirements) for envelope in envelopes):
        if capabilities and capability not in capabilities:
            allowed = ", ".join(sorted(capabilities))
            raise OutsideCampaign(f"campaign {name!r} allows {allowed}, not {capability}", _SEE.format(name))
        _require_devices(turn, name, devices, capability, needs)


def _require_devices(turn: Turn, name: str, devices: frozenset[str], capability: str, needs: Requirements) -> None:
    allowed = ", ".join(sorted(devices)) or "no device"
    wanted = {value for key, value in needs.labels if key == DEVICE_LABEL}
    if denied := sorted(wanted - devices):
        raise OutsideCampaign(f"campaign {name!r} allows {allowed}, not {', '.join(denied)}", _SEE.format(name))
    if not wanted and (denied := sorted(_within_reach(turn, capability, needs) - devices)):
        # Asked for or not, a worker that has a device would work with it.
        raise OutsideCampaign(
            f"campaign {name!r} allows {allowed}, and work of {capability} may come to {', '.join(denied)}",
            f"Say which device it may have with the label {DEVICE_LABEL}, or which worker",
        )


def _within_reach(turn: Turn, capability: str, needs: Requirements) -> set[str]:
    """The devices of the workers that could be given such a task, whatever they are doing now."""
    able = (
        worker
        for worker in turn.fleet
        if capability in worker.capabilities
        and needs.worker in {None, worker.worker_id}
        and worker.labels.issuperset(needs.labels)
    )
    return {value for worker in able for key, value in worker.labels if key == DEVICE_LABEL}


def _charge(campaign: dict[str, Any], cost: int | None, principal: str, task: Fresh) -> Charge:
    task_id, envelope = task
    name = campaign["campaign"]
    if campaign["most_cost"] is not None and cost is None:
        raise UsageError(f"campaign {name!r} has a budget of cost, and none was declared", "Declare one, be it 0")
    attempt_ms, attempts = 0, 1 + envelope.retry.lost + envelope.retry.failed
    if campaign["most_attempt_ms"] is not None:
        if envelope.timeout_ms is None:
            raise UsageError(
                f"campaign {name!r} has a budget of attempt-seconds, and the task may run for as long as it likes",
                "Give it a timeout",
            )
        attempt_ms = envelope.timeout_ms
    return (task_id, name, principal, envelope.capability, cost or 0, attempt_ms, attempts * attempt_ms)


def _require_room(campaign: dict[str, Any], tasks: int, attempt_ms: int, cost: int) -> None:
    name = campaign["campaign"]
    for unit, asked, column, write in (
        ("tasks", tasks, "tasks", str),
        ("attempt-seconds", attempt_ms, "ms", decimal_text),
        ("cost", cost, "cost", decimal_text),
    ):
        most = campaign["most_attempt_ms" if column == "ms" else f"most_{column}"]
        used, reserved = campaign[f"used_{column}"], campaign[f"reserved_{column}"]
        if most is None or not asked or used + reserved + asked <= most:
            continue
        raise OverBudget(
            f"campaign {name!r} has {write(most - used - reserved)} of {write(most)} {unit} left ({write(used)} used, "
            f"{write(reserved)} reserved), and {write(asked)} are asked for",
            f"Ask for less, or wait until tasks that hold some have ended; see `tenure campaigns show {name}`",
        )
