"""What becomes of a request while the thread that asks is still sending it, for as long as that takes."""

import pytest

from tenure.client.exchange import Exchange, Identity
from tenure.errors import BrokerRefused, BrokerUnreachable, CoordinatorUnreachable, FleetError
from tenure.protocol.client_messages import Cancel, Reply
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_client import ScriptedFleet

PATIENCE_MS = 10_000
IDENTITY = Identity("me", "main", "me", patience_ms=PATIENCE_MS, resend_ms=1_000)


@pytest.fixture
def fleet() -> ScriptedFleet:
    fleet = ScriptedFleet(ManualClock())
    fleet.silent = True
    return fleet


@pytest.fixture
def exchange(fleet: ScriptedFleet) -> Exchange:
    """Of a client whose every request takes twice its patience to be sent."""

    def reading_goes_on() -> None:
        for _ in range(8):
            fleet.clock.advance_ms(PATIENCE_MS // 4)
            if not fleet.asks:
                slow.upkeep()

    slow = Exchange(fleet.connect("me"), IDENTITY, fleet.clock, SeededEntropy(1))
    fleet.while_sending = reading_goes_on
    return slow


def test_what_is_still_being_sent_is_neither_given_up_nor_sent_twice(fleet: ScriptedFleet, exchange: Exchange) -> None:
    answer = exchange.post(exchange.next_id(), Cancel(task_ids=()))
    exchange.upkeep()
    assert not answer.done()
    assert len(fleet.asks) == 1
    assert exchange.collect(Reply(request_id="r1")) is not None


def test_a_refusal_is_told_however_long_it_took(fleet: ScriptedFleet, exchange: Exchange) -> None:
    fleet.down = BrokerRefused("wrong password")
    answer = exchange.post(exchange.next_id(), Cancel(task_ids=()))
    with pytest.raises(BrokerRefused, match="wrong password"):
        answer.result(0)


def test_patience_with_an_absent_broker_counts_the_first_try(fleet: ScriptedFleet, exchange: Exchange) -> None:
    fleet.down = BrokerUnreachable("no route")
    answer = exchange.post(exchange.next_id(), Cancel(task_ids=()))
    assert not answer.done()
    exchange.upkeep()
    with pytest.raises(BrokerUnreachable, match="no route"):
        answer.result(0)


def test_patience_with_a_silent_coordinator_begins_when_it_was_sent(fleet: ScriptedFleet, exchange: Exchange) -> None:
    answer = exchange.post(exchange.next_id(), Cancel(task_ids=()))
    fleet.clock.advance_ms(PATIENCE_MS)
    exchange.upkeep()
    with pytest.raises(CoordinatorUnreachable):
        answer.result(0)


def test_a_request_whose_sending_was_interrupted_is_forgotten(fleet: ScriptedFleet, exchange: Exchange) -> None:
    """Nobody has its future; kept, it would have its client ask for news for ever."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    fleet.while_sending = interrupt
    with pytest.raises(KeyboardInterrupt):
        exchange.post(exchange.next_id(), Cancel(task_ids=()))
    assert len(exchange) == 0


def test_what_is_asked_when_nobody_reads_any_more_ends_at_once(fleet: ScriptedFleet, exchange: Exchange) -> None:
    """Another thread has closed the client since this one began to ask: nobody would ever end its future."""
    exchange.fail(FleetError("the client was closed"))
    answer = exchange.post(exchange.next_id(), Cancel(task_ids=()))
    with pytest.raises(FleetError, match="the client was closed"):
        answer.result(0)
    assert (len(exchange), fleet.asks) == (0, [])


class LastMoment:
    """A clock during whose last reading by a request that was sent Ctrl-C is pressed."""

    def __init__(self, fleet: ScriptedFleet) -> None:
        self._fleet = fleet
        self._left = 2

    def elapsed_ms(self) -> int:
        self._left -= bool(self._fleet.asks)
        if not self._left:
            raise KeyboardInterrupt
        return self._fleet.clock.elapsed_ms()

    def now_ms(self) -> int:
        return self._fleet.clock.now_ms()

    def sleep_ms(self, duration_ms: int) -> None:
        self._fleet.clock.sleep_ms(duration_ms)


def test_a_request_that_is_interrupted_right_after_it_was_sent_is_forgotten(fleet: ScriptedFleet) -> None:
    """Kept without a beginning, it would never be given up."""
    exchange = Exchange(fleet.connect("me"), IDENTITY, LastMoment(fleet), SeededEntropy(1))
    with pytest.raises(KeyboardInterrupt):
        exchange.post(exchange.next_id(), Cancel(task_ids=()))
    assert len(fleet.asks) == 1
    assert len(exchange) == 0
