"""The parent's core: from an assignment to a launch, and from its end to the coordinator's answer."""

from __future__ import annotations

import pytest

from tenure.launchers.base import Phase, Sighting
from tenure.protocol.control_messages import HelloRefused, Reason, Registered, StopReason
from tenure.protocol.envelope import Limits, Requirements
from tenure.protocol.timing import grace_ms
from tenure.protocol.worker_messages import Cause, Hello, Leaving
from tenure.workers.actions import Leave, Outranked, TurnedAway
from tenure.workers.inputs import DrainAsked, Reconnected
from tenure.workers.launch_actions import CancelLaunch, ClearLaunch, DropLaunch, NoteHandle, ProbeLaunch, StartLaunch
from tenure.workers.launch_inputs import CancelTried, ClearTried, Found, Journaled, Sighted
from tenure.workers.launch_stages import LAUNCH, UNFINISHED, LaunchStage
from tests.fixtures_launch_core import TIMEOUT_MS, TTL_MS, ParentCore, handle_of

# --- from an assignment to a launch --------------------------------------------------------------


def test_an_assignment_is_launched_and_listed_from_the_start() -> None:
    core = ParentCore()
    ticket, envelope = core.ticket(limits=Limits(memory_bytes=5), timeout_ms=9)
    key = core.hand_out(ticket, envelope, is_directed=True)

    (start,) = core.seen.all(StartLaunch)
    said = start.order.ticket
    assert (said.parent, said.site, said.namespace, said.entry, said.is_directed) == (
        "parent",
        "lab",
        "main",
        "1-1",
        True,
    )
    assert (said.task_id, said.fence, said.digest, said.world, said.run) == (*key, ticket.digest, "w", "r")
    assert (start.order.memory_bytes, start.order.timeout_ms) == (5, 9)
    assert core.seen.held() == {key: "launched"}
    core.launched(key)
    assert core.seen.all(NoteHandle) == [NoteHandle(key, handle_of(key))]


def test_what_a_task_reserves_is_ordered() -> None:
    core = ParentCore()
    core.take(requirements=Requirements(resources=(("gpu", 2),)))
    assert core.seen.all(StartLaunch)[0].order.resources == (("gpu", 2),)


def test_a_repeated_assignment_is_launched_once() -> None:
    core = ParentCore()
    ticket, envelope = core.ticket()
    for _ in range(2):
        core.hand_out(ticket, envelope)
    assert len(core.seen.started()) == 1


def test_an_assignment_that_cannot_be_read_is_given_back() -> None:
    core = ParentCore()
    ticket, _ = core.ticket()
    key = core.hand_out(ticket, b"{}")

    (told,) = core.seen.gone(key)
    assert (told.cause, told.proved) == (Cause.REFUSED, False)
    assert "digest" in told.detail
    assert core.seen.held() == {key: "finished"}
    assert not core.seen.started()
    core.orders.judge(key)
    assert core.seen.held() == {}


def test_a_newer_assignment_of_a_task_ends_the_older_one() -> None:
    core = ParentCore()
    older = core.running()
    ticket, envelope = core.ticket(task_id=older[0])
    newer = core.hand_out(ticket, envelope)
    core.let_run(grace_ms(TTL_MS) + 2_500)

    assert core.seen.started() == [older, newer]
    assert [action.key for action in core.seen.all(CancelLaunch)] == [older]


def test_room_is_the_slots_that_nothing_takes_up() -> None:
    core = ParentCore(slots=2)
    assert (core.launches.window(core.now_ms), core.launches.room(core.now_ms)) == (2, 2)
    key = core.running()
    assert (core.launches.window(core.now_ms), core.launches.room(core.now_ms)) == (2, 1)
    core.sighted(key, Phase.ENDED, proved=True)
    assert core.launches.room(core.now_ms) == 2


def test_a_stop_that_comes_before_its_assignment_counts() -> None:
    core = ParentCore()
    ticket, envelope = core.ticket()
    core.orders.stop((ticket.task_id, ticket.fence))
    key = core.hand_out(ticket, envelope)
    (told,) = core.seen.gone(key)
    assert (told.cause, told.proved) == (Cause.CANCELLED, False)
    assert not core.seen.started()


# --- refused, unknown, late ----------------------------------------------------------------------


def test_a_refused_launch_is_told_and_nothing_is_taken_for_a_growing_while() -> None:
    core = ParentCore()
    pauses: list[int] = []
    for _ in range(8):
        key = core.take()
        core.refused(key)
        assert (core.seen.gone(key)[0].cause, core.seen.gone(key)[0].detail) == (Cause.LAUNCH_REFUSED, "no room")
        core.orders.judge(key)
        began_ms = core.now_ms
        while not core.launches.room(core.now_ms):
            core.pass_ms(500)
        pauses.append(core.now_ms - began_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    core.launched(core.take())
    core.refused(core.take())
    began_ms = core.now_ms
    while not core.launches.room(core.now_ms):
        core.pass_ms(500)
    assert core.now_ms - began_ms == 1_000


def test_a_launch_of_unknown_fate_is_launched_again() -> None:
    core = ParentCore()
    key = core.take()
    core.refused(key, is_known=False)
    assert core.seen.started() == [key]
    core.pass_ms(1_100)
    assert core.seen.started() == [key, key]
    assert core.seen.held() == {key: "launched"}
    assert not core.seen.gone(key)


def test_a_substrate_that_is_away_for_too_long_is_no_proof() -> None:
    core = ParentCore()
    key = core.take()
    while not core.seen.gone(key):
        core.refused(key, is_known=False)
        tries = len(core.seen.started())
        while len(core.seen.started()) == tries and not core.seen.gone(key):
            core.pass_ms(1_000)
    assert (core.seen.gone(key)[0].cause, core.seen.gone(key)[0].proved) == (Cause.UNSCHEDULABLE, False)
    core.orders.judge(key)
    assert core.seen.all(DropLaunch) == [DropLaunch(key)]


def test_a_refusal_proves_nothing_about_an_earlier_try() -> None:
    """A substrate may refuse the second try because what the first one has launched uses up its quota."""
    core = ParentCore()
    key = core.take()
    core.refused(key, is_known=False)
    core.pass_ms(1_100)
    core.refused(key)
    (left,) = (start.order for start in core.seen.all(StartLaunch)[:1])
    heir = ParentCore()
    heir.feed(Found([Journaled(left)]))
    heir.refused(key)
    without_journal = ParentCore()
    without_journal.refused(without_journal.take())

    for each in (core, heir, without_journal):
        (told,) = each.seen.gone(each.seen.started()[0])
        assert (told.cause, told.proved) == (Cause.LAUNCH_REFUSED, False)


@pytest.mark.parametrize(
    ("seen", "cause"), [(None, Cause.UNSCHEDULABLE), (Cause.IMAGE_UNAVAILABLE, Cause.IMAGE_UNAVAILABLE)]
)
def test_what_does_not_start_in_time_is_ended(seen: Cause | None, cause: Cause) -> None:
    core = ParentCore()
    key = core.take()
    handle = core.launched(key)
    core.pass_ms(TIMEOUT_MS - 1_000)
    core.sighted(key, Phase.STARTING, cause=seen, detail="pulling")
    assert not core.seen.all(CancelLaunch)
    core.pass_ms(2_000)
    core.sighted(key, Phase.STARTING, cause=seen, detail="pulling")
    core.pass_ms(100)
    assert core.seen.all(CancelLaunch) == [CancelLaunch(key, handle)]
    core.feed(CancelTried(key, done=True))
    core.sighted(key, Phase.ENDED, cause=Cause.EXECUTOR_REMOVED, proved=True)
    assert (core.seen.gone(key)[0].cause, core.seen.gone(key)[0].detail) == (cause, "pulling")


# --- what the substrate says ---------------------------------------------------------------------


def test_words_that_are_no_text_are_told_as_well_as_they_can_be() -> None:
    core = ParentCore()
    key = core.running()
    core.sighted(key, Phase.ENDED, detail="file \udcff: \ud800 is missing", proved=True)
    assert core.seen.gone(key)[0].detail == "file ?: ? is missing"


@pytest.mark.parametrize(
    ("phase", "said", "cause"),
    [
        (Phase.ENDED, None, Cause.EXECUTOR_DIED),
        (Phase.ENDED, Cause.OOM_KILLED, Cause.OOM_KILLED),
        (Phase.MISSING, None, Cause.EXECUTOR_REMOVED),
        (Phase.MISSING, Cause.NODE_GONE, Cause.NODE_GONE),
    ],
)
@pytest.mark.parametrize("proved", [True, False])
def test_an_end_is_told_until_it_is_answered(phase: Phase, said: Cause | None, cause: Cause, proved: bool) -> None:  # noqa: FBT001
    core = ParentCore()
    key = core.running()
    core.sighted(key, phase, cause=said, detail="why", proved=proved)
    (told,) = core.seen.gone(key)
    assert (told.cause, told.proved, told.detail) == (cause, proved, "why")
    core.pass_ms(10_000)
    assert len(core.seen.gone(key)) == 3
    assert core.seen.held() == {key: "finished"}

    core.orders.judge(key)
    core.pass_ms(100)
    assert core.seen.all(ClearLaunch) == [ClearLaunch(key, handle_of(key))]
    assert core.seen.held() == {}
    core.feed(ClearTried(key, done=True))
    assert core.seen.all(DropLaunch) == [DropLaunch(key)]
    core.pass_ms(60_000)
    assert len(core.seen.gone(key)) == 3


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.UNKNOWN, Phase.STARTING])
def test_nothing_follows_from_what_runs_or_is_not_known(phase: Phase) -> None:
    core = ParentCore()
    key = core.running()
    for _ in range(5):
        core.sighted(key, phase)
    assert core.seen.held() == {key: "launched"}
    assert not core.seen.gone(key)


def test_the_launcher_is_asked_one_thing_at_a_time() -> None:
    core = ParentCore()
    key = core.running()
    core.actions.clear()
    core.pass_ms(30_000)
    assert len(core.seen.all(ProbeLaunch)) == 1
    core.orders.stop(key)
    core.pass_ms(30_000)
    assert not core.seen.all(CancelLaunch)


def test_many_launches_are_asked_about_less_often() -> None:
    few, many = ParentCore(slots=1), ParentCore(slots=400)
    for core in (few, many):
        for _ in range(core.launches.room(core.now_ms)):
            core.launched(core.take())
        for _ in range(20_000 // 50):
            core.now_ms += 50
            for action in core.feed():
                if isinstance(action, ProbeLaunch):
                    core.launches.handle(Sighted(action.key, Sighting(Phase.RUNNING)), core.now_ms)
    asked = [len(core.seen.all(ProbeLaunch)) for core in (few, many)]
    assert 20 <= asked[0] <= 60
    assert asked[1] <= 20 * 100 + 400


def test_what_cannot_be_cleared_away_is_tried_again_and_then_left() -> None:
    core = ParentCore()
    key = core.running()
    core.sighted(key, Phase.ENDED, proved=True)
    core.orders.judge(key)
    for tries in range(1, 9):
        while len(core.seen.all(ClearLaunch)) < tries:
            core.pass_ms(500)
        core.feed(ClearTried(key, done=False))
    assert core.seen.all(DropLaunch) == [DropLaunch(key)]
    assert core.launches.counts()["not_cleared"] == 1


# --- stopped -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", list(StopReason))
def test_what_runs_may_end_by_itself_and_is_ended_by_force_when_it_does_not(reason: StopReason) -> None:
    core = ParentCore()
    key = core.running()
    core.orders.stop(key, reason)
    core.let_run(grace_ms(TTL_MS) + 2_000 - 200)
    assert not core.seen.all(CancelLaunch)
    core.let_run(500)
    assert core.seen.all(CancelLaunch) == [CancelLaunch(key, handle_of(key))]
    core.feed(CancelTried(key, done=True))
    core.sighted(key, Phase.ENDED, cause=Cause.EXECUTOR_DIED, proved=True)
    assert core.seen.gone(key)[0].cause is Cause.CANCELLED


def test_what_does_not_run_yet_is_ended_at_once() -> None:
    core = ParentCore()
    key = core.take()
    core.launched(key)
    core.sighted(key, Phase.STARTING)
    core.orders.stop(key)
    core.pass_ms(100)
    assert [action.key for action in core.seen.all(CancelLaunch)] == [key]


def test_what_is_being_launched_is_ended_as_soon_as_it_can_be() -> None:
    core = ParentCore()
    key = core.take()
    core.orders.stop(key)
    core.pass_ms(5_000)
    assert not core.seen.all(CancelLaunch)
    core.launched(key)
    core.pass_ms(100)
    assert [action.key for action in core.seen.all(CancelLaunch)] == [key]


def test_a_force_that_was_not_enough_is_used_again() -> None:
    core = ParentCore()
    key = core.take()
    core.launched(key)
    core.orders.stop(key)
    core.pass_ms(100)
    core.feed(CancelTried(key, done=True))
    core.let_run(4_500, Phase.UNKNOWN)
    assert len(core.seen.all(CancelLaunch)) == 1
    core.let_run(1_000, Phase.UNKNOWN)
    assert len(core.seen.all(CancelLaunch)) == 2


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.UNKNOWN])
def test_what_no_force_ends_is_given_up_in_the_end_and_proves_nothing(phase: Phase) -> None:
    """Its node, or the substrate's own worker there, may be gone for good: a drain would wait for ever."""
    core = ParentCore()
    key = core.running()
    core.orders.stop(key, StopReason.SUPERSEDED)
    core.let_run(TIMEOUT_MS - 1_000, phase)
    assert not core.seen.gone(key)
    core.let_run(grace_ms(TTL_MS) + 10_000, phase)
    (told,) = core.seen.gone(key)[:1]
    assert (told.cause, told.proved) == (Cause.CANCELLED, False)
    assert "not seen within 1 min" in told.detail


# --- restart, hello and goodbye ------------------------------------------------------------------


def test_what_an_earlier_agent_has_left_is_found_again() -> None:
    left = ParentCore()
    for _ in range(2):
        left.take()
    known, unknown = (start.order for start in left.seen.all(StartLaunch))
    core = ParentCore(registered=False)
    key = (known.ticket.task_id, known.ticket.fence)
    core.feed(Found([Journaled(known, handle_of(key)), Journaled(unknown)]))

    assert core.seen.started() == [(unknown.ticket.task_id, unknown.ticket.fence)]
    core.pass_ms(100)
    assert [action.key for action in core.seen.all(ProbeLaunch)] == [key]
    assert set(core.seen.held().values()) == {"launched"}
    assert not core.launches.room(core.now_ms)
    core.sighted(key, Phase.MISSING)
    assert core.seen.gone(key)[0].cause is Cause.EXECUTOR_REMOVED


def test_it_waits_for_its_launches_before_it_leaves() -> None:
    core = ParentCore()
    key = core.running()
    core.feed(DrainAsked())
    assert core.seen.told(Leaving) == [Leaving(gone=False)]
    assert core.launches.window(core.now_ms) == 0
    late = core.take()
    assert core.seen.gone(late)[0].cause is Cause.UNSTARTED
    core.orders.judge(late)
    core.pass_ms(60_000)
    assert not core.seen.all(Leave)
    core.sighted(key, Phase.ENDED, proved=True)
    core.orders.judge(key)
    core.pass_ms(100)
    core.feed(ClearTried(key, done=True))
    core.pass_ms(100)
    assert core.seen.told(Leaving)[-1] == Leaving(gone=True)
    assert len(core.seen.all(Leave)) == 1


def test_asked_twice_it_ends_them() -> None:
    core = ParentCore()
    key = core.running()
    core.feed(DrainAsked(at_once=True))
    core.let_run(200)
    assert [action.key for action in core.seen.all(CancelLaunch)] == [key]
    core.feed(CancelTried(key, done=True))
    core.sighted(key, Phase.ENDED, proved=True)
    assert core.seen.gone(key)[0].cause is Cause.DRAINED


def test_it_leaves_what_does_not_end_to_its_next_agent() -> None:
    core = ParentCore()
    core.running()
    core.feed(DrainAsked(at_once=True))
    core.pass_ms(31_000)
    assert len(core.seen.all(Leave)) == 1
    assert core.seen.told(Leaving) == [Leaving(gone=False)]
    assert not core.seen.all(DropLaunch)


def test_without_answers_it_leaves_after_a_while() -> None:
    core = ParentCore()
    core.refused(core.take())
    core.feed(DrainAsked())
    core.pass_ms(6_000)
    assert len(core.seen.all(Leave)) == 1
    assert core.seen.told(Leaving) == [Leaving(gone=False)]


def test_an_order_to_drain_is_obeyed() -> None:
    core = ParentCore()
    core.orders.drain()
    core.pass_ms(1_100)
    assert core.seen.told(Leaving)[-1].gone
    assert core.seen.all(Leave)


def test_a_reconnect_is_answered_with_hello_and_with_all_that_is_unanswered() -> None:
    core = ParentCore()
    key = core.running()
    core.sighted(key, Phase.ENDED, proved=True)
    core.feed(Reconnected())
    assert core.seen.told(Hello)[-1].held[0].state == "finished"
    assert len(core.seen.gone(key)) == 2


def test_a_parent_whose_place_was_taken_ends_at_once() -> None:
    core = ParentCore()
    core.running()
    core.orders.order(Registered(generation=8))
    assert core.seen.all(Outranked) == [Outranked(8)]
    assert core.seen.all(Leave)


def test_a_parent_whose_id_is_of_the_other_kind_ends_at_once() -> None:
    core = ParentCore(registered=False)
    core.take()
    refused = HelloRefused(generation=7, ordinal=1, reason=Reason.OTHER_KIND)
    core.orders.order(refused.model_copy(update={"generation": 6}))
    assert not core.seen.all(Leave), "an earlier agent was meant"
    core.orders.order(refused)
    assert core.seen.all(TurnedAway) == [TurnedAway()]
    assert len(core.seen.all(Leave)) == 1


def test_orders_of_an_earlier_coordinator_do_not_count() -> None:
    core = ParentCore()
    key = core.running()
    core.orders.order(epoch=5)
    core.orders.stop(key)
    core.pass_ms(10_000)
    assert core.launches._book.find(key)


def test_the_heartbeat_renews_for_the_shortest_ttl() -> None:
    core = ParentCore()
    assert core.launches.shortest_ttl_ms() == TTL_MS
    core.beat()
    core.pass_ms(4 * TTL_MS)
    assert len(core.seen.told(Hello)) > 1


# --- the table -----------------------------------------------------------------------------------


def test_the_table_names_every_stage_and_ends() -> None:
    assert set(LAUNCH) == set(LaunchStage)
    assert [stage for stage, onward in LAUNCH.items() if not onward] == [LaunchStage.FORGOTTEN]
    assert LaunchStage.OVER not in UNFINISHED


def test_a_step_that_is_not_in_the_table_is_refused() -> None:
    core = ParentCore()
    launch = core.launches._book.find(core.running())
    assert launch is not None
    with pytest.raises(AssertionError, match="from running to forgotten"):
        launch.move(LaunchStage.FORGOTTEN)
