"""What all slots of an agent share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from tenure.workers.freight import Freight
    from tenure.workers.launching import Launch
    from tenure.workers.log_feed import Printed


@final
@dataclass(frozen=True, slots=True)
class Gear:
    """How things are started here, the way to the porter, and where what is printed goes."""

    launch: Launch
    freight: Freight
    printed: Printed
