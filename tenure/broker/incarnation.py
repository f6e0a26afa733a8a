"""What a broker has been through since it was last looked at, and whether its settings are safe.

Two signs are compared: the run id, which every server process draws anew, and our marker, which lives and dies with the
data. A restored backup or a promoted replica brings back an old marker or none: both are *other* data, and so lost.
A replica that has the current marker shows as a restart, though its newest writes may be missing; after a restart,
too, nothing is therefore believed to be on the broker that is not seen there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tenure.errors import BrokerUnsafe

if TYPE_CHECKING:
    from tenure.broker.base import BrokerState

SAFE_POLICY: Final = "noeviction"


class Incarnation(StrEnum):
    """What has become of a broker."""

    SAME = "same"  #: the same server process with the same data
    RESTARTED_WITH_DATA = "restarted_with_data"  #: another process; our marker is there, the newest writes may not be
    LOST_DATA = "lost_data"  #: our marker is gone or another one: nothing that was published can be counted on


def compare(known: BrokerState | None, found: BrokerState) -> Incarnation:
    """What happened between two looks.

    Args:
        known: what was found last, with the marker that was set then; None for a coordinator that has never looked.
        found: what is there now.
    """
    if known is None or not known.marker or known.marker != found.marker:
        return Incarnation.LOST_DATA
    return Incarnation.SAME if known.run_id == found.run_id else Incarnation.RESTARTED_WITH_DATA


def require_safe(state: BrokerState) -> None:
    """Raise `BrokerUnsafe` when the broker would evict messages rather than refuse new ones."""
    policy = state.eviction_policy
    if policy != SAFE_POLICY:
        what = f"throws keys away when its memory is full (maxmemory-policy {policy})" if policy else "hides its policy"
        remedy = f"On the broker: CONFIG SET maxmemory-policy {SAFE_POLICY}, and the same in its configuration file"
        raise BrokerUnsafe(f"The broker {what}, so heartbeats and assignments could vanish", remedy)
