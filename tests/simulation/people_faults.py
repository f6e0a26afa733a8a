"""What people and machines do that they should not: copies of entries, two workers of one name, clients that end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from tenure.broker.base import EntryId, Handout
from tenure.protocol.principal_messages import Revoke
from tenure.workers.inputs import DrainAsked, Taken
from tests.simulation.agent import Seat
from tests.simulation.executions import NORTH
from tests.simulation.liar import SITE
from tests.simulation.slots import Crew

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.protocol.assignment import Assignment
    from tests.simulation.dice import Dice
    from tests.simulation.world import World


@final
class PeopleFaults:
    """Strikes by people. `for_a_while` undoes what lasts."""

    def __init__(self, world: World, dice: Dice, for_a_while: Callable[[int, Callable[[], None]], None]) -> None:
        self.world = world
        self.dice = dice
        self._for_a_while = for_a_while
        self.seen: dict[EntryId, Assignment] = {}
        """Assignments that were once in a stream."""
        self._twins = 0
        self._revoked: set[str] = set()

    def table(self) -> dict[str, Callable[[], str]]:
        """The strikes by name."""
        return {
            "copy": self._copy,
            "twin": self._twin,
            "client_crash": self._client_crash,
            "drain": self._drain,
            "site_revoked": self._revoke,
        }

    def note(self, entry_id: EntryId, assignment: Assignment) -> None:
        """Remember an assignment, for somebody to copy."""
        self.seen[entry_id] = assignment

    def _copy(self) -> str:
        """A worker is handed a copy of an entry, old or new, that it or another has in hand."""
        seat = self.dice.pick(self.world.seats)
        agent = seat.agent
        if not self.seen or agent is None or not agent.alive or agent.stands_still:
            return ""
        newest = sorted(self.seen)[-4:]
        entry_id = self.dice.pick(newest)
        assignment = self.seen[entry_id]
        agent.post(Taken([Handout(entry_id, assignment)], agent.elapsed_ms()))
        return f"fence {assignment.ticket.fence} to {seat.worker_id}"

    def _twin(self) -> str:
        """A second machine is given a worker's identity; the first one goes on until it is told."""
        seat = self.dice.pick([seat for seat in self.world.seats if seat.errand is None])
        self._twins += 1
        if self._twins > 1:
            return ""
        host = self.world.host(f"{seat.worker_id}-twin")
        folder = self.world.folder / "twin"
        folder.mkdir()
        twin = Seat(
            worker_id=seat.worker_id,
            host=host,
            network=seat.network,
            crew=Crew(host, seat.worker_id, seat.slots, seat.book),
            book=seat.book,
            folder=folder,
            dice=self.dice.fork("twin"),
            slots=seat.slots,
            ttl_ms=seat.ttl_ms,
            capabilities=seat.capabilities,
            labels=seat.labels,
            site=seat.site,
        )
        self.world.twins.append(twin)
        twin.start()
        self._for_a_while(self.dice.between(1_000, 6_000), twin.retire)
        return seat.worker_id

    def _revoke(self) -> str:
        """Somebody asks to throw a site out where anybody is, be it a liar; it has struck when that is done."""
        inhabited = [NORTH] if self._is_honest(NORTH) else []
        inhabited += [SITE] if self.world.profile.has("liar") else []
        left = [site for site in inhabited if site not in self._revoked]
        if left:
            name = self.dice.pick(left)
            self.world.client._ask(Revoke(holder="site", name=name, reason="it is not ours any more"))
        return ""

    def _is_honest(self, site: str) -> bool:
        return any(seat.site == site for seat in self.world.seats)

    def revoked(self, site: str) -> None:
        """The broker lets a site in no more soon after the coordinator has thrown it out; sometimes later."""
        network = self.world.network
        self._revoked.add(site)
        self.world.history.fault("site_revoked", site)
        if self.dice.chance(600):
            network.bar(site)
            return
        if self._is_honest(site):
            self.world.history.fault("let_in_longer", site)
        self.world.engine.after(self.dice.between(50, 2_500), partial(network.bar, site))

    def _client_crash(self) -> str:
        self.world.new_client()
        return self.world.client.client_id

    def _drain(self) -> str:
        """A person asks a worker to leave, or its host does, twice in a row: then it ends at once what it runs."""
        seat = self.dice.pick(self.world.seats)
        agent = seat.agent
        if agent is not None and self.dice.chance(300):
            agent.deliver(partial(agent.post, DrainAsked(at_once=False)))
            agent.after(self.dice.pick((0, 300, 1_500)), partial(agent.post, DrainAsked(at_once=True)))
            return f"{seat.worker_id} at once"
        self.world.client.drain(seat.worker_id)
        return seat.worker_id
