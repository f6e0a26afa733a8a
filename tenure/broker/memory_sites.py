"""What the coordinator does with all that sites have at the broker in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from tenure.broker.base import Backlog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.broker.base import Readers, WorkerAddress
    from tenure.broker.keys import Keys
    from tenure.broker.memory_store import MemoryStore, MemoryStream


_ENTRY_COST: Final = 16


@final
@dataclass(frozen=True, slots=True)
class MemorySites:
    """See `SiteKeys`."""

    store: MemoryStore
    keys: Keys

    def waiting(self, readers: Readers) -> Mapping[str, Backlog]:
        """See `SiteKeys.waiting`."""
        inboxes = {site: self.store.stream(self.keys.inbox(site)) for site in readers.sites}
        return {site: _backlog(inbox) if inbox else Backlog() for site, inbox in inboxes.items()}

    def heartbeat_sizes(self, workers: Sequence[WorkerAddress]) -> list[int]:
        """See `SiteKeys.heartbeat_sizes`."""
        return [len(raw or b"") for raw in self.heartbeats(workers)]

    def heartbeats(
        self, workers: Sequence[WorkerAddress], most: Mapping[WorkerAddress, int] | None = None
    ) -> list[bytes | None]:
        """See `SiteKeys.heartbeats`."""
        raws = [self.store.get(self.keys.heartbeat(each)) or b"" for each in workers]
        return [raw[: (most or {}).get(each)] or None for each, raw in zip(workers, raws, strict=True)]

    def cut_inbox(self, site: str, keep: int) -> int:
        """See `SiteKeys.cut_inbox`."""
        key = self.keys.inbox(site)
        found = self.store.stream(key)
        return cut(self.store.change(key), keep) if found and len(found.entries) > keep else 0

    def drop_requests(self, person: str) -> int:
        """See `SiteKeys.drop_requests`."""
        key = self.keys.rpc(person)
        if self.store.stream(key) is None:
            return 0
        stream = self.store.change(key)
        for at in stream.pending:
            stream.entries.pop(at, None)
        dropped = len(stream.pending)
        stream.pending.clear()
        return dropped

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        """See `SiteKeys.forget_site`."""
        for key in self.keys.of_site(site, workers, capabilities):
            self.store.remove(key)


def _backlog(inbox: MemoryStream) -> Backlog:
    size = sum(len(cast("bytes", entry)) + _ENTRY_COST for entry in inbox.entries.values())
    return Backlog(len(inbox.entries), size)


def cut(stream: MemoryStream, keep: int) -> int:
    """Delete the oldest entries but `keep`; how many."""
    surplus = max(len(stream.entries) - keep, 0)
    for _ in range(surplus):
        del stream.entries[next(iter(stream.entries))]
    return surplus
