"""Random histories of a fleet, liars included; after every step the database is asked whether a promise was broken."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tenure.errors import BrokerError
from tenure.protocol.artifact import Bundle
from tenure.protocol.client_messages import Adopt, CollectArtifacts, Drop
from tenure.protocol.envelope import Requirements, Retry
from tenure.protocol.states import TERMINAL_TASK_STATES
from tenure.protocol.worker_messages import BEFORE_THE_START, Cause, Checkpointed, FailureKind, Released
from tests.held_porter import HeldPorter, blob_of, objects, stage
from tests.honest_worker import HonestWorker
from tests.scripted_fleet import Hand, ScriptedFleet, ScriptedWorker, drop, envelope

TMPFS = Path("/dev/shm")  # noqa: S108 - a folder in memory where there is one: thousands of commits are waited for
NAMES = ("w1", "w2", "w3")
SAYABLE = tuple(cause for cause in Cause if cause is not Cause.SITE_REVOKED)
TERMINAL = tuple(str(state) for state in TERMINAL_TASK_STATES)

BROKEN = {
    "a second live lease": (
        "SELECT task_id FROM lease WHERE state IN ('OFFERED', 'ACTIVE') GROUP BY task_id HAVING COUNT(*) > 1"
    ),
    "a fence used twice": "SELECT fence FROM lease GROUP BY fence HAVING COUNT(*) > 1",
    "a result without the newest, completed lease": (
        "SELECT r.task_id FROM result r WHERE NOT EXISTS (SELECT 1 FROM lease l WHERE l.task_id = r.task_id AND "
        "l.fence = r.fence AND l.state = 'COMPLETED' AND l.worker_id = r.worker_id AND l.nonce = r.nonce AND "
        "r.fence = (SELECT MAX(fence) FROM lease l WHERE l.task_id = r.task_id)) "
        "AND NOT EXISTS (SELECT 1 FROM quarantine_decision d JOIN quarantine q USING (quarantine_id) WHERE "
        "d.task_id = r.task_id AND d.action = 'adopt' AND d.fence = r.fence AND q.worker_id = r.worker_id "
        "AND q.nonce = r.nonce AND q.outputs IS r.outputs)"
    ),
    "a result of a task that has not ended with one": (
        "SELECT task_id FROM result JOIN task USING (task_id) WHERE state NOT IN ('SUCCEEDED', 'FAILED')"
    ),
    "an end without a result": (
        "SELECT task_id FROM task WHERE state IN ('SUCCEEDED', 'FAILED') "
        "AND task_id NOT IN (SELECT task_id FROM result)"
    ),
    "a further attempt that nobody approved": (
        "SELECT l.task_id FROM lease l WHERE attempt > 1 AND NOT EXISTS (SELECT 1 FROM directive d WHERE "
        "d.task_id = l.task_id AND d.next_attempt = l.attempt AND d.state = 'APPROVED')"
    ),
    "an attempt offered again after it may have started": (
        "SELECT l.task_id FROM lease l JOIN lease e ON e.task_id = l.task_id AND e.attempt = l.attempt AND "
        "e.fence < l.fence WHERE e.state <> 'RELEASED' OR e.cause <> 'unstarted'"
    ),
    "a task and its lease that contradict each other": (
        "SELECT t.task_id FROM task t LEFT JOIN lease l ON l.task_id = t.task_id AND l.state IN ('OFFERED', 'ACTIVE') "
        "WHERE (l.state IS NOT NULL) <> (t.state IN ('OFFERED', 'RUNNING', 'CANCELLING')) "
        "OR (t.state = 'RUNNING' AND l.state <> 'ACTIVE')"
    ),
    "an adoption beside a lease that counts": (
        "SELECT d.task_id FROM quarantine_decision d JOIN quarantine q USING (quarantine_id) JOIN lease l ON "
        "l.task_id = d.task_id WHERE d.action = 'adopt' AND (l.state IN ('OFFERED', 'ACTIVE') OR l.fence >= d.fence "
        "OR (l.state = 'COMPLETED' AND l.fence >= q.fence))"
    ),
    "files on record without a result that names them, or the other way": (
        "SELECT r.task_id FROM result r WHERE (r.outputs IS NOT NULL) <> EXISTS (SELECT 1 FROM artifact a WHERE "
        "a.task_id = r.task_id AND a.kind = 'outputs' AND a.fence = r.fence AND instr(r.outputs, a.manifest) > 0)"
    ),
    "files of a task without a result": (
        "SELECT task_id FROM artifact WHERE kind = 'outputs' AND task_id NOT IN (SELECT task_id FROM result)"
    ),
    "a task that is lost without a question to decide": (
        "SELECT task_id FROM task WHERE (state = 'LOST') <> "
        "(task_id IN (SELECT task_id FROM directive WHERE state = 'PENDING'))"
    ),
}
"""What may never be found in the database, each by the query that would find it."""


class Fleet(RuleBasedStateMachine):  # noqa: PLR0904 - each rule is one thing that may happen
    """Clients, three workers and what may happen to them."""

    @initialize(slots=st.integers(1, 3))
    def begin(self, slots: int) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=TMPFS if TMPFS.is_dir() else None)
        self.porter = HeldPorter()
        self.saved: dict[str, set[str]] = {}
        self.fleet = ScriptedFleet(Path(self.folder.name), unclaimed_ms=5_000, porter=self.porter, artifacts="memory:")
        self.honest = {
            name: HonestWorker(self.fleet.worker(name, slots=slots), slots, outputs=self.leave) for name in NAMES
        }
        self.kept: list[tuple[ScriptedWorker, Hand]] = []
        self.ended: dict[str, str] = {}
        self.submitted = 0
        for start, retry in (("granted", Retry()), ("claimed", Retry(lost=2, failed=1)), ("claimed", Retry())):
            self.submit(start, retry, Requirements())

    def leave(self, hand: Hand) -> Bundle | None:
        """Every second assignment leaves files."""
        if hand.ticket.fence % 2:
            return None
        return self.stage(hand, f"outputs of {hand.ticket.fence} {hand.nonce}")

    def stage(self, hand: Hand, text: str) -> Bundle:
        bundle = stage(self.porter, hand.binding, {"f": text.encode()})
        self.saved[bundle.manifest.digest] = {bundle.manifest.digest, blob_of(text.encode()).digest}
        return bundle

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.fleet.__exit__(None, None, None)
            self.folder.cleanup()

    def turn(self, turns: int = 2) -> None:
        """Turns of the coordinator; a broker that has lost something is looked over by the second."""
        for _ in range(turns):
            with suppress(BrokerError):
                self.fleet.step()

    def ask(self, send: Any) -> None:
        with suppress(BrokerError):
            self.fleet.client.send(send)
        self.turn()

    def open_tasks(self) -> list[str]:
        rows = self.fleet.records.rows("SELECT task_id, state FROM task")
        return [str(task) for task, state in rows if state not in {*TERMINAL, "LOST"}]

    def tasks(self) -> list[str]:
        return [str(row[0]) for row in self.fleet.records.rows("SELECT task_id FROM task ORDER BY position")]

    # --- clients ---

    @rule(
        start=st.sampled_from(["granted", "claimed"]),
        retry=st.sampled_from([Retry(), Retry(lost=1), Retry(lost=2, failed=1, backoff_ms=3_000)]),
        needs=st.sampled_from([Requirements(), Requirements(), Requirements(worker="w2")]),
    )
    def submit(self, start: str, retry: Retry, needs: Requirements) -> None:
        self.submitted += 1
        self.ask(
            self.fleet.client.submission(
                envelope(start=start, retry=retry, requirements=needs), key=f"k{self.submitted}"
            )
        )

    @rule(pick=st.integers(0, 50), approve=st.booleans(), cancel=st.booleans())
    def decide_or_cancel(self, pick: int, approve: bool, cancel: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        tasks = self.tasks()
        if tasks:
            task = tasks[pick % len(tasks)]
            with suppress(BrokerError, KeyError):
                self.fleet.client.cancel(task) if cancel else self.fleet.client.decide(task, approve=approve)
        self.turn()

    @rule(pick=st.integers(0, 50), drop=st.booleans())
    def judge_a_rejected_result(self, pick: int, drop: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        names = [str(row[0]) for row in self.fleet.records.rows("SELECT quarantine_id FROM quarantine ORDER BY 1")]
        if names:
            name = names[pick % len(names)]
            self.ask(Drop(quarantine_id=name) if drop else Adopt(quarantine_id=name))

    @rule()
    def collect(self) -> None:
        self.ask(CollectArtifacts(min_age_ms=0))

    # --- the porter ---

    @rule(kind=st.sampled_from(["", "verify", "promote"]))
    def porter_works(self, kind: str) -> None:
        self.porter.finish(kind)
        self.turn(1)

    @rule(code=st.sampled_from(["artifact_store_unreachable", "unknown_artifact"]))
    def checks_fail(self, code: str) -> None:
        self.porter.fail(code, "verify")
        self.turn(1)

    # --- workers ---

    @rule(name=st.sampled_from(NAMES), ordinal=st.integers(1, 4))
    def save(self, name: str, ordinal: int) -> None:
        worker = self.honest[name].worker
        for hand in worker.hands[:1]:
            bundle = self.stage(hand, f"checkpoint {ordinal} of {hand.ticket.fence} {hand.nonce}")
            event = Checkpointed(binding=hand.binding, ordinal=ordinal, name=f"step-{ordinal}", bundle=bundle)
            with suppress(BrokerError):
                worker.send(event)
        self.turn()

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def honest_rounds(self, names: set[str]) -> None:
        self.fleet.clock.advance_ms(300)
        for name in sorted(names):
            self.honest[name].round()
            self.kept.extend((self.honest[name].worker, hand) for hand in self.honest[name].worker.hands)
        self.turn()

    @rule(name=st.sampled_from(NAMES), cause=st.sampled_from(SAYABLE), started=st.booleans(), gone=st.booleans())
    def give_up(self, name: str, cause: Cause, started: bool, gone: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        worker = self.honest[name].worker
        if worker.hands:
            hand = worker.hands[0]
            drop(worker, hand)
            with suppress(BrokerError):
                unstarted = hand.state == "claimed" and hand.ticket.start == "granted"
                started = (started and cause not in BEFORE_THE_START) or not unstarted
                said = Cause.PROCESS_DIED if started and cause in BEFORE_THE_START else cause
                worker.send(Released(binding=hand.binding, cause=said, started=started, tree_gone=gone))
        self.turn()

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from([FailureKind.EXCEPTION, FailureKind.NOT_ALLOWED]))
    def fail(self, name: str, kind: FailureKind) -> None:
        worker = self.honest[name].worker
        if worker.hands:
            with suppress(BrokerError):
                worker.fail(worker.hands[0], kind)
        self.turn()

    @precondition(lambda self: self.kept)
    @rule(
        pick=st.integers(0, 50),
        name=st.sampled_from(NAMES),
        changes=st.sampled_from([{}, {}, {"nonce": "f" * 16}, {"digest": "0" * 64}, {"attempt": 7}, {"fence": 1}]),
    )
    def late_or_false_result(self, pick: int, name: str, changes: dict[str, Any]) -> None:
        """Of an attempt long over, or somebody else's, or with one thing falsified."""
        owner, hand = self.kept[pick % len(self.kept)]
        liar = self.honest[name].worker if changes else owner
        finished = liar.finished(hand, '"false"')
        with suppress(BrokerError):
            liar.send(finished.model_copy(update={"binding": hand.binding.model_copy(update=changes)}))
        self.turn()

    @rule(name=st.sampled_from(NAMES))
    def agent_restarts(self, name: str) -> None:
        """A new generation that finds nothing running."""
        honest = self.honest[name]
        honest.worker.hands.clear()
        honest.worker.generation += 1
        honest.registered = False
        honest.round()
        self.turn()

    # --- the world around them ---

    @rule(duration_ms=st.sampled_from([200, 1_000, 1_900, 6_000, 60_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.fleet.clock.advance_ms(duration_ms)
        self.turn()

    @rule(seconds=st.integers(5, 25))
    def nobody_is_heard(self, seconds: int) -> None:
        for _ in range(seconds):
            self.fleet.clock.advance_ms(1_000)
            self.turn(1)

    @rule()
    def coordinator_restarts(self) -> None:
        self.fleet.restart()
        self.turn()

    @rule()
    def broker_is_flushed(self) -> None:
        self.fleet.server.flush()
        self.turn(3)

    @rule()
    def broker_restarts(self) -> None:
        self.fleet.server.restart()
        self.turn()

    @rule(difference_ms=st.sampled_from([600_000]))
    def wall_clock_jumps(self, difference_ms: int) -> None:
        self.fleet.clock.jump_wall_ms(difference_ms)
        self.turn()

    # --- what is promised ---

    @invariant()
    def no_promise_is_broken(self) -> None:
        if hasattr(self, "fleet"):
            found = {what: rows for what, query in BROKEN.items() if (rows := self.fleet.records.rows(query))}
            assert found == {}

    @invariant()
    def the_store_has_nothing_that_was_not_accepted(self) -> None:
        if hasattr(self, "fleet"):
            accepted = [str(row[0]) for row in self.fleet.records.rows("SELECT manifest FROM artifact")]
            assert objects(self.porter) <= {digest for name in accepted for digest in self.saved[name]}

    @invariant()
    def no_assignment_is_started_twice(self) -> None:
        if hasattr(self, "fleet"):
            started = [fence for honest in self.honest.values() for fence in honest.started]
            assert len(started) == len(set(started))

    @invariant()
    def terminal_is_terminal(self) -> None:
        if hasattr(self, "fleet"):
            now: dict[str, str] = dict(self.fleet.records.rows("SELECT task_id, state FROM task"))
            assert {task: now[task] for task in self.ended} == self.ended
            self.ended = {task: state for task, state in now.items() if state in TERMINAL}

    @rule()
    def in_time_everything_ends_or_waits_for_a_person(self) -> None:
        """Nothing is stuck: with honest workers every task ends, or is LOST and asks for a decision."""
        seconds = 0
        while self.open_tasks() and seconds < 120:
            seconds += 1
            self.fleet.clock.advance_ms(1_000)
            for honest in self.honest.values():
                honest.round()
            self.turn(1)
            self.porter.finish()
        assert self.open_tasks() == []
        for _ in range(70):
            self.fleet.clock.advance_ms(1_000)
            self.porter.finish()
            self.turn(1)
        names = "SELECT manifest FROM artifact WHERE kind = 'outputs'"
        kept = {digest for (name,) in self.fleet.records.rows(names) for digest in self.saved[str(name)]}
        assert kept <= objects(self.porter)


def test_no_history_breaks_a_promise() -> None:
    run_state_machine_as_test(
        Fleet,
        settings=settings(
            max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
