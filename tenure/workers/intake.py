"""Intake: from a handout to a hold. Decides whether it may start at once, must ask first, or is given back.

Every handout whose ticket could be read is in the ledger, and so in the heartbeats, before anything else happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from tenure.errors import TenureError
from tenure.protocol.envelope import digest, open_envelope
from tenure.protocol.worker_messages import Binding, Cause, Claimed
from tenure.workers.actions import Tell
from tenure.workers.conclusions import give_back, release
from tenure.workers.holds import Hold, Stage

if TYPE_CHECKING:
    from tenure.clock import Entropy
    from tenure.protocol.assignment import Assignment, Ticket
    from tenure.workers.inputs import Taken
    from tenure.workers.ledger import Ledger
    from tenure.workers.rights import Rights
    from tenure.workers.stopping import Stopper

_NONCE_BYTES: Final = 16
_EARLY_STOPS: Final = 1_024


@final
class Intake:
    """Takes handouts into the ledger."""

    def __init__(self, ledger: Ledger, rights: Rights, stopper: Stopper, entropy: Entropy) -> None:
        self._ledger = ledger
        self._rights = rights
        self._stopper = stopper
        self._entropy = entropy
        self._stopped_early: dict[tuple[str, int], None] = {}
        self.closed = False
        self.trusted = False
        """Whether the coordinator has answered a hello since the last reconnect.

        Only then may a task start on its claim: a broker that has lost its newest writes may hand out again what
        somebody runs.
        """

    def take(self, taken: Taken, now_ms: int) -> None:
        """Take these handouts; repeated ones and those that a newer one replaces are ignored."""
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
        if self._ledger.knows((ticket.task_id, ticket.fence)) or (older and older.binding.fence > ticket.fence):
            return
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
            self._begin(hold, ticket, taken, now_ms)

    def _begin(self, hold: Hold, ticket: Ticket, taken: Taken, now_ms: int) -> None:
        if ticket.start == "granted":
            self._ask_first(hold, now_ms)
        elif taken.inherited:
            # The previous agent may have started it before it died; its processes are gone, or this one would not run.
            release(self._ledger, hold, Cause.AGENT_RESTARTED, now_ms, started=True)
        elif taken.again or not self.trusted or now_ms - taken.issued_ms >= ticket.ttl_ms // 2:
            self._ask_first(hold, now_ms)
        else:
            self._ledger.make_ready(hold)

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
        hold.work, hold.scope, hold.timeout_ms = envelope.work, envelope.scope, envelope.timeout_ms
        return True
