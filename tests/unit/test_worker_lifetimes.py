"""The worker's core near an end of its own: what it still takes, when it drains, and when it ends what runs."""

from dataclasses import replace

from tenure.protocol.worker_messages import Cause, Hello, Leaving, Released
from tenure.testing import SeededEntropy
from tenure.workers.actions import EndTree, Leave
from tenure.workers.inputs import DrainAsked
from tenure.workers.launch_actions import CancelLaunch
from tenure.workers.launches import Launches
from tenure.workers.lifetime import ENDLESS, Lifetime, walled
from tests.fixtures_launch_core import TTL_MS, ParentCore
from tests.fixtures_worker_core import Core, granted, program, quick

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
START_MS = 1_000_000
"""When the core of a test begins."""


def near_a_wall(*, minutes: int, slots: int = 1) -> Core:
    """A worker that must be gone in so many minutes; its lease of 30 s takes 2 s to end a process tree."""
    wall_ms = START_MS + minutes * MINUTE_MS
    return Core(slots, lifetime=walled(ENDLESS, wall_ms, ttl_ms=30_000, now_ms=START_MS))


def idle(max_idle_ms: int) -> Core:
    return Core(lifetime=Lifetime(max_idle_ms=max_idle_ms))


def live(core: Core, seconds: int) -> None:
    """Let time pass while the broker takes every heartbeat."""
    for _ in range(seconds):
        core.pass_ms(1_000)
        core.beat()


def leaving(core: Core) -> list[bool]:
    return [event.gone for event in core.seen.told(Leaving)]


def refusals(core: Core) -> list[tuple[Cause, bool, str]]:
    return [(event.cause, event.started, event.detail) for event in core.seen.told(Released)]


def test_two_hours_leave_five_minutes_of_notice_and_seventeen_seconds_of_farewell() -> None:
    assert walled(ENDLESS, 2 * HOUR_MS, ttl_ms=30_000, now_ms=0) == Lifetime(
        ends_ms=2 * HOUR_MS - 17_000, notice_ms=5 * MINUTE_MS
    )


def test_a_short_lifetime_goes_to_tasks_for_the_most_part() -> None:
    assert walled(ENDLESS, MINUTE_MS, ttl_ms=2_000, now_ms=0) == Lifetime(ends_ms=MINUTE_MS - 6_600, notice_ms=6_000)


def test_a_worker_says_how_long_it_still_has() -> None:
    core = near_a_wall(minutes=120)
    core.pass_ms(HOUR_MS)
    assert core.claims.pulse(core.now_ms).remaining_ms == HOUR_MS - 17_000
    core.actions.clear()
    core.claims._membership.say_hello(core.now_ms)
    core.collect()
    assert [hello.remaining_ms for hello in core.seen.told(Hello)] == [HOUR_MS - 17_000]


def test_a_worker_without_a_wall_says_nothing_of_the_kind() -> None:
    assert Core().claims.pulse(START_MS).remaining_ms is None


def test_a_task_that_may_outlast_the_worker_is_given_back_unstarted() -> None:
    core = near_a_wall(minutes=60)
    core.take(quick(timeout_ms=2 * HOUR_MS))
    core.take(granted(timeout_ms=HOUR_MS))
    assert refusals(core) == [
        (Cause.REFUSED, False, "it may run 2 h, and this worker ends before that"),
        (Cause.REFUSED, False, "it may run 1 h, and this worker ends before that"),
    ]
    assert core.seen.started() == []


def test_tasks_that_fit_and_tasks_without_a_timeout_are_started() -> None:
    core = near_a_wall(minutes=60, slots=2)
    core.take(program(timeout_ms=50 * MINUTE_MS), program())
    assert len(core.seen.started()) == 2


def test_what_runs_may_finish_within_the_notice_and_nothing_more_is_taken() -> None:
    core = near_a_wall(minutes=60)
    (ticket,) = core.take(program())
    live(core, 56 * 60)
    assert leaving(core) == [False]
    assert core.claims.room(core.now_ms) == 0
    assert core.seen.all(EndTree) == []
    core.take(program())
    assert refusals(core) == [(Cause.UNSTARTED, False, "")]
    assert core.seen.held()[ticket.fence] == "running"


def test_what_still_runs_is_ended_before_the_wall_and_told() -> None:
    core = near_a_wall(minutes=60)
    (ticket,) = core.take(program())
    live(core, 60 * 60 - 18)
    assert core.seen.all(EndTree) == []
    core.pass_ms(1_100)
    assert [end.grace_ms for end in core.seen.all(EndTree)] == [2_000]
    core.tree_ended(0)
    (told,) = core.seen.released(ticket)
    assert (told.cause, told.started, told.tree_gone) == (Cause.DRAINED, True, True)
    core.orders.judge(ticket)
    core.pass_ms(1_000)
    assert leaving(core) == [False, True]
    assert len(core.seen.all(Leave)) == 1


def test_a_worker_that_starts_after_its_wall_leaves_at_once() -> None:
    past = walled(ENDLESS, START_MS - 1, ttl_ms=30_000, now_ms=START_MS)
    core = Core(registered=False, lifetime=past)
    core.pass_ms(1_000)
    assert len(core.seen.all(Leave)) == 1


# --- nothing to do -------------------------------------------------------------------------------


def test_a_worker_that_has_had_nothing_in_hand_for_long_enough_leaves() -> None:
    core = idle(10 * MINUTE_MS)
    core.pass_ms(10 * MINUTE_MS - 2_000)
    assert leaving(core) == []
    core.pass_ms(3_000)
    assert leaving(core) == [False, True]
    assert len(core.seen.all(Leave)) == 1


def test_idleness_counts_from_the_last_verdict() -> None:
    core = idle(MINUTE_MS)
    (ticket,) = core.take(quick())
    live(core, 120)
    core.end(ticket)
    core.pass_ms(50_000)
    core.orders.judge(ticket)
    core.pass_ms(59_000)
    assert leaving(core) == []
    core.pass_ms(3_000)
    assert leaving(core) == [False, True]


def test_work_that_comes_and_goes_between_two_looks_counts() -> None:
    core = idle(MINUTE_MS)
    core.pass_ms(50_000)
    (ticket,) = core.take(quick())
    core.end(ticket)
    core.orders.judge(ticket)
    core.pass_ms(50_000)
    assert leaving(core) == []


def test_what_arrives_as_an_idle_worker_leaves_is_given_back() -> None:
    core = idle(MINUTE_MS)
    core.pass_ms(62_000)
    core.take(quick())
    assert refusals(core) == [(Cause.UNSTARTED, False, "")]
    assert core.seen.started() == []


# --- asked to end --------------------------------------------------------------------------------


def test_what_runs_when_somebody_asks_for_the_end_may_go_on_for_so_long_and_is_ended_then() -> None:
    core = Core(lifetime=Lifetime(drain_ms=90_000))
    (ticket,) = core.take(program())
    live(core, 60)
    core.feed(DrainAsked())
    live(core, 89)
    assert core.seen.all(EndTree) == []
    live(core, 2)
    core.tree_ended(0)
    assert [released.cause for released in core.seen.released(ticket)] == [Cause.DRAINED]


def test_a_worker_that_was_told_no_such_limit_lets_what_runs_come_to_its_end() -> None:
    core = Core()
    core.take(program())
    core.feed(DrainAsked())
    live(core, 3_600)
    assert core.seen.all(EndTree) == []


# --- a worker whose launcher starts executors ----------------------------------------------------


def parent(lifetime: Lifetime) -> ParentCore:
    core = ParentCore()
    core.launches = Launches(replace(core.launches._profile, lifetime=lifetime), SeededEntropy(2))
    core.actions.clear()
    core.feed()
    core.orders.register()
    return core


def parent_leaving(core: ParentCore) -> list[bool]:
    return [event.gone for event in core.seen.told(Leaving)]


def test_a_parent_launches_nothing_that_it_would_not_see_the_end_of() -> None:
    core = parent(walled(ENDLESS, START_MS + HOUR_MS, ttl_ms=TTL_MS, now_ms=START_MS))
    assert core.launches.pulse(core.now_ms).remaining_ms == HOUR_MS - 17_000
    key = core.take(timeout_ms=2 * HOUR_MS)
    (told,) = core.seen.gone(key)
    assert (told.cause, told.detail) == (Cause.REFUSED, "it may run 2 h, and this worker ends before that")
    fits = core.take(timeout_ms=MINUTE_MS)
    assert core.seen.started() == [fits]


def test_a_parent_ends_its_executors_before_its_wall() -> None:
    core = parent(Lifetime(ends_ms=START_MS + 20_000, notice_ms=5_000))
    core.running()
    core.let_run(16_000)
    assert (parent_leaving(core), core.seen.all(CancelLaunch)) == ([False], [])
    core.let_run(5_000)
    assert len(core.seen.all(CancelLaunch)) == 1


def test_a_parent_with_nothing_to_launch_leaves_by_itself() -> None:
    core = parent(Lifetime(max_idle_ms=MINUTE_MS))
    core.pass_ms(58_000)
    assert parent_leaving(core) == []
    core.pass_ms(4_000)
    assert parent_leaving(core) == [False, True]
    assert len(core.seen.all(Leave)) == 1
