"""What the coordinator does with all that sites have at a Redis or Valkey server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.broker.base import Readers, WorkerAddress
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import RedisConnection


@final
@dataclass(frozen=True, slots=True)
class RedisSites:
    """See `SiteKeys`."""

    connection: RedisConnection
    keys: Keys

    def waiting(self, readers: Readers) -> Mapping[str, int]:
        """See `SiteKeys.waiting`."""
        if not readers.sites:
            return {}
        answers = self.connection.call_all([("XLEN", self.keys.inbox(site)) for site in readers.sites])
        lengths = [cast("int", self.connection.checked(answer)) for answer in answers]
        return dict(zip(readers.sites, lengths, strict=True))

    def heartbeats(self, workers: Sequence[WorkerAddress]) -> list[bytes | None]:
        """See `SiteKeys.heartbeats`."""
        if not workers:
            return []
        return cast("list[bytes | None]", self.connection.call("MGET", *map(self.keys.heartbeat, workers)))

    def cut_inbox(self, site: str, keep: int) -> int:
        """See `SiteKeys.cut_inbox`."""
        return cast("int", self.connection.call("XTRIM", self.keys.inbox(site), "MAXLEN", "=", keep))

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        """See `SiteKeys.forget_site`."""
        # What a site has filled may be large, and a DEL would let everyone wait for the memory to be given back.
        self.connection.call("UNLINK", *self.keys.of_site(site, workers, capabilities))
