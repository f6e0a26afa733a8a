"""What clients ask: submissions once per key, notices, lists, and the story of a task."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.protocol.client_messages import Assign, Cancel, Explain, Item, Query, Submit, Watch
from tenure.protocol.envelope import Requirements, Scope
from tenure.protocol.worker_messages import Cause, Progressed
from tests.scripted_fleet import EXPIRY_MS, ScriptedFleet, ScriptedWorker, envelope


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path) as fleet:
        yield fleet


def tasks(fleet: ScriptedFleet) -> int:
    ((count,),) = fleet.records.rows("SELECT COUNT(*) FROM task")
    return int(count)


# --- submissions ---------------------------------------------------------------------------------


def test_the_same_key_with_the_same_bytes_is_the_same_task(fleet: ScriptedFleet) -> None:
    first = fleet.client.ask(fleet.client.submission(envelope(), key="k")).admitted[0]
    again = fleet.connect("c2").ask(fleet.client.submission(envelope(), key="k")).admitted[0]
    assert (first.task_id, first.fresh, again.task_id, again.fresh) == (first.task_id, True, first.task_id, False)
    assert tasks(fleet) == 1


def test_the_same_key_answers_with_the_state_of_its_task(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.client.submit(envelope(), key="k")
    worker.finish(worker.claim())
    assert fleet.client.ask(fleet.client.submission(envelope(), key="k")).admitted[0].state == "SUCCEEDED"


def test_the_same_key_with_other_bytes_is_refused_and_nothing_of_the_submission_is_stored(
    fleet: ScriptedFleet,
) -> None:
    task = fleet.client.submit(envelope(), key="k")
    fresh = fleet.client.submission(envelope(), key="fresh")
    conflict = fleet.client.submission(envelope(priority=1), key="k")
    refusal = fleet.client.ask(Submit(items=fresh.items + conflict.items)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.message) == (
        "key_conflict",
        f"key 'k' was used before for another envelope (task {task})",
    )
    assert tasks(fleet) == 1


def test_a_key_twice_in_one_submission_is_one_task(fleet: ScriptedFleet) -> None:
    reply = fleet.client.ask(fleet.client.submission(envelope(), envelope(), key="k"))
    assert [admitted.fresh for admitted in reply.admitted] == [True, False]
    assert len({admitted.task_id for admitted in reply.admitted}) == 1


def test_a_key_twice_in_one_submission_for_other_bytes_is_refused(fleet: ScriptedFleet) -> None:
    refusal = fleet.client.ask(fleet.client.submission(envelope(), envelope(priority=1), key="k")).refusal
    assert (refusal and refusal.code, tasks(fleet)) == ("key_conflict", 0)


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (Item(key="k", envelope="{}"), "malformed_message"),
        (Item(key="k", envelope="x" * 70_000), "payload_too_large"),
        (Item(key="k", envelope=envelope(scope=Scope(world="other", run="r")).model_dump_json()), "usage"),
    ],
)
def test_one_envelope_that_will_not_do_refuses_the_whole_submission(
    fleet: ScriptedFleet, item: Item, code: str
) -> None:
    good = fleet.client.submission(envelope()).items
    refusal = fleet.client.ask(Submit(items=(*good, item))).refusal
    assert (refusal and refusal.code, tasks(fleet)) == (code, 0)


def test_the_envelopes_bytes_reach_the_worker_untouched(fleet: ScriptedFleet) -> None:
    raw = '{ "work": {"kind":"call", "handler":"a:b"}, "scope":{"run":"r1","world":"main"}, "capability":"cpu" }'
    worker = fleet.worker()
    fleet.client.ask(Submit(items=(Item(key="k", envelope=raw),)))
    (handout,) = worker.face.take(capabilities=["cpu"], limit=1, block_ms=0)
    assert handout.assignment is not None
    assert handout.assignment.envelope == raw.encode()


def test_a_repeated_request_is_answered_again(fleet: ScriptedFleet) -> None:
    ask = fleet.client.submission(envelope())
    fleet.client.send(ask, request_id="same")
    fleet.step()
    fleet.client.read()
    first = fleet.client.replies.pop("same")
    fleet.client.send(ask, request_id="same")
    fleet.step()
    fleet.client.read()
    again = fleet.client.replies["same"]
    assert [each.task_id for each in again.admitted] == [each.task_id for each in first.admitted]


# --- notices -------------------------------------------------------------------------------------


def test_a_watcher_is_told_at_once_of_what_is_over_and_later_of_the_rest(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    over, open_ = fleet.submit(), fleet.submit()
    worker.finish(worker.claim(), "42")
    other = fleet.connect("c2")
    other.ask(Watch(task_ids=(over, open_)))
    assert [(done.task_id, done.value) for done in other.told] == [(over, "42")]
    worker.finish(worker.claim(), "43")
    assert [(done.task_id, done.value) for done in other.read()] == [(over, "42"), (open_, "43")]


def test_a_watcher_is_told_that_a_task_is_lost_and_how_it_ends(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    task = fleet.submit()
    other = fleet.connect("c2")
    other.ask(Watch(task_ids=(task,)))
    worker.release(worker.claim(), Cause.PROCESS_DIED, started=True)
    fleet.client.decide(task, approve=False)
    assert [str(done.state) for done in other.read()] == ["LOST", "ABANDONED"]


def test_watching_an_unknown_task_is_refused(fleet: ScriptedFleet) -> None:
    refusal = fleet.client.ask(Watch(task_ids=("0" * 26,))).refusal
    assert (refusal and refusal.code) == "unknown_task"


def test_a_client_that_does_not_watch_is_told_nothing(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.client.ask(fleet.client.submission(envelope(), watch=False))
    worker.finish(worker.claim())
    assert fleet.client.read() == []


def test_the_submitter_is_told_after_a_restart_of_the_coordinator(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    fleet.restart()
    fleet.step()
    worker.finish(hand, "42")
    assert [done.value for done in fleet.client.read()] == ["42"]


# --- lists ---------------------------------------------------------------------------------------


def test_tasks_can_be_filtered_and_come_newest_first(fleet: ScriptedFleet) -> None:
    old, new = fleet.submit(), fleet.submit()
    gpu = fleet.submit(capability="gpu")
    assert [row["task_id"] for row in fleet.client.query("tasks")] == [gpu, new, old]
    assert [row["task_id"] for row in fleet.client.query("tasks", capability="cpu")] == [new, old]
    assert [row["task_id"] for row in fleet.client.query("tasks", task_id=old)] == [old]
    assert fleet.client.query("tasks", state="RUNNING") == []


def test_a_list_is_cut_at_its_limit(fleet: ScriptedFleet) -> None:
    for _ in range(3):
        fleet.submit()
    assert len(fleet.client.ask(Query(what="tasks", limit=2)).rows) == 2


def test_a_filter_that_a_list_does_not_have_is_refused(fleet: ScriptedFleet) -> None:
    refusal = fleet.client.ask(Query(what="workers", where=(("color", "red"),))).refusal
    assert (refusal and refusal.message) == "workers cannot be filtered by color"


@pytest.mark.parametrize(
    ("what", "where", "column", "expected"),
    [
        ("workers", {"state": "ACTIVE"}, "worker_id", ["w1"]),
        ("leases", {"state": "RELEASED"}, "worker_id", ["w1"]),
        ("directives", {"state": "PENDING"}, "reason", ["process_died"]),
        ("quarantine", {"reason": "stale_fence"}, "worker_id", []),
        ("events", {"kind": "worker_hello"}, "worker_id", ["w1"]),
        ("capabilities", {}, "state", ["LOST"]),
        ("status", {}, "tasks", [{"LOST": 1}]),
    ],
)
def test_every_list_answers(
    fleet: ScriptedFleet, what: str, where: dict[str, str], column: str, expected: list[object]
) -> None:
    worker = fleet.worker()
    fleet.submit()
    worker.release(worker.claim(), Cause.PROCESS_DIED, started=True)
    assert [row[column] for row in fleet.client.query(what, **where)] == expected


def test_progress_of_a_running_task_is_listed_and_forgotten_at_its_end(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    worker.report(Progressed(binding=hand.binding, cursor=1, fraction_ppm=250_000, message="a quarter"))
    (row,) = fleet.client.query("tasks")
    assert (row["progress"], row["message"]) == (0.25, "a quarter")
    worker.finish(hand)
    (row,) = fleet.client.query("tasks")
    assert (row["progress"], row["message"]) == (None, "")


def test_progress_under_another_binding_is_not_believed(fleet: ScriptedFleet) -> None:
    worker = fleet.worker()
    fleet.submit()
    lie = worker.claim().binding.model_copy(update={"nonce": "f" * 16})
    worker.report(Progressed(binding=lie, cursor=1, fraction_ppm=250_000))
    assert fleet.client.query("tasks")[0]["progress"] is None


# --- explanations --------------------------------------------------------------------------------


def delayed(fleet: ScriptedFleet, _: ScriptedWorker) -> str:
    return fleet.submit(delay_ms=5_000)


def unoffered(fleet: ScriptedFleet, _: ScriptedWorker) -> str:
    return fleet.submit(capability="gpu")


def misfit(fleet: ScriptedFleet, _: ScriptedWorker) -> str:
    return fleet.submit(requirements=Requirements(labels=(("room", "b12"),)))


def without_its_secret(fleet: ScriptedFleet, _: ScriptedWorker) -> str:
    return fleet.submit(requirements=Requirements(labels=(("secret:token", "yes"),)))


def blocked(fleet: ScriptedFleet, worker: ScriptedWorker) -> str:
    fleet.submit()
    worker.claim()
    return fleet.submit()


def running(fleet: ScriptedFleet, worker: ScriptedWorker) -> str:
    task = fleet.submit()
    worker.report(Progressed(binding=worker.claim().binding, cursor=1, fraction_ppm=500_000, message="half"))
    return task


def cancelling(fleet: ScriptedFleet, worker: ScriptedWorker) -> str:
    task = fleet.submit()
    worker.claim()
    fleet.client.cancel(task)
    return task


def lost(fleet: ScriptedFleet, worker: ScriptedWorker) -> str:
    task = fleet.submit()
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    return task


def over(fleet: ScriptedFleet, worker: ScriptedWorker) -> str:
    task = fleet.submit()
    worker.finish(worker.claim())
    return task


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (delayed, "It is QUEUED: it may not start for another 5.0 s."),
        (unoffered, "It is QUEUED: no active worker offers capability 'gpu'."),
        (misfit, "It is QUEUED: w1 lacks label room=b12."),
        (without_its_secret, "It is QUEUED: w1 has no secret token."),
        (blocked, "It is QUEUED: every slot for 'cpu' is taken."),
        (running, "It is RUNNING, 50 % done: half."),
        (
            cancelling,
            "It is CANCELLING (unconfirmed): the worker has not proved its end, and the lease is not over yet.",
        ),
        (over, "It is SUCCEEDED, which is final."),
    ],
)
def test_a_story_ends_with_where_the_task_stands_and_why(
    fleet: ScriptedFleet, make: Callable[[ScriptedFleet, ScriptedWorker], str], expected: str
) -> None:
    task = make(fleet, fleet.worker())
    assert fleet.client.explain(task)[-1] == expected


def test_the_story_of_a_lost_task_says_who_held_it_what_happened_and_what_to_do(fleet: ScriptedFleet) -> None:
    task = lost(fleet, fleet.worker())
    ((directive,),) = fleet.records.rows("SELECT directive_id FROM directive")
    why = "w1 was not heard for 12.8 s (ttl 10 s)"
    assert fleet.client.explain(task) == [
        "Submitted by ada: call tasks:double; capability cpu, run r1; nothing is repeated without asking.",
        "Attempt 1 was offered under fence 1.",
        "w1 got the lease on attempt 1 (fence 1).",
        "The lease under fence 1 expired: lease_expired.",
        f"Attempt 1 (fence 1) was lost: {why}.",
        f"Directive {directive}: attempt 2 is held for a person to decide, because {why}.",
        f"It is LOST and waits for you: `tenure directives approve {task}` runs it again, `deny` ends it.",
    ]


@pytest.mark.parametrize(
    "ask", [Explain(task_id="0" * 26), Cancel(task_ids=("0" * 26,)), Assign(task_id="0" * 26, worker_id="w1")]
)
def test_a_task_that_does_not_exist_is_said(fleet: ScriptedFleet, ask: Explain | Cancel | Assign) -> None:
    fleet.worker()
    refusal = fleet.client.ask(ask).refusal
    assert (refusal and refusal.code) == "unknown_task"


def test_a_watch_is_answered_up_to_a_size_and_the_rest_when_it_is_asked_again(fleet: ScriptedFleet) -> None:
    """Thousands of large values in one answer would fill the broker."""
    worker = fleet.worker(slots=60)
    fleet.client.submit(*[envelope() for _ in range(60)])
    hands = worker.take()
    worker.report(*[worker.claimed(hand) for hand in hands])
    for hand in hands:
        worker.finish(hand, f'"{"x" * 250_000}"')
    tasks = {hand.ticket.task_id for hand in hands}
    watcher = fleet.connect("c9")
    told: list[set[str]] = []
    for _ in range(3):
        watcher.ask(Watch(task_ids=tuple(sorted(tasks.difference(*told)))))
        told.append({done.task_id for done in watcher.read()})

    assert 0 < len(told[0]) < 60
    assert set().union(*told) == tasks
