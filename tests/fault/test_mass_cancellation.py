"""A queue that nobody could cancel task by task is cancelled on one request, while others get their results."""

import pytest

from tenure.client.client import Client
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.client_messages import Item, Query, Submit
from tenure.protocol.envelope import CallWork, Envelope, Scope, encode
from tests.fault.figures import WAKINGS
from tests.fault.instrument import Records
from tests.fault.trial import CLOCK, Trials, long, time_to_serve

AT_ONCE = 1_000
US_PER_TASK = 600
"""Time for one task on a busy machine; a tenth of it is needed on one that has nothing else to do."""
SLACK_MS = 10_000


def submit(client: Client, tasks: int) -> None:
    """That many tasks of a run, which no worker may take."""
    scope = Scope(world="main", run="wrong")
    raw = encode(Envelope(capability="nobodys", work=CallWork(handler="tasks:double"), scope=scope)).decode()
    for first in range(0, tasks, AT_ONCE):
        items = tuple(Item(key=f"k{number}", envelope=raw) for number in range(first, first + AT_ONCE))
        assert len(client.ask(Submit(items=items, watch=False)).admitted) == AT_ONCE


@pytest.mark.parametrize("tasks", [5_000, long(100_000, timeout_s=900)])
def test_a_long_queue_is_cancelled_in_seconds_and_others_are_served(trials: Trials, tasks: int) -> None:
    with trials.fleet() as fleet:
        submit(fleet.client, tasks)
        began_ms = CLOCK.elapsed_ms()
        (row,) = fleet.client.ask(CancelMany(run="wrong")).rows
        figures = trials.of(f"{tasks} queued tasks cancelled on one request")
        while row["state"] != "DONE":
            figures.serve_ms.append(time_to_serve(fleet))
            where = (("cancellation_id", str(row["cancellation_id"])),)
            (row,) = fleet.client.ask(Query(what="cancellations", where=where)).rows
        took_ms = CLOCK.elapsed_ms() - began_ms
        figures.trials += 1

        assert row["cancelled"] == tasks
        records = Records(fleet.database)
        assert records.count("SELECT COUNT(*) FROM task WHERE state = 'CANCELLED' AND run = 'wrong'") == tasks
        assert records.count("SELECT COUNT(*) FROM event WHERE kind = 'cancelled'") == tasks
        assert records.count("SELECT COUNT(*) FROM lease WHERE capability = 'nobodys'") == 0
        late_ms = WAKINGS * trials.instrument.delay_ms()
        assert took_ms < tasks * US_PER_TASK / 1_000 + SLACK_MS + late_ms, late_ms
