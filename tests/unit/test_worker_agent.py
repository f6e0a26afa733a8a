"""An agent that its site's credential does not carry: said at once, and before anything is started."""

from pathlib import Path
from typing import cast

import pytest

from tenure.broker.base import StreamEntry, WorkerBroker
from tenure.errors import BrokerRefused
from tenure.testing import ManualClock, SeededEntropy
from tenure.workers.agent import Agent
from tenure.workers.identity import assume
from tenure.workers.options import WorkerOptions


class PickyBroker:
    """Lets a worker of the site `lab` look at streams of the capability `cpu`, and at no others."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.closed = False

    def marker(self) -> str:
        return "first"

    def look(self, entry: StreamEntry) -> None:
        if (entry.stream.site, entry.stream.capability) != ("lab", "cpu"):
            raise BrokerRefused("The broker does not allow that")

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("capabilities", [("gpu",), ("cpu", "gpu"), ("gpu", "cpu")])
def test_a_capability_that_the_site_was_not_granted_is_an_error_at_the_start(
    tmp_path: Path, capabilities: tuple[str, ...]
) -> None:
    """Else every read of the worker's would be refused, and nothing that it is offered ever taken."""
    made: list[PickyBroker] = []

    def connect(worker_id: str) -> WorkerBroker:
        made.append(PickyBroker(worker_id))
        return cast("WorkerBroker", made[-1])

    options = WorkerOptions(tmp_path, capabilities=capabilities, worker_id="w1", site="lab")
    for _ in "ab":
        with pytest.raises(BrokerRefused, match="site lab is not good for work of capability gpu") as caught:
            Agent(options, connect, ManualClock(), SeededEntropy()).run()
        assert "--capability" in caught.value.remedy

    assert [(broker.worker_id, broker.closed) for broker in made] == [("lab.w1", True)] * 2


def test_a_start_that_was_refused_does_not_hide_the_agent_before_it(tmp_path: Path) -> None:
    """Its losses are told by the next agent that names it, and would wait for the end of their leases else."""
    clock, entropy = ManualClock(), SeededEntropy()
    before = assume(tmp_path, "w1", clock, entropy, site="lab")
    before.release()
    options = WorkerOptions(tmp_path, capabilities=("gpu",), worker_id="w1", site="lab")
    with pytest.raises(BrokerRefused):
        Agent(options, lambda name: cast("WorkerBroker", PickyBroker(name)), clock, entropy).run()
    after = assume(tmp_path, "w1", clock, entropy, site="lab")
    after.release()
    assert after.predecessor == before.generation
