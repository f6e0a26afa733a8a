"""What the checker sees besides what `tests/property/test_simulation.py` shows it: each harm is made up, and found."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.simulation.campaign import Folders, quiet_logs, run_seed
from tests.simulation.checker import FALSE_DEATHS, check
from tests.simulation.checker_people import PeopleChecker
from tests.simulation.executions import LIAR
from tests.simulation.history import (
    ArtifactRow,
    DirectiveRow,
    Ended,
    Fact,
    Fault,
    Judged,
    Judgement,
    LeaseRow,
    Lie,
    Missing,
    Outcome,
    ResultRow,
    Ruled,
    Saved,
    SiteRow,
    Started,
    Stored,
    Submitted,
    TaskRow,
)
from tests.simulation.profile import KINDS
from tests.simulation.world import Plan

F = TypeVar("F", bound=Fact)
BY_POLICY = "policy: the submitter's retry budget"


@pytest.fixture(scope="module")
def calm() -> Iterator[list[Fact]]:
    """A history without faults."""
    quiet_logs()
    folders = Folders()
    facts, problems = run_seed(Plan(6, frozenset(KINDS)), folders)
    assert problems == []
    yield facts
    folders.close()
    logging.disable(logging.NOTSET)  # other tests of this process look at logs


def first(facts: Sequence[Fact], kind: type[F]) -> F:
    return next(fact for fact in facts if isinstance(fact, kind))


def good_end(facts: Sequence[Fact]) -> tuple[ResultRow, TaskRow, Ended]:
    """A result that says a value, the row of its task after it, and the end of the execution that it came from."""
    result = next(fact for fact in facts if isinstance(fact, ResultRow) and not fact.is_failure)
    over = next(
        fact for fact in facts if isinstance(fact, TaskRow) and (fact.task, fact.state) == (result.task, "SUCCEEDED")
    )
    ended = next(fact for fact in facts if isinstance(fact, Ended) and fact.value == result.value)
    return result, over, ended


def key_of(facts: Sequence[Fact], task: str) -> str:
    return next(fact.key for fact in facts if isinstance(fact, TaskRow) and fact.task == task)


def found(facts: Sequence[Fact], words: str) -> bool:
    return any(words in problem for problem in check(facts))


def after(facts: list[Fact], fact: Fact, *more: Fact) -> list[Fact]:
    place = facts.index(fact) + 1
    return [*facts[:place], *more, *facts[place:]]


def with_(facts: list[Fact], old: Fact, new: Fact) -> list[Fact]:
    return [new if fact is old else fact for fact in facts]


def test_an_attempt_that_runs_again_is_seen_also_when_the_first_run_has_ended(calm: list[Fact]) -> None:
    _, _, ended = good_end(calm)
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.run == ended.run)
    again = replace(run, at=ended.at, run=9_999), Ended(ended.at, 9_999, "value", "")
    assert found(after(calm, ended, *again), "are one attempt")


def test_what_goes_on_under_a_lease_that_is_over_is_seen_before_anybody_replaces_it(calm: list[Fact]) -> None:
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.kind == "granted")
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.nonce == run.nonce)
    expired = replace(lease, at=run.at, state="EXPIRED", cause="lease_expired")
    assert found(after(calm, run, expired), f"EXPIRED while run {run.run} goes on")
    assert found(after(calm, lease, replace(expired, at=lease.at)), "goes on under a lease that is EXPIRED")


def test_a_loss_that_makes_a_task_failed_is_seen(calm: list[Fact]) -> None:
    result, over, _ = good_end(calm)
    without = [fact for fact in calm if fact is not result]
    assert found(with_(without, over, replace(over, state="FAILED")), "is FAILED without a result that says so")
    assert found(with_(calm, over, replace(over, state="FAILED")), "is FAILED without a result that says so")
    assert found(with_(without, over, replace(over, state="ABANDONED")), "nobody has said so")


def test_a_value_that_nobody_computed_is_seen(calm: list[Fact]) -> None:
    result, _, ended = good_end(calm)
    assert found(with_(calm, result, replace(result, value='"run 9999"')), "is not what the holder produced")
    assert found(with_(calm, result, replace(result, value='"something else"')), "is not what the holder produced")
    assert found(with_(calm, ended, replace(ended, how="killed", value="")), "is not what the holder produced")


def test_a_run_that_was_ended_from_outside_and_failed_its_task_is_seen(calm: list[Fact]) -> None:
    result, _, ended = good_end(calm)
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.run == ended.run)
    asked = next(fact for fact in calm if isinstance(fact, Submitted) and fact.key == key_of(calm, run.task))
    words, lasted_ms = "is not what the holder produced", ended.at - run.at
    for how in ("killed", "died", "cancelled"):
        stopped = with_(calm, ended, replace(ended, how=how, value=""))
        timeout = with_(stopped, result, replace(result, value='{"kind": "timeout", "message": ""}'))
        other = with_(stopped, result, replace(result, value='{"kind": "signal", "message": ""}'))
        assert found(timeout, words)
        assert found(with_(timeout, asked, replace(asked, timeout_ms=2 * lasted_ms)), words)
        assert not found(with_(timeout, asked, replace(asked, timeout_ms=lasted_ms)), words)
        assert found(with_(other, asked, replace(asked, timeout_ms=lasted_ms)), words)


def test_files_that_were_lost_excuse_no_run_that_was_ended_from_outside(calm: list[Fact]) -> None:
    result, _, ended = good_end(calm)
    without_files = replace(result, value='{"kind": "outputs_not_stored", "message": ""}')
    lost = [Fault(0, "store_away"), *with_(calm, result, without_files)]
    assert not found(lost, "is not what the holder produced")
    assert found(with_(lost, ended, replace(ended, how="killed", value="")), "is not what the holder produced")


def test_an_accepted_lie_is_seen(calm: list[Fact]) -> None:
    result, _, _ = good_end(calm)
    lie = Lie(result.at, '"lie 1"', result.worker, result.task, result.fence, result.nonce, "")
    lied = with_(calm, result, replace(result, value=lie.value))
    assert found([lie, *lied], f"was accepted from {result.worker}")


def test_a_lie_of_the_holder_is_seen_by_what_is_wrong_in_it(calm: list[Fact]) -> None:
    result, _, _ = good_end(calm)
    mine = [
        replace(fact, worker=LIAR) if isinstance(fact, LeaseRow | ResultRow) and fact.task == result.task else fact
        for fact in calm
    ]
    lied = [
        replace(fact, value='"lie 1"') if isinstance(fact, ResultRow) and fact.task == result.task else fact
        for fact in mine
    ]
    for wrong in ("digest", "attempt", "world", "run"):
        lie = Lie(0, '"lie 1"', LIAR, result.task, result.fence, result.nonce, wrong)
        assert found([lie, *lied], f"wrong in {wrong}")


def test_a_lie_about_files_fails_only_what_was_said_truly_but_for_them(calm: list[Fact]) -> None:
    result, _, _ = good_end(calm)
    damaged = '{"kind": "outputs_damaged", "message": ""}'
    told: list[Fact] = []
    for fact in calm:
        match fact:
            case LeaseRow() if fact.task == result.task:
                told.append(replace(fact, worker=LIAR))
            case ResultRow() if fact.task == result.task:
                told.append(replace(fact, worker=LIAR, value=damaged))
            case _:
                told.append(fact)
    lie = Lie(0, '"lie 1"', LIAR, result.task, result.fence, result.nonce, "")
    missing = Missing(0, result.task, result.fence, result.nonce)
    words = f"was accepted from {LIAR}"
    assert not found([lie, missing, *told], words)
    assert found([lie, *told], words)
    assert found([lie, replace(missing, nonce="another"), *told], words)
    for wrong in (replace(lie, wrong="digest"), replace(lie, nonce="another"), replace(lie, worker="w1")):
        assert found([wrong, missing, *told], words)


def test_files_that_a_liar_did_not_stage_are_seen_unless_the_store_had_them(calm: list[Fact]) -> None:
    done = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.state == "COMPLETED")
    lied = replace(done, worker=LIAR)
    files = ArtifactRow(done.at, done.task, done.fence, "outputs", 0, "ACCEPTED", "d1", done.fence, done.nonce)
    words = "that its executor never staged"
    told = with_(calm, done, lied)
    assert found(after(told, lied, files), words)
    assert found(after(told, lied, Saved(done.at, done.task, done.fence, "another", "d1"), files), words)
    assert not found(after(told, lied, Saved(done.at, done.task, done.fence, done.nonce, "d1"), files), words)
    assert not found(after(told, lied, Stored(done.at, "d1"), files), words)
    assert found(after(calm, done, Stored(done.at, "d1"), files), words)


def test_a_lease_that_leaves_its_site_is_seen(calm: list[Fact]) -> None:
    bound = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.state == "ACTIVE")
    stolen = replace(bound, worker=LIAR, nonce="stolen")
    assert found(with_(calm, bound, stolen), f"of site {bound.site} was bound to {LIAR}")
    assert found(after(calm, bound, replace(bound, site="elsewhere")), "went from site")


def test_what_a_revoked_site_is_given_or_completes_is_seen(calm: list[Fact]) -> None:
    offered = first(calm, LeaseRow)
    revoked = SiteRow(0, offered.site, "REVOKED")
    assert found([revoked, *calm], f"is OFFERED at {offered.site}, which was revoked")
    done = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.state == "COMPLETED")
    late = [fact if fact is not done else revoked for fact in calm]
    assert found(after(late, revoked, done), f"is COMPLETED at {done.site}, which was revoked")


def test_a_run_that_a_revoked_site_has_lost_may_go_on_but_not_beside_another(calm: list[Fact]) -> None:
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.kind == "granted")
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.nonce == run.nonce)
    lost = replace(lease, at=run.at, state="RELEASED", cause="site_revoked")
    ended = next(fact for fact in calm if isinstance(fact, Ended) and fact.run == run.run)
    beside = replace(run, at=ended.at - 1, run=9_999), Ended(ended.at, 9_999, "value", "")
    told = after(calm, run, lost)
    assert not found(told, f"while run {run.run} goes on")
    assert found(after(told, lost, *beside), "overlap")
    ttl_ms = next(fact.ttl_ms for fact in calm if isinstance(fact, Submitted) and fact.key == key_of(calm, run.task))
    late = f"run {run.run} goes on after"
    assert not found(with_(told, ended, replace(ended, at=run.at + ttl_ms)), late)
    too_late = with_(told, ended, replace(ended, at=run.at + 2 * ttl_ms + 1_000))
    assert found(too_late, late)
    assert not found([Fault(0, "let_in_longer"), *too_late], late)


def test_a_task_that_is_cancelled_while_a_revoked_site_runs_it_is_seen(calm: list[Fact]) -> None:
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.kind == "granted")
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.nonce == run.nonce)
    lost = replace(lease, at=run.at, state="RELEASED", cause="site_revoked")
    cancelled = TaskRow(run.at, run.task, key_of(calm, run.task), "CANCELLED", 1, 0, "d1")
    assert found(after(calm, run, lost, cancelled), f"is CANCELLED while run {run.run} goes on")


def test_a_directive_that_nobody_gave_is_seen(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    person = DirectiveRow(row.at, row.task, 2, "APPROVED", "lease_expired", "ada")
    assert found(after(calm, row, person), "nobody has APPROVED")
    assert found(after(calm, row, replace(person, by="")), "does not say why, or by whom")
    assert found(after(calm, row, replace(person, reason="failed_exception", by=BY_POLICY)), "does not follow on")


def test_a_submission_that_is_taken_twice_is_seen(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    assert found(after(calm, row, replace(row, task="another")), "taken twice")


def test_a_task_that_becomes_another_one_is_seen(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    assert found(after(calm, row, replace(row, digest="another")), "has become another one")


def test_a_lease_that_is_offered_again_is_seen(calm: list[Fact]) -> None:
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.state == "ACTIVE")
    assert found(after(calm, lease, replace(lease, state="OFFERED")), "is offered again")


def test_a_fault_excuses_nothing_that_happened_before_it(calm: list[Fact]) -> None:
    kinds = {fact.key: fact.kind for fact in calm if isinstance(fact, Submitted)}
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.kind == "granted")
    again = replace(run, run=9_999), Ended(run.at + 1, 9_999, "value", "")
    twice = after(calm, run, *again)
    assert "granted" in kinds.values()
    assert found([*twice[:-1], Fault(twice[-1].at, "split"), twice[-1]], "overlap")
    assert not found([Fault(0, "split"), *twice], "overlap")


def test_a_broker_that_loses_renewals_does_not_excuse_an_attempt_that_runs_again(calm: list[Fact]) -> None:
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.kind == "granted")
    twice = after(calm, run, replace(run, run=9_999), Ended(run.at + 1, 9_999, "value", ""))
    assert found([Fault(0, "split"), Fault(0, "twin"), *twice], "are one attempt")
    assert not found([Fault(0, "false_end"), *twice], "are one attempt")


def test_one_ruling_allows_one_attempt(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    second = DirectiveRow(row.at, row.task, 2, "APPROVED", "lease_expired", "ada")
    third = replace(second, next_attempt=3)
    ruled = Ruled(row.at, row.task, "ada", approve=True)
    assert not found(after(calm, row, ruled, second), "nobody has")
    assert found(after(calm, row, ruled, second, third), "nobody has APPROVED attempt 3")
    assert not found(after(calm, row, ruled, ruled, second, third), "nobody has")
    assert found(after(calm, row, ruled, replace(second, state="DENIED")), "nobody has DENIED attempt 2")


def test_a_ruling_that_is_recorded_in_anothers_name_is_seen(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    approved = DirectiveRow(row.at, row.task, 2, "APPROVED", "lease_expired", "grace")
    ruled = Ruled(row.at, row.task, "ada", approve=True)
    assert found(after(calm, row, ruled, approved), "nobody has APPROVED attempt 2, but it says grace")
    assert not found(after(calm, row, ruled, replace(ruled, by="grace"), approved), "nobody has")


def test_an_adoption_that_is_recorded_in_anothers_name_is_seen(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    asked = Judged(row.at, "q1", "ada", "adopt")
    adopted = Judgement(row.at, "d1", "q1", row.task, "adopt", 90, 1, "n1", "ada")
    denied = DirectiveRow(row.at, row.task, 2, "DENIED", "lease_expired", "ada")
    words = "has not asked to adopt"
    assert not found(after(calm, row, asked, adopted, denied), words)
    assert not found(after(calm, row, asked, adopted, denied), "is DENIED by")
    for wrong in (replace(asked, by="grace"), replace(asked, action="drop"), replace(asked, quarantine="q2")):
        assert found(after(calm, row, wrong, adopted), words)
    assert found(after(calm, row, asked, adopted, replace(denied, by="grace")), "is DENIED by grace, who adopted")
    assert found(after(calm, row, replace(asked, action="drop"), replace(adopted, action="refuse")), words)
    assert not found(after(calm, row, replace(adopted, action="expire", by="policy: retention")), words)


def test_a_ruling_that_names_a_directive_is_about_no_other(calm: list[Fact]) -> None:
    row = first(calm, TaskRow)
    second = DirectiveRow(row.at, row.task, 2, "APPROVED", "lease_expired", "ada")
    third = replace(second, next_attempt=3)
    named, whichever = (
        Ruled(row.at, row.task, "ada", approve=True, next_attempt=2),
        Ruled(row.at, row.task, "ada", approve=True),
    )
    assert found(after(calm, row, named, third), "nobody has APPROVED attempt 3")
    assert not found(after(calm, row, whichever, named, second, third), "nobody has")


def test_a_client_that_is_told_of_a_loss_is_seen(calm: list[Fact]) -> None:
    told = first(calm, Outcome)
    assert found(with_(calm, told, replace(told, state="LOST", value="")), "told LOST")


def test_a_client_that_is_told_another_failure_is_seen() -> None:
    task = TaskRow(1, "t1", "k1", "FAILED", 0, 0, "d1")
    failed = ResultRow(1, "t1", 1, 1, "w1", "n1", '{"message": "it broke"}', final=True)
    told = Outcome(2, "k1", "t1", "FAILED", "task t1 failed: it broke")
    assert outcome_problems(told, task, failed) == []
    assert outcome_problems(replace(told, value="task t1 failed: it broke down"), task, failed)
    assert outcome_problems(replace(told, value=""), task, failed)


def outcome_problems(told: Outcome, task: TaskRow, result: ResultRow) -> list[str]:
    problems: list[str] = []
    checker = PeopleChecker(lambda _, text: problems.append(text))
    checker.see(told)
    checker.check_outcomes({task.task: task}, {task.task: result})
    return problems


@pytest.mark.parametrize("cause", sorted(FALSE_DEATHS))
def test_a_false_death_is_seen_where_nothing_had_gone_wrong(calm: list[Fact], cause: str) -> None:
    run = next(fact for fact in calm if isinstance(fact, Started) and fact.kind == "granted")
    lease = next(fact for fact in calm if isinstance(fact, LeaseRow) and fact.nonce == run.nonce)
    lost = replace(lease, fence=lease.fence + 100, state="RELEASED", cause=cause)
    assert found([*calm[:-1], lost, calm[-1]], f"is over ({cause}), and nothing had gone wrong")
    assert not found([Fault(0, "partition"), *calm[:-1], lost, calm[-1]], "nothing had gone wrong")


def test_a_history_without_an_end_is_seen(calm: list[Fact]) -> None:
    assert found(calm[:-1], "has no end")
