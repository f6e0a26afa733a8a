"""The simulation itself: histories repeat, and the checker sees what it is there to see.

`make simulate` searches, and sees to it that every fault strikes; here it is made sure that a search means something.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from tenure.broker.base import Readers, Stream
from tenure.broker.keys import Keys
from tenure.broker.memory_store import MemoryStore
from tenure.errors import StreamMissing
from tests.simulation.campaign import STARTS, Folders, Tally, quiet_logs, run_seed
from tests.simulation.checker import Checker, check
from tests.simulation.engine import Engine
from tests.simulation.executions import NORTH
from tests.simulation.groups import lose_group
from tests.simulation.history import (
    Answered,
    ArtifactRow,
    Closed,
    DirectiveRow,
    Ended,
    Fact,
    Fault,
    Judgement,
    LeaseRow,
    Outcome,
    Quiet,
    ResultRow,
    Saved,
    Started,
    Stored,
    TaskRow,
    render,
)
from tests.simulation.hosts import HostClock
from tests.simulation.liar import SITE as LIARS
from tests.simulation.network import Server
from tests.simulation.profile import KINDS, START_POINTS, WORK_POINTS
from tests.simulation.world import Plan, World

F = TypeVar("F", bound=Fact)

CALM = Plan(0, frozenset(KINDS))
"""A history without faults."""
SEARCH = Plan(0)
"""Histories with any faults."""


@pytest.fixture(scope="module")
def folders() -> Iterator[Folders]:
    quiet_logs()
    folders = Folders()
    yield folders
    folders.close()
    logging.disable(logging.NOTSET)  # other tests of this process look at logs


@pytest.fixture(scope="module")
def calm(folders: Folders) -> list[Fact]:
    facts, problems = run_seed(CALM, folders)
    assert problems == []
    return facts


def first(facts: Sequence[Fact], kind: type[F]) -> F:
    return next(fact for fact in facts if isinstance(fact, kind))


def after(facts: list[Fact], fact: Fact, *more: Fact) -> list[Fact]:
    """The history with more facts right behind one of it."""
    place = facts.index(fact) + 1
    return [*facts[:place], *more, *facts[place:]]


def test_a_seed_is_one_history(folders: Folders) -> None:
    one, _ = run_seed(Plan(21), folders)
    other, _ = run_seed(Plan(21), folders)
    assert [render(fact) for fact in one] == [render(fact) for fact in other]


def test_without_faults_every_task_that_runs_well_succeeds_in_one_attempt(calm: list[Fact]) -> None:
    failed = {fact.run for fact in calm if isinstance(fact, Ended) and fact.how != "value"}
    attempts = {fact.attempt for fact in calm if isinstance(fact, Started)}
    assert attempts == {1} or failed
    assert isinstance(calm[-1], Closed)
    assert calm[-1].settled


# --- what strikes --------------------------------------------------------------------------------


def server() -> Server:
    engine = Engine()
    clock = HostClock(engine, start_ms=0, wall_offset_ms=1, rate_ppm=0)
    return Server(engine, MemoryStore(clock), Keys("main"))


def test_a_lost_group_refuses_reads_until_the_coordinator_makes_it_again() -> None:
    one, readers = server(), Readers(("default",), ("main",))
    inbox = one.broker.keys.inbox("default")
    one.coordinator.ensure_streams(readers=readers)
    worker = one.face("default", "w1")
    worker.report([b"before"])
    assert one.coordinator.receive(readers=readers, limit=9, block_ms=0)
    assert lose_group(one.store, inbox, "inbox")
    assert not lose_group(one.store, inbox, "inbox"), "there was none to lose"
    worker.report([b"meanwhile"])
    with pytest.raises(StreamMissing):
        one.coordinator.receive(readers=readers, limit=9, block_ms=0)
    with pytest.raises(StreamMissing):
        one.coordinator.unsettled(readers=readers, limit=9)
    assert one.unread(readers)
    one.ensured(readers=readers)
    found = one.coordinator.receive(readers=readers, limit=9, block_ms=0)
    assert [each.raw for each in found] == [b"before", b"meanwhile"]


def test_a_lost_group_stays_lost_in_a_copy_of_the_broker() -> None:
    one, stream = server(), Stream("default", "cpu")
    key = one.broker.keys.assignments(stream)
    one.coordinator.ensure_streams(readers=Readers(), assignments=[stream])
    assert lose_group(one.store, key, "assignments")
    lost = one.store.stream(key)
    assert lost is not None
    assert one.coordinator.pending(stream) == []
    with pytest.raises(StreamMissing):
        lost.copy().held("w1", 1)
    with pytest.raises(StreamMissing):
        lost.copy().hand_out("w1", 1)


def test_groups_that_are_lost_are_met_and_come_back(folders: Folders) -> None:
    struck = [run_seed(Plan(seed, only=("group_lost",)), folders) for seed in range(12)]
    assert [problems for _, problems in struck if problems] == []
    met = {fact.detail for facts, _ in struck for fact in facts if isinstance(fact, Fault) and fact.kind == "no_group"}
    assert {"assignments", "inbox"} <= met


def struck(facts: Sequence[Fact], kind: str) -> list[str]:
    return [fact.detail for fact in facts if isinstance(fact, Fault) and fact.kind == kind]


@pytest.mark.parametrize("kind", ["evicted_heartbeat", "group_lost", "stream_deleted"])
def test_what_is_not_there_is_not_struck(folders: Folders, kind: str) -> None:
    world = World(CALM, folders.fresh())
    assert world.faults.broker.table()[kind]() == ""


def test_a_site_is_thrown_out_only_where_anybody_is(folders: Folders) -> None:
    for seed in range(20):
        world = World(Plan(seed, only=("site_revoked",)), folders.fresh())
        requests: list[object] = []
        world.client._ask = requests.append  # type: ignore[method-assign, assignment]
        world.faults.people.table()["site_revoked"]()
        assert len(requests) == any(seat.site == NORTH for seat in world.seats)


@pytest.mark.parametrize("site", [NORTH, LIARS])
def test_only_honest_workers_that_are_let_in_longer_void_anything(folders: Folders, site: str) -> None:
    voided: set[bool] = set()
    for seed in range(20):
        world = World(Plan(seed, only=("site_revoked", "liar")), folders.fresh())
        world.faults.people.revoked(site)
        is_honest = any(seat.site == site for seat in world.seats)
        assert is_honest or not struck(world.history.facts, "let_in_longer")
        voided.add(bool(struck(world.history.facts, "let_in_longer")))
    assert voided == ({True, False} if site == NORTH else {False})


@pytest.mark.parametrize("kind", ["coordinator_crash", "stale_coordinator"])
def test_a_coordinator_counts_as_struck_when_another_follows_it(folders: Folders, kind: str) -> None:
    followed = 0
    for seed in range(8):
        world = World(Plan(seed, only=(kind,)), folders.fresh())
        facts = world.run()
        assert len(struck(facts, kind)) == world.coordinators - 1
        followed += world.coordinators - 1
    assert followed


def test_an_agent_counts_as_struck_when_it_is_killed(folders: Folders) -> None:
    killed = 0
    for seed in range(8):
        world = World(Plan(seed, only=("agent_crash",)), folders.fresh())
        assert world.faults._table()["agent_crash"]() == ""
        crashes = len(struck(world.run(), "agent_crash"))
        assert crashes <= len(world.profile.strikes)
        killed += crashes
    assert killed


def test_a_long_run_fails_when_nothing_was_learned_of_something() -> None:
    everything = Tally(seeds=2_000)
    everything.seen.update(f"fault     {kind}" for kind in KINDS)
    everything.seen.update(f"no group  of {what}" for what in ("assignments", "inbox", "rpc"))
    everything.killed.update((*START_POINTS, *WORK_POINTS))
    everything.judged.update((what, kind, True) for what in ("executions", "pairs") for kind in STARTS)
    assert list(everything.unlearned(SEARCH)) == []
    for counter, key, said in [
        (everything.seen, "fault     twin", "twin never struck"),
        (everything.seen, "no group  of rpc", "nobody met a lost group of rpc"),
        (everything.killed, "after publish", "no coordinator was killed after publish"),
    ]:
        del counter[key]
        assert said in list(everything.unlearned(SEARCH))
    everything.judged["pairs", "exclusive", True] = 0
    assert "no pairs of exclusive tasks were judged by the rule of overlaps" in list(everything.unlearned(SEARCH))
    everything.seeds = 1_999
    assert list(everything.unlearned(SEARCH)) == ["twin never struck"]


def test_what_the_rule_of_overlaps_has_judged_is_counted(calm: list[Fact]) -> None:
    run = first(calm, Started)
    again = replace(run, run=9_999, fence=run.fence + 100)
    for void, is_judged in ((), True), ((Fault(0, "false_end"),), False):
        checker = Checker()
        checker.check([*void, *after(calm, run, again, Ended(run.at + 1, 9_999, "value", ""))])
        executions = sum(isinstance(fact, Started) for fact in calm) + 1
        counts = [sum(checker.judged[what, kind, is_judged] for kind in STARTS) for what in ("executions", "pairs")]
        assert counts[0] == executions
        assert checker.judged["pairs", run.kind, is_judged] >= 1
        assert not any(checker.judged[what, kind, not is_judged] for what in ("executions", "pairs") for kind in STARTS)


# --- what the checker sees -----------------------------------------------------------------------


def problems_with(facts: list[Fact], fact: Fact, *more: Fact) -> str:
    found = check(after(facts, fact, *more))
    assert found, "the checker saw nothing"
    return found[0]


def test_a_second_result_is_seen(calm: list[Fact]) -> None:
    result = first(calm, ResultRow)
    assert "second result" in problems_with(calm, result, replace(result, value='"another"'))


def test_a_result_under_an_old_fence_is_seen(calm: list[Fact]) -> None:
    result = first(calm, ResultRow)
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.task == result.task)
    place = calm.index(result)
    newer = replace(lease, fence=lease.fence + 100, state="OFFERED")
    found = check([*calm[:place], newer, *calm[place:]])
    assert any("stale" in problem for problem in found)


def test_an_attempt_without_a_directive_is_seen(calm: list[Fact]) -> None:
    run = first(calm, Started)
    again = replace(run, run=9_999, attempt=2)
    assert any("without an approved directive" in one for one in check(after(calm, run, again)))


def test_two_executions_at_one_time_are_seen(calm: list[Fact]) -> None:
    run = first(calm, Started)
    again = replace(run, run=9_999, fence=run.fence + 100)
    assert any("overlap" in one for one in check(after(calm, run, again, Ended(run.at + 1, 9_999, "value", "")))[1:])


def test_an_execution_without_a_grant_is_seen(calm: list[Fact]) -> None:
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.kind != "claimed")
    early = [fact for fact in calm if not (isinstance(fact, LeaseRow) and fact.state == "ACTIVE")]
    assert any("without a grant" in one for one in check(early)), run


def test_a_task_that_leaves_its_end_is_seen(calm: list[Fact]) -> None:
    over = next(fact for fact in calm if isinstance(fact, TaskRow) and fact.state == "SUCCEEDED")
    assert "SUCCEEDED to QUEUED" in problems_with(calm, over, replace(over, state="QUEUED"))


def test_a_cancelled_task_that_runs_on_is_seen(calm: list[Fact]) -> None:
    run = first(calm, Started)
    row = next(fact for fact in calm if isinstance(fact, TaskRow) and fact.task == run.task)
    assert "goes on" in problems_with(calm, run, replace(row, at=run.at, state="CANCELLED"))


def test_a_fence_that_goes_back_is_seen(calm: list[Fact]) -> None:
    result = first(calm, ResultRow)
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.task == result.task)
    older = replace(lease, fence=0, state="RELEASED")
    assert "does not grow" in problems_with(calm, result, older)


def test_a_directive_beyond_the_budget_is_seen(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    beyond = [
        DirectiveRow(row.at, row.task, number, "APPROVED", "lease_expired", "policy: the submitter's retry budget")
        for number in range(2, 8)
    ]
    assert "more repeats" in problems_with(calm, row, *beyond)


def test_an_accepted_result_that_is_not_there_is_seen(calm: list[Fact]) -> None:
    answer = next(fact for fact in calm if isinstance(fact, Answered) and fact.answer == "accepted")
    without = [fact for fact in calm if not (isinstance(fact, ResultRow) and fact.task == answer.task)]
    assert any("is not there" in one for one in check(without))


def test_a_client_that_is_told_a_lie_is_seen(calm: list[Fact]) -> None:
    told = next(fact for fact in calm if isinstance(fact, Outcome) and fact.state == "SUCCEEDED")
    assert "another value" in problems_with(calm, told, replace(told, value="made up"))
    assert "told FAILED" in problems_with(calm, told, replace(told, state="FAILED"))


def test_a_task_that_gets_stuck_is_seen(calm: list[Fact]) -> None:
    quiet = first(calm, Quiet)
    assert "stuck" in problems_with(calm, quiet, Closed(quiet.at, settled=False))


# --- what the checker sees of files --------------------------------------------------------------


def test_an_object_that_nobody_accepted_is_seen(calm: list[Fact]) -> None:
    saved = first(calm, Saved)
    assert "nobody has accepted" in problems_with(calm, saved, Stored(saved.at, "f" * 64))


def test_accepted_files_that_their_executor_never_staged_are_seen(calm: list[Fact]) -> None:
    row = next(fact for fact in calm if isinstance(fact, ArtifactRow) and fact.kind == "outputs")
    without = [fact for fact in calm if not (isinstance(fact, Saved) and fact.digest == row.digest)]
    assert any("never staged" in one for one in check(without))


def test_accepted_files_that_are_lost_are_seen(calm: list[Fact]) -> None:
    row = next(fact for fact in calm if isinstance(fact, ArtifactRow) and fact.kind == "outputs")
    without = [fact for fact in calm if not (isinstance(fact, Stored) and fact.digest == row.digest)]
    assert any("not in the store" in one for one in check(without))


def test_a_checkpoint_under_an_old_fence_is_seen(calm: list[Fact]) -> None:
    row = next(fact for fact in calm if isinstance(fact, ArtifactRow) and fact.kind == "checkpoint")
    lease = next(
        fact for fact in calm if isinstance(fact, LeaseRow) and (fact.task, fact.fence) == (row.task, row.fence)
    )
    place = calm.index(row)
    over = replace(lease, state="EXPIRED", nonce=row.nonce)
    assert any("not the live one" in one for one in check([*calm[:place], over, *calm[place:]]))


def test_an_attempt_that_starts_elsewhere_than_from_the_newest_checkpoint_is_seen(calm: list[Fact]) -> None:
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.checkpoint)
    place = calm.index(run)
    elsewhere = replace(run, checkpoint="")
    assert any("starts from nothing" in one for one in check([*calm[:place], elsewhere, *calm[place + 1 :]]))


def test_an_adoption_over_a_completed_lease_is_seen(calm: list[Fact]) -> None:
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.state == "COMPLETED")
    adoption = Judgement(lease.at, "d", "q", lease.task, "adopt", lease.fence + 100, lease.fence, lease.nonce)
    assert "was adopted over" in problems_with(calm, lease, adoption)
