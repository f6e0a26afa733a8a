"""Refusals from the coordinator, turned back into the errors that they were."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tenure import errors
from tenure.protocol.client_messages import Refusal

_BY_CODE: Final = MappingProxyType(
    {
        found.code: found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.TenureError)
    }
)


def error_of(refusal: Refusal) -> errors.TenureError:
    """The error that the coordinator answered with; one of a newer coordinator, unknown here, becomes a FleetError."""
    return _BY_CODE.get(refusal.code, errors.FleetError)(refusal.message, refusal.remedy)
