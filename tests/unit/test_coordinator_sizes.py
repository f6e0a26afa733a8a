"""Everything that the coordinator sends fits into one entry of the wire, however much there is to say."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.broker.memory_store import START
from tenure.protocol.client_messages import Query
from tenure.protocol.envelope import Scope
from tenure.protocol.message import MAX_ENTRY_BYTES
from tenure.protocol.worker_messages import MOST_EVENTS, Finished, Outcome
from tests.scripted_fleet import RUN, WORLD, Hand, ScriptedFleet, envelope, verdicts

EMOJI = json.dumps("\N{DNA DOUBLE HELIX}" * 100_000, ensure_ascii=False)
"""400 kB on the wire, 100,002 characters."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, batch_limit=64) as fleet:
        yield fleet


def finished(hand: Hand, value: str) -> Finished:
    scope, outcome = Scope(world=WORLD, run=RUN), Outcome(value=value)
    return Finished(binding=hand.binding, scope=scope, outcome=outcome, duration_ms=1)


def test_thousands_of_orders_for_one_worker_are_split(fleet: ScriptedFleet) -> None:
    """A worker that could not read its verdicts would report the same results for ever."""
    worker = fleet.worker(slots=2_000)
    fleet.client.ask(fleet.client.submission(*[envelope(start="claimed")] * 2_000))
    fleet.step(4)
    hands = worker.take(limit=5_000)
    for hand in hands:
        hand.nonce = fleet.entropy.token(32)
    for _ in range(3):
        for at in range(0, len(hands), MOST_EVENTS):
            worker.send(*(finished(hand, "1") for hand in hands[at : at + MOST_EVENTS]))
    fleet.step()

    assert verdicts(worker) == ["accepted"] * 2_000 + ["duplicate"] * 4_000
    sizes = [len(entry.raw) for entry in worker.face.orders(after=START, block_ms=0)]
    assert max(sizes) <= MAX_ENTRY_BYTES


def test_long_results_reach_the_submitter(fleet: ScriptedFleet) -> None:
    """A character may take four bytes: two such results do not fit into one notice."""
    worker = fleet.worker(slots=2)
    fleet.client.ask(fleet.client.submission(envelope(), envelope()))
    fleet.step()
    worker.claim()
    for hand in worker.hands:
        worker.send(finished(hand, EMOJI))
    fleet.step()

    assert [done.value for done in fleet.client.read()] == [EMOJI, EMOJI]


def test_a_reply_leaves_out_rows_that_do_not_fit_and_says_so(fleet: ScriptedFleet) -> None:
    worker = fleet.worker(slots=2)
    for _ in range(2):
        fleet.submit()
        worker.finish(worker.claim(), EMOJI)
    reply = fleet.client.ask(Query(what="tasks"))

    assert len(reply.rows) == 1
    assert reply.warnings == ("only the first 1 of 2 rows fit into one reply; narrow the query",)


@pytest.mark.parametrize(
    "value",
    ["{", "[" * 100_000, "[" * 900 + "]" * 900, "1" * 5_000, "NaN", "\x00"],
    ids=["broken", "deep and broken", "deep", "huge number", "not a number", "control"],
)
def test_a_value_that_is_no_readable_json_harms_only_its_own_task(fleet: ScriptedFleet, value: str) -> None:
    """A lying worker may say anything; listing its task must not end the coordinator."""
    worker = fleet.worker()
    task = fleet.submit()
    worker.finish(worker.claim(), value)

    assert verdicts(worker) == ["accepted"]
    assert [row["value"] for row in fleet.client.query("tasks", task_id=task)] == [value]
