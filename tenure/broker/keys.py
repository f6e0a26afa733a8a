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
| `log:<site>:<task>:<fence>` | stream | workers of the site | clients, coordinator | trimmed, expires |
| `obj:<digest>` | string | coordinator, clients | everyone | until collected |
| `stg:<task>:<fence>:<nonce>:<digest>` | string | one executor | coordinator | until promoted or discarded, expires |
| `store` | string | coordinator | everyone | as long as the broker's data |
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

    def capability(self, name: str) -> str:
        """Stream of assignments that any worker with the capability may claim."""
        return _key(self.namespace, f"cap:{name}")

    def own(self, worker_id: str) -> str:
        """Stream of assignments for one worker."""
        return _key(self.namespace, f"own:{worker_id}")

    def assignments(self, capability: str, worker_id: str) -> str:
        """The capability's stream, or the worker's own when `capability` is empty."""
        return self.capability(capability) if capability else self.own(worker_id)

    def inbox(self, site: str) -> str:
        """Stream of a site's reports."""
        return _key(self.namespace, f"inbox:{site}")

    def rpc(self) -> str:
        """Stream of clients' requests."""
        return _key(self.namespace, "rpc")

    def control(self, worker_id: str) -> str:
        """Stream of orders to one worker."""
        return _key(self.namespace, f"ctl:{worker_id}")

    def reply(self, client_id: str) -> str:
        """Stream of answers to one client."""
        return _key(self.namespace, f"reply:{client_id}")

    def heartbeat(self, site: str, worker_id: str) -> str:
        """A worker's heartbeat."""
        return _key(self.namespace, f"hb:{site}:{worker_id}")

    def echo(self, worker_id: str) -> str:
        """The newest heartbeat that the coordinator has seen of a worker, as `<epoch>:<generation>:<sequence>`."""
        return _key(self.namespace, f"echo:{worker_id}")

    def of_departed(self, site: str, worker_id: str) -> tuple[str, ...]:
        """What is left of an executor that has departed."""
        return self.control(worker_id), self.echo(worker_id), self.heartbeat(site, worker_id)

    def incarnation(self) -> str:
        """The marker by which a broker that has lost its data is recognised."""
        return _key(self.namespace, "incarnation")


@final
@dataclass(frozen=True, slots=True)
class ContentKeys:
    """The keys of what tasks print and of the contents that are kept at the broker."""

    namespace: str

    def log(self, site: str, task_id: str, fence: int) -> str:
        """Stream of what one attempt has printed."""
        return _key(self.namespace, f"log:{site}:{task_id}:{fence}")

    def stored(self, digest: str) -> str:
        """A content that is kept at the broker."""
        return _key(self.namespace, f"obj:{digest}")

    def staged(self, place: str, digest: str) -> str:
        """A content that waits for its promotion; `place` is `<task>:<fence>:<nonce>`."""
        return _key(self.namespace, f"stg:{place}:{digest}")

    def store(self) -> str:
        """The address of the fleet's store of artifacts, without anything secret."""
        return _key(self.namespace, "store")


def _key(namespace: str, rest: str) -> str:
    return f"tenure:{{{namespace}}}:{rest}"
