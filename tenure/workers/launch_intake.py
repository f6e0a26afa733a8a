"""The parent's intake: from a handout to a launch, or to the word that there will be none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tenure.errors import TenureError
from tenure.launchers.base import LaunchOrder
from tenure.protocol.durations import duration_text
from tenure.protocol.envelope import digest, open_envelope
from tenure.protocol.launch import LaunchTicket
from tenure.protocol.worker_messages import Binding, Cause
from tenure.workers.launch_actions import StartLaunch
from tenure.workers.launch_book import Launch
from tenure.workers.launch_stages import LaunchStage
from tenure.workers.lifetime import ENDLESS, Lifetime

if TYPE_CHECKING:
    from tenure.broker.base import Handout
    from tenure.clock import Entropy
    from tenure.protocol.assignment import Assignment
    from tenure.protocol.envelope import Envelope
    from tenure.protocol.worker_messages import Hello
    from tenure.workers.inputs import Taken
    from tenure.workers.launch_book import LaunchBook
    from tenure.workers.launch_inputs import Key
    from tenure.workers.launch_stops import LaunchStops

_NONCE_BYTES: Final = 16
_EARLY_STOPS: Final = 1_024


@final
@dataclass(frozen=True, slots=True)
class ParentProfile:
    """What the parent says about itself, and what its tickets say of it.

    `timeout_ms` is how long a launch may be STARTING, `lifetime` when the parent ends by itself.
    """

    hello: Hello
    generation: int
    namespace: str
    site: str
    worker_id: str
    timeout_ms: int
    lifetime: Lifetime = ENDLESS


@final
class LaunchIntake:
    """Takes handouts, and what an earlier agent has left, into the book."""

    def __init__(self, profile: ParentProfile, book: LaunchBook, stops: LaunchStops, entropy: Entropy) -> None:
        self._profile = profile
        self._book = book
        self._stops = stops
        self._entropy = entropy
        self._stopped_early: dict[Key, None] = {}
        self.closed = False

    def take(self, taken: Taken, now_ms: int) -> None:
        """Launch these; repeated ones and those that a newer one replaces are ignored."""
        for handout in taken.handouts:
            if handout.assignment is None:
                self._book.counts["unreadable"] += 1
                continue
            ticket = handout.assignment.ticket
            older = self._book.newest(ticket.task_id)
            if self._book.knows((ticket.task_id, ticket.fence)) or (older and older.binding.fence > ticket.fence):
                continue
            if older is not None:
                self._stops.stop(older, Cause.CANCELLED, now_ms)
            self._take_one(handout, handout.assignment, now_ms)

    def adopt(self, launch: Launch) -> None:
        """Take up what an earlier agent has launched, or may have launched: launching it again is safe."""
        self._book.add(launch)
        if launch.handle is not None:
            launch.move(LaunchStage.STARTING)
        else:
            self.start(launch)

    def start(self, launch: Launch) -> None:
        """Let it be launched, for the first time or again."""
        if launch.order is not None:
            launch.busy = True
            self._book.act(StartLaunch(launch.key, launch.order))

    def stop_early(self, key: Key) -> None:
        """Remember that an assignment must not be launched should it still arrive."""
        self._stopped_early[key] = None
        if len(self._stopped_early) > _EARLY_STOPS:
            del self._stopped_early[next(iter(self._stopped_early))]

    def launch_of(self, order: LaunchOrder, now_ms: int) -> Launch:
        """A launch that is not in the book yet."""
        ticket = order.ticket
        binding = self._binding(ticket.task_id, ticket.attempt, ticket.fence, ticket.digest)
        return Launch(binding, ticket.ttl_ms, now_ms, order)

    def _take_one(self, handout: Handout, assignment: Assignment, now_ms: int) -> None:
        ticket = assignment.ticket
        try:
            envelope = _opened(assignment)
        except TenureError as error:
            binding = self._binding(ticket.task_id, ticket.attempt, ticket.fence, ticket.digest)
            launch = Launch(binding, ticket.ttl_ms, now_ms)
            self._book.add(launch)
            self._book.conclude(launch, Cause.REFUSED, now_ms, detail=str(error))
            return
        launch = self.launch_of(self._order(handout, assignment, envelope), now_ms)
        self._book.add(launch)
        if launch.key in self._stopped_early:
            self._book.conclude(launch, Cause.CANCELLED, now_ms)
        elif self.closed:
            self._book.conclude(launch, Cause.UNSTARTED, now_ms)
        elif not self._profile.lifetime.has_time_for(envelope.timeout_ms, now_ms):
            detail = f"it may run {duration_text(envelope.timeout_ms or 0)}, and this worker ends before that"
            self._book.conclude(launch, Cause.REFUSED, now_ms, detail=detail)
        else:
            self.start(launch)

    def _order(self, handout: Handout, assignment: Assignment, envelope: Envelope) -> LaunchOrder:
        ticket, profile = assignment.ticket, self._profile
        launch_ticket = LaunchTicket(
            namespace=profile.namespace,
            site=profile.site,
            parent=profile.worker_id,
            capability=envelope.capability,
            is_directed=handout.is_directed,
            entry=str(handout.entry_id),
            world=envelope.scope.world,
            run=envelope.scope.run,
            task_id=ticket.task_id,
            attempt=ticket.attempt,
            fence=ticket.fence,
            digest=ticket.digest,
            ttl_ms=ticket.ttl_ms,
        )
        return LaunchOrder(
            launch_ticket,
            memory_bytes=envelope.limits.memory_bytes,
            timeout_ms=envelope.timeout_ms,
            resources=envelope.requirements.resources,
        )

    def _binding(self, task_id: str, attempt: int, fence: int, digest_hex: str) -> Binding:
        nonce = self._entropy.token(_NONCE_BYTES)
        return Binding(task_id=task_id, attempt=attempt, fence=fence, digest=digest_hex, nonce=nonce)


def _opened(assignment: Assignment) -> Envelope:
    """The envelope. Raises a `TenureError` when it cannot be read, or is another one than the ticket says."""
    if digest(assignment.envelope) != assignment.ticket.digest:
        raise TenureError("the envelope's bytes do not have the ticket's digest")
    return open_envelope(assignment.envelope)
