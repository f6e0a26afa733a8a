"""Every key that Tenure uses, in one place.

All keys of a namespace share the hash tag `{NS}`, so one namespace is one cluster slot and several streams can be read
in one call. Nothing else in the package spells a key.

| key | type | written by | read by | life |
|---|---|---|---|---|
| `cap:<site>:<capability>` | stream, group | coordinator | workers of the site | bounded by credit |
| `own:<site>:<worker>` | stream, group | coordinator | that worker | bounded by credit |
| `inbox:<site>` | stream, group | workers of the site | coordinator | until committed |
| `ctl:<site>:<worker>` | stream | coordinator | that worker | trimmed, expires |
| `hb:<site>:<worker>` | string, TTL | that worker | coordinator | ttl, grace and margin |
| `echo:<site>:<worker>` | string, TTL | coordinator | that worker | two ttl |
| `log:<site>:<task>:<fence>` | stream | workers of the site | clients, coordinator | trimmed, expires |
| `stg:<site>:<task>:<fence>:<nonce>:<digest>` | string | one executor | coordinator | until promoted, expires |
| `rpc:<person>` | stream, group | clients of the person | coordinator | until committed |
| `reply:<person>:<client>` | stream | coordinator | that client | trimmed, expires |
| `obj:<digest>` | string | coordinator, clients | everyone | until collected |
| `store` | string | coordinator | everyone | as long as the broker's data |
| `incarnation` | string | coordinator | everyone | as long as the broker's data |

What a site or a person may touch carries its name, so that the broker itself can hold one to its own (see `acl.py`).
Names of sites and people hold no dot, colon or glob character; a worker of a site is called `<site>.<name>`, except at
the site `default`, which belongs to a fleet without credentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.broker.base import Stream, WorkerAddress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.broker.base import ClientAddress, LogKey

GROUP: Final = "tenure"
"""The one consumer group of every stream that is read through a group."""

DEFAULT_SITE: Final = "default"
"""The site of workers on a broker without credentials of their own."""

DEFAULT_PERSON: Final = "default"
"""The person of clients on a broker without credentials of their own; such a client's word for who asks is recorded."""


@final
@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace. A namespace is one coordinator's fleet."""

    namespace: str

    def assignments(self, stream: Stream) -> str:
        """A stream of assignments: of a capability at a site, or of one worker."""
        kind, name = ("own", stream.worker_id) if stream.worker_id else ("cap", stream.capability)
        return _key(self.namespace, f"{kind}:{stream.site}:{name}")

    def inbox(self, site: str) -> str:
        """Stream of a site's reports."""
        return _key(self.namespace, f"inbox:{site}")

    def rpc(self, person: str) -> str:
        """Stream of the requests of a person's clients."""
        return _key(self.namespace, f"rpc:{person}")

    def control(self, worker: WorkerAddress) -> str:
        """Stream of orders to one worker."""
        return _key(self.namespace, f"ctl:{worker.site}:{worker.worker_id}")

    def reply(self, client: ClientAddress) -> str:
        """Stream of answers to one client."""
        return _key(self.namespace, f"reply:{client.person}:{client.client_id}")

    def heartbeat(self, worker: WorkerAddress) -> str:
        """A worker's heartbeat."""
        return _key(self.namespace, f"hb:{worker.site}:{worker.worker_id}")

    def echo(self, worker: WorkerAddress) -> str:
        """The newest heartbeat that the coordinator has seen of a worker, as `<epoch>:<generation>:<sequence>`."""
        return _key(self.namespace, f"echo:{worker.site}:{worker.worker_id}")

    def of_departed(self, worker: WorkerAddress) -> tuple[str, ...]:
        """What is left of an executor that has departed."""
        return self.control(worker), self.echo(worker), self.heartbeat(worker)

    def of_site(self, site: str, workers: Sequence[str], capabilities: Sequence[str]) -> list[str]:
        """What a site has but for what ends by itself: what its tasks have printed, and what they have staged."""
        streams = [Stream(site, each) for each in capabilities] + [Stream(site, worker_id=each) for each in workers]
        left = [key for each in workers for key in self.of_departed(WorkerAddress(site, each))]
        return [self.inbox(site), *map(self.assignments, streams), *left]

    def incarnation(self) -> str:
        """The marker by which a broker that has lost its data is recognised."""
        return _key(self.namespace, "incarnation")


@final
@dataclass(frozen=True, slots=True)
class ContentKeys:
    """The keys of what tasks print and of the contents that are kept at the broker."""

    namespace: str

    def log(self, log: LogKey) -> str:
        """Stream of what one attempt has printed."""
        return _key(self.namespace, f"log:{log.site}:{log.task_id}:{log.fence}")

    def stored(self, digest: str) -> str:
        """A content that is kept at the broker."""
        return _key(self.namespace, f"obj:{digest}")

    def staged(self, place: str, digest: str) -> str:
        """A content that waits for its promotion; `place` is `<site>:<task>:<fence>:<nonce>`."""
        return _key(self.namespace, f"stg:{place}:{digest}")

    def store(self) -> str:
        """The address of the fleet's store of artifacts, without anything secret."""
        return _key(self.namespace, "store")


def _key(namespace: str, rest: str) -> str:
    return f"tenure:{{{namespace}}}:{rest}"
