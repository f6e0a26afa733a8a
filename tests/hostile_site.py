"""A site with a credential of its own that does whatever the broker lets it do. Run as a program, in a process apart.

`python -m tests.hostile_site ADDRESS_FILE KNOWN_FILE SECONDS [TRICK...]`. It knows all that it could ever learn, and
more: the true task, fence, digest, attempt and nonce of other sites' work, which the test writes into the second file
meanwhile. All tricks, or those that are named, are done in turn until the time is over, each at least once; at the end
it prints how often each was done, and how often it was refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from redis.exceptions import ResponseError

from tenure.broker.base import Stream, WorkerAddress
from tenure.broker.keys import GROUP, Keys
from tenure.broker.redis_connection import Command, RedisConnection
from tenure.broker.url import BrokerUrl
from tenure.clock import SystemClock
from tenure.errors import BrokerError
from tenure.protocol.envelope import Scope
from tenure.protocol.worker_messages import (
    HEARTBEAT,
    REPORT,
    Binding,
    Cause,
    Claimed,
    ExecutorGone,
    Finished,
    Heartbeat,
    Held,
    Hello,
    Leaving,
    Outcome,
    Released,
    Report,
    WorkerEvent,
)

SITE = "hostile"
VICTIM = "honest"
CAPABILITY = "shared"
FORGED = "forged"
LIES = (
    *("forgeries", "others' names", "long heartbeats", "made-up workers", "heartbeats", "assignments", "forbidden"),
)
"""Tricks that leave the inbox readable: what spoils it also keeps the lies from being read."""
CROWDED = ("many values",)
"""Costs the inbox, so it is done by itself, too: whatever wipes the inbox hides what becomes of it."""
_BATCH = 100
_LARGE = 700_000
_LONG_HOLDS = 9_000
_LONG_WORKERS = 100
_LAST = f"{2**64 - 1}-{2**64 - 1}"


class Attacker:
    """Tricks, by name; each does as much harm as one turn allows."""

    def __init__(self, connection: RedisConnection, known: Path) -> None:
        self._connection = connection
        self._known = known
        self._keys = Keys("main")
        self._inbox = self._keys.inbox(SITE)
        self._number = 0
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.tricks: dict[str, Callable[[], None]] = {
            "flood": self.flood,
            "garbage": self.garbage,
            "crowds": self.crowds,
            "oversized": self._oversized,
            "many values": self._many_values,
            "forgeries": self.forgeries,
            "others' names": self.others_names,
            "long heartbeats": self._long_heartbeats,
            "made-up workers": self.made_up_workers,
            "heartbeats": self.heartbeats,
            "assignments": self.assignments,
            "inbox": self.inbox,
            "forbidden": self.forbidden,
        }

    def send(self, trick: str, commands: Sequence[Command]) -> None:
        """Send all at once, and count what came of it."""
        for answer in self._connection.call_all(commands):
            (self.refused if isinstance(answer, ResponseError) else self.done)[trick] += 1

    # --- what fills the inbox -------------------------------------------------------------------

    def flood(self) -> None:
        raw = self._report(f"{SITE}.w1", *[Leaving(gone=False)] * 20)
        self.send("flood", [("XADD", self._inbox, "*", "m", raw)] * _BATCH)

    def garbage(self) -> None:
        chunks = [hashlib.shake_128(b"%d" % size).digest(size * 20) for size in range(1, _BATCH)]
        chunks += [b"[" * _LARGE, b"\0" * _LARGE, b'{"worker_id":' * 5_000, b'"\xff\xfe"', b"", b"null", b"9" * 5_000]
        self.send("garbage", [("XADD", self._inbox, "*", "m", chunk) for chunk in chunks])
        self.send("garbage", [("XADD", self._inbox, "*", "x", b"1", "y", b"2")] * 10)

    def crowds(self) -> None:
        fields = ",".join(f'"{number}":1' for number in range(60_000))
        holds = ",".join(["{}"] * 100_000)
        hello = '{"kind":"hello","slots":1,"capabilities":["shared"],"ttl_ms":10000,"held":[' + holds + "]}"
        texts = [f"{{{fields}}}", '{"worker_id":"a","generation":1,"window":1,"events":[' + hello + "]}"]
        self.send("crowds", [("XADD", self._inbox, "*", "m", text) for text in texts])

    def _oversized(self) -> None:
        """Entries that are larger than any message may be, and hold little or nothing where a message is looked for."""
        large = b"x" * 2 * _LARGE
        entries: list[tuple[str | bytes, ...]] = [
            ("x", large),
            (large, b"{}"),
            ("m", b"{}", "x", large),
            ("m", large),
            ("m", b"{}", *["a"] * 50_000),
        ]
        self.send("oversized", [("XADD", self._inbox, "*", *fields) for fields in entries * 4])

    def _many_values(self) -> None:
        """Entries of hardly any bytes that take long to read: many that may be, and one that is beyond all measure."""
        for count, times in ((9_000, 10), (400_000, 1)):
            self.send("many values", [("XADD", self._inbox, "*", "m", b"{}", *[b""] * count)] * times)

    def inbox(self) -> None:
        """Wipe it, and now and then use up its ids: after the last one nobody of the site could report any more."""
        self._number += 1
        self.send("inbox", [("XADD", self._inbox, "MAXLEN", 0, "*", "m", b"{}")])
        if self.done["inbox"] % 10 == 1:
            self.send("inbox", [("XADD", self._inbox, _LAST, "m", b"{}")])

    # --- what lies ------------------------------------------------------------------------------

    def forgeries(self) -> None:
        events: list[WorkerEvent] = [self._hello()]
        for binding in self._bindings():
            self._number += 1
            outcome = Outcome(value=json.dumps(f"{FORGED} {self._number}"))
            scope = Scope(world="main", run="default")
            events.append(Claimed(binding=binding, after_beat=0))
            events.append(Finished(binding=binding, scope=scope, outcome=outcome, duration_ms=1))
            events.append(Released(binding=binding, cause=Cause.UNSTARTED, started=False, tree_gone=True))
            events.append(ExecutorGone(binding=binding, cause=Cause.EXECUTOR_DIED, proved=True))
        self._say("forgeries", [f"{SITE}.w1"], events)

    def others_names(self) -> None:
        events: list[WorkerEvent] = [self._hello(), Leaving(gone=True)]
        for binding in self._bindings():
            outcome = Outcome(value=json.dumps(FORGED))
            scope = Scope(world="main", run="default")
            events.append(Finished(binding=binding, scope=scope, outcome=outcome, duration_ms=1))
        names = [f"{VICTIM}.w1", f"{VICTIM}.w1.x1", VICTIM, f"{VICTIM}.new", "w1", "default.w1"]
        self._say("others' names", names, events)

    def made_up_workers(self) -> None:
        self._number += 1
        names = [f"{SITE}.n{self._number}x{each}" for each in range(20)]
        self._say("made-up workers", names, [self._hello()])

    def heartbeats(self) -> None:
        held = tuple(Held(task_id=each.task_id, fence=each.fence, state="running") for each in self._bindings())
        self._number += 1
        beat = Heartbeat(generation=1, sequence=self._number, window=4096, held=held)
        mine = self._keys.heartbeat(WorkerAddress(SITE, f"{SITE}.w1"))
        rubbish = '{"generation":1,"sequence":1,"window":1,"held":[' + ",".join(["{}"] * 100_000) + "]}"
        self.send("heartbeats", [("SET", mine, rubbish, "PX", 60_000)])
        self.send("heartbeats", [("SET", mine, HEARTBEAT.dump_json(beat), "PX", 60_000)])

    def _long_heartbeats(self) -> None:
        """Of many workers, each as long as one may be, and for good; all of them once, and then some anew."""
        count = 3 if self.done["long heartbeats"] else _LONG_WORKERS
        names = [f"{SITE}.long{number}" for number in range(count)]
        self._number += 1
        self._say("long heartbeats", names, [self._hello()])
        held = tuple(Held(task_id=f"{number:026}", fence=1, state="running") for number in range(_LONG_HOLDS))
        raw = HEARTBEAT.dump_json(Heartbeat(generation=9, sequence=self._number, window=4096, held=held))
        self.send("long heartbeats", [("SET", self._keys.heartbeat(WorkerAddress(SITE, name)), raw) for name in names])

    def assignments(self) -> None:
        """Take what is offered so that nobody else of the site gets it, and in the names of others."""
        stream = self._keys.assignments(Stream(SITE, capability=CAPABILITY))
        reads: list[Command] = [
            ("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", 10, *more, "STREAMS", stream, ">")
            for consumer, more in ((f"{SITE}.w1", ("NOACK",)), (f"{VICTIM}.w1", ()), ("coordinator", ()))
        ]
        reads.append(("XREADGROUP", "GROUP", GROUP, f"{VICTIM}.w1", "STREAMS", stream, "0"))
        self.send("assignments", reads)

    def forbidden(self) -> None:
        other = self._keys.inbox(VICTIM)
        beat = self._keys.heartbeat(WorkerAddress(VICTIM, f"{VICTIM}.w1"))
        stream = self._keys.assignments(Stream(VICTIM, capability=CAPABILITY))
        self.send(
            "forbidden",
            [
                ("XADD", other, "*", "m", b"{}"),
                ("SET", beat, b"{}"),
                ("XREADGROUP", "GROUP", GROUP, "x", "STREAMS", stream, ">"),
                ("XADD", self._keys.rpc("default"), "*", "m", b"{}"),
                ("XACK", self._keys.assignments(Stream(SITE, capability=CAPABILITY)), GROUP, "1-1"),
                ("SET", self._inbox, b""),
                ("DEL", self._inbox),
                ("XREADGROUP", "GROUP", GROUP, "coordinator", "STREAMS", self._inbox, ">"),
                ("KEYS", "*"),
                ("FLUSHALL",),
                ("ACL", "WHOAMI"),
                ("CONFIG", "GET", "*"),
            ],
        )

    def _bindings(self) -> list[Binding]:
        """What is true of other sites' work, and the same with one thing wrong."""
        found: list[Binding] = []
        lines = self._known.read_text().splitlines() if self._known.exists() else []
        for line in lines[-20:]:
            true = Binding.model_validate_json(line)
            found += [true, true.model_copy(update={"nonce": "0" * 32}), true.model_copy(update={"fence": 10**6})]
        return found

    def _hello(self) -> Hello:
        return Hello(slots=4096, capabilities=(CAPABILITY, "other"), ttl_ms=60_000, labels=(("site", VICTIM),))

    def _report(self, worker_id: str, *events: WorkerEvent, generation: int = 1) -> bytes:
        report = Report(worker_id=worker_id, generation=generation, window=4096, events=events)
        return REPORT.dump_json(report)

    def _say(self, trick: str, names: Sequence[str], events: Sequence[WorkerEvent]) -> None:
        raws = [self._report(name, *events, generation=number) for name in names for number in (1, 9)]
        self.send(trick, [("XADD", self._inbox, "*", "m", raw) for raw in raws])


def attack(address: Path, known: Path, seconds: float, names: Sequence[str]) -> dict[str, object]:
    """Go through the tricks again and again until the time is over."""
    clock = SystemClock()
    until_ms = clock.elapsed_ms() + int(seconds * 1_000)
    connection = RedisConnection(BrokerUrl(address.read_text().strip()), timeout_ms=60_000)
    attacker = Attacker(connection, known)
    began = False
    while not began or clock.elapsed_ms() < until_ms:
        began = True
        for name in names or attacker.tricks:
            try:
                attacker.tricks[name]()
            except BrokerError:
                attacker.refused["connection"] += 1
    return {"done": attacker.done, "refused": attacker.refused}


if __name__ == "__main__":
    os.nice(19)  # elsewhere it would be another machine: what it costs itself is not to count
    found = attack(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
    sys.stdout.write(json.dumps(found))
