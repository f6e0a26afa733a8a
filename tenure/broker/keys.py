"""Every key that Tenure uses, in one place.

All keys of a namespace share the hash tag `{NS}`, so one namespace is one cluster slot and several streams can be read
in one call. Nothing else in the package spells a key.

| key | type | written by | read by | life |
|---|---|---|---|---|
| `cap:<capability>` | stream, group | coordinator | workers | bounded by credit |
| `own:<worker>` | stream, group | coordinator | that worker | bounded by credit |
| `inbox:<site>` | stream, group | workers of the site | coordinator | until committed |
| `rpc` | stream, group | clients | coordinator | until committed |
| `ctl:<worker>` | stream | coordinator | that worker | trimmed, expires |
| `reply:<client>` | stream | coordinator | that client | trimmed, expires |
| `hb:<site>:<worker>` | string, TTL | that worker | coordinator | ttl, grace and margin |
| `echo:<worker>` | string, TTL | coordinator | that worker | two ttl |
| `incarnation` | string | coordinator | everyone | as long as the broker's data |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

GROUP: Final = "tenure"
"""The one consumer group of every stream that is read through a group."""


@final
@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace. A namespace is one coordinator's fleet."""

    namespace: str

    def _key(self, rest: str) -> str:
        return f"tenure:{{{self.namespace}}}:{rest}"

    def capability(self, name: str) -> str:
        """Stream of assignments that any worker with the capability may claim."""
        return self._key(f"cap:{name}")

    def own(self, worker_id: str) -> str:
        """Stream of assignments for one worker."""
        return self._key(f"own:{worker_id}")

    def assignments(self, capability: str, worker_id: str) -> str:
        """The capability's stream, or the worker's own when `capability` is empty."""
        return self.capability(capability) if capability else self.own(worker_id)

    def inbox(self, site: str) -> str:
        """Stream of a site's reports."""
        return self._key(f"inbox:{site}")

    def rpc(self) -> str:
        """Stream of clients' requests."""
        return self._key("rpc")

    def control(self, worker_id: str) -> str:
        """Stream of orders to one worker."""
        return self._key(f"ctl:{worker_id}")

    def reply(self, client_id: str) -> str:
        """Stream of answers to one client."""
        return self._key(f"reply:{client_id}")

    def heartbeat(self, site: str, worker_id: str) -> str:
        """A worker's heartbeat."""
        return self._key(f"hb:{site}:{worker_id}")

    def echo(self, worker_id: str) -> str:
        """The newest heartbeat that the coordinator has seen of a worker, as `<epoch>:<generation>:<sequence>`."""
        return self._key(f"echo:{worker_id}")

    def incarnation(self) -> str:
        """The marker by which a broker that has lost its data is recognised."""
        return self._key("incarnation")
