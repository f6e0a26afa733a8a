"""What a line to the broker says in the log: once that it fails, once that it is over, and nothing of a hiccup."""

import logging
from typing import cast

import pytest

from tenure.broker.base import WorkerBroker
from tenure.errors import BrokerUnreachable
from tenure.testing import SeededEntropy
from tenure.workers.admission import Admission
from tenure.workers.lines import Line
from tests.waiting import wait_until


class Failing:
    """A duty that fails so many times in a row, and then goes well."""

    name = "courier"

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.turns = 0

    def opened(self, *, again: bool) -> None: ...

    def turn(self, broker: WorkerBroker) -> None:
        del broker
        if self.left:
            self.left -= 1
            raise BrokerUnreachable("no route")
        self.turns += 1

    def closing(self, broker: WorkerBroker) -> None: ...


class NoBroker:
    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("failures", "said"),
    [(0, []), (2, []), (3, ["courier: no route", "courier: the broker answers again"])],
)
def test_an_outage_and_its_end_are_said_once(caplog: pytest.LogCaptureFixture, failures: int, said: list[str]) -> None:
    duty = Failing(failures)
    line = Line(duty, lambda: cast("WorkerBroker", NoBroker()), SeededEntropy(1), Admission("default"))
    with caplog.at_level(logging.WARNING):
        line.start()
        wait_until(lambda: duty.turns > 1, "it goes well again")
        line.halt()
        line.join(5)
    assert [record.message for record in caplog.records] == said
