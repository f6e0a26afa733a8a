"""The promises of the worker's core, whatever happens in whatever order.

The machine plays everything around the core: streams, coordinator, broker, clock, and the slots' processes, with the
calls that wait in each child's socket. It keeps its own account of grants and renewals and compares.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tenure.protocol.assignment import Ticket
from tenure.protocol.envelope import Envelope
from tenure.protocol.worker_messages import Hello, Outcome
from tenure.workers.actions import Action, AllowUntil, EndTree, Recall, StartCall, StartCommand, Tell
from tenure.workers.inputs import BeatTaken, CallEnded, ChildReady, DrainAsked, HandlerSeen, Reconnected, TreeEnded
from tenure.workers.inputs import Recalled as RecalledInput
from tests.fixtures_worker_core import Core, granted, program, quick

_ROUND_MS = 100
_SLOTS = 2


@dataclass
class Lease:
    """The machine's account of one assignment."""

    ticket: Ticket
    envelope: Envelope
    after_beat: int
    base_ms: int
    must_ask: bool = True
    granted: bool = False
    begun: int = 0
    answered: bool = False


@dataclass
class Process:
    """One slot's child or command: what waits in its socket, what it has begun, and until when it may run."""

    queue: list[int] = field(default_factory=list[int])
    begun: list[int] = field(default_factory=list[int])
    until_ms: int | None = None
    ending: bool = False
    alive: bool = False
    is_async: bool = False
    is_command: bool = False
    ready: bool = False


class WorkerMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(generation=st.integers(1, 3))
    def _start(self, generation: int) -> None:
        self.core = Core(slots=_SLOTS, generation=generation, ttl_ms=5_000, prompt=False)
        self.leases: dict[int, Lease] = {}
        self.calls: dict[int, int] = {}
        self.slots = [Process() for _ in range(_SLOTS)]
        self.sent: dict[int, int] = {}
        self.taken_beat = self.echoed_beat = 0
        self.drained = 0
        self.trusted = True
        self.follow(self.core.collect())

    # --- what the processes do ------------------------------------------------------------------

    def follow(self, actions: list[Action]) -> None:
        """Carry out actions as the crew would."""
        for action in actions:
            match action:
                case StartCall(slot, call, binding) | StartCommand(slot, call, binding):
                    self.give(self.slots[slot], call, binding.fence, is_command=isinstance(action, StartCommand))
                case AllowUntil(slot, until_ms):
                    self.slots[slot].until_ms = until_ms
                case Recall(slot):
                    back, self.slots[slot].queue = self.slots[slot].queue, []
                    self.feed(RecalledInput(slot, back))
                case EndTree(slot):
                    process = self.slots[slot]
                    process.ending = True
                    if not process.alive:
                        self.end_tree(slot, by_deadline=False)
                case Tell(Hello()):
                    self.trusted = False
                case _:
                    pass

    def give(self, process: Process, call: int, fence: int, *, is_command: bool) -> None:
        if is_command:
            assert not process.queue
            assert not process.begun
            process.is_async = process.ready = False
        assert self.core.now_ms < self.deadline_ms(self.leases[fence]), "started without a right to run"
        process.is_command = is_command
        process.alive = True
        self.calls[call] = fence
        process.queue.append(call)
        if is_command:
            self.begin(process)

    def begin(self, process: Process) -> None:
        call = process.queue.pop(0)
        lease = self.leases[self.calls[call]]
        assert lease.begun == 0, "started twice"
        assert not lease.answered, "started after its verdict"
        if lease.must_ask:
            assert lease.granted, "started without a grant"
        lease.begun += 1
        process.begun.append(call)

    def feed(self, *inputs: object) -> None:
        self.follow(self.core.feed(*inputs))  # type: ignore[arg-type]

    def end_tree(self, slot: int, *, by_deadline: bool) -> None:
        process = self.slots[slot]
        unstarted = process.queue
        self.slots[slot] = Process()
        self.feed(TreeEnded(slot, gone=True, unstarted=unstarted, by_deadline=by_deadline))

    def deadline_ms(self, lease: Lease) -> int:
        beat = self.echoed_beat if lease.ticket.exclusive else self.taken_beat
        base_ms = max(lease.base_ms, self.sent[beat]) if beat > lease.after_beat else lease.base_ms
        return base_ms + lease.ticket.ttl_ms

    # --- rules ----------------------------------------------------------------------------------

    @rule(
        kinds=st.lists(
            st.sampled_from(["quick", "quick", "slow", "granted", "exclusive", "program", "timed"]), min_size=1
        ),
        ttl_ms=st.sampled_from([1_000, 3_000, 10_000]),
        age_ms=st.sampled_from([0, 0, 0, 100, 700, 2_000]),
        flags=st.sampled_from([{}, {}, {}, {}, {"again": True}, {"again": True, "inherited": True}]),
    )
    def _hand_out(self, kinds: list[str], ttl_ms: int, age_ms: int, flags: dict[str, bool]) -> None:
        envelopes = [self.envelope(kind, ttl_ms) for kind in kinds[:6]]
        tickets = [self.core.ticket(envelope) for envelope in envelopes]
        after_beat = max(self.sent, default=0)
        for ticket, envelope in zip(tickets, envelopes, strict=True):
            # A hold that starts at once counts from its read; one that has to ask, from its claim, which is now.
            at_once = envelope.start == "claimed" and self.trusted and not flags and age_ms < ttl_ms // 2
            base_ms = self.core.now_ms - (age_ms if at_once else 0)
            self.leases[ticket.fence] = Lease(ticket, envelope, after_beat, base_ms, must_ask=not at_once)
        before = len(self.core.actions)
        self.core.hand_out(tickets, envelopes, age_ms=age_ms, **flags)
        self.follow(self.core.actions[before:])

    @staticmethod
    def envelope(kind: str, ttl_ms: int) -> Envelope:
        return {
            "quick": quick(lease_ttl_ms=ttl_ms),
            "slow": quick(handler="m:slow", lease_ttl_ms=ttl_ms),
            "granted": granted(lease_ttl_ms=ttl_ms),
            "exclusive": granted(exclusive=True, lease_ttl_ms=ttl_ms),
            "program": program(lease_ttl_ms=ttl_ms),
            "timed": quick(lease_ttl_ms=ttl_ms, timeout_ms=300),
        }[kind]

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def _hand_out_again(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(list(self.leases.values())))
        if lease.answered and self.core.claims._ledger.recall((lease.ticket.task_id, lease.ticket.fence)) is False:
            assert lease.begun == 0, "what had begun may be taken again"
            lease.answered = lease.granted = False
            lease.must_ask, lease.after_beat, lease.base_ms = True, max(self.sent, default=0), self.core.now_ms
        before = len(self.core.actions)
        self.core.hand_out([lease.ticket], [lease.envelope])
        self.follow(self.core.actions[before:])

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), order=st.sampled_from(["grant", "refuse", "stop"]))
    def _order(self, data: st.DataObject, order: str) -> None:
        lease = data.draw(st.sampled_from(list(self.leases.values())))
        if order == "grant":
            lease.granted = True
        if order == "refuse" and lease.ticket.fence in self.core.seen.held() and lease.begun == 0:
            lease.answered = not self.finished(lease)
            held_in = [p for p in self.slots if any(self.calls[c] == lease.ticket.fence for c in p.queue)]
            lease.answered = lease.answered and not held_in
        self.follow(getattr(self.core.orders, order)(lease.ticket))

    @rule()
    def _grant_all(self) -> None:
        waiting = [lease for lease in self.leases.values() if not lease.answered and not lease.begun]
        for lease in waiting:
            lease.granted = True
        self.follow(self.core.orders.grant(*(lease.ticket for lease in waiting)))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def _judge(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(list(self.leases.values())))
        lease.answered = lease.answered or self.finished(lease)
        self.follow(self.core.orders.judge(lease.ticket))

    @precondition(lambda self: any(process.queue and not process.ready for process in self.slots))
    @rule()
    def _children_start(self) -> None:
        for slot, process in enumerate(self.slots):
            if process.alive and not process.ready and not process.is_command:
                process.ready = True
                self.feed(ChildReady(slot))

    @precondition(lambda self: any(process.queue and process.ready for process in self.slots))
    @rule()
    def _children_begin(self) -> None:
        for process in self.slots:
            while process.queue and process.ready and (process.is_async or not process.begun):
                self.begin(process)

    @precondition(lambda self: any(process.begun for process in self.slots))
    @rule(slot=st.integers(0, _SLOTS - 1), duration_ms=st.sampled_from([0, 1, 30, 500]), cancelled=st.booleans())
    def _child_returns(self, slot: int, duration_ms: int, *, cancelled: bool) -> None:
        process = self.slots[slot]
        if process.begun:
            call = process.begun.pop()
            if process.is_command:
                self.slots[slot] = Process()
                outcome = None if process.ending else Outcome(value="1")
                self.feed(TreeEnded(slot, gone=True, outcome=outcome, duration_ms=duration_ms))
            else:
                outcome = None if cancelled and process.is_async else Outcome(value="1")
                process.is_async = process.is_async and bool(process.begun or process.queue)
                self.feed(CallEnded(slot, call, outcome, duration_ms))

    @precondition(lambda self: any(len(process.begun) == 1 for process in self.slots))
    @rule(slot=st.integers(0, _SLOTS - 1))
    def _handler_is_async(self, slot: int) -> None:
        process = self.slots[slot]
        if len(process.begun) == 1 and not process.queue and not process.is_command:
            fence = self.calls[process.begun[0]]
            work = self.leases[fence].envelope.work
            if work.kind == "call" and work.handler == "m:slow":
                process.is_async = True
                self.feed(HandlerSeen(slot, "m:slow", is_async=True))

    @precondition(lambda self: any(process.alive for process in self.slots))
    @rule(slot=st.integers(0, _SLOTS - 1))
    def _tree_ends(self, slot: int) -> None:
        if self.slots[slot].alive:
            self.end_tree(slot, by_deadline=False)

    @rule(taken=st.booleans(), echoed=st.booleans())
    def _beat(self, *, taken: bool, echoed: bool) -> None:
        pulse = self.core.claims.pulse(self.core.now_ms)
        self.sent[pulse.sequence] = self.core.now_ms
        if taken:
            self.taken_beat = pulse.sequence
            if echoed:
                self.echoed_beat = pulse.sequence
            echo = f"1:{self.core.generation}:{pulse.sequence}" if echoed else ""
            self.feed(BeatTaken(pulse.sequence, echo))

    @rule(duration_ms=st.sampled_from([10, 100, 400, 2_000]))
    def _time_passes(self, duration_ms: int) -> None:
        until_ms = self.core.now_ms + duration_ms
        while self.core.now_ms < until_ms:
            self.core.now_ms += 10
            for slot, process in enumerate(self.slots):
                if process.until_ms is not None and self.core.now_ms >= process.until_ms and process.alive:
                    self.end_tree(slot, by_deadline=True)
            self.follow(self.core.collect())

    @precondition(lambda self: any(not lease.answered for lease in self.leases.values()))
    @rule()
    def _reconnect(self) -> None:
        self.feed(Reconnected())

    @precondition(lambda self: not self.trusted)
    @rule()
    def _answer_hello(self) -> None:
        self.trusted = True
        self.core.orders.register()

    @precondition(lambda self: self.drained < 2 and len(self.leases) > 40)
    @rule()
    def _drain(self) -> None:
        self.drained += 1
        self.feed(DrainAsked(at_once=self.drained > 1))

    # --- promises -------------------------------------------------------------------------------

    def finished(self, lease: Lease) -> bool:
        nonce = self.core.seen.nonce(lease.ticket)
        bindings = [report.binding for report in self.core.seen.finished(lease.ticket)]
        bindings += [report.binding for report in self.core.seen.released(lease.ticket)]
        return any(binding.nonce == nonce for binding in bindings)

    @invariant()
    def everything_in_hand_is_listed_until_its_answer(self) -> None:
        if not hasattr(self, "core"):
            return
        held = {hold.binding.fence for hold in self.core.claims._ledger.holds()}
        assert held == {fence for fence, lease in self.leases.items() if not lease.answered}

    @invariant()
    def nothing_runs_past_its_right_to_run(self) -> None:
        if not hasattr(self, "core"):
            return
        for process in self.slots:
            for call in process.begun:
                lease = self.leases[self.calls[call]]
                assert process.until_ms is not None
                assert process.until_ms <= self.deadline_ms(lease)

    @invariant()
    def nothing_is_placed_more_than_the_slots_allow(self) -> None:
        if not hasattr(self, "core"):
            return
        running = sum(len(process.begun) if process.is_async else bool(process.begun) for process in self.slots)
        assert running <= _SLOTS


def test_the_promises_hold_whatever_happens() -> None:
    run_state_machine_as_test(WorkerMachine, settings=settings(max_examples=300, stateful_step_count=60, deadline=None))
