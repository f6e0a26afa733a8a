"""Campaigns: a budget that submissions count against, and what those may ask for.

Whoever submits to a campaign is checked here, before anything is stored and long before a site hears of it (`charges`).
What each task holds is one row; triggers of the store keep a campaign's sums by these rows, move them when a result is
accepted or a task is cancelled, and refuse sums over the budget, whoever writes them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tenure.coordinator.journal import Step
from tenure.errors import NameTaken, UnknownCampaign, UsageError
from tenure.protocol.amounts import decimal_text
from tenure.protocol.states import CampaignState, ChargeState

if TYPE_CHECKING:
    from tenure.coordinator.turn import Turn
    from tenure.protocol.campaign_messages import CloseCampaign, CreateCampaign

Rows = list[dict[str, Any]]
_LISTS: Final = ("capabilities", "devices", "people")


def take(turn: Turn, ask: CreateCampaign | CloseCampaign, by: str) -> Rows:
    """Make or close a campaign; answers it as it stands afterwards. Raises as `create` and `close` do."""
    if ask.kind == "create_campaign":
        create(turn, ask, by)
    else:
        close(turn, ask, by)
    return [_shown(turn, ask.campaign)]


def create(turn: Turn, ask: CreateCampaign, by: str) -> None:
    """Make a campaign known; the very same one a second time changes nothing.

    Raises:
        NameTaken: there is or was another one of that name.
        UsageError: it would end before it begins, or is over already.
    """
    if ask.starts_at_ms is not None and ask.ends_at_ms is not None and ask.ends_at_ms <= ask.starts_at_ms:
        raise UsageError(f"campaign {ask.campaign!r} would end before it begins", "Change one of its dates")
    wanted = {
        "most_tasks": ask.budget.tasks,
        "most_attempt_ms": ask.budget.attempt_ms,
        "most_cost": ask.budget.cost,
        "starts_at_ms": ask.starts_at_ms,
        "ends_at_ms": ask.ends_at_ms,
        **{name: json.dumps(sorted(set(getattr(ask, name)))) for name in _LISTS},
    }
    known = turn.store.records("campaign", (ask.campaign,))
    if known:
        if known[0]["state"] != CampaignState.OPEN or wanted.items() - known[0].items():
            raise NameTaken(f"there is or was another campaign {ask.campaign!r}", "Choose another name")
        return
    if ask.ends_at_ms is not None and ask.ends_at_ms <= turn.now_ms:
        dates = f"it ends on {date_text(ask.ends_at_ms)}, and it is {date_text(turn.now_ms)} now"
        raise UsageError(f"campaign {ask.campaign!r} would be over already: {dates}", "Choose a later end")
    by = by or "somebody"
    turn.store.run(
        "create_campaign", wanted | {"campaign": ask.campaign, "note": ask.note, "now_ms": turn.now_ms, "by": by}
    )
    text = f"{by} created campaign {ask.campaign}: {_terms(wanted)}{_because(ask.note)}."
    turn.record("campaign_created", text, step=Step(after=CampaignState.OPEN, reason=ask.note))


def close(turn: Turn, ask: CloseCampaign, by: str) -> None:
    """Take no more submissions; what was admitted goes on. Raises `UnknownCampaign`."""
    require(turn, ask.campaign)
    by = by or "somebody"
    if turn.store.run("close_campaign", (turn.now_ms, by, ask.campaign)):
        text = f"{by} closed campaign {ask.campaign}{_because(ask.note)}."
        turn.record("campaign_closed", text, step=Step(CampaignState.OPEN, CampaignState.CLOSED, ask.note))


def require(turn: Turn, campaign: str) -> dict[str, Any]:
    """A campaign's row. Raises `UnknownCampaign`."""
    rows = turn.store.records("campaign", (campaign,))
    if not rows:
        raise UnknownCampaign(f"there is no campaign {campaign!r}", "See `tenure campaigns list`")
    return rows[0]


def story(turn: Turn, task_id: str) -> str:
    """What a task holds of its campaign, as sentences for `tenure explain`; "" when it has none."""
    row = turn.store.row("charge", (task_id,))
    if row is None:
        return ""
    campaign, state, cost, _, reserved_ms, used_ms = row
    price = f" and cost {decimal_text(cost)}" if cost else ""
    held = {
        ChargeState.RESERVED: f"reserves 1 task{price}",
        ChargeState.USED: f"has used 1 task{price}",
        ChargeState.RELEASED: f"has given back 1 task{price}",
    }[ChargeState(state)]
    rest = f", {decimal_text(reserved_ms)} more reserved" if reserved_ms else ""
    return f" It counts against campaign {campaign}: it {held}; attempt-seconds used: {decimal_text(used_ms)}{rest}."


def date_text(at_ms: int) -> str:
    """A moment as refusals name it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _shown(turn: Turn, campaign: str) -> dict[str, Any]:
    (row,) = turn.store.records("list_campaigns", {"campaign": campaign, "state": None, "limit": 1})
    return row | {name: json.loads(row[name]) for name in _LISTS}


def _terms(wanted: dict[str, Any]) -> str:
    """What it allows, for the record."""
    limits = (
        ("tasks", wanted["most_tasks"], str),
        ("attempt-seconds", wanted["most_attempt_ms"], decimal_text),
        ("cost", wanted["most_cost"], decimal_text),
    )
    terms = [f"at most {write(most)} {name}" for name, most, write in limits if most is not None]
    terms += [f"{name} {', '.join(found)}" for name in _LISTS if (found := json.loads(wanted[name]))]
    return "; ".join(terms) or "no limits"


def _because(note: str) -> str:
    return f" ({note})" if note else ""
