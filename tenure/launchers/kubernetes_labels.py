"""How a launch is marked on a cluster: labels to find it by, and annotations that hold what no label can.

A label holds at most 63 characters of a narrow alphabet. A name that fits stands as it is, any other one as the
beginning of its digest; the annotations hold all of them in full, and the envelope's digest, which fits no label.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tenure.protocol.launch import LaunchTicket

LAUNCH: Final = "tenure/launch"
"""The label that names the launch, on its Job, its pods and its Lease."""

DIGEST: Final = "tenure/digest"
"""The annotation with the envelope's digest."""

ROLE: Final = "app.kubernetes.io/component"
EXECUTOR: Final = "executor"
_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DIGEST_CHARACTERS: Final = 40


def label_value(name: str) -> str:
    """The name as a label's value: itself where it fits, else the beginning of its digest."""
    if _VALUE.fullmatch(name):
        return name
    return f"sha256-{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


def launch_labels(ticket: LaunchTicket) -> dict[str, str]:
    """What the objects of a launch can be selected by."""
    return {
        "app.kubernetes.io/name": "tenure",
        ROLE: EXECUTOR,
        "app.kubernetes.io/managed-by": "tenure",
        LAUNCH: ticket.name,
        **{f"tenure/{key}": label_value(value) for key, value in _identity(ticket).items()},
    }


def launch_annotations(ticket: LaunchTicket) -> dict[str, str]:
    """The same in full, and the envelope's digest."""
    return {
        DIGEST: f"sha256:{ticket.digest}",
        **{f"tenure/{key}": value for key, value in _identity(ticket).items()},
    }


def _identity(ticket: LaunchTicket) -> dict[str, str]:
    return {
        "task": ticket.task_id,
        "attempt": str(ticket.attempt),
        "fence": str(ticket.fence),
        "world": ticket.world,
        "run": ticket.run,
        "namespace": ticket.namespace,
        "site": ticket.site,
        "parent": ticket.parent,
        "capability": ticket.capability,
    }
