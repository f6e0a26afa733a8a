"""What the core makes of checkpoints, outputs, secrets and metrics."""

from typing import Any

from tenure.protocol.artifact import Blob, Bundle, Checkpoint
from tenure.protocol.assignment import Ticket
from tenure.protocol.control_messages import Kept
from tenure.protocol.envelope import CallWork, Envelope, Limits
from tenure.protocol.worker_messages import Cause, Checkpointed, Failure, FailureKind, Finished, Outcome, Progressed
from tenure.workers.claims import Claims
from tenure.workers.inputs import CheckpointSaved, DrainAsked, ProgressMade, Reconnected
from tenure.workers.membership import Profile
from tests.fixtures_worker_core import SCOPE, Core, program

BUNDLE = Bundle(manifest=Blob(digest="d" * 64, size=3), files=1, size=4)


def running(**fields: Any) -> tuple[Core, Ticket]:
    core = Core()
    (ticket,) = core.take(program(**fields))
    return core, ticket


def save(core: Core, ticket: Ticket, name: str) -> None:
    core.feed(CheckpointSaved(0, core.seen.start_of(ticket).call, name, BUNDLE))


def keep(core: Core, ticket: Ticket, ordinal: int, nonce: str = "") -> None:
    nonce = nonce or core.seen.nonce(ticket)
    core.orders.order(Kept(task_id=ticket.task_id, fence=ticket.fence, nonce=nonce, ordinal=ordinal))


def told(core: Core) -> list[tuple[int, str]]:
    return [(event.ordinal, event.name) for event in core.seen.told(Checkpointed)]


def test_a_checkpoint_is_told_at_once_and_again_until_it_is_kept() -> None:
    core, ticket = running()
    save(core, ticket, "a")
    assert told(core) == [(1, "a")]
    core.pass_ms(2_100)
    assert told(core) == [(1, "a")] * 2
    keep(core, ticket, 1)
    core.pass_ms(20_000)
    assert told(core) == [(1, "a")] * 2


def test_only_the_newest_unanswered_checkpoint_is_told_again() -> None:
    core, ticket = running()
    save(core, ticket, "a")
    save(core, ticket, "b")
    keep(core, ticket, 1)
    core.pass_ms(600)
    assert told(core) == [(1, "a"), (2, "b")]
    core.pass_ms(2_100)
    assert told(core) == [(1, "a"), (2, "b"), (2, "b")]


def test_a_program_that_saves_in_a_tight_loop_is_told_of_twice_a_second() -> None:
    core, ticket = running()
    for number in range(1, 101):
        save(core, ticket, f"n{number}")
        keep(core, ticket, told(core)[-1][0])
        core.pass_ms(20)
    core.pass_ms(600)
    names = [name for _, name in told(core)]
    assert (names[0], names[-1]) == ("n1", "n100")
    assert len(names) <= 6


def test_an_answer_to_another_executor_counts_for_nothing() -> None:
    core, ticket = running()
    save(core, ticket, "a")
    keep(core, ticket, 1, nonce="e" * 32)
    core.pass_ms(2_100)
    assert len(told(core)) == 2


def test_after_a_reconnect_it_is_told_at_once() -> None:
    core, ticket = running()
    save(core, ticket, "a")
    core.feed(Reconnected())
    assert len(told(core)) == 2


def test_it_is_told_on_after_the_end_until_the_verdict() -> None:
    core, ticket = running()
    save(core, ticket, "a")
    core.tree_ended(0, outcome=Outcome(value="1"))
    core.pass_ms(2_100)
    assert len(told(core)) == 2
    core.orders.judge(ticket)
    core.pass_ms(20_000)
    assert len(told(core)) == 2


def test_a_checkpoint_that_comes_after_the_end_is_nobodys() -> None:
    core, ticket = running()
    call = core.seen.start_of(ticket).call
    core.tree_ended(0, outcome=Outcome(value="1"))
    core.feed(CheckpointSaved(0, call, "late", BUNDLE))
    assert told(core) == []


def test_outputs_and_notes_are_part_of_the_result() -> None:
    core, ticket = running()
    core.tree_ended(0, outcome=Outcome(value="1"), outputs=BUNDLE, notes=("x" * 5_000, *["y"] * 30))
    (finished,) = core.seen.finished(ticket)
    assert finished.outputs == BUNDLE
    assert len(finished.notes) == 16
    assert len(finished.notes[0]) == 1_000
    assert Finished.model_validate_json(finished.model_dump_json()) == finished


def test_metrics_travel_with_progress() -> None:
    core, ticket = running()
    core.feed(ProgressMade(0, core.seen.start_of(ticket).call, 5, "m", '{"a":1}'))
    core.pass_ms(100)
    (event,) = core.seen.told(Progressed)
    assert (event.cursor, event.metrics) == (1, '{"a":1}')


def test_what_an_attempt_runs_with_reaches_the_slot() -> None:
    checkpoint = Checkpoint(name="a", attempt=1, fence=1, ordinal=2, bundle=BUNDLE)
    core = Core()
    core.claims = Claims(Profile(core.claims._profile.hello, 1, frozenset({"key"})), core.claims._intake._entropy)
    core.collect()
    core.orders.register()
    envelope = program(secrets=("key",), limits=Limits(files=3), keep_folder=True, label="l", timeout_ms=50)
    ticket = core.ticket(envelope, checkpoint=checkpoint)
    core.hand_out([ticket], [envelope])

    provision = core.seen.start_of(ticket).provision
    assert (provision.checkpoint, provision.secrets, provision.limits) == (checkpoint, ("key",), Limits(files=3))
    assert (provision.keep_folder, provision.label, provision.timeout_ms) == (True, "l", 50)


def test_a_task_with_a_secret_that_the_host_does_not_know_is_given_back() -> None:
    core, ticket = running(secrets=("key", "other"))
    (released,) = core.seen.released(ticket)
    assert (released.cause, released.started) == (Cause.REFUSED, False)
    assert "key, other" in released.detail
    assert core.seen.starts() == []


def test_a_stop_before_the_program_began_says_so_but_a_timeout_is_the_tasks_own() -> None:
    core, ticket = running()
    core.orders.stop(ticket)
    core.tree_ended(0, begun=False)
    (released,) = core.seen.released(ticket)
    assert (released.cause, released.started) == (Cause.CANCELLED, False)

    core, ticket = running(timeout_ms=100)
    core.pass_ms(300)
    core.tree_ended(0, begun=False)
    (finished,) = core.seen.finished(ticket)
    assert finished.outcome.failure is not None
    assert finished.outcome.failure.kind is FailureKind.TIMEOUT


def test_a_call_without_files_has_the_bytes_that_it_always_had() -> None:
    envelope = Envelope(work=CallWork(handler="m:f"), scope=SCOPE)
    assert "files" not in envelope.model_dump_json(exclude_defaults=True)


# --- a bad end waits for its last checkpoint ----------------------------------------------------

FAILED = Outcome(failure=Failure(kind=FailureKind.EXIT_CODE, message="no"))


def failed_with_checkpoint() -> tuple[Core, Ticket]:
    core, ticket = running(timeout_ms=60_000)
    save(core, ticket, "a")
    core.tree_ended(0, outcome=FAILED)
    return core, ticket


def test_a_failure_is_told_when_the_last_checkpoint_is_answered() -> None:
    core, ticket = failed_with_checkpoint()
    save(core, ticket, "late")
    core.pass_ms(5_000)
    core.beat()
    assert core.seen.finished(ticket) == []
    assert core.seen.held() == {ticket.fence: "running"}
    keep(core, ticket, 1)
    assert len(core.seen.finished(ticket)) == 1
    assert core.seen.held() == {ticket.fence: "finished"}
    core.orders.judge(ticket)
    assert core.seen.held() == {}


def test_the_slot_is_free_meanwhile() -> None:
    core, ticket = failed_with_checkpoint()
    (other,) = core.take(program())
    assert core.seen.started() == [ticket.fence, other.fence]


def test_it_does_not_wait_for_ever() -> None:
    core, ticket = failed_with_checkpoint()
    for _ in range(4):
        core.beat()
        core.pass_ms(4_000)
    assert len(core.seen.finished(ticket)) == 1


def test_it_does_not_wait_past_the_right_to_run() -> None:
    core, ticket = running(lease_ttl_ms=3_000)
    save(core, ticket, "a")
    core.tree_ended(0, outcome=FAILED)
    core.pass_ms(2_900)
    assert core.seen.finished(ticket) == []
    core.pass_ms(200)
    assert len(core.seen.finished(ticket)) == 1


def test_a_stop_or_a_refusal_ends_the_wait() -> None:
    core, ticket = failed_with_checkpoint()
    core.orders.stop(ticket)
    assert len(core.seen.finished(ticket)) == 1
    core, ticket = failed_with_checkpoint()
    core.orders.refuse(ticket)
    assert len(core.seen.finished(ticket)) == 1
    core, ticket = failed_with_checkpoint()
    core.feed(DrainAsked(at_once=True))
    assert len(core.seen.finished(ticket)) == 1


def test_an_accident_waits_and_an_order_does_not() -> None:
    core, ticket = running()
    save(core, ticket, "a")
    core.tree_ended(0)
    assert core.seen.released(ticket) == []
    keep(core, ticket, 1)
    assert core.seen.released(ticket)[0].cause is Cause.PROCESS_DIED

    core, ticket = running()
    save(core, ticket, "a")
    core.orders.stop(ticket)
    core.tree_ended(0)
    assert core.seen.released(ticket)[0].cause is Cause.CANCELLED


def test_a_newer_assignment_of_the_task_ends_the_wait() -> None:
    core, ticket = failed_with_checkpoint()
    envelope = program()
    newer = core.ticket(envelope, task_id=ticket.task_id)
    core.hand_out([newer], [envelope])
    assert len(core.seen.finished(ticket)) == 1
    assert core.seen.started() == [ticket.fence, newer.fence]
