"""What the broker goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tenure.broker.base import ClientAddress, Stream, WorkerAddress
from tenure.broker.keys import DEFAULT_PERSON
from tenure.broker.memory_store import MemoryStore
from tests.simulation.groups import lose_group, make_group
from tests.simulation.network import REMEMBERED_WRITES, Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.dice import Dice
    from tests.simulation.world import World

_MADE_AGAIN_PER_MILLE = 200
"""How often a lost group is there again before anybody reads."""


@final
class BrokerFaults:
    """Strikes at the broker. `for_a_while` undoes what lasts."""

    def __init__(self, world: World, dice: Dice, for_a_while: Callable[[int, Callable[[], None]], None]) -> None:
        self.world = world
        self.dice = dice
        self._for_a_while = for_a_while

    def table(self) -> dict[str, Callable[[], str]]:
        """The strikes by name."""
        return {
            "flush": self._flush,
            "group_lost": self._group_lost,
            "stream_deleted": self._stream_deleted,
            "evicted_heartbeat": self._evicted_heartbeat,
            "failover": self._failover,
            "split": self._split,
            "broker_restart": self._restart,
            "broker_emptied": self._emptied,
            "broker_full": self._full,
        }

    @property
    def _server(self) -> Server:
        return self.world.network.server

    def _flush(self) -> str:
        self._server.store.flush()
        self._server.interrupt()
        return "all"

    def _assignment_keys(self) -> list[str]:
        keys, streams = self.world.network.keys, [Stream("default", "gpu")]
        for seat in self.world.seats:
            streams += [Stream(seat.site, "cpu"), Stream(seat.site, "", seat.worker_id)]
        return [keys.assignments(stream) for stream in sorted(set(streams))]

    def _inboxes(self) -> list[str]:
        return [self.world.network.keys.inbox(site) for site in sorted({seat.site for seat in self.world.seats})]

    def _group_lost(self) -> str:
        """It is gone until the coordinator makes it again, or, now and then, a person does at once.

        Then everything that is still in the stream is delivered again.
        """
        store = self._server.store
        sources = [("rpc", self.world.network.keys.rpc(DEFAULT_PERSON)), *(("inbox", key) for key in self._inboxes())]
        what, key = self.dice.pick([*(("assignments", key) for key in self._assignment_keys()), *sources])
        if not lose_group(store, key, what):
            return ""
        if self.dice.chance(_MADE_AGAIN_PER_MILLE):
            make_group(store, key)
        self._server.interrupt()
        return key

    def _stream_deleted(self) -> str:
        keys = self.world.network.keys
        control = [keys.control(WorkerAddress(seat.site, seat.worker_id)) for seat in self.world.seats]
        reply = keys.reply(ClientAddress(DEFAULT_PERSON, self.world.client.client_id))
        others = [keys.rpc(DEFAULT_PERSON), *self._inboxes(), *control, reply]
        key = self.dice.pick([*self._assignment_keys(), *others])
        if self._server.store.stream(key) is None:
            return ""
        self._server.store.remove(key)
        self._server.interrupt()
        return key

    def _evicted_heartbeat(self) -> str:
        seat = self.dice.pick(self.world.seats)
        key = self.world.network.keys.heartbeat(WorkerAddress(seat.site, seat.worker_id))
        if self._server.store.get(key) is None:
            return ""
        self._server.store.remove(key)
        return seat.worker_id

    def _away(self, duration_ms: int) -> None:
        server = self._server
        server.store.down = True
        server.interrupt()

        def back() -> None:
            server.store.down = False

        self._for_a_while(duration_ms, back)

    def _failover(self) -> str:
        """A replica takes over that has not seen the newest writes."""
        writes = self.dice.between(1, REMEMBERED_WRITES)
        self._server.store.lose_newest(writes)
        self._server.store.restart()
        self._away(self.dice.between(1, 500))
        return f"{writes} writes lost"

    def _restart(self) -> str:
        self._server.store.restart()
        self._away(self.dice.pick((1, 300, 2_000, 5_000)))
        return "with its data"

    def _emptied(self) -> str:
        self._server.store.flush()
        self._server.store.restart()
        self._away(self.dice.pick((1, 300, 2_000)))
        return "without its data"

    def _full(self) -> str:
        store = self._server.store
        store.full = True

        def room() -> None:
            store.full = False
            self._server.written()

        self._for_a_while(self.dice.pick((300, 1_500, 4_000)), room)
        return "on"

    def _split(self) -> str:
        """Some hosts talk to one half of the broker, the others to the other; then one half is lost."""
        network = self.world.network
        if network.other is not None:
            return ""
        beyond = {seat.worker_id for seat in self.world.seats if self.dice.chance(500)}
        if not beyond:
            return ""
        copied = _copy(self._server.store, network.clock)
        network.other, network.beyond = Server(self.world.engine, copied, network.keys), beyond
        network.other.met_no_group = network.met_no_group

        def whole() -> None:
            other, network.other, network.beyond = network.other, None, set[str]()
            if other is not None:
                other.store.down = True
                other.interrupt()

        self._for_a_while(self.dice.between(500, 8_000), whole)
        return ",".join(sorted(beyond))


def _copy(store: MemoryStore, clock: object) -> MemoryStore:
    """What a promoted replica has."""
    copied = MemoryStore(store._clock, remembered_writes=REMEMBERED_WRITES)
    copied.starts = store.starts + 1
    copied._streams = {key: stream.copy() for key, stream in store._streams.items()}
    copied._values = dict(store._values)
    return copied
