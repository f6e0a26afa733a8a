"""What the coordinator does with all that sites have at the broker in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.broker.base import Readers, WorkerAddress
    from tenure.broker.keys import Keys
    from tenure.broker.memory_store import MemoryStore, MemoryStream


@final
@dataclass(frozen=True, slots=True)
class MemorySites:
    """See `SiteKeys`."""

    store: MemoryStore
    keys: Keys

    def waiting(self, readers: Readers) -> Mapping[str, int]:
        """See `SiteKeys.waiting`."""
        inboxes = {site: self.store.stream(self.keys.inbox(site)) for site in readers.sites}
        return {site: len(inbox.entries) if inbox else 0 for site, inbox in inboxes.items()}

    def heartbeats(self, workers: Sequence[WorkerAddress]) -> list[bytes | None]:
        """See `SiteKeys.heartbeats`."""
        return [self.store.get(self.keys.heartbeat(each)) for each in workers]

    def cut_inbox(self, site: str, keep: int) -> int:
        """See `SiteKeys.cut_inbox`."""
        key = self.keys.inbox(site)
        found = self.store.stream(key)
        return cut(self.store.change(key), keep) if found and len(found.entries) > keep else 0

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        """See `SiteKeys.forget_site`."""
        for key in self.keys.of_site(site, workers, capabilities):
            self.store.remove(key)


def cut(stream: MemoryStream, keep: int) -> int:
    """Delete the oldest entries but `keep`; how many."""
    surplus = max(len(stream.entries) - keep, 0)
    for _ in range(surplus):
        del stream.entries[next(iter(stream.entries))]
    return surplus
