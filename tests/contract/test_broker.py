"""The definition of the three faces, asked of every implementation."""

from collections.abc import Callable

import pytest

from tenure.broker.base import (
    CoordinatorBroker,
    EntryId,
    Handout,
    Mailing,
    PendingEntry,
    Publication,
    PublishOutcome,
    Readers,
    Stream,
    StreamEntry,
    WithdrawOutcome,
    WorkerAddress,
    WorkerBroker,
)
from tenure.errors import BrokerFull, BrokerUnreachable, StreamMissing
from tests.broker_names import C1, CPU, GPU, OWN, READERS, W1, W2
from tests.contract.conftest import Bench

Make = Callable[..., Publication]
START = EntryId(0, 0)


def take(worker: WorkerBroker, *, limit: int = 100) -> list[Handout]:
    return worker.take(capabilities=["cpu"], limit=limit, block_ms=0)


def outcome(coordinator: CoordinatorBroker, *publications: Publication) -> list[PublishOutcome]:
    return coordinator.publish(publications)


# --- assignments ---------------------------------------------------------------------------------


def test_an_assignment_arrives_as_it_was_published(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    sent = make(1)

    assert outcome(opened, sent) == [PublishOutcome.PUBLISHED]
    assert take(bench.worker()) == [Handout(EntryId(1, 1), sent.assignment)]


def test_each_assignment_is_handed_to_one_worker(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.ensure_streams(readers=READERS, assignments=[Stream("lab", worker_id="w2")])
    opened.publish([make(n) for n in range(1, 6)])

    first, second = take(bench.worker("w1"), limit=2), take(bench.worker("w2"))

    assert [h.entry_id.minor for h in first] == [1, 2]
    assert [h.entry_id.minor for h in second] == [3, 4, 5]


def test_a_workers_own_stream_is_read_along(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(1), make(2, worker_id="w1")])

    assert {(h.entry_id.minor, h.is_directed) for h in take(bench.worker())} == {(1, False), (2, True)}


def test_publishing_again_under_the_same_id_adds_nothing(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(1), make(2)])

    assert outcome(opened, make(1), make(2), make(3)) == ["repeated", "repeated", "published"]
    assert [h.entry_id.minor for h in take(bench.worker())] == [1, 2, 3]


def test_an_older_epoch_is_refused(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(7, epoch=2)])

    assert outcome(opened, make(8, epoch=1)) == [PublishOutcome.SUPERSEDED]
    assert len(take(bench.worker())) == 1


def test_an_older_epoch_is_refused_after_everything_was_withdrawn(opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(7, epoch=2)])
    opened.withdraw([StreamEntry(CPU, EntryId(2, 7))])

    assert outcome(opened, make(8, epoch=1)) == [PublishOutcome.SUPERSEDED]
    assert opened.published(CPU) == EntryId(2, 7)


def test_publishing_makes_no_stream(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    assert outcome(opened, make(1, capability="gpu"), make(2)) == ["missing", "published"]
    assert opened.published(GPU) == START
    with pytest.raises(StreamMissing):
        bench.worker().take(capabilities=["gpu"], limit=1, block_ms=0)


def test_a_missing_stream_hands_out_nothing_of_the_others(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(1)])

    with pytest.raises(StreamMissing):
        bench.worker().take(capabilities=["cpu", "gpu"], limit=1, block_ms=0)
    assert opened.pending(CPU) == []


def test_what_was_handed_out_can_be_taken_again_until_it_is_withdrawn(
    bench: Bench, opened: CoordinatorBroker, make: Make
) -> None:
    opened.publish([make(1), make(2)])
    taken = take(bench.worker())
    again = bench.worker()

    assert take(again) == []
    assert again.retake(capabilities=["cpu"], limit=100) == taken
    opened.withdraw([StreamEntry(CPU, EntryId(1, 1))])
    assert again.retake(capabilities=["cpu"], limit=100) == taken[1:]


def test_another_worker_cannot_take_it_again(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.ensure_streams(readers=READERS, assignments=[Stream("lab", worker_id="w2")])
    opened.publish([make(1)])
    take(bench.worker("w1"))

    assert bench.worker("w2").retake(capabilities=["cpu"], limit=100) == []
    assert opened.pending(CPU) == [PendingEntry(EntryId(1, 1), "w1")]


def test_an_entry_can_be_looked_at_by_a_worker_that_was_not_given_it(
    bench: Bench, opened: CoordinatorBroker, make: Make
) -> None:
    sent, own = make(1), make(2, worker_id="w1")
    opened.publish([sent, own])
    executor = bench.worker("w1.x0")

    assert executor.look(StreamEntry(CPU, EntryId(1, 1))) == Handout(EntryId(1, 1), sent.assignment)
    assert executor.look(StreamEntry(OWN, EntryId(1, 2))) == Handout(EntryId(1, 2), own.assignment)
    assert opened.pending(CPU) == []
    assert [h.entry_id.minor for h in take(bench.worker())] == [1, 2]
    assert executor.look(StreamEntry(CPU, EntryId(1, 1))) == Handout(EntryId(1, 1), sent.assignment)
    assert opened.pending(CPU) == [PendingEntry(EntryId(1, 1), "w1")]


def test_an_entry_that_is_not_there_is_not_seen(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(1), make(2)])
    take(bench.worker())
    opened.withdraw([StreamEntry(CPU, EntryId(1, 1))])
    executor = bench.worker("w1.x0")

    assert executor.look(StreamEntry(CPU, EntryId(1, 1))) is None
    assert executor.look(StreamEntry(CPU, EntryId(1, 3))) is None
    assert executor.look(StreamEntry(GPU, EntryId(1, 2))) is None
    assert executor.look(StreamEntry(OWN, EntryId(1, 2))) is None


def test_all_pending_entries_are_listed(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(n) for n in range(1, 2_502)])
    take(bench.worker(), limit=2_500)

    assert [p.entry_id.minor for p in opened.pending(CPU)] == list(range(1, 2_501))
    assert opened.pending(GPU) == []


def test_withdrawing_says_what_had_become_of_each_entry(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(1), make(2), make(3, worker_id="w1")])
    take(bench.worker(), limit=1)
    entries = [StreamEntry(CPU, EntryId(1, 1)), StreamEntry(CPU, EntryId(1, 2)), StreamEntry(OWN, EntryId(1, 3))]

    assert opened.withdraw(entries) == [
        WithdrawOutcome.DELIVERED,
        WithdrawOutcome.UNDELIVERED,
        WithdrawOutcome.DELIVERED,
    ]
    assert set(opened.withdraw(entries)) == {WithdrawOutcome.GONE}
    assert opened.withdraw([StreamEntry(GPU, EntryId(1, 1))]) == [WithdrawOutcome.GONE]
    assert take(bench.worker()) == []
    assert opened.pending(CPU) == []


def test_streams_that_are_there_are_left_alone(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(1), make(2)])
    take(bench.worker(), limit=1)

    opened.ensure_streams(readers=READERS, assignments=[CPU, OWN])

    assert [h.entry_id.minor for h in take(bench.worker())] == [2]


def test_nothing_to_do_is_no_error(opened: CoordinatorBroker, bench: Bench) -> None:
    assert opened.publish([]) == []
    assert opened.withdraw([]) == []
    assert opened.sites.heartbeats([]) == []
    opened.settle([])
    opened.post([], {}, 1_000)
    bench.worker().report([])


# --- reports and requests ------------------------------------------------------------------------


def test_reports_and_requests_arrive_in_order_with_their_source(bench: Bench, opened: CoordinatorBroker) -> None:
    bench.worker().report([b"one", b"two"])
    bench.client().ask(b"question")

    found = opened.receive(readers=READERS, limit=100, block_ms=0)

    assert [(d.site, d.person, d.raw) for d in found] == [
        ("lab", "", b"one"),
        ("lab", "", b"two"),
        ("", "default", b"question"),
    ]
    assert opened.receive(readers=READERS, limit=100, block_ms=0) == []


def test_the_limit_counts_per_stream(bench: Bench, opened: CoordinatorBroker) -> None:
    bench.worker().report([b"one", b"two"])
    bench.client().ask(b"question")

    assert [d.raw for d in opened.receive(readers=READERS, limit=1, block_ms=0)] == [b"one", b"question"]


def test_what_was_received_is_unsettled_until_it_is_settled(bench: Bench, opened: CoordinatorBroker) -> None:
    bench.worker().report([b"one", b"two"])
    bench.client().ask(b"question")
    received = opened.receive(readers=READERS, limit=100, block_ms=0)
    restarted = bench.coordinator()

    assert restarted.unsettled(readers=READERS, limit=100) == received
    assert restarted.unsettled(readers=READERS, limit=1) == [received[0], received[2]]
    restarted.settle(received[:1])
    assert restarted.unsettled(readers=READERS, limit=100) == received[1:]
    restarted.settle(received)
    assert restarted.unsettled(readers=READERS, limit=100) == []


def test_entries_of_ended_leases_are_settled_along(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    opened.publish([make(1), make(2, worker_id="w1"), make(3)])
    worker = bench.worker()
    take(worker)

    ended = [StreamEntry(CPU, EntryId(1, 1)), StreamEntry(OWN, EntryId(1, 2)), StreamEntry(GPU, EntryId(1, 9))]
    opened.settle([], ended)

    assert [h.entry_id.minor for h in worker.retake(capabilities=["cpu"], limit=9)] == [3]
    assert opened.pending(OWN) == []


def test_an_inbox_that_was_never_made_takes_nothing(bench: Bench, opened: CoordinatorBroker) -> None:
    with pytest.raises(StreamMissing):
        bench.worker(site="elsewhere").report([b"one"])
    with pytest.raises(StreamMissing):
        opened.receive(readers=Readers(("elsewhere",)), limit=1, block_ms=0)


def test_requests_of_each_person_come_by_a_stream_of_their_own(bench: Bench, opened: CoordinatorBroker) -> None:
    with pytest.raises(StreamMissing):
        bench.client(person="ann").ask(b"early")
    readers = Readers(("lab",), ("ann", "bob"))
    opened.ensure_streams(readers=readers)
    bench.client("c1", "bob").ask(b"as bob")
    bench.client("c1", "ann").ask(b"as ann")
    bench.client("c1").ask(b"as nobody in particular")

    found = opened.receive(readers=readers, limit=100, block_ms=0)

    assert [(d.site, d.person, d.raw) for d in found] == [("", "ann", b"as ann"), ("", "bob", b"as bob")]
    assert opened.unsettled(readers=Readers((), ("bob",)), limit=100) == found[1:]
    opened.settle(found)
    assert opened.unsettled(readers=readers, limit=100) == []


def test_a_request_needs_a_coordinator_that_was_once_there(bench: Bench) -> None:
    with pytest.raises(StreamMissing):
        bench.client().ask(b"question")


# --- heartbeats and mail -------------------------------------------------------------------------


def test_a_heartbeat_is_seen_until_its_time_is_over(bench: Bench, opened: CoordinatorBroker) -> None:
    who = [W1, W2]
    bench.worker().beat(b"alive", 150)

    assert opened.sites.heartbeats(who) == [b"alive", None]
    bench.until(lambda: opened.sites.heartbeats(who) == [None, None], "the heartbeat is over")


def test_a_worker_that_says_farewell_has_no_heartbeat(bench: Bench, opened: CoordinatorBroker) -> None:
    worker = bench.worker()
    worker.beat(b"alive", 60_000)
    worker.farewell()

    assert opened.sites.heartbeats([W1]) == [None]


def test_a_heartbeat_is_answered_with_the_coordinators_echo(bench: Bench, opened: CoordinatorBroker) -> None:
    worker = bench.worker()

    assert worker.beat(b"first", 60_000) == ""
    opened.post([], {W1: "1:1:1", W2: "1:1:9"}, 150)
    assert worker.beat(b"second", 60_000) == "1:1:1"
    bench.until(lambda: worker.beat(b"third", 60_000) == "", "the echo is over")


def test_nothing_is_kept_for_a_worker_that_has_departed(bench: Bench, opened: CoordinatorBroker) -> None:
    gone, there = bench.worker("w1.x0"), bench.worker("w1")
    departed = WorkerAddress("lab", "w1.x0")
    for worker in (gone, there):
        worker.beat(b"alive", 60_000)
    mail = [Mailing(b"a", departed), Mailing(b"b", W1)]
    opened.post(mail, {departed: "1:1:1", W1: "1:1:1"}, 60_000)
    opened.settle([], [], [departed, WorkerAddress("lab", "w1.x1")])

    assert opened.sites.heartbeats([departed, W1]) == [None, b"alive"]
    assert [len(worker.orders(after=START, block_ms=0)) for worker in (gone, there)] == [0, 1]
    assert [worker.beat(b"alive", 60_000) for worker in (gone, there)] == ["", "1:1:1"]


def test_orders_are_read_from_where_the_worker_stands(bench: Bench, opened: CoordinatorBroker) -> None:
    worker = bench.worker()
    assert worker.orders(after=START, block_ms=0) == []
    opened.post([Mailing(b"a", W1), Mailing(b"b", W1), Mailing(b"c", W2)], {}, 1_000)

    first, second = worker.orders(after=START, block_ms=0)

    assert (first.raw, second.raw) == (b"a", b"b")
    assert worker.orders(after=first.entry_id, block_ms=0) == [second]
    assert worker.orders(after=second.entry_id, block_ms=0) == []


def test_answers_that_were_read_are_deleted(bench: Bench, opened: CoordinatorBroker) -> None:
    client = bench.client()
    assert client.answers(after=START, block_ms=0) == []
    opened.post([Mailing(b"a", C1), Mailing(b"b", C1)], {}, 1_000)

    first, second = client.answers(after=START, block_ms=0)

    assert (first.raw, second.raw) == (b"a", b"b")
    assert client.answers(after=first.entry_id, block_ms=0) == [second]
    assert client.answers(after=START, block_ms=0) == [second]


def test_a_client_that_closes_leaves_no_replies(bench: Bench, opened: CoordinatorBroker) -> None:
    opened.post([Mailing(b"a", C1)], {}, 1_000)
    client = bench.client()
    client.close()

    assert bench.client().answers(after=START, block_ms=0) == []
    with pytest.raises(BrokerUnreachable):
        client.answers(after=START, block_ms=0)


def test_mailboxes_are_trimmed(bench: Bench, opened: CoordinatorBroker) -> None:
    for _ in range(12):
        opened.post([Mailing(b"x", C1), Mailing(b"x", W1)] * 1_000, {}, 1_000)
    after, kept = START, 0
    while found := bench.client().answers(after=after, block_ms=0):
        after, kept = found[-1].entry_id, kept + len(found)

    assert 10_000 <= kept < 11_000


def test_a_client_that_is_gone_does_not_fill_the_broker(bench: Bench, opened: CoordinatorBroker) -> None:
    large = b"x" * 512 * 1024
    for _ in range(30):
        opened.post([Mailing(large, C1)] * 5, {}, 1_000)
    left = bench.client().answers(after=START, block_ms=0)

    assert 64 <= len(left) < 80
    assert {each.raw for each in left} == {large}


# --- incarnations and limits ---------------------------------------------------------------------


def test_the_marker_is_seen_by_everyone_and_lost_with_the_data(bench: Bench, opened: CoordinatorBroker) -> None:
    assert opened.state().marker == ""
    opened.mark("m1")

    assert (opened.state().marker, bench.worker().marker(), bench.client().marker()) == ("m1", "m1", "m1")
    assert opened.state().run_id == bench.coordinator().state().run_id
    bench.flush()
    assert (opened.state().marker, bench.worker().marker(), bench.client().marker()) == ("", "", "")


def test_the_state_names_server_and_policy(opened: CoordinatorBroker) -> None:
    state = opened.state()

    assert state.run_id
    assert state.version
    assert state.eviction_policy == "noeviction"


def test_after_a_flush_everything_can_be_published_again(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    worker = bench.worker()
    opened.publish([make(5, epoch=3)])
    bench.flush()

    assert outcome(opened, make(5, epoch=3)) == [PublishOutcome.MISSING]
    with pytest.raises(StreamMissing):
        take(worker)
    with pytest.raises(StreamMissing):
        worker.report([b"one"])
    with pytest.raises(StreamMissing):
        opened.receive(readers=READERS, limit=1, block_ms=0)
    opened.ensure_streams(readers=READERS, assignments=[CPU, OWN])
    assert outcome(opened, make(5, epoch=3)) == [PublishOutcome.PUBLISHED]
    assert len(take(worker)) == 1


def test_a_full_broker_takes_nothing_and_loses_nothing(bench: Bench, opened: CoordinatorBroker, make: Make) -> None:
    worker = bench.worker()
    opened.publish([make(1)])
    bench.fill()

    for refused in (
        lambda: outcome(opened, make(2), make(3)),
        lambda: worker.report([b"one"]),
        lambda: bench.client().ask(b"question"),
        lambda: opened.mark("m1"),
        lambda: worker.beat(b"first", 60_000),
    ):
        with pytest.raises(BrokerFull):
            refused()
    assert len(take(worker)) == 1
    opened.withdraw([StreamEntry(CPU, EntryId(1, 1))])
    bench.make_room()
    assert outcome(opened, make(2), make(3)) == ["published", "published"]


def test_a_full_broker_takes_no_heartbeat_and_does_not_pretend_to(bench: Bench, opened: CoordinatorBroker) -> None:
    """The coordinator renews by sequence number: a worker that believed in a prolonged key would run on unseen."""
    worker = bench.worker()
    worker.beat(b"first", 150)
    bench.fill()

    with pytest.raises(BrokerFull):
        worker.beat(b"second", 60_000)
    bench.until(lambda: opened.sites.heartbeats([W1]) == [None], "the first heartbeat is over")


def test_a_closed_worker_says_so(bench: Bench, opened: CoordinatorBroker) -> None:
    worker = bench.worker()
    worker.close()
    worker.close()

    with pytest.raises(BrokerUnreachable, match="closed"):
        worker.marker()
