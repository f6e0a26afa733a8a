"""What operators ask about campaigns: budgets that submissions count against, and what those may ask for.

Whole numbers only: a cost travels in thousandths of whatever unit the fleet counts in, attempt time in milliseconds.
The two dates are the only instants that clients send; the coordinator's clock alone is compared with them.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from tenure.protocol.message import Count, Message, Milliseconds, Moment, Name, Text

MOST_COST: Final = 10_000_000_000
"""The most that one task may declare, so that sums over all tasks of a database stay exact."""

Cost = Annotated[int, Field(ge=0, le=MOST_COST)]
"""What one task costs, in thousandths of a unit."""

Names = Annotated[tuple[Name, ...], Field(max_length=256)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=256)]


class Budget(Message):
    """The most of each that a campaign's tasks may reserve and use together; None: as much as they like."""

    tasks: Count | None = None
    attempt_ms: Milliseconds | None = None
    """Time of all attempts. Tasks must then say how long one attempt may take (`timeout`)."""
    cost: Count | None = None
    """Sum of what tasks declare, in thousandths. Tasks must then declare a cost, be it 0."""


class CreateCampaign(Message):
    """Make a campaign known. What it allows never changes; asking for the very same again changes nothing."""

    kind: Literal["create_campaign"] = "create_campaign"
    campaign: Name
    budget: Budget = Budget()
    capabilities: Names = ()
    """Which kinds of work its tasks may ask for; none named: any."""
    devices: Texts = ()
    """Values of the label `device` that its tasks may ask for; none named: no device."""
    people: Texts = ()
    """Who may submit to it; nobody named: everyone who may submit."""
    starts_at_ms: Moment | None = None
    ends_at_ms: Moment | None = None
    """Submissions are taken from the first moment on, and no more from the second on."""
    note: Text = ""


class CloseCampaign(Message):
    """Take no more submissions to a campaign. What it has admitted goes on; asking again changes nothing."""

    kind: Literal["close_campaign"] = "close_campaign"
    campaign: Name
    note: Text = ""
