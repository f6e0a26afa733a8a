"""What the client does when messages are lost, the broker is away, or another coordinator takes over."""

import logging
from collections.abc import Iterator
from threading import current_thread
from typing import Any

import pytest

from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CoordinatorUnreachable,
    FleetError,
    StreamMissing,
    UnknownTask,
    UsageError,
)
from tenure.protocol.client_messages import Cancel, Done, Notice, Reply
from tenure.protocol.states import TaskState
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_client import ScriptedFleet
from tests.fixtures_handlers import anything
from tests.waiting import wait_until


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet(ManualClock())


def client_of(fleet: ScriptedFleet, **options: Any) -> Client:
    return Client.over(fleet.connect, ClientOptions(**options), clock=fleet.clock, entropy=SeededEntropy(1))


@pytest.fixture
def client(fleet: ScriptedFleet) -> Iterator[Client]:
    with client_of(fleet) as client:
        yield client


def pass_ms(fleet: ScriptedFleet, duration_ms: int) -> None:
    until_ms = fleet.clock.elapsed_ms() + duration_ms
    wait_until(lambda: fleet.clock.elapsed_ms() >= until_ms, f"{duration_ms} ms of the fleet's time have passed")


# --- requests ------------------------------------------------------------------------------------


def test_a_request_whose_reply_was_lost_is_repeated_word_for_word(fleet: ScriptedFleet, client: Client) -> None:
    fleet.drop_replies = 2
    handle = client.submit(anything, 1)
    assert handle.task_id == "0" * 26
    assert len(fleet.raw_requests) == 3
    assert len(set(fleet.raw_requests)) == 1


def test_a_second_reply_is_ignored(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    fleet.post(Reply(request_id="r1"), Reply(request_id="never-asked"))
    fleet.end(handle.task_id, value="1")
    assert handle.result(10) == 1


@pytest.mark.parametrize(
    ("problem", "error", "said"),
    [
        (None, CoordinatorUnreachable, "answered within 3 s; whether the request was carried out is unknown"),
        (StreamMissing("gone"), CoordinatorUnreachable, "no coordinator has made the namespace 'main'"),
        (BrokerUnreachable("no route"), BrokerUnreachable, "no route"),
    ],
)
def test_patience_ends_with_the_reason(fleet: ScriptedFleet, problem: Any, error: type[Exception], said: str) -> None:
    fleet.silent, fleet.down = True, problem
    with client_of(fleet, patience_ms=3_000) as client, pytest.raises(error, match=said):
        client.submit(anything, 1)
    assert fleet.clock.elapsed_ms() >= 3_000


def test_a_broker_that_refuses_is_told_at_once(fleet: ScriptedFleet, client: Client) -> None:
    fleet.down = BrokerRefused("wrong password")
    with pytest.raises(BrokerRefused):
        client.submit(anything, 1)


def test_a_broker_that_comes_back_in_time_is_no_error(fleet: ScriptedFleet, client: Client) -> None:
    fleet.down, fleet.down_until_ms = BrokerUnreachable("away"), 2_000
    assert client.submit(anything, 1).task_id
    assert fleet.clock.elapsed_ms() >= 2_000


def test_news_about_other_things_keeps_a_slow_request_alive(fleet: ScriptedFleet) -> None:
    fleet.silent, fleet.time_passes = True, False
    with client_of(fleet, patience_ms=20_000) as client:
        answer = client._session.post(Cancel(task_ids=()))
        for _ in range(3):
            fleet.clock.advance_ms(15_000)
            fleet.post(Notice(done=()))
            wait_until(lambda: client._session._exchange.news_ms == fleet.clock.elapsed_ms(), "the news is read")
        assert not answer.done()
        fleet.time_passes = True
        with pytest.raises(CoordinatorUnreachable):
            answer.result(10)


# --- notices -------------------------------------------------------------------------------------


def test_a_lost_notice_does_not_hang_a_handle(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    fleet.drop_notices = True
    fleet.end(handle.task_id, value="1")
    assert handle.result(10) == 1
    assert fleet.watched()[0].task_ids == (handle.task_id,)


def test_watching_becomes_rarer_while_nothing_happens(fleet: ScriptedFleet, client: Client) -> None:
    client.submit(anything, 1)
    pass_ms(fleet, 300_000)
    assert 4 <= len(fleet.watched()) <= 10


def test_nothing_is_asked_when_nothing_is_outstanding(fleet: ScriptedFleet, client: Client) -> None:
    fleet.work = lambda _: "1"
    client.submit(anything, 1).result(10)
    asked = len(fleet.asks)
    pass_ms(fleet, 60_000)
    assert len(fleet.asks) == asked


def test_a_large_crowd_is_watched_in_pieces(fleet: ScriptedFleet, client: Client) -> None:
    client.map(anything, range(5_500))
    wait_until(lambda: len(fleet.watched()) >= 2, "all are watched")
    assert sorted(len(watch.task_ids) for watch in fleet.watched()[:2]) == [500, 5_000]


def test_one_unknown_task_does_not_hide_the_others(fleet: ScriptedFleet, client: Client) -> None:
    handles = client.map(anything, range(9))
    fleet.drop_notices = True
    del fleet.tasks[handles[4].task_id]
    for handle in handles[:4] + handles[5:]:
        fleet.end(handle.task_id, value="1")
    assert [handle.result(10) for handle in handles[:4] + handles[5:]] == [1] * 8
    with pytest.raises(UnknownTask):
        handles[4].result(10)


def test_a_new_coordinator_is_asked_at_once(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    fleet.epoch = 2
    fleet.post(Notice(done=()))
    wait_until(fleet.watched, "the task is watched again")
    assert fleet.watched()[0].task_ids == (handle.task_id,)


def test_a_superseded_coordinator_is_not_believed(fleet: ScriptedFleet, client: Client) -> None:
    fleet.epoch = 5
    handle = client.submit(anything, 1)
    fleet.post(Notice(done=(Done(task_id=handle.task_id, state=TaskState.SUCCEEDED, value='"old"'),)), epoch=4)
    fleet.end(handle.task_id, value='"new"')
    assert handle.result(10) == "new"


def test_a_broker_that_lost_its_data_is_noticed(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    wait_until(fleet.watched, "the marker has been seen")
    with fleet.condition:
        fleet.mails.clear()
        fleet._next_entry = 1
        fleet.mark = "second"
    wait_until(lambda: len(fleet.watched()) > 1, "the task is watched again")
    fleet.end(handle.task_id, value="1")
    assert handle.result(10) == 1


def test_an_answer_that_cannot_be_read_is_skipped(
    fleet: ScriptedFleet, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    handle = client.submit(anything, 1)
    fleet.post_raw(b'{"SECRET": 1}')
    fleet.end(handle.task_id, value="1")
    assert handle.result(10) == 1
    assert "was ignored" in caplog.text
    assert "SECRET" not in caplog.text


# --- warnings, callbacks, the end ----------------------------------------------------------------


def test_warnings_are_kept_logged_and_told_once(fleet: ScriptedFleet, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    fleet.warnings = ("no worker offers the capability 'gpu'",)
    with client_of(fleet, on_warning=told.append) as client:
        client.submit(anything, 1)
        client.submit(anything, 2)
        assert list(client.warnings) == told == list(fleet.warnings)
    assert caplog.text.count("no worker offers") == 1


def test_a_warning_callback_that_raises_harms_nobody(fleet: ScriptedFleet, caplog: pytest.LogCaptureFixture) -> None:
    def rude(warning: str) -> None:
        raise RuntimeError(warning)

    fleet.warnings = ("careful",)
    with caplog.at_level(logging.CRITICAL, "tenure"), client_of(fleet, on_warning=rude) as client:
        assert client.submit(anything, 1).task_id


def test_a_callback_may_look_but_not_ask(fleet: ScriptedFleet, client: Client) -> None:
    seen: list[object] = []

    def look(future: Any) -> None:
        seen.append(current_thread().name)
        seen.append(other.cancel())
        try:
            client.submit(anything, 2)
        except UsageError as error:
            seen.append(error)

    other = client.submit(anything, 0)
    handle = client.submit(anything, 1)
    handle.add_done_callback(look)
    fleet.end(handle.task_id, value="1")
    wait_until(lambda: len(seen) == 3, "the callback has run")
    assert seen[:2] == ["tenure-client", False]
    assert "wait for itself" in str(seen[2])
    wait_until(other.cancelled, "the cancel has gone through")


def test_closing_ends_open_handles_and_refuses_more(fleet: ScriptedFleet, client: Client) -> None:
    handle = client.submit(anything, 1)
    client.close()
    client.close()
    with pytest.raises(FleetError, match="the client was closed"):
        handle.result(10)
    with pytest.raises(UsageError, match="the client is closed"):
        client.submit(anything, 1)
    assert not handle.cancel()
    assert fleet.closed == [client.client_id] * 2


def test_a_client_that_is_never_used_starts_nothing(fleet: ScriptedFleet) -> None:
    with client_of(fleet) as client:
        assert client._session._thread is None


def test_closing_does_not_wait_for_a_silent_broker(fleet: ScriptedFleet) -> None:
    fleet.down = BrokerUnreachable("away")
    client = client_of(fleet, patience_ms=100)
    with pytest.raises(BrokerUnreachable):
        client.submit(anything, 1)
    client.close()
    assert client._session._thread is not None
    assert not client._session._thread.is_alive()


@pytest.mark.parametrize(
    "options",
    [{"batch_tasks": 0}, {"batch_tasks": 2_001}, {"batch_bytes": 0}, {"patience_ms": 0}, {"requests_in_flight": 0}],
)
def test_options_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(UsageError):
        ClientOptions(**options)
