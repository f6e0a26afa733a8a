"""What people ask to end many tasks at once: one request, however many there are.

The request is kept, and carried out portion by portion over as many turns as it takes: nobody else waits for it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tenure.protocol.message import Message, Name, Text

_SELECTOR = Annotated[Name | None, Field()]


class CancelMany(Message):
    """Cancel all tasks, of those that are submitted by now, that fit everything that is said here.

    At least one of run, campaign and capability is named, unless `everything` is wanted. From the moment at which this
    is taken on, none of them is offered to anyone.
    """

    kind: Literal["cancel_many"] = "cancel_many"
    run: _SELECTOR = None
    campaign: _SELECTOR = None
    capability: _SELECTOR = None
    everything: bool = False
    reason: Text = ""

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        named = self.run is not None or self.campaign is not None or self.capability is not None
        if named is self.everything:
            raise ValueError("say which tasks, or everything")
        return self
