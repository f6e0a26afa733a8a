"""State tables, lease timing and the door for bytes."""

import json

import pytest

from tenure.errors import MalformedMessage, PayloadTooLarge
from tenure.protocol import timing
from tenure.protocol.client_messages import MAIL, REQUEST
from tenure.protocol.message import MAX_ENTRY_BYTES, decode
from tenure.protocol.states import TABLES, TERMINAL_TASK_STATES, TaskState, diagram


@pytest.mark.parametrize("machine", TABLES)
def test_every_state_can_be_reached_and_nothing_leads_outside(machine: str) -> None:
    table = TABLES[machine]
    reached = {next(iter(table))}
    while more := {after for before in reached for after in table[before]} - reached:
        reached |= more
    assert reached == set(table)


def test_terminal_is_terminal() -> None:
    assert {TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED, TaskState.ABANDONED} == TERMINAL_TASK_STATES


@pytest.mark.parametrize("machine", TABLES)
def test_the_diagram_has_every_step(machine: str) -> None:
    lines = diagram(machine).splitlines()
    assert lines[0] == "stateDiagram-v2"
    for before, onward in TABLES[machine].items():
        assert {f"    {before} --> {after}" for after in onward} <= set(lines)


@pytest.mark.parametrize("ttl_ms", [timing.MIN_LEASE_TTL_MS, timing.DEFAULT_LEASE_TTL_MS, timing.MAX_LEASE_TTL_MS])
def test_a_worker_has_stopped_before_it_is_replaced_and_renews_in_time(ttl_ms: int) -> None:
    stopped_ms = ttl_ms + timing.grace_ms(ttl_ms)
    assert timing.expiry_ms(ttl_ms) - stopped_ms == timing.margin_ms(ttl_ms) > 0
    # Two renewals in a row may fail, each after waiting as long as it may, and the third is still in time.
    assert 2 * (timing.beat_interval_ms(ttl_ms) + timing.broker_timeout_ms(ttl_ms)) <= ttl_ms


HOSTILE = [
    b"",
    b"SECRET",
    b'{"SECRET":1}',
    b"\xff\xfeSECRET",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 10_000,
    b'{"epoch":NaN,"answers":[]}',
    b'{"epoch":1e999,"answers":[]}',
    b'{"epoch":"1","answers":[]}',
    b'{"epoch":1.0,"answers":[]}',
    b'{"epoch":true,"answers":[]}',
    b'{"epoch":-1,"answers":[]}',
    b'{"epoch":' + b"9" * 400 + b',"answers":[]}',
    b'{"epoch":1,"answers":[{"kind":"SECRET"}]}',
    b'{"epoch":1,"answers":[{"SECRET":"reply"}]}',
    b'{"epoch":1,"answers":[{"kind":"reply","request_id":"SECRET\\n"}]}',
    b'{"epoch":1,"answers":[{"kind":"reply","request_id":"a","SECRET":1}]}',
    b'{"epoch":1,"epoch":"SECRET","answers":[]}',
    b'{"epoch":1,"answers":[{"kind":"notice","done":[{"task_id":"SECRET","state":"SECRET"}]}]}',
    b'{"epoch":1,"answers":[],"\\ud800":1}',
    ("{" + ",".join(f'"SECRET{number}":1' for number in range(40_000)) + "}").encode(),
]


@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_are_refused_briefly_and_never_repeated(raw: bytes) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode(MAIL, raw)
    assert "SECRET" not in str(caught.value)
    assert len(str(caught.value)) < 1_000
    assert caught.value.__suppress_context__


def test_a_message_over_the_limit_is_not_even_parsed() -> None:
    hostile = b'{"epoch":1,"answers":[],' + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}"
    with pytest.raises(PayloadTooLarge, match="over the limit"):
        decode(MAIL, hostile)
    with pytest.raises(PayloadTooLarge):
        decode(MAIL, b'{"epoch":1,"answers":[]}' + b" " * MAX_ENTRY_BYTES)


def test_the_error_says_where_the_problem_is() -> None:
    request = {"client_id": "a b", "request_id": "r", "ask": {"kind": "query", "what": "everything"}}
    with pytest.raises(MalformedMessage) as caught:
        decode(REQUEST, json.dumps(request).encode())
    assert "client_id: a name has" in str(caught.value)
    assert "ask.query.what: Input should be 'tasks'" in str(caught.value)
