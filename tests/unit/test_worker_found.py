"""What the simulation found in workers, as short as it gets; each names what it was found with."""

from tenure.protocol.control_messages import Registered
from tenure.protocol.worker_messages import Cause, Leaving, Released
from tenure.workers.actions import AllowUntil, Outranked
from tests.fixtures_worker_core import Core, program, quick


def test_an_agent_that_gives_way_to_a_newer_one_notes_its_number_and_ends() -> None:
    # Seed 50009: a machine whose clock was behind was refused for as long as that, after the other one had gone.
    core = Core(generation=5)
    core.orders.order(Registered(generation=9))
    assert core.seen.all(Outranked) == [Outranked(9)]
    assert core.seen.told(Leaving)[0] == Leaving(gone=False)


def test_a_newer_assignment_does_not_start_beside_the_older_one_although_a_slot_is_free() -> None:
    # The mutant `beside_the_older` survived: in the other test of this, the handler was still unknown.
    core = Core(slots=2)
    envelope = program()
    old = core.ticket(envelope)
    core.hand_out([old], [envelope])
    new = core.ticket(envelope, task_id=old.task_id)
    core.hand_out([new], [envelope])
    core.pass_ms(100)
    assert core.seen.started() == [old.fence]
    core.tree_ended(0)
    core.pass_ms(100)
    assert core.seen.started() == [old.fence, new.fence]


def test_a_process_may_run_no_longer_than_the_shortest_lease_in_it() -> None:
    # The mutant `latest_deadline` survived.
    core = Core()
    (first,) = core.take(quick())
    core.end(first, duration_ms=1)
    core.orders.judge(first)
    core.take(quick(lease_ttl_ms=2_000), quick(lease_ttl_ms=20_000))
    assert len(core.seen.started()) == 3, "both are in the one child"
    core.now_ms += 100
    core.beat()
    core.collect()
    assert core.seen.all(AllowUntil)[-1].until_ms == core.now_ms + 2_000


def test_a_renewal_after_a_suspend_does_not_bring_back_a_right_that_had_run_out() -> None:
    # Seed 103: a host slept past the lease of a claim; its first heartbeat was taken before the old grant was read.
    for exclusive in (False, True):
        core = Core()
        (ticket,) = core.take(program(lease_ttl_ms=2_000, start="granted", exclusive=exclusive))
        core.now_ms += 2_500
        core.beat()
        core.orders.grant(ticket)
        assert core.seen.started() == []
        assert [(each.cause, each.started) for each in core.seen.told(Released)] == [(Cause.SELF_FENCED, False)]
