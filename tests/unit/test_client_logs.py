"""Reading logs: attempts in order, gaps, repetitions, what is kept, and what comes while one reads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tenure.artifacts.base import Place
from tenure.artifacts.content import blob_of
from tenure.artifacts.memory import MemoryStore
from tenure.broker import kept_log
from tenure.broker.base import ClientBroker, EntryId, LogChunk, LogKey
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker
from tenure.broker.memory_store import MemoryStore as BrokerStore
from tenure.client.contents import Contents
from tenure.client.logs import LogReader
from tenure.errors import BrokerRefused, BrokerUnreachable, UnknownTask, UsageError
from tenure.protocol.client_messages import Ask, Query, Reply
from tenure.testing import ManualClock, SeededEntropy

TASK = "0" * 26


class Waiting:
    """A client's face on which time passes while it waits."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene
        self.inner = scene.broker.client(client_id="c")
        self.marker = self.inner.marker

    def printed(self, log: LogKey, *, after: EntryId, block_ms: int) -> list[tuple[EntryId, LogChunk]]:
        found = self.inner.printed(log, after=after, block_ms=0)
        if not found:
            self.scene.clock.advance_ms(block_ms)
            if block_ms:
                self.scene.while_waiting()
        return found

    def close(self) -> None:
        self.scene.closed += 1


@dataclass
class Scene:
    """A task's records, its logs at the broker, and what happens while a reader asks."""

    state: str = "RUNNING"
    leases: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    artifacts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    happens: list[Callable[[], object]] = field(default_factory=list["Callable[[], object]"])
    """One is done each time that the reader asks for the leases."""
    while_waiting: Callable[[], object] = lambda: None
    """Done each time that the reader has waited for nothing."""

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.server = BrokerStore(self.clock)
        self.broker = MemoryBroker(self.server, Keys("main"))
        self.store = MemoryStore(self.clock)
        contents = Contents(lambda: self.store, self.clock, SeededEntropy(1))
        self.closed = 0
        self.reader = LogReader(self.ask, lambda: cast("ClientBroker", Waiting(self)), contents, self.clock)

    def ask(self, ask: Ask) -> Reply:
        assert isinstance(ask, Query)
        if ask.what == "leases" and self.happens:
            self.happens.pop(0)()
        rows: list[dict[str, Any]] = [{"state": self.state}] if self.state else []
        return Reply(request_id="r1", rows=tuple({"tasks": rows, "leases": self.leases}.get(ask.what, self.artifacts)))

    def attempt(self, number: int, state: str = "ACTIVE") -> None:
        self.leases = [lease for lease in self.leases if lease["fence"] != 10 * number]
        self.leases.insert(
            0,
            {"attempt": number, "fence": 10 * number, "state": state, "worker_id": "w1", "site": "lab"},
        )

    def say(self, number: int, *chunks: LogChunk) -> None:
        self.broker.worker(site="lab", worker_id="w1").print(LogKey("lab", TASK, 10 * number), chunks, 1_000)

    def end(self, number: int, position: int, state: str = "SUCCEEDED") -> None:
        self.say(number, LogChunk(0, position, ""))
        self.attempt(number, "COMPLETED")
        self.state = state

    def keep(self, number: int, *chunks: LogChunk) -> None:
        raw = kept_log.write(chunks)
        content, place = blob_of(raw), Place("lab", TASK, 10 * number, "0" * 16)
        self.store.stage(place, content, 0, [raw])
        self.store.promote(place, content)
        self.artifacts.append(
            {
                "fence": 10 * number,
                "kind": "log",
                "state": "PROMOTED",
                "manifest": content.digest,
                "manifest_size": content.size,
            }
        )

    def text(self, *, stream: int | None = None, **options: Any) -> str:
        found = self.reader.read(TASK, **options)
        return "".join(chunk.text for _, chunk in found if stream is None or chunk.stream == stream)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_all_attempts_are_read_in_order(scene: Scene) -> None:
    scene.attempt(1, "EXPIRED")
    scene.attempt(2)
    scene.say(2, LogChunk(1, 0, "two\n"))
    scene.say(1, LogChunk(1, 0, "one\n"), LogChunk(2, 4, "oh\n"))

    assert list(scene.reader.read(TASK)) == [
        (1, LogChunk(1, 0, "one\n")),
        (1, LogChunk(2, 4, "oh\n")),
        (2, LogChunk(0, 0, "--- attempt 2 ---\n")),
        (2, LogChunk(1, 0, "two\n")),
    ]
    assert list(scene.reader.chunks(TASK, attempt=2)) == [LogChunk(1, 0, "two\n")]


def test_what_came_twice_is_read_once_and_what_is_missing_is_said(scene: Scene) -> None:
    scene.attempt(1)
    scene.say(1, LogChunk(1, 5_000, "b\nc\n"), LogChunk(1, 5_000, "b\n"), LogChunk(1, 5_002, "c\nd\n"))
    scene.say(1, *[LogChunk(1, 5_000, "b\n")] * 300, LogChunk(1, 17_351, "e\n"))

    assert scene.text() == ("... 5,000 characters left out ...\nb\nc\nd\n... 12,345 characters left out ...\ne\n")


def test_a_task_that_is_not_there(scene: Scene) -> None:
    scene.state = ""
    for follow in (False, True):
        with pytest.raises(UnknownTask):
            scene.text(follow=follow)


def test_an_attempt_that_was_not_there(scene: Scene) -> None:
    scene.attempt(1)
    with pytest.raises(UsageError, match="no attempt 2"):
        scene.text(attempt=2)


def test_an_offer_that_nobody_took_has_no_log(scene: Scene) -> None:
    scene.leases = [{"attempt": 1, "fence": 10, "state": "OFFERED", "worker_id": None, "site": None}]
    assert scene.text() == ""


def test_following_waits_for_the_start_and_ends_with_the_task(scene: Scene) -> None:
    scene.state = "QUEUED"
    scene.happens = [
        lambda: None,
        lambda: scene.attempt(1),
        lambda: scene.say(1, LogChunk(1, 0, "a\n")),
        lambda: scene.say(1, LogChunk(1, 2, "b\n")),
        lambda: scene.end(1, 4),
    ]

    assert scene.text(follow=True) == f"Task {TASK} has not started; waiting for it.\na\nb\n"
    assert scene.happens == []


def test_following_goes_on_with_the_next_attempt(scene: Scene) -> None:
    scene.attempt(1)
    scene.say(1, LogChunk(1, 0, "a\n"))

    def lose() -> None:
        scene.attempt(1, "EXPIRED")
        scene.state = "LOST"

    def again() -> None:
        scene.attempt(2)
        scene.state = "RUNNING"
        scene.say(2, LogChunk(1, 0, "b\n"))

    scene.happens = [lambda: None, lose, lambda: None, again, lambda: scene.end(2, 2)]
    lost = f"Task {TASK} is LOST and waits for a decision: see `tenure directives list`.\n"
    text = scene.text(follow=True)
    assert text.startswith("a\n")
    assert text.endswith("--- attempt 2 ---\nb\n")
    assert lost in text


def test_a_broker_that_restarts_and_loses_everything_is_survived(scene: Scene) -> None:
    scene.attempt(1)
    scene.say(1, LogChunk(1, 0, "a\n"))

    def crash() -> None:
        scene.server.flush()
        scene.say(1, LogChunk(1, 0, "a\n"), LogChunk(1, 2, "b\n"))
        scene.server.down = True

    def come_back(error: list[int]) -> None:
        error.append(1)
        scene.server.down = False

    waited: list[int] = []
    scene.happens = [lambda: None, crash]
    found: list[str] = []
    for _, chunk in scene.reader.read(TASK, follow=True):
        found.append(chunk.text)
        if "waiting for it" in chunk.text:
            come_back(waited)
            scene.happens = [lambda: scene.end(1, 4)]

    assert found == ["a\n", "The in-memory broker is down; waiting for it\n", "b\n"]
    assert waited == [1]


def test_the_last_words_of_an_attempt_that_is_over_are_waited_for(scene: Scene) -> None:
    """A worker that has much to print is behind with it for a while."""
    scene.attempt(1, "COMPLETED")
    scene.say(1, LogChunk(1, 0, "a\n"))
    came = iter([None, None, LogChunk(1, 2, "b\n"), None, None, LogChunk(1, 4, "c\n"), LogChunk(0, 6, "")])

    def at_each_look() -> None:
        chunk = next(came, None)
        if chunk is not None:
            scene.say(1, chunk)

    scene.while_waiting = at_each_look
    assert scene.text() == "a\nb\nc\n"


def test_an_attempt_that_has_printed_nothing_is_not_waited_for(scene: Scene) -> None:
    scene.attempt(1, "COMPLETED")
    began_ms = scene.clock.elapsed_ms()
    assert scene.text() == ""
    assert scene.clock.elapsed_ms() - began_ms <= 300


def test_without_following_a_broker_that_is_down_is_an_error(scene: Scene) -> None:
    scene.attempt(1)
    scene.server.down = True
    with pytest.raises(BrokerUnreachable):
        scene.text()


def test_a_broker_that_refuses_is_not_waited_for(scene: Scene) -> None:
    def refuse() -> None:
        raise BrokerRefused("you may not")

    scene.attempt(1)
    scene.happens = [refuse]
    with pytest.raises(BrokerRefused):
        scene.text(follow=True)


@pytest.mark.parametrize("follow", [False, True])
def test_a_log_that_was_kept_is_read_from_the_store(scene: Scene, *, follow: bool) -> None:
    scene.state = "FAILED"
    scene.attempt(1, "EXPIRED")
    scene.attempt(2, "COMPLETED")
    scene.keep(1, LogChunk(1, 0, "a\n"), LogChunk(2, 2, "oh\n"))
    scene.say(2, LogChunk(1, 0, "b\n"), LogChunk(0, 2, ""))

    assert scene.text(follow=follow) == "a\noh\n--- attempt 2 ---\nb\n"
    assert scene.text(follow=follow, stream=2) == "oh\n"


def test_a_reader_that_is_dropped_closes_its_connection(scene: Scene) -> None:
    scene.attempt(1)
    scene.say(1, LogChunk(1, 0, "a\n"))
    found = scene.reader.read(TASK, follow=True)
    next(found)
    assert scene.closed == 0
    del found
    assert scene.closed == 1
