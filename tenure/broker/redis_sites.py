"""What the coordinator does with all that sites have at a Redis or Valkey server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, final

from tenure.broker.keys import DEFAULT_SITE
from tenure.protocol.message import MAX_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.broker.base import Readers, WorkerAddress
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import Command, RedisConnection


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
        trusted = [each for each in workers if each.site == DEFAULT_SITE]
        others = [each for each in workers if each.site != DEFAULT_SITE]
        # A site may write a heartbeat of any size: of each no more is read than one may have.
        commands: list[Command] = [("GETRANGE", self.keys.heartbeat(each), 0, MAX_ENTRY_BYTES) for each in others]
        if trusted:
            commands.append(("MGET", *map(self.keys.heartbeat, trusted)))
        answers = [self.connection.checked(answer) for answer in self.connection.call_all(commands)] if commands else []
        found: dict[WorkerAddress, bytes | None] = {
            each: cast("bytes", answer) or None for each, answer in zip(others, answers, strict=False)
        }
        if trusted:
            found |= zip(trusted, cast("list[bytes | None]", answers[-1]), strict=True)
        return [found[each] for each in workers]

    def cut_inbox(self, site: str, keep: int) -> int:
        """See `SiteKeys.cut_inbox`."""
        return cast("int", self.connection.call("XTRIM", self.keys.inbox(site), "MAXLEN", "=", keep))

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        """See `SiteKeys.forget_site`."""
        # What a site has filled may be large, and a DEL would let everyone wait for the memory to be given back.
        self.connection.call("UNLINK", *self.keys.of_site(site, workers, capabilities))
