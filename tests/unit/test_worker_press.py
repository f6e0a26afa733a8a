"""What the press writes, keeps, repeats and drops."""

from itertools import pairwise

import pytest

from tenure.broker.base import EntryId, LogChunk, LogKey
from tenure.broker.keys import Keys
from tenure.broker.memory import MemoryBroker, MemoryWorker
from tenure.broker.memory_store import MemoryStore
from tenure.errors import BrokerUnreachable
from tenure.testing import ManualClock
from tenure.workers.log_window import KEPT_BYTES
from tenure.workers.press import FLUSH_MS, Press

TASK = "0" * 26


class Shop:
    """A press, its broker, and what a reader finds there."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.broker = MemoryBroker(self.store, Keys("main"))
        self.press = Press("lab", self.clock)
        self.worker: MemoryWorker = self.broker.worker(site="lab", worker_id="w1")
        self.positions: dict[str, int] = {}

    def say(self, text: str, *, stream: int = 1, task: str = TASK) -> None:
        at = self.positions.get(task, 0)
        self.positions[task] = at + len(text)
        self.press.printed(task, 7, [LogChunk(stream, at, text)])

    def skip(self, characters: int) -> None:
        self.positions[TASK] = self.positions.get(TASK, 0) + characters

    def flush(self) -> None:
        self.press.flush(self.worker)

    def log(self, task: str = TASK) -> list[LogChunk]:
        client = self.broker.client(client_id="c1")
        return [chunk for _, chunk in client.printed(LogKey("lab", task, 7), after=EntryId(0, 0), block_ms=0)]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_what_follows_on_travels_as_one_chunk(shop: Shop) -> None:
    for text in ("a\n", "b\n", "c\n"):
        shop.say(text)
    shop.say("oh\n", stream=2)
    shop.skip(100)
    shop.say("z\n", stream=2)
    shop.flush()

    assert shop.log() == [LogChunk(1, 0, "a\nb\nc\n"), LogChunk(2, 6, "oh\n"), LogChunk(2, 109, "z\n")]


def test_nothing_is_added_to_what_was_sent(shop: Shop) -> None:
    shop.say("a")
    shop.flush()
    shop.say("b")
    shop.flush()

    assert shop.log() == [LogChunk(1, 0, "a"), LogChunk(1, 1, "b")]


def test_the_first_flush_does_not_wait_and_the_next_one_does(shop: Shop) -> None:
    shop.say("a")
    shop.press.turn(shop.worker)
    assert [chunk.text for chunk in shop.log()] == ["a"]
    shop.say("b")
    before_ms = shop.clock.elapsed_ms()
    shop.clock.advance_ms(FLUSH_MS)
    shop.press.turn(shop.worker)

    assert shop.clock.elapsed_ms() - before_ms == FLUSH_MS
    assert [chunk.text for chunk in shop.log()] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "flushes"), [("x" * 9_999 + "\n", 1), ("x" * 9_999 + "\n", 7), ("é" * 4_999 + "\n", 7), ("y\n", 1)]
)
def test_the_broker_holds_the_newest_part_whatever_is_printed(shop: Shop, text: str, flushes: int) -> None:
    for number in range(3 * KEPT_BYTES // (len(text.encode()) + 64)):
        shop.say(text)
        if number % flushes == 0:
            shop.flush()
    for _ in range(5):
        shop.flush()
    kept = shop.log()

    size = sum(len(chunk.text.encode()) + 64 for chunk in kept)
    assert KEPT_BYTES * 0.97 <= size <= KEPT_BYTES
    assert kept[-1].position + len(kept[-1].text) == shop.positions[TASK]
    assert all(a.position + len(a.text) == b.position for a, b in pairwise(kept))


def test_a_flood_is_dropped_at_its_old_end_and_leaves_a_gap(shop: Shop) -> None:
    shop.say("first\n")
    shop.flush()
    for _ in range(50):
        shop.say("z" * 99_999 + "\n")
    shop.flush()
    shop.flush()

    kept = shop.log()
    assert kept[-1].position == 6 + 49 * 100_000
    assert 9 <= len(kept) <= 11


def test_many_logs_share_a_flush(shop: Shop) -> None:
    tasks = [f"{number:026d}" for number in range(4)]
    for task in tasks:
        for _ in range(4):
            shop.say("x" * 200_000, task=task)
    shop.flush()
    assert [len(shop.log(task)) for task in tasks] == [4, 1, 1, 0]
    for _ in range(6):
        shop.flush()

    assert [sum(len(chunk.text) for chunk in shop.log(task)) for task in tasks] == [800_000] * 4


def test_the_end_is_said_once_and_only_of_what_has_a_log(shop: Shop) -> None:
    shop.press.printed("1" * 26, 7, [])
    shop.say("a")
    shop.press.printed(TASK, 7, [])
    shop.press.printed(TASK, 7, [])
    shop.flush()

    assert shop.log() == [LogChunk(1, 0, "a"), LogChunk(0, 1, "")]
    assert shop.log("1" * 26) == []


def test_after_a_reconnect_everything_is_written_again(shop: Shop) -> None:
    shop.say("a")
    shop.flush()
    shop.store.flush()
    shop.say("b")
    shop.press.opened(again=False)
    shop.flush()
    assert [chunk.text for chunk in shop.log()] == ["b"]

    shop.press.opened(again=True)
    shop.flush()
    assert {chunk.position for chunk in shop.log()} == {0, 1}


def test_repetitions_push_nothing_else_out(shop: Shop) -> None:
    for text in ("a", "b", "c"):
        shop.say(text)
        shop.flush()
    shop.press.start_over()
    shop.flush()

    assert shop.log() == [LogChunk(1, 0, "a"), LogChunk(1, 1, "b"), LogChunk(1, 2, "c")]


def test_what_a_lost_broker_did_not_take_is_sent_later(shop: Shop) -> None:
    shop.say("a")
    shop.store.down = True
    with pytest.raises(BrokerUnreachable):
        shop.flush()
    shop.say("b")
    shop.store.down = False
    shop.flush()

    assert "".join(chunk.text for chunk in shop.log()) == "ab"


def test_a_full_broker_is_no_error_and_the_newest_comes_when_there_is_room(shop: Shop) -> None:
    shop.store.full = True
    shop.say("old" * 1_000)
    shop.flush()
    for _ in range(30):
        shop.say("n" * 99_999 + "\n")
        shop.flush()
    shop.press.closing(shop.worker)
    assert shop.log() == []

    shop.store.full = False
    for _ in range(3):
        shop.flush()
    assert shop.log()[-1].position == 3_000 + 29 * 100_000
    assert shop.log()[0].position > 3_000


def test_long_after_its_end_a_log_is_forgotten(shop: Shop) -> None:
    shop.say("a")
    shop.press.printed(TASK, 7, [])
    shop.flush()
    shop.clock.advance_ms(60_000)
    shop.flush()
    shop.store.flush()
    shop.press.start_over()
    shop.flush()

    assert shop.log() == []


def test_memory_is_bounded_and_what_was_forgotten_is_still_counted(shop: Shop) -> None:
    for number in range(100):
        for _ in range(10):
            shop.say("x" * 99_999 + "\n", task=f"{number:026d}")
        shop.flush()
        assert shop.press.held <= 33 * 1024 * 1024
    first = f"{0:026d}"
    shop.say("more\n", task=first)
    shop.flush()

    assert sum(len(chunk.text) for chunk in shop.log(first)) == 1_000_005
    shop.press.start_over()
    for _ in range(50):
        shop.flush()
    assert shop.log(first)[-1].text == "more\n"


def test_closing_writes_what_waits(shop: Shop) -> None:
    for number in range(5):
        for _ in range(9):
            shop.say("x" * 99_999 + "\n", task=f"{number:026d}")
    shop.press.stop()
    shop.press.closing(shop.worker)

    assert [len(shop.log(f"{number:026d}")) for number in range(5)] == [9] * 5
