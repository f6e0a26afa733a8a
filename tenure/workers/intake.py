"""Intake: from a handout to a hold. Decides whether it may start at once, must ask first, or is given back.

Every handout whose ticket could be read is in the ledger, and so in the heartbeats, before anything else happens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from tenure.errors import TenureError
from tenure.protocol.durations import duration_text
from tenure.protocol.envelope import digest, open_envelope
from tenure.protocol.worker_messages import Binding, Cause, Claimed
from tenure.workers.actions import Tell
from tenure.workers.conclusions import give_back, release
from tenure.workers.holds import Hold, Stage
from tenure.workers.lifetime import ENDLESS
from tenure.workers.provision import provision_of

if TYPE_CHECKING:
    from tenure.clock import Entropy
    from tenure.protocol.assignment import Assignment, Ticket
    from tenure.workers.inputs import Taken
    from tenure.workers.ledger import Ledger
    from tenure.workers.lifetime import Lifetime
    from tenure.workers.rights import Rights
    from tenure.workers.stopping import Stopper

_NONCE_BYTES: Final = 16
_EARLY_STOPS: Final = 1_024


@final
@dataclass(frozen=True, slots=True)
class IntakeParts:
    """The parts of the core that the intake works on."""

    ledger: Ledger
    rights: Rights
    stopper: Stopper


@final
class Intake:
    """Takes handouts into the ledger. `secrets` are the names that this host knows."""

    def __init__(
        self, parts: IntakeParts, entropy: Entropy, secrets: frozenset[str], lifetime: Lifetime = ENDLESS
    ) -> None:
        self._ledger = parts.ledger
        self._rights = parts.rights
        self._stopper = parts.stopper
        self._entropy = entropy
        self._secrets = secrets
        self._lifetime = lifetime
        self._stopped_early: dict[tuple[str, int], None] = {}
        self.closed = False
        self.has_read = False
        """Whether the broker has answered what there is to take."""
        self.trusted = False
        """Whether the coordinator has answered a hello since the last reconnect.

        Only then may a task start on its claim: a broker that has lost its newest writes may hand out again what
        somebody runs.
        """
        self.epoch = 0
        """The number of the newest coordinator that this worker has heard of."""

    def take(self, taken: Taken, now_ms: int) -> None:
        """Take these handouts; repeated ones and those that a newer one replaces are ignored."""
        self.has_read = True
        if taken.withdrawn:
            self._ledger.counts["withdrawn"] += 1
        for handout in taken.handouts:
            if handout.assignment is None:
                self._ledger.counts["unreadable"] += 1
                continue
            self._take_one(handout.assignment, taken, now_ms)

    def stop_early(self, key: tuple[str, int]) -> None:
        """Remember that an assignment must not start should it still arrive."""
        self._stopped_early[key] = None
        if len(self._stopped_early) > _EARLY_STOPS:
            del self._stopped_early[next(iter(self._stopped_early))]

    def ask(self, hold: Hold, now_ms: int) -> None:
        """Tell the claim of a hold, for the first time or again."""
        hold.claim_told, hold.told_ms = True, now_ms
        hold.repeats += 1
        self._ledger.act(Tell(Claimed(binding=hold.binding, after_beat=hold.after_beat)))

    def _take_one(self, assignment: Assignment, taken: Taken, now_ms: int) -> None:
        ticket = assignment.ticket
        older = self._ledger.newest(ticket.task_id)
        key = (ticket.task_id, ticket.fence)
        if self._ledger.recall(key) or (older and older.binding.fence > ticket.fence):
            return
        was_let_go = self._ledger.recall(key) is False
        hold = self._hold(ticket, taken.issued_ms)
        hold.told_ms = now_ms
        if older is not None and older.stage is not Stage.OVER:
            hold.predecessor = older
            self._stopper.stop(older, Cause.CANCELLED, now_ms)
        self._ledger.add(hold)
        if not self._open(hold, assignment, now_ms):
            return
        if hold.key in self._stopped_early:
            give_back(self._ledger, hold, Cause.CANCELLED, now_ms)
        elif self.closed:
            give_back(self._ledger, hold, Cause.UNSTARTED, now_ms)
        else:
            self._begin(hold, ticket, replace(taken, again=taken.again or was_let_go), now_ms)

    def _begin(self, hold: Hold, ticket: Ticket, taken: Taken, now_ms: int) -> None:
        if ticket.start == "granted":
            self._ask_first(hold, now_ms)
        elif taken.inherited:
            # The previous agent may have started it before it died; its processes are gone, or this one would not run.
            release(self._ledger, hold, Cause.AGENT_RESTARTED, now_ms, started=True)
        elif taken.again or self._is_doubtful(ticket) or now_ms - taken.issued_ms >= ticket.ttl_ms // 2:
            self._ask_first(hold, now_ms)
        else:
            self._ledger.make_ready(hold)

    def _is_doubtful(self, ticket: Ticket) -> bool:
        """Whether somebody else may have been given it: a coordinator that has been replaced may send it once more."""
        return not self.trusted or ticket.epoch < self.epoch

    def _ask_first(self, hold: Hold, now_ms: int) -> None:
        # Nobody has a right to run before the grant, and that comes after this claim was sent.
        hold.base_ms = now_ms
        self.ask(hold, now_ms)

    def _hold(self, ticket: Ticket, issued_ms: int) -> Hold:
        binding = Binding(
            task_id=ticket.task_id,
            attempt=ticket.attempt,
            fence=ticket.fence,
            digest=ticket.digest,
            nonce=self._entropy.token(_NONCE_BYTES),
        )
        return Hold(
            call=self._ledger.next_call(),
            binding=binding,
            ttl_ms=ticket.ttl_ms,
            exclusive=ticket.exclusive,
            base_ms=issued_ms,
            after_beat=self._rights.sequence,
            stage=Stage.ASKING,
        )

    def _open(self, hold: Hold, assignment: Assignment, now_ms: int) -> bool:
        """Check the envelope and read it into the hold; gives the hold back when it does not fit."""
        raw = assignment.envelope
        if digest(raw) != assignment.ticket.digest:
            hold.detail = "the envelope's bytes do not have the ticket's digest"
            give_back(self._ledger, hold, Cause.REFUSED, now_ms)
            return False
        try:
            envelope = open_envelope(raw)
        except TenureError as error:
            hold.detail = str(error)
            give_back(self._ledger, hold, Cause.REFUSED, now_ms)
            return False
        unknown = sorted(set(envelope.secrets) - self._secrets)
        if unknown:
            hold.detail = f"this worker's host knows no secret called {', '.join(unknown)}"
            give_back(self._ledger, hold, Cause.REFUSED, now_ms)
            return False
        if not self._lifetime.has_time_for(envelope.timeout_ms, now_ms):
            hold.detail = f"it may run {duration_text(envelope.timeout_ms or 0)}, and this worker ends before that"
            give_back(self._ledger, hold, Cause.REFUSED, now_ms)
            return False
        hold.work, hold.scope = envelope.work, envelope.scope
        hold.provision = provision_of(envelope, assignment.ticket)
        return True
