"""The worker's core: claiming, starting, reporting."""

import pytest

from tenure.broker.base import EntryId, Handout
from tenure.protocol.assignment import Assignment
from tenure.protocol.control_messages import Granted, Judged, Registered, Verdict
from tenure.protocol.envelope import encode
from tenure.protocol.worker_messages import (
    Binding,
    Cause,
    Claimed,
    FailureKind,
    Finished,
    Hello,
    Outcome,
    Progressed,
    Released,
)
from tenure.workers.actions import CancelCall, EndTree, Forget, StartCommand, Tell
from tenure.workers.inputs import CallEnded, DrainAsked, HandlerSeen, ProgressMade, Reconnected, Restored, Taken
from tests.fixtures_worker_core import SCOPE, Core, granted, program, quick


def test_a_granted_task_starts_only_on_its_grant() -> None:
    core = Core()
    (ticket,) = core.take(granted())
    assert core.seen.started() == []
    assert [claim.binding.fence for claim in core.seen.told(Claimed)] == [ticket.fence]
    core.orders.grant(ticket)
    assert core.seen.started() == [ticket.fence]


def test_a_grant_for_another_nonce_starts_nothing() -> None:
    """It is for another executor of the same assignment: the one before this agent, or a copy of it elsewhere."""
    core = Core()
    (ticket,) = core.take(granted())
    core.orders.order(Granted(task_id=ticket.task_id, fence=ticket.fence, nonce="0" * 32))
    assert core.seen.started() == []
    assert core.seen.held() == {ticket.fence: "claimed"}
    core.orders.grant(ticket)
    assert core.seen.started() == [ticket.fence]


def test_a_repeated_grant_starts_nothing_again() -> None:
    core = Core()
    (ticket,) = core.take(granted())
    core.orders.grant(ticket)
    core.orders.grant(ticket)
    assert core.seen.started() == [ticket.fence]


def test_a_claimed_task_starts_at_once_and_its_quick_result_implies_the_claim() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    assert core.seen.started() == [ticket.fence]
    core.end(ticket)
    core.pass_ms(1_000)
    assert core.seen.told(Claimed) == []
    assert len(core.seen.finished(ticket)) == 1


def test_a_claimed_task_that_runs_on_is_claimed_once() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    core.pass_ms(5_000)
    assert [claim.binding.fence for claim in core.seen.told(Claimed)] == [ticket.fence]


@pytest.mark.parametrize(("age_ms", "starts"), [(499, True), (500, False)])
def test_a_claimed_task_whose_read_is_old_asks_first(age_ms: int, *, starts: bool) -> None:
    core = Core()
    (ticket,) = core.take(quick(lease_ttl_ms=1_000), age_ms=age_ms)
    assert (core.seen.started() == [ticket.fence]) is starts
    assert bool(core.seen.told(Claimed)) is not starts


def test_a_claimed_task_that_had_been_delivered_before_asks_first() -> None:
    core = Core()
    (ticket,) = core.take(quick(), again=True)
    assert core.seen.started() == []
    core.orders.grant(ticket)
    assert core.seen.started() == [ticket.fence]


def test_what_a_dead_agent_may_have_started_is_given_back_as_started() -> None:
    core = Core(generation=2)
    claimed, asked = core.take(quick(), granted(), again=True, inherited=True)
    (release,) = core.seen.released(claimed)
    assert (release.cause, release.started, release.tree_gone) == (Cause.AGENT_RESTARTED, True, True)
    assert [claim.binding.fence for claim in core.seen.told(Claimed)] == [asked.fence]


def test_everything_is_listed_from_the_moment_it_is_read_until_its_verdict() -> None:
    core = Core()
    running, waiting = core.take(quick(), granted())
    assert core.seen.held() == {running.fence: "running", waiting.fence: "claimed"}
    core.end(running)
    assert core.seen.held() == {running.fence: "finished", waiting.fence: "claimed"}
    core.orders.judge(running)
    assert core.seen.held() == {waiting.fence: "claimed"}
    assert core.seen.all(Forget) == [Forget(running.task_id, running.fence)]


def test_a_claim_names_the_last_heartbeat_before_it() -> None:
    core = Core()
    core.beat()
    newest = core.beat()
    core.take(granted())
    assert core.seen.told(Claimed)[0].after_beat == newest


def test_repeated_handouts_start_nothing_before_and_after_the_verdict() -> None:
    core = Core()
    envelope = quick()
    ticket = core.ticket(envelope)
    for _ in range(2):
        core.hand_out([ticket], [envelope])
    core.end(ticket)
    core.hand_out([ticket], [envelope])
    core.orders.judge(ticket)
    core.hand_out([ticket], [envelope])
    assert core.seen.started() == [ticket.fence]
    assert core.seen.held() == {}


@pytest.mark.parametrize("start", ["granted", "claimed"])
@pytest.mark.parametrize("answer", ["judged", "refused"])
def test_what_was_let_go_before_it_started_may_be_taken_again_and_asks_first(start: str, answer: str) -> None:
    """The coordinator may have had to offer it again under its fence, and nobody else may be there."""
    core = Core()
    envelope = granted() if start == "granted" else quick()
    ticket = core.ticket(envelope)
    core.hand_out([ticket], [envelope], again=True)
    if answer == "judged":
        core.feed(DrainAsked(at_once=False))
        core.orders.judge(ticket)
        core.claims._intake.closed = False
    else:
        core.orders.refuse(ticket)
    assert core.seen.held() == {}
    core.hand_out([ticket], [envelope])
    assert core.seen.held() == {ticket.fence: "claimed"}
    assert core.seen.started() == []
    core.orders.grant(ticket)
    assert core.seen.started() == [ticket.fence]


def test_what_a_replaced_coordinator_sends_asks_first() -> None:
    """A late copy may name an attempt that somebody has run since."""
    core = Core()
    late, timely = core.ticket(quick(), epoch=1), core.ticket(quick(), epoch=2)
    core.orders.order(epoch=2)
    core.hand_out([late, timely], [quick(), quick()])
    assert core.seen.started() == [timely.fence]
    assert [claim.binding.fence for claim in core.seen.told(Claimed)] == [late.fence]


def test_a_tampered_envelope_is_refused_and_never_opened() -> None:
    core = Core()
    ticket = core.ticket(quick())
    raw = encode(quick(label="other"))
    core.feed(Taken([Handout(EntryId(1, 1), Assignment(ticket=ticket, envelope=raw))], core.now_ms))
    (release,) = core.seen.released(ticket)
    assert (release.cause, release.started, release.tree_gone) == (Cause.REFUSED, False, True)
    assert core.seen.started() == []


def test_an_envelope_that_is_none_is_refused() -> None:
    from tenure.protocol.envelope import digest

    core = Core()
    raw = b'{"v":1}'
    ticket = core.ticket(quick(), digest=digest(raw))
    core.feed(Taken([Handout(EntryId(1, 1), Assignment(ticket=ticket, envelope=raw))], core.now_ms))
    assert core.seen.released(ticket)[0].cause is Cause.REFUSED


def test_an_unreadable_entry_is_counted_and_passed_over() -> None:
    core = Core()
    core.feed(Taken([Handout(EntryId(1, 1), None)], core.now_ms))
    assert core.claims.counts() == {"unreadable": 1}


def test_a_refused_claim_is_dropped() -> None:
    core = Core()
    (ticket,) = core.take(granted())
    core.orders.refuse(ticket)
    assert core.seen.held() == {}
    core.orders.grant(ticket)
    assert core.seen.started() == []


def test_a_refused_claim_of_a_running_task_ends_it() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    core.orders.refuse(ticket)
    core.recalled(0)
    assert core.seen.all(EndTree)
    core.tree_ended(0)
    assert core.seen.released(ticket)[0].cause is Cause.CANCELLED


def test_a_newer_assignment_of_a_task_stops_the_older_and_waits_for_its_end() -> None:
    core = Core(slots=2)
    envelope = quick()
    old = core.ticket(envelope)
    core.hand_out([old], [envelope])
    new = core.ticket(envelope, task_id=old.task_id)
    core.hand_out([new], [envelope])
    assert core.seen.started() == [old.fence]
    core.recalled(0)
    core.tree_ended(0)
    core.pass_ms(100)
    assert core.seen.started() == [old.fence, new.fence]
    assert core.seen.released(old)[0].started


def test_an_older_assignment_of_a_task_is_ignored() -> None:
    core = Core(slots=2)
    envelope = quick()
    old, new = core.ticket(envelope), core.ticket(envelope)
    new = new.model_copy(update={"task_id": old.task_id})
    core.hand_out([new], [envelope])
    core.hand_out([old], [envelope])
    assert core.seen.started() == [new.fence]
    assert core.seen.held() == {new.fence: "running"}


def test_unanswered_claims_are_repeated_with_the_same_nonce_and_growing_pauses() -> None:
    core = Core()
    core.take(granted())
    core.pass_ms(20_000)
    claims = core.seen.told(Claimed)
    assert 3 <= len(claims) <= 6
    assert len({claim.binding.nonce for claim in claims}) == 1


def test_unanswered_results_are_repeated_and_kept_only_once() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    core.end(ticket)
    core.pass_ms(20_000)
    tells = [action for action in core.seen.all(Tell) if isinstance(action.event, Finished)]
    assert len(tells) >= 3
    assert [tell.keep for tell in tells] == [True] + [False] * (len(tells) - 1)


def test_after_a_reconnect_everything_unanswered_is_told_at_once() -> None:
    core = Core(slots=2)
    done, asked = core.take(quick(), granted())
    core.end(done)
    core.orders.register()
    core.actions.clear()
    core.feed(Reconnected())
    assert [event.binding.fence for event in core.seen.told(Finished)] == [done.fence]
    assert [event.binding.fence for event in core.seen.told(Claimed)] == [asked.fence]
    assert len(core.seen.told(Hello)) == 1


def test_the_hello_lists_what_is_held_and_is_repeated_until_it_is_taken() -> None:
    core = Core(registered=False)
    core.collect()
    (ticket,) = core.take(quick())
    core.pass_ms(10_000)
    hellos = core.seen.told(Hello)
    assert len(hellos) >= 3
    assert [held.fence for held in hellos[-1].held] == [ticket.fence]
    core.orders.register()
    core.actions.clear()
    core.pass_ms(30_000)
    assert core.seen.told(Hello) == []


def test_a_task_starts_on_its_claim_only_while_the_coordinator_knows_the_worker() -> None:
    """A broker that lost its newest writes may hand out again what somebody runs.

    The answer to a hello proves that the coordinator has looked the broker over.
    """
    core = Core(slots=3)
    core.feed(Reconnected())
    (asks,) = core.take(quick())
    assert core.seen.started() == []
    core.orders.register()
    (starts,) = core.take(quick())
    assert core.seen.started() == [starts.fence]
    core.end(starts)
    core.orders.grant(asks)
    assert core.seen.started() == [starts.fence, asks.fence]


def test_an_answer_to_an_earlier_hello_is_not_the_answer_to_this_one() -> None:
    core = Core()
    core.feed(Reconnected())
    core.orders.order(Registered(generation=1, ordinal=core.ordinal - 1))
    core.take(quick())
    assert core.seen.started() == []


def test_a_worker_that_is_not_echoed_for_long_says_hello_again() -> None:
    core = Core(ttl_ms=3_000)
    for _ in range(10):
        core.pass_ms(1_000)
        core.beat()
    assert core.seen.told(Hello) == []
    for _ in range(7):
        core.pass_ms(1_000)
        core.beat(echoed=False)
    assert len(core.seen.told(Hello)) == 1


def test_orders_of_a_replaced_coordinator_are_ignored() -> None:
    core = Core()
    (ticket,) = core.take(granted())
    core.epoch = 3
    core.orders.register()
    core.epoch = 2
    core.orders.grant(ticket)
    assert core.seen.started() == []


def test_a_verdict_for_another_nonce_changes_nothing() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    core.end(ticket)
    core.orders.order(Judged(task_id=ticket.task_id, fence=ticket.fence, nonce="0" * 32, verdict=Verdict.REJECTED))
    assert core.seen.held() == {ticket.fence: "finished"}


def test_spooled_reports_are_held_and_told_again() -> None:
    core = Core(generation=2)
    binding = Binding(task_id="0" * 26, attempt=1, fence=7, digest="a" * 64, nonce="b" * 32)
    report = Finished(binding=binding, scope=SCOPE, outcome=Outcome(value="1"), duration_ms=5)
    core.feed(Restored([report, report]))
    assert core.seen.held() == {7: "finished"}
    core.orders.register()
    assert core.seen.told(Finished) == [report]
    core.orders.order(Judged(task_id="0" * 26, fence=7, nonce="b" * 32, verdict=Verdict.ACCEPTED))
    assert core.seen.held() == {}


def test_progress_is_told_in_rounds_with_a_cursor_that_grows_by_one() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    call = core.seen.start_of(ticket).call
    for fraction in (100_000, 200_000, 300_000):
        core.feed(ProgressMade(0, call, fraction, ""))
    core.pass_ms(200)
    core.feed(ProgressMade(0, call, 400_000, "on"))
    core.feed(ProgressMade(0, call + 1, 500_000, "nobody's"))
    core.pass_ms(200)
    told = [(event.cursor, event.fraction_ppm) for event in core.seen.told(Progressed)]
    assert told == [(1, 300_000), (2, 400_000)]


def test_a_command_runs_alone_and_its_outcome_is_reported() -> None:
    core = Core()
    first, second = core.take(program(), program())
    assert core.seen.started() == [first.fence]
    assert isinstance(core.seen.starts()[0], StartCommand)
    core.tree_ended(0, outcome=Outcome(value='"x"'), duration_ms=20)
    assert core.seen.finished(first)[0].outcome.value == '"x"'
    assert core.seen.started() == [first.fence, second.fence]


def test_async_calls_run_side_by_side_in_one_slot_up_to_the_number_of_slots() -> None:
    core = Core(slots=3)
    (first,) = core.take(quick(handler="m:nap"))
    core.feed(HandlerSeen(0, "m:nap", is_async=True))
    rest = core.take(*[quick(handler="m:nap")] * 4)
    assert core.seen.started() == [first.fence, rest[0].fence, rest[1].fence]
    assert {start.slot for start in core.seen.starts()} == {0}
    core.end(first)
    assert len(core.seen.started()) == 4


def test_a_cancelled_async_call_is_cancelled_alone_and_the_tree_only_when_it_does_not_obey() -> None:
    core = Core(slots=3)
    (first,) = core.take(quick(handler="m:nap"))
    core.feed(HandlerSeen(0, "m:nap", is_async=True))
    obeys, deaf, third = *core.take(*[quick(handler="m:nap")] * 2), first
    core.orders.stop(obeys)
    core.orders.stop(deaf)
    assert [action.call for action in core.seen.all(CancelCall)] == [core.seen.start_of(t).call for t in (obeys, deaf)]
    core.feed(CallEnded(0, core.seen.start_of(obeys).call, None, 3))
    assert core.seen.released(obeys)[0].cause is Cause.CANCELLED
    assert not core.seen.all(EndTree)
    core.pass_ms(3_000)
    assert core.seen.all(EndTree)
    core.tree_ended(0)
    assert core.seen.released(deaf)[0].cause is Cause.CANCELLED
    assert core.seen.released(third)[0].cause is Cause.COLLATERAL


def test_a_timeout_is_a_failure_of_the_task() -> None:
    core = Core()
    (ticket,) = core.take(quick(timeout_ms=500))
    core.pass_ms(450)
    assert core.seen.recalls() == []
    core.pass_ms(200)
    core.recalled(0)
    core.tree_ended(0)
    failure = core.seen.finished(ticket)[0].outcome.failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


def test_a_timeout_of_a_call_that_had_not_begun_counts_from_its_next_start() -> None:
    core = Core()
    (ticket,) = core.take(quick(timeout_ms=500))
    core.pass_ms(700)
    core.recalled(0, ticket)
    assert core.seen.started() == [ticket.fence, ticket.fence]
    core.end(ticket)
    assert core.seen.finished(ticket)[0].outcome.failure is None
    assert core.seen.told(Released) == []
