"""The parent's core while the substrate cannot be asked: what is told, what is kept, and what follows when it can."""

from __future__ import annotations

from tenure.launchers.base import Phase, Sighting
from tenure.protocol.control_messages import StopReason
from tenure.protocol.timing import grace_ms
from tenure.protocol.worker_messages import Cause
from tenure.workers.actions import Leave
from tenure.workers.inputs import DrainAsked
from tenure.workers.launch_actions import CancelLaunch, ClearLaunch
from tenure.workers.launch_inputs import ClearTried, Key, Sighted
from tests.fixtures_launch_core import TIMEOUT_MS, TTL_MS, ParentCore


def test_an_offer_is_not_kept_for_a_substrate_that_cannot_be_asked_for_too_long() -> None:
    """Another worker may have a better one. Nothing is ended by force: what an earlier agent left may run there."""
    core = ParentCore()
    key = core.take()
    handle = core.launched(key)
    core.let_run(TIMEOUT_MS - 1_000, Phase.UNKNOWN)
    assert core.seen.held() == {key: "launched"}
    core.let_run(3_000, Phase.UNKNOWN)

    (told,) = core.seen.gone(key)[:1]
    assert (told.cause, told.proved) == (Cause.UNSCHEDULABLE, False)
    assert not core.seen.all(CancelLaunch)
    core.orders.judge(key)
    core.pass_ms(100)
    assert core.seen.all(ClearLaunch) == [ClearLaunch(key, handle)]


def unseen(core: ParentCore) -> Key:
    """A launch that an earlier agent has left, about which the substrate could not be asked for too long."""
    key = core.take()
    core.launched(key)
    core.let_run(TIMEOUT_MS + 2_000, Phase.UNKNOWN)
    assert core.seen.gone(key)
    return key


def test_what_could_not_be_seen_is_asked_about_on_and_keeps_its_slot() -> None:
    """An outage longer than a launch may take says nothing of an executor that runs through it."""
    core = ParentCore()
    key = unseen(core)
    assert (core.launches.room(core.now_ms), core.seen.held()) == (1, {key: "launched"})
    core.sighted(key, Phase.RUNNING)
    told = len(core.seen.gone(key))
    core.pass_ms(60_000)
    assert len(core.seen.gone(key)) == told
    core.sighted(key, Phase.ENDED, cause=Cause.OOM_KILLED, proved=True)
    assert (core.seen.gone(key)[-1].cause, core.seen.gone(key)[-1].proved) == (Cause.OOM_KILLED, True)


def test_the_proof_of_an_end_is_told_although_less_was_told_before() -> None:
    core = ParentCore()
    key = unseen(core)
    assert not core.seen.gone(key)[-1].proved
    core.sighted(key, Phase.MISSING, cause=Cause.NODE_GONE, proved=True)
    assert (core.seen.gone(key)[-1].cause, core.seen.gone(key)[-1].proved) == (Cause.NODE_GONE, True)


def test_what_could_not_be_seen_has_time_to_end_by_itself_before_it_is_ended_by_force() -> None:
    core = ParentCore()
    key = unseen(core)
    core.orders.stop(key)
    core.let_run(grace_ms(TTL_MS) + 1_900, Phase.UNKNOWN)
    assert not core.seen.all(CancelLaunch)
    core.let_run(1_000, Phase.RUNNING)
    assert [each.key for each in core.seen.all(CancelLaunch)] == [key]


def test_what_a_substrate_was_never_told_to_end_is_not_given_up() -> None:
    """An outage says nothing of what it runs, however long it is, and whatever has become of the lease."""
    core = ParentCore()
    key = core.running()
    core.orders.stop(key, StopReason.SUPERSEDED)
    core.let_run(5 * TIMEOUT_MS, Phase.UNKNOWN, can_force=False)
    assert not core.seen.gone(key)
    assert core.launches.room(core.now_ms) == 1
    core.let_run(TIMEOUT_MS + 10_000, Phase.UNKNOWN)
    assert not core.seen.gone(key)[0].proved


def test_what_is_cancelled_while_its_lease_is_live_is_not_given_up() -> None:
    """A substrate's own grace may be long, and the proof of the end is wanted."""
    core = ParentCore()
    key = core.running()
    core.orders.stop(key)
    core.let_run(5 * TIMEOUT_MS, Phase.RUNNING)
    assert not core.seen.gone(key)
    core.sighted(key, Phase.ENDED, proved=True)
    assert core.seen.gone(key)[0].proved


def test_a_drain_waits_for_what_cannot_be_seen_until_the_coordinator_has_answered() -> None:
    core = ParentCore()
    key = unseen(core)
    core.feed(DrainAsked(at_once=False))
    core.let_run(120_000, Phase.UNKNOWN)
    assert not core.seen.all(Leave)
    core.orders.judge(key)
    core.pass_ms(100)
    core.feed(ClearTried(key, done=True))
    core.pass_ms(1_100)
    assert core.seen.all(Leave)


def test_what_was_answered_while_it_was_asked_about_is_cleared_after_that() -> None:
    core = ParentCore()
    key = unseen(core)
    core.pass_ms(2_000)
    core.orders.judge(key)
    core.pass_ms(2_000)
    assert not core.seen.all(ClearLaunch)
    core.feed(Sighted(key, Sighting(Phase.RUNNING)))
    core.pass_ms(100)
    assert [each.key for each in core.seen.all(ClearLaunch)] == [key]


def test_what_runs_is_kept_however_long_the_substrate_cannot_be_asked() -> None:
    core = ParentCore()
    key = core.running()
    core.let_run(2 * TIMEOUT_MS, Phase.UNKNOWN)
    assert core.seen.held() == {key: "launched"}
