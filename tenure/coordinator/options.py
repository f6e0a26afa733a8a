"""What a coordinator is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from tenure.coordinator.limits import SiteLimits
from tenure.coordinator.people_limits import PersonLimits
from tenure.coordinator.quotas import SiteQuotas

if TYPE_CHECKING:
    from pathlib import Path


@final
@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """Settings of one coordinator, validated by `tenure.settings` before they get here."""

    database: Path
    namespace: str = "main"
    """Names the keys on the broker and, at first start, the world."""
    batch_limit: int = 64
    """How many stream entries one turn takes at most; bounds the time between two commits."""
    idle_block_ms: int = 250
    """How long a turn waits for something to come; also the longest delay of a due timer."""
    unclaimed_ms: int = 15_000
    """After this long an offer that nobody claims is looked into and, if that is safe, published again."""
    artifacts: str = ""
    """Where the fleet's store of artifacts is, as it is announced to workers and clients; "" when there is none."""
    quarantine_retention_ms: int = 30 * 86_400_000
    """How long the staged files of a rejected result are kept for a decision; the record of it stays."""
    campaigns_only: bool = False
    """Whether submissions that name no campaign are refused."""
    cancel_portion: int = 1_000
    """How many queued tasks of a request to cancel many one turn ends; bounds how long everyone else waits for it."""
    broker_timeout_ms: int = 5_000
    """How long one call to the broker may take."""
    site_limits: SiteLimits = field(default_factory=SiteLimits)
    """How much of the coordinator's time each site may take."""
    site_quotas: SiteQuotas = field(default_factory=SiteQuotas)
    """How much each site may make the coordinator keep for good."""
    person_limits: PersonLimits = field(default_factory=PersonLimits)
    """How much of the coordinator's time each person may take."""
