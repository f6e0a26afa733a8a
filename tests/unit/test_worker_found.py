"""What the simulation found in workers, as short as it gets; each names what it was found with."""

from tenure.protocol.control_messages import Registered
from tenure.protocol.worker_messages import Leaving
from tenure.workers.actions import Outranked
from tests.fixtures_worker_core import Core


def test_an_agent_that_gives_way_to_a_newer_one_notes_its_number_and_ends() -> None:
    # Seed 50009: a machine whose clock was behind was refused for as long as that, after the other one had gone.
    core = Core(generation=5)
    core.orders.order(Registered(generation=9))
    assert core.seen.all(Outranked) == [Outranked(9)]
    assert core.seen.told(Leaving)[0] == Leaving(gone=False)
