"""What the coordinator does with all that sites have at a Redis or Valkey server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, final

from tenure.broker.base import Backlog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.broker.base import Readers, WorkerAddress
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import Command, RedisConnection, Reply


@final
@dataclass(frozen=True, slots=True)
class RedisSites:
    """See `SiteKeys`."""

    connection: RedisConnection
    keys: Keys

    def waiting(self, readers: Readers) -> Mapping[str, Backlog]:
        """See `SiteKeys.waiting`."""
        keys = list(map(self.keys.inbox, readers.sites))
        # Without SAMPLES 0 the size of all entries would be guessed from that of the first few.
        commands: list[Command] = [("XLEN", key) for key in keys]
        commands += [("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys]
        answers = self._all(commands)
        counted = zip(readers.sites, answers[: len(keys)], answers[len(keys) :], strict=True)
        return {site: Backlog(cast("int", entries), cast("int", size or 0)) for site, entries, size in counted}

    def heartbeat_sizes(self, workers: Sequence[WorkerAddress]) -> list[int]:
        """See `SiteKeys.heartbeat_sizes`."""
        return cast("list[int]", self._all([("STRLEN", self.keys.heartbeat(each)) for each in workers]))

    def heartbeats(
        self, workers: Sequence[WorkerAddress], most: Mapping[WorkerAddress, int] | None = None
    ) -> list[bytes | None]:
        """See `SiteKeys.heartbeats`."""
        bounded = {each: size for each, size in (most or {}).items() if size > 0}
        whole = [each for each in workers if each not in (most or {})]
        commands: list[Command] = [
            ("GETRANGE", self.keys.heartbeat(each), 0, size - 1) for each, size in bounded.items()
        ]
        if whole:
            commands.append(("MGET", *map(self.keys.heartbeat, whole)))
        answers = self._all(commands)
        found: dict[WorkerAddress, bytes | None] = {
            each: cast("bytes", answer) or None for each, answer in zip(bounded, answers, strict=False)
        }
        if whole:
            found |= zip(whole, cast("list[bytes | None]", answers[-1]), strict=True)
        return [found.get(each) for each in workers]

    def cut_inbox(self, site: str, keep: int) -> int:
        """See `SiteKeys.cut_inbox`."""
        return cast("int", self.connection.call("XTRIM", self.keys.inbox(site), "MAXLEN", "=", keep))

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        """See `SiteKeys.forget_site`."""
        # What a site has filled may be large, and a DEL would let everyone wait for the memory to be given back.
        self.connection.call("UNLINK", *self.keys.of_site(site, workers, capabilities))

    def _all(self, commands: Sequence[Command]) -> list[Reply]:
        answers = self.connection.call_all(commands) if commands else []
        return [self.connection.checked(answer) for answer in answers]
