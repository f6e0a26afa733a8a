"""What the coordinator does with all that sites have at a Redis or Valkey server."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast, final

from redis.exceptions import ResponseError

from tenure.broker.base import Backlog
from tenure.broker.keys import GROUP
from tenure.broker.redis_errors import first_word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.broker.base import Readers, WorkerAddress
    from tenure.broker.keys import Keys
    from tenure.broker.redis_connection import Answer, Command, RedisConnection, Reply

LOG: Final = logging.getLogger("tenure.broker")

_PENDING_PAGE: Final = 1_000


@final
@dataclass(slots=True)
class RedisSites:
    """See `SiteKeys`."""

    connection: RedisConnection
    keys: Keys
    _cannot_weigh: bool = field(default=False, init=False)

    def waiting(self, readers: Readers) -> Mapping[str, Backlog]:
        """See `SiteKeys.waiting`."""
        keys = list(map(self.keys.inbox, readers.sites))
        # Without SAMPLES 0 the size of all entries would be guessed from that of the first few.
        commands: list[Command] = [("XLEN", key) for key in keys]
        commands += [("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys]
        answers = self.connection.call_all(commands) if commands else []
        entries = [cast("int", self.connection.checked(answer)) for answer in answers[: len(keys)]]
        sizes = map(self._size, answers[len(keys) :])
        return {site: Backlog(*each) for site, *each in zip(readers.sites, entries, sizes, strict=True)}

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

    def drop_requests(self, person: str) -> int:
        """See `SiteKeys.drop_requests`."""
        key, dropped = self.keys.rpc(person), 0
        while ids := self._received(key):
            self._all([("XACK", key, GROUP, *ids), ("XDEL", key, *ids)])
            dropped += len(ids)
        return dropped

    def forget_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> None:
        """See `SiteKeys.forget_site`."""
        # What a site has filled may be large, and a DEL would let everyone wait for the memory to be given back.
        self.connection.call("UNLINK", *self.keys.of_site(site, workers, capabilities))

    def _received(self, key: str) -> list[bytes]:
        """The ids of the first entries that were received and never settled."""
        listed = self.connection.call("XPENDING", key, GROUP, "-", "+", _PENDING_PAGE)
        return [at for at, *_ in cast("list[tuple[bytes, bytes, int, int]]", listed)]

    def _size(self, answer: Answer) -> int:
        """What MEMORY USAGE has answered; 0 where it is not to be had: entries are still counted."""
        if isinstance(answer, ResponseError) and _is_withheld(answer):
            if not self._cannot_weigh:
                LOG.warning(
                    "the broker at %s does not say how large the inboxes of sites are (%s), so only how many entries"
                    " they have is limited: run `tenure broker secure` again, or let the coordinator use MEMORY USAGE",
                    self.connection.address,
                    answer,
                )
            self._cannot_weigh = True
            return 0
        size = cast("int", self.connection.checked(answer) or 0)
        self._cannot_weigh = False
        return size

    def _all(self, commands: Sequence[Command]) -> list[Reply]:
        answers = self.connection.call_all(commands) if commands else []
        return [self.connection.checked(answer) for answer in answers]


def _is_withheld(error: ResponseError) -> bool:
    """Whether the user was made by a release that did not ask for it, or the server has no such command."""
    return first_word(error) == "NOPERM" or str(error).removeprefix("ERR ").lower().startswith("unknown ")
