"""What submissions count against: a campaign and a declared cost, checked before anything is sent."""

from __future__ import annotations

from typing import final

from pydantic import ValidationError

from tenure.errors import UsageError
from tenure.protocol.amounts import Amount, thousandths
from tenure.protocol.campaign_messages import Cost
from tenure.protocol.message import Message, Name, describe


@final
class Counted(Message):
    """The campaign that tasks count against, and what each of them costs; None: nothing was said."""

    campaign: Name | None = None
    cost: Cost | None = None


def counted(campaign: str | None, cost: Amount | None = None) -> Counted:
    """A campaign ("" is none) and a cost as they are sent. Raises UsageError when one of the two does not fit."""
    try:
        return Counted(campaign=campaign or None, cost=None if cost is None else thousandths(cost, "the cost"))
    except ValidationError as error:
        raise UsageError(f"this cannot be counted: {describe(error)}") from None
