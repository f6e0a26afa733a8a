"""Random histories of submissions and their ends: no sum of a campaign is ever over its budget or beside its rows."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tenure.protocol.campaign_messages import Budget, CreateCampaign
from tenure.protocol.client_messages import Adopt, Submit
from tenure.protocol.envelope import Retry
from tenure.protocol.states import TERMINAL_TASK_STATES
from tenure.protocol.worker_messages import Cause
from tests.scripted_fleet import EXPIRY_MS, Hand, ScriptedFleet, ScriptedWorker, envelope

TMPFS = Path("/dev/shm")  # noqa: S108 - a folder in memory where there is one: thousands of commits are waited for
TASKS, ATTEMPT_MS, COST = 6, 40_000, 9
SUMS = """
SELECT c.reserved_tasks, c.used_tasks, c.reserved_ms, c.used_ms, c.reserved_cost, c.used_cost,
       COALESCE(SUM(h.state = 'RESERVED'), 0), COALESCE(SUM(h.state = 'USED'), 0),
       COALESCE(SUM(h.reserved_ms), 0), COALESCE(SUM(h.used_ms), 0),
       COALESCE(SUM(h.cost * (h.state = 'RESERVED')), 0), COALESCE(SUM(h.cost * (h.state = 'USED')), 0)
FROM campaign c LEFT JOIN charge h USING (campaign) GROUP BY c.campaign
"""
ENDS = "SELECT t.state, h.state FROM charge h JOIN task t USING (task_id)"
HELD = {"SUCCEEDED": "USED", "FAILED": "USED", "CANCELLED": "RELEASED", "ABANDONED": "RELEASED"}


class Campaign(RuleBasedStateMachine):  # noqa: PLR0904 - each rule is one thing that may happen
    """One campaign with three budgets, a client, and two workers that do as they like."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=TMPFS if TMPFS.is_dir() else None)
        self.fleet = ScriptedFleet(Path(self.folder.name))
        self.client = self.fleet.client
        budget = Budget(tasks=TASKS, attempt_ms=ATTEMPT_MS, cost=COST)
        self.client.ask(CreateCampaign(campaign="x", budget=budget))
        self.workers = [self.fleet.worker(name, slots=3) for name in ("w1", "w2")]
        self.asked: list[Submit] = []

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.fleet.__exit__(None, None, None)
            self.folder.cleanup()

    def tasks(self, *states: str) -> list[str]:
        rows = self.fleet.records.rows("SELECT task_id, state FROM task ORDER BY position")
        return [str(task_id) for task_id, state in rows if not states or state in states]

    # --- what may happen ---

    @rule(
        count=st.integers(1, 4),
        cost=st.integers(0, 3),
        timeout_ms=st.sampled_from([1_000, 4_000]),
        retry=st.sampled_from([Retry(), Retry(lost=1), Retry(failed=2)]),
        start=st.sampled_from(["granted", "claimed"]),
    )
    def submit(self, count: int, cost: int, timeout_ms: int, retry: Retry, start: str) -> None:
        """All of it is admitted exactly when it fits, and none of it else."""
        (before,) = self.fleet.records.rows(SUMS)
        known = len(self.tasks())
        each = envelope(timeout_ms=timeout_ms, retry=retry, start=start)
        ask = Submit(items=self.client.submission(*[each] * count).items, campaign="x", cost=cost)
        reply = self.client.ask(ask)
        self.asked.append(ask)
        asked_ms = count * timeout_ms * (1 + retry.lost + retry.failed)
        fits = (
            before[0] + before[1] + count <= TASKS
            and before[2] + before[3] + asked_ms <= ATTEMPT_MS
            and before[4] + before[5] + count * cost <= COST
        )
        assert (reply.refusal is None) is fits
        assert len(self.tasks()) - known == (count if fits else 0)

    @rule(pick=st.integers(0, 20))
    def repeat(self, pick: int) -> None:
        """What was admitted is answered as before, and takes nothing a second time."""
        admitted = {str(key) for (key,) in self.fleet.records.rows("SELECT idempotency_key FROM task")}
        asked = [ask for ask in self.asked if ask.items[0].key in admitted]
        if asked:
            before = self.fleet.records.rows(SUMS)
            reply = self.client.ask(asked[pick % len(asked)])
            assert reply.refusal is None
            assert not any(task.fresh for task in reply.admitted)
            assert self.fleet.records.rows(SUMS) == before

    @rule(which=st.integers(0, 1))
    def take(self, which: int) -> None:
        worker = self.workers[which]
        if fresh := worker.take():
            worker.claim(*fresh)

    @rule(
        which=st.integers(0, 1),
        end=st.sampled_from(["value", "failure", "unstarted", "released"]),
        ms=st.integers(0, 9_000),
    )
    def end(self, which: int, end: str, ms: int) -> None:
        worker = self.workers[which]
        if worker.hands:
            self.conclude(worker, worker.hands[0], end, ms)

    def conclude(self, worker: ScriptedWorker, hand: Hand, end: str, ms: int) -> None:
        match end:
            case "value":
                worker.hands.remove(hand)
                worker.report(worker.finished(hand).model_copy(update={"duration_ms": ms}))
            case "failure":
                worker.fail(hand)
            case "unstarted":
                worker.release(hand, Cause.UNSTARTED, started=False)
            case _:
                worker.release(hand, Cause.CANCELLED, started=True)

    @rule(pick=st.integers(0, 20), approve=st.booleans())
    def decide(self, pick: int, approve: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        if lost := self.tasks("LOST"):
            self.client.decide(lost[pick % len(lost)], approve=approve)

    @rule(pick=st.integers(0, 20))
    def cancel(self, pick: int) -> None:
        if tasks := self.tasks():
            self.client.cancel(tasks[pick % len(tasks)])

    @rule()
    def adopt(self) -> None:
        for (name,) in self.fleet.records.rows("SELECT quarantine_id FROM quarantine"):
            self.client.ask(Adopt(quarantine_id=str(name)))

    @rule(ms=st.sampled_from([500, 3_000, EXPIRY_MS + 500]), silent=st.booleans())
    def time_passes(self, ms: int, silent: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.workers[0].alive = not silent
        self.fleet.live(ms)
        self.workers[0].alive = True
        self.fleet.live(1_000)

    @rule()
    def restart(self) -> None:
        self.fleet.restart()
        self.fleet.step(2)

    # --- what always holds ---

    @invariant()
    def sums_are_those_of_the_rows_and_within_the_budget(self) -> None:
        if not hasattr(self, "fleet"):
            return
        ((*sums,),) = self.fleet.records.rows(SUMS)
        assert sums[:6] == sums[6:]
        assert sums[0] + sums[1] <= TASKS
        assert sums[2] + sums[3] <= ATTEMPT_MS
        assert sums[4] + sums[5] <= COST

    @invariant()
    def every_task_holds_what_its_state_says(self) -> None:
        if not hasattr(self, "fleet"):
            return
        for task, charge in self.fleet.records.rows(ENDS):
            assert charge == HELD.get(str(task), "RESERVED")
        assert set(HELD) == {str(state) for state in TERMINAL_TASK_STATES}


TestSums = Campaign.TestCase
TestSums.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
