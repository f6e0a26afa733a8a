"""Whatever a site writes into any text of any report: the coordinator goes on, starts again, and can tell the story."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure.protocol.worker_messages import Cause
from tests.scripted_fleet import Hand, ScriptedFleet, ScriptedWorker

TRAPS = (
    "[" * 4_000,
    "[" * 4_000 + "]" * 4_000,
    '{"a":' * 700 + "1" + "}" * 700,
    '{"a":' + "[" * 900 + "]" * 900 + "}",
    '{"a":"\\ud800"}',
    '{"\\udfff":1}',
    '"\\ud800"',
    '{"a":"\\u0000"}',
    "9" * 4_301,
    '{"a":' + "9" * 3_990 + "}",
    '{"a":1e999}',
    '{"a":NaN}',
    "\ud800",
    "\0",
    "\x1b[2J\u202e",
    "{",
    "-",
    "",
)
"""Each has ended some reader of JSON, numbers or texts."""
NUMBERS = (-1, 0, 2**31, 2**53 - 1, 2**53, 2**63, 10**4_299, 10**4_301)
texts = st.sampled_from(TRAPS) | st.text(max_size=40) | st.text(st.characters(categories=["Cs", "Cc"]), max_size=5)
numbers = st.sampled_from(NUMBERS)
NONCE, PLACE = "0" * 16, {"digest": "0" * 64, "size": 1}
BUNDLE = {"manifest": PLACE, "files": 1, "size": 1}
SCOPE = {"world": "main", "run": "r1"}


def frames(binding: dict[str, Any], number: int) -> dict[str, dict[str, Any]]:
    """One of each kind of event that an honest worker might send; the texts and numbers in it are then spoiled."""
    failure = {"kind": "exit_code", "message": "m", "trace": "t", "exit_code": 1}
    finished = {"kind": "finished", "binding": binding, "scope": SCOPE, "duration_ms": 1, "notes": ["n"]}
    over = {"binding": binding, "cause": "drained", "detail": "d"}
    hello = {
        "kind": "hello",
        "ordinal": 1,
        "slots": 2,
        "capabilities": ["cpu"],
        "ttl_ms": 10_000,
        "pid": 1,
        "host": "h",
    }
    return {
        "hello": hello | {"labels": [["room", "b"]], "resources": [["gpu", 1]], "version": "v", "remaining_ms": None},
        "claimed": {"kind": "claimed", "binding": binding, "after_beat": 0},
        "progressed": {
            "kind": "progressed",
            "binding": binding,
            "cursor": number,
            "fraction_ppm": 1,
            "message": "m",
            "metrics": "{}",
        },
        "checkpointed": {"kind": "checkpointed", "binding": binding, "ordinal": 1, "name": "n", "bundle": BUNDLE},
        "finished": finished | {"outcome": {"value": "1"}, "outputs": None},
        "finished with files": finished | {"outcome": {"value": "1"}, "outputs": BUNDLE},
        "failed": finished | {"outcome": {"failure": failure}, "outputs": None},
        "released": over | {"kind": "released", "started": True, "tree_gone": True},
        "executor_gone": over | {"kind": "executor_gone", "proved": True},
        "leaving": {"kind": "leaving", "gone": False},
    }


def spoiled(value: Any, place: tuple[Any, ...], by: Any) -> Any:
    """The frame with one leaf replaced."""
    if not place:
        return by
    inner = spoiled(value[place[0]], place[1:], by)
    if isinstance(value, list):
        return [inner if at == place[0] else each for at, each in enumerate(cast("list[object]", value))]
    return {**value, place[0]: inner}


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All that is not an object or a list, by place."""
    if isinstance(value, dict):
        for name, each in cast("dict[str, Any]", value).items():
            yield from leaves(each, (*place, name))
    elif isinstance(value, list):
        for at, each in enumerate(cast("list[object]", value)):
            yield from leaves(each, (*place, at))
    else:
        yield place, value


def written(event: dict[str, Any]) -> bytes:
    """A report's bytes as no worker of ours would write them: numbers of any length, halves of surrogate pairs."""
    report = {"worker_id": "w1", "generation": 1, "window": 1, "events": [event]}
    return _Digits().text(report).encode(errors="surrogatepass")


class _Digits:
    """Python writes no number of more than 4,300 digits either, so numbers are put in as texts at last."""

    def __init__(self) -> None:
        self._long: dict[str, str] = {}

    def text(self, value: Any) -> str:
        text = json.dumps(self._marked(value), ensure_ascii=False)
        for mark, digits in self._long.items():
            text = text.replace(f'"{mark}"', digits)
        return text

    def _marked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._marked(each) for name, each in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self._marked(each) for each in cast("list[object]", value)]
        if isinstance(value, int) and value >= 10**4_300:
            mark = f"long number {len(self._long)}"
            self._long[mark] = "1" + "0" * 4_301
            return mark
        return value


@contextmanager
def held() -> Generator[tuple[ScriptedFleet, ScriptedWorker, Hand]]:
    """A coordinator, and a worker of a site's that holds the lease on a task."""
    with TemporaryDirectory() as folder, ScriptedFleet(Path(folder)) as fleet:
        worker = fleet.worker()
        fleet.submit(retry={"lost": 0, "failed": 0})
        yield fleet, worker, worker.claim()


def still_well(fleet: ScriptedFleet, worker: ScriptedWorker, hand: Hand) -> None:
    """It goes on, tells everything about the task, takes the next word about it, and starts again."""
    task_id = hand.ticket.task_id
    for _ in range(2):
        assert fleet.client.explain(task_id)
        for what in ("tasks", "workers", "leases", "directives", "quarantine", "events"):
            fleet.client.query(what)
        worker.release(hand, Cause.DRAINED, started=True)
        fleet.live(1_000)
        fleet.restart()
        fleet.step()
    other = fleet.worker("w2")
    assert fleet.records.worker(other.worker_id) == "ACTIVE"


KINDS = tuple(frames({}, 1))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), kind=st.sampled_from(KINDS), text=texts, number=numbers)
def test_any_text_in_any_event_is_taken_or_refused_and_nothing_worse(
    data: st.DataObject, kind: str, text: str, number: int
) -> None:
    with held() as (fleet, worker, hand):
        event = frames(hand.binding.model_dump(mode="json"), 7)[kind]
        place, value = data.draw(st.sampled_from(list(leaves(event))))
        by = number if isinstance(value, int) and not isinstance(value, bool) else text
        worker.face.report([written(spoiled(event, place, by))])
        fleet.step()
        still_well(fleet, worker, hand)


@pytest.mark.parametrize("metrics", TRAPS, ids=range(len(TRAPS)))
def test_metrics_that_end_a_reader_end_no_coordinator(metrics: str) -> None:
    with held() as (fleet, worker, hand):
        binding = hand.binding.model_dump(mode="json")
        worker.face.report([written(spoiled(frames(binding, 7)["progressed"], ("metrics",), metrics))])
        fleet.step()
        still_well(fleet, worker, hand)
