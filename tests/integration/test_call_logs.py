"""What calls print, from real children to the broker's logs."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenure.broker.base import EntryId, LogChunk, LogKey
from tenure.protocol.assignment import Ticket
from tenure.protocol.worker_messages import Progressed
from tests.fixtures_worker import SITE, Bench, call

StartBench = Callable[..., Bench]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBench]:
    """Starts a worker; it is ended with the test."""
    benches: list[Bench] = []

    def start_one(**options: Any) -> Bench:
        benches.append(Bench(tmp_path / "state", **options))
        return benches[-1]

    yield start_one
    for bench in benches:
        bench.close()


def log_of(bench: Bench, ticket: Ticket) -> list[LogChunk]:
    """What the broker holds of the attempt's log."""
    key = LogKey(SITE, ticket.task_id, ticket.fence)
    with bench.wire.lock:
        found = bench.wire.broker.client(client_id="c1").printed(key, after=EntryId(0, 0), block_ms=0)
    return [chunk for _, chunk in found]


def whole_log(bench: Bench, ticket: Ticket) -> list[LogChunk]:
    """The log once it is complete; without the chunk that says so."""
    bench.until(lambda: log_of(bench, ticket) and log_of(bench, ticket)[-1].text == "", "the log is complete")
    return log_of(bench, ticket)[:-1]


def text_of(chunks: list[LogChunk], stream: int) -> str:
    return "".join(chunk.text for chunk in chunks if chunk.stream == stream)


def test_a_calls_prints_become_its_log(start: StartBench) -> None:
    bench = start()
    first, second = bench.publish(call("chat", "anna", 100), call("chat", "bert", 3))
    bench.result(second)

    for ticket, name, lines in ((first, "anna", 100), (second, "bert", 3)):
        chunks = whole_log(bench, ticket)
        assert text_of(chunks, 1) == "".join(f"{name} {number}\n" for number in range(lines)) + "unfinished"
        assert text_of(chunks, 2) == f"oh {name}\n"
        assert all(a.position + len(a.text) == b.position for a, b in pairwise(chunks))


def test_async_calls_side_by_side_have_logs_of_their_own(start: StartBench) -> None:
    bench = start(slots=5)
    (first,) = bench.publish(call("nap", 0))
    bench.result(first)
    tickets = bench.publish(*[call("chat_beside", f"n{number}", 5) for number in range(5)])
    for ticket in tickets:
        bench.result(ticket)

    for number, ticket in enumerate(tickets):
        chunks = whole_log(bench, ticket)
        assert text_of(chunks, 1) == f"n{number} one\nn{number} two\n"
        assert text_of(chunks, 2).endswith(f"INFO n{number} three\n")


def test_whatever_way_it_is_printed(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("print_everywhere"))
    value = bench.result(ticket).outcome.value
    chunks = whole_log(bench, ticket)

    assert value == '"utf-8 False"'
    assert text_of(chunks, 1) == "bytes é\nwritten\nas lines\nlone ?\n"
    assert text_of(chunks, 2).startswith("a warning\n")
    assert text_of(chunks, 2).endswith("INFO from a bare thread\n")


def test_a_call_that_prints_nothing_has_no_log(start: StartBench) -> None:
    bench = start()
    silent, loud = bench.publish(call("add", 1, 2), call("chat", "x", 1))
    whole_log(bench, loud)

    assert log_of(bench, silent) == []
    assert [bench.result(ticket).printed for ticket in (silent, loud)] == [False, True]


def test_a_flood_keeps_its_end_and_says_what_is_missing(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("flood", 20))
    characters = int(bench.result(ticket, 30).outcome.value or "")
    chunks = whole_log(bench, ticket)

    assert chunks[-1].position + len(chunks[-1].text) == characters
    assert chunks[-1].text.endswith("the end\n")
    assert sum(len(chunk.text) for chunk in chunks) <= 1024 * 1024
    assert any(a.position + len(a.text) < b.position for a, b in pairwise(chunks))


def test_what_a_call_printed_before_its_process_died_is_there(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("chat_and_die", "last words"))
    assert bench.released(ticket).printed
    assert text_of(whole_log(bench, ticket), 1) == "last words\n"


def test_metrics_go_with_progress_whatever_they_are(start: StartBench) -> None:
    bench = start()
    (ticket,) = bench.publish(call("tell_metrics"))
    bench.until(lambda: bench.of(Progressed, ticket), "progress is told")
    told = bench.of(Progressed, ticket)[0]
    metrics = json.loads(told.metrics)

    assert (told.fraction_ppm, told.message) == (500_000, "half\nway")
    assert (metrics["loss"], metrics["epoch"], metrics["name"]) == ("nan", 3, "x" * 200)
    bench.drain(2)
