"""The worker's core: recalls, stops, self-fencing, draining, and what the window becomes."""

import pytest

from tenure.protocol.control_messages import Drain, HelloRefused, Reason, Registered, SayHello
from tenure.protocol.worker_messages import Cause, Hello, Leaving, Outcome, Released
from tenure.workers.actions import AllowUntil, EndTree, Leave, Recall, StartCall, TurnedAway
from tenure.workers.inputs import CallEnded, ChildReady, DrainAsked, HandlerSeen
from tests.fixtures_worker_core import Core, granted, program, quick


def warm(core: Core, calls: int = 20, handler: str = "m:quick") -> None:
    """Let the core learn that the handler is quick."""
    for _ in range(calls):
        (ticket,) = core.take(quick(handler=handler))
        core.end(ticket)
        core.orders.judge(ticket)
    core.actions.clear()


# --- queues and recalls -------------------------------------------------------------------------


def test_nothing_is_put_behind_an_unknown_handler() -> None:
    core = Core()
    first, second = core.take(quick(), quick())
    assert core.seen.started() == [first.fence]
    core.end(first)
    assert core.seen.started() == [first.fence, second.fence]


def test_short_calls_wait_in_the_childs_socket_and_long_ones_do_not() -> None:
    core = Core()
    warm(core)
    quick_ones = core.take(*[quick()] * 10)
    assert core.seen.started() == [ticket.fence for ticket in quick_ones]
    core.take(quick(handler="m:other"))
    assert len(core.seen.started()) == 10


def test_at_most_twenty_milliseconds_of_work_wait_in_a_socket() -> None:
    core = Core()
    for _ in range(200):
        (ticket,) = core.take(quick())
        start = core.seen.start_of(ticket)
        core.feed(CallEnded(0, start.call, Outcome(value="1"), 5))
        core.orders.judge(ticket)
    core.actions.clear()
    core.take(*[quick()] * 10)
    assert len(core.seen.started()) == 4


def test_a_long_call_does_not_let_others_wait_behind_it() -> None:
    core = Core(slots=2)
    warm(core)
    tickets = core.take(*[quick()] * 6)
    behind = [t for t in tickets if core.seen.start_of(t).slot == 0][1:]
    for ticket in tickets:
        if core.seen.start_of(ticket).slot == 1:
            core.end(ticket)
    core.pass_ms(400)
    assert core.seen.recalls() == [0]
    core.actions.clear()
    ledger = core.claims._floor.slots[0].placed
    calls = [call for call, hold in ledger.items() if hold.binding.fence in {t.fence for t in behind}]
    from tenure.workers.inputs import Recalled

    core.feed(Recalled(0, calls))
    assert [start.slot for start in core.seen.starts()] == [1] * len(behind)


def test_without_a_free_slot_recalled_calls_are_handed_back_unstarted() -> None:
    core = Core()
    warm(core)
    first, *behind = core.take(*[quick()] * 3)
    core.pass_ms(400)
    core.recalled(0, *behind)
    for ticket in behind:
        (release,) = core.seen.released(ticket)
        assert (release.cause, release.started, release.tree_gone) == (Cause.UNSTARTED, False, True)
    core.end(first)
    assert len(core.seen.finished(first)) == 1


def test_a_recall_does_not_change_the_order_of_calls() -> None:
    core = Core()
    warm(core)
    tickets = core.take(*[quick()] * 4)
    core.orders.stop(tickets[3])
    core.recalled(0, *tickets[1:])
    assert core.seen.started() == [t.fence for t in tickets] + [t.fence for t in tickets[1:3]]
    assert core.seen.released(tickets[3])[0].started is False


# --- stops --------------------------------------------------------------------------------------


def test_stopping_what_was_only_asked_for_proves_that_it_never_started() -> None:
    core = Core()
    (ticket,) = core.take(granted())
    core.orders.stop(ticket)
    (release,) = core.seen.released(ticket)
    assert (release.cause, release.started, release.tree_gone) == (Cause.CANCELLED, False, True)
    core.orders.grant(ticket)
    assert core.seen.started() == []


def test_stopping_a_running_call_takes_back_the_others_and_ends_the_tree() -> None:
    core = Core()
    warm(core)
    first, second = core.take(quick(), quick())
    core.orders.stop(first)
    assert core.seen.all(Recall)
    assert core.seen.held()[first.fence] == "stopping"
    core.recalled(0, second)
    assert core.seen.all(EndTree) == [EndTree(0, 2_000)]
    assert core.seen.released(first) == []
    core.tree_ended(0)
    (release,) = core.seen.released(first)
    assert (release.cause, release.started, release.tree_gone) == (Cause.CANCELLED, True, True)
    assert core.seen.started()[-1] == second.fence


def test_a_result_that_comes_before_the_end_of_a_stopped_tree_is_delivered() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    core.orders.stop(ticket)
    core.recalled(0)
    core.end(ticket)
    core.tree_ended(0)
    assert len(core.seen.finished(ticket)) == 1
    assert core.seen.released(ticket) == []


def test_a_stop_that_comes_before_its_assignment_is_remembered() -> None:
    core = Core()
    envelope = quick()
    ticket = core.ticket(envelope)
    core.orders.stop(ticket)
    core.hand_out([ticket], [envelope])
    assert core.seen.started() == []
    assert core.seen.released(ticket)[0].cause is Cause.CANCELLED


def test_a_stopped_command_is_ended_at_once() -> None:
    core = Core()
    (ticket,) = core.take(program())
    core.orders.stop(ticket)
    assert core.seen.all(EndTree)
    assert core.seen.recalls() == []
    core.tree_ended(0, gone=False)
    assert core.seen.released(ticket)[0].tree_gone is False


def test_a_child_that_dies_loses_only_what_it_had_begun() -> None:
    core = Core()
    warm(core)
    first, second, third = core.take(*[quick()] * 3)
    core.end(first)
    calls = [core.seen.start_of(third).call]
    core.tree_ended(0, unstarted=calls, detail="exit code 3")
    (release,) = core.seen.released(second)
    assert (release.cause, release.started, release.detail) == (Cause.PROCESS_DIED, True, "exit code 3")
    assert core.seen.started()[-1] == third.fence


def test_a_slot_whose_child_never_begins_anything_is_rested_and_the_work_handed_back() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    core.tree_ended(0, unstarted=[core.seen.start_of(ticket).call])
    assert core.seen.released(ticket)[0].cause is Cause.UNSTARTED
    assert core.claims.window(core.now_ms) == 0
    core.pass_ms(400)
    assert core.claims.window(core.now_ms) == 1


# --- self-fencing -------------------------------------------------------------------------------


def test_without_a_renewal_a_task_is_ended_one_ttl_after_its_read() -> None:
    core = Core()
    (ticket,) = core.take(quick(lease_ttl_ms=5_000), age_ms=100)
    core.pass_ms(4_800)
    assert core.seen.recalls() == []
    core.pass_ms(200)
    core.recalled(0)
    core.tree_ended(0)
    (release,) = core.seen.released(ticket)
    assert (release.cause, release.started) == (Cause.SELF_FENCED, True)


def test_every_taken_heartbeat_renews_from_before_it_was_sent() -> None:
    core = Core()
    core.take(quick(lease_ttl_ms=5_000))
    core.pass_ms(3_000)
    sent_ms = core.now_ms
    core.beat(echoed=False)
    assert core.seen.all(AllowUntil)[-1].until_ms == sent_ms + 5_000
    core.pass_ms(4_900)
    assert core.seen.recalls() == []
    core.pass_ms(200)
    assert core.seen.recalls() == [0]


def test_a_heartbeat_from_before_the_read_renews_nothing() -> None:
    core = Core()
    pulse = core.claims.pulse(core.now_ms)
    core.pass_ms(1_000)
    core.take(quick(lease_ttl_ms=5_000), age_ms=900)
    deadline_ms = core.seen.all(AllowUntil)[-1].until_ms
    core.now_ms += 500
    from tenure.workers.inputs import BeatTaken

    core.feed(BeatTaken(pulse.sequence, ""))
    assert deadline_ms is not None
    assert core.seen.all(AllowUntil)[-1].until_ms == deadline_ms


def test_a_heartbeat_that_the_broker_did_not_take_renews_nothing() -> None:
    core = Core()
    core.take(quick(lease_ttl_ms=5_000))
    core.pass_ms(3_000)
    core.beat(taken=False)
    core.pass_ms(2_100)
    assert core.seen.recalls() == [0]


@pytest.mark.parametrize("echoed", [True, False])
def test_an_exclusive_task_is_renewed_only_by_echoes(*, echoed: bool) -> None:
    core = Core()
    (ticket,) = core.take(granted(exclusive=True, lease_ttl_ms=5_000))
    core.orders.grant(ticket)
    core.pass_ms(3_000)
    core.beat(echoed=echoed)
    core.pass_ms(2_100)
    assert (core.seen.recalls() == [0]) is not echoed


def test_an_echo_of_another_generation_or_epoch_renews_nothing() -> None:
    from tenure.workers.inputs import BeatTaken

    core = Core(generation=2)
    (ticket,) = core.take(granted(exclusive=True, lease_ttl_ms=5_000))
    core.epoch = 4
    core.orders.grant(ticket)
    core.pass_ms(3_000)
    sequence = core.claims.pulse(core.now_ms).sequence
    for echo in (f"4:1:{sequence}", f"3:2:{sequence}", "nonsense", "1:2", f"4:2:{sequence + 1}"):
        core.feed(BeatTaken(sequence, echo))
    core.pass_ms(2_100)
    assert core.seen.recalls() == [0]


def test_a_result_past_the_deadline_is_still_delivered() -> None:
    core = Core()
    (ticket,) = core.take(quick(lease_ttl_ms=5_000))
    core.pass_ms(6_000)
    core.recalled(0)
    core.end(ticket)
    assert len(core.seen.finished(ticket)) == 1


def test_a_grant_that_comes_after_the_right_to_run_starts_nothing() -> None:
    core = Core()
    (ticket,) = core.take(granted(lease_ttl_ms=5_000))
    core.now_ms += 6_000
    core.orders.grant(ticket)
    assert core.seen.started() == []
    assert core.seen.released(ticket)[0].started is False


def test_what_waits_for_a_place_past_its_deadline_is_never_started() -> None:
    core = Core(slots=1)
    first, second = core.take(quick(lease_ttl_ms=60_000), quick(lease_ttl_ms=1_000))
    core.now_ms += 1_000
    core.feed(CallEnded(0, core.seen.start_of(first).call, Outcome(value="1"), 0))
    assert core.seen.started() == [first.fence]
    assert core.seen.released(second)[0].started is False


def test_a_tree_that_the_runner_ended_at_the_deadline_is_self_fenced() -> None:
    core = Core()
    (ticket,) = core.take(quick())
    core.tree_ended(0, by_deadline=True)
    assert core.seen.released(ticket)[0].cause is Cause.SELF_FENCED


def test_what_the_runner_ended_at_the_deadline_did_not_time_out_however_late_that_is_heard() -> None:
    """Seed 688481811: the main loop was stalled, and looked at the time before it read how the tree had ended."""
    core = Core()
    (ticket,) = core.take(quick(timeout_ms=500))
    core.pass_ms(700)
    core.recalled(0)
    core.tree_ended(0, by_deadline=True)
    assert core.seen.finished(ticket) == []
    assert core.seen.released(ticket)[0].cause is Cause.SELF_FENCED


# --- hello and goodbye --------------------------------------------------------------------------


def test_draining_gives_back_what_has_not_started_and_finishes_what_has() -> None:
    core = Core()
    running, asked = core.take(quick(), granted())
    core.feed(DrainAsked())
    assert core.seen.told(Leaving) == [Leaving(gone=False)]
    assert core.seen.released(asked)[0].cause is Cause.UNSTARTED
    assert core.claims.room(core.now_ms) == 0
    core.pass_ms(1_000)
    core.end(running)
    assert not core.seen.all(Leave)
    core.orders.judge(running, asked)
    core.pass_ms(1_100)
    assert core.seen.told(Leaving)[-1] == Leaving(gone=True)
    assert len(core.seen.all(Leave)) == 1


def test_a_second_request_ends_everything() -> None:
    core = Core()
    (running,) = core.take(quick())
    core.feed(DrainAsked(), DrainAsked(at_once=True))
    core.recalled(0)
    core.tree_ended(0)
    assert core.seen.released(running)[0].cause is Cause.DRAINED


def test_a_worker_leaves_without_a_last_word_when_verdicts_stay_away() -> None:
    core = Core()
    (running,) = core.take(quick())
    core.end(running)
    core.feed(DrainAsked())
    core.pass_ms(10_000)
    assert core.seen.told(Leaving) == [Leaving(gone=False)]
    assert core.seen.all(Leave)


def test_handouts_that_arrive_while_draining_are_given_back() -> None:
    core = Core()
    core.feed(DrainAsked())
    (ticket,) = core.take(quick())
    assert core.seen.started() == []
    assert core.seen.released(ticket)[0].cause is Cause.UNSTARTED


def test_an_order_to_drain_counts_only_after_the_answer_to_this_agents_hello() -> None:
    core = Core(generation=2, registered=False)
    core.collect()
    core.orders.order(Registered(generation=1), Drain())
    assert core.seen.told(Leaving) == []
    core.orders.register()
    core.orders.order(Drain())
    assert core.seen.told(Leaving) == [Leaving(gone=False)]


def test_an_agent_that_has_been_replaced_ends_everything() -> None:
    core = Core()
    (running,) = core.take(quick())
    core.orders.order(Registered(generation=2))
    core.recalled(0)
    core.tree_ended(0)
    assert core.seen.released(running)[0].cause is Cause.DRAINED


def test_an_agent_whose_id_is_of_the_other_kind_ends_and_runs_nothing() -> None:
    core = Core(generation=2, registered=False)
    core.collect()
    core.take(program())
    refused = HelloRefused(generation=2, ordinal=core.ordinal, reason=Reason.OTHER_KIND)
    core.orders.order(refused.model_copy(update={"generation": 1}))
    assert core.seen.told(Leaving) == [], "an earlier agent was meant"
    core.orders.order(refused)
    core.pass_ms(10_000)
    assert (core.seen.all(TurnedAway), core.seen.started()) == ([TurnedAway()], [])
    assert core.seen.all(Leave)


def test_say_hello_is_answered_at_once() -> None:
    core = Core()
    core.orders.register()
    core.actions.clear()
    core.orders.order(SayHello())
    assert len(core.seen.told(Hello)) == 1


# --- the window ---------------------------------------------------------------------------------


def test_the_window_starts_at_the_slots_doubles_while_calls_are_short_and_is_bounded() -> None:
    core = Core(slots=2)
    assert core.claims.window(core.now_ms) == 2
    seen: list[int] = []
    for _ in range(12):
        warm(core, core.claims.window(core.now_ms))
        seen.append(core.claims.window(core.now_ms))
    assert seen[:3] == [4, 8, 16]
    assert seen[-1] == 512


def test_the_window_is_the_slots_when_calls_are_long() -> None:
    core = Core(slots=3)
    warm(core, 50)
    assert core.claims.window(core.now_ms) > 3
    for _ in range(50):
        (ticket,) = core.take(quick(handler="m:long"))
        core.feed(
            CallEnded(core.seen.start_of(ticket).slot, core.seen.start_of(ticket).call, Outcome(value="1"), 5_000)
        )
    assert core.claims.window(core.now_ms) == 3


def test_a_slot_that_is_busy_for_long_counts_once() -> None:
    core = Core(slots=2)
    for _ in range(100):
        (ticket,) = core.take(quick())
        core.feed(CallEnded(core.seen.start_of(ticket).slot, core.seen.start_of(ticket).call, Outcome(value="1"), 10))
    assert core.claims.window(core.now_ms) == 20
    core.take(quick(handler="m:long"))
    core.pass_ms(200)
    assert core.claims.window(core.now_ms) == 11


def test_room_is_the_window_less_what_is_not_finished() -> None:
    core = Core(slots=2)
    first, _ = core.take(quick(), granted())
    assert core.claims.room(core.now_ms) == 0
    core.end(first)
    assert core.claims.room(core.now_ms) == 1


def test_async_handlers_fill_the_window_by_their_slots() -> None:
    core = Core(slots=2)
    core.take(quick(handler="m:nap"))
    core.feed(HandlerSeen(0, "m:nap", is_async=True))
    core.take(quick(handler="m:nap"), quick(handler="m:nap"))
    core.pass_ms(400)
    assert len(core.seen.all(StartCall)) == 2
    assert [release.cause for release in core.seen.told(Released)] == [Cause.UNSTARTED]


# --- children that start ------------------------------------------------------------------------


def test_the_time_that_a_child_takes_to_start_counts_for_no_call() -> None:
    core = Core(prompt=False)
    (ticket,) = core.take(quick(timeout_ms=500))
    core.pass_ms(5_000)
    assert core.seen.recalls() == []
    assert core.seen.held() == {ticket.fence: "claimed"}
    core.feed(ChildReady(0))
    assert core.seen.held() == {ticket.fence: "running"}
    core.pass_ms(700)
    assert core.seen.recalls() == [0]


def test_a_child_that_does_not_start_within_a_minute_is_ended() -> None:
    core = Core(prompt=False)
    core.take(quick(lease_ttl_ms=600_000))
    core.pass_ms(59_000)
    assert not core.seen.all(EndTree)
    core.pass_ms(2_000)
    assert core.seen.all(EndTree) == [EndTree(0, 0)]


# --- taking -------------------------------------------------------------------------------------


def test_an_idle_slot_takes_at_once_and_a_nearly_full_window_waits() -> None:
    core = Core(slots=8)
    warm(core, 500)
    assert core.claims.window(core.now_ms) > 100
    tickets = core.take(*[granted()] * (core.claims.window(core.now_ms) - 5))
    assert core.claims.room(core.now_ms) == 0
    core.orders.refuse(tickets[0])
    assert core.claims.room(core.now_ms) == 0


def test_with_long_calls_every_free_slot_is_filled() -> None:
    core = Core(slots=8)
    core.take(*[quick(handler=f"m:h{number}") for number in range(7)])
    assert core.claims.room(core.now_ms) == 1
