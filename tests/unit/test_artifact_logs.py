"""From the log at the broker to an object."""

from tenure.artifacts.carrier import Carrier
from tenure.artifacts.jobs import KeepLog
from tenure.artifacts.memory import MemoryStore
from tenure.artifacts.stopping import Stop
from tenure.broker import kept_log
from tenure.broker.base import LogChunk, LogKey
from tenure.testing import ManualClock
from tests.fixtures_artifacts import PLACE, blob_of


class Logs:
    """One log, in memory."""

    def __init__(self, *chunks: LogChunk) -> None:
        self.held = list(chunks)
        self.expired: list[LogKey] = []

    def chunks(self, log: LogKey) -> list[LogChunk]:
        return self.held

    def expire(self, log: LogKey) -> None:
        self.expired.append(log)


JOB = KeepLog(number=1, site="lab", task_id=PLACE.task_id, fence=7)


def test_a_log_becomes_an_object_and_may_be_kept_again() -> None:
    chunks = (LogChunk(1, 0, "héllo\n"), LogChunk(2, 6, "wörld\n"))
    store, logs, blob = MemoryStore(ManualClock()), Logs(*chunks), blob_of(kept_log.write(chunks))
    carrier = Carrier(store, logs)
    for _ in range(2):
        ended = carrier.carry(JOB, Stop())
        assert (ended.problem, ended.blob) == (None, blob)
    assert [stored.blob for stored in store.objects()] == [blob]
    assert list(store.places()) == []
    assert logs.expired == [LogKey("lab", PLACE.task_id, 7)] * 2


def test_an_empty_log_is_no_object() -> None:
    store = MemoryStore(ManualClock())
    ended = Carrier(store, Logs()).carry(JOB, Stop())
    assert (ended.problem, ended.blob) == (None, None)
    assert list(store.objects()) == []


def test_without_a_broker_no_log_can_be_kept() -> None:
    problem = Carrier(MemoryStore(ManualClock())).carry(JOB, Stop()).problem
    assert problem is not None
    assert problem.code == "artifact"
