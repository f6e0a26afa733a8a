"""What the store keeps and what goes, the logs of attempts, and how the store is announced."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.artifacts.jobs import Tidy
from tenure.broker.keys import ContentKeys
from tenure.protocol.artifact import Blob, Bundle, Input
from tenure.protocol.client_messages import CollectArtifacts
from tenure.protocol.envelope import Retry
from tenure.protocol.worker_messages import Cause, Checkpointed, Finished, Released
from tests.held_porter import HeldPorter, blob_of, digests, objects, places, stage
from tests.scripted_fleet import EXPIRY_MS, WORLD, Hand, ScriptedFleet, ScriptedWorker, envelope

DAY_MS = 86_400_000
FILES = {"a.txt": b"alpha"}
BLOB = blob_of(b"printed")


@pytest.fixture
def porter() -> HeldPorter:
    return HeldPorter()


@pytest.fixture
def fleet(tmp_path: Path, porter: HeldPorter) -> Iterator[ScriptedFleet]:
    with ScriptedFleet(tmp_path, porter=porter, artifacts="memory:") as fleet:
        settle(fleet)
        yield fleet


def settle(fleet: ScriptedFleet) -> None:
    assert fleet.porter is not None
    while fleet.porter.jobs:
        fleet.porter.finish()
        fleet.step()


def collect(fleet: ScriptedFleet, *, dry_run: bool = False) -> Tidy:
    """Ask for a collection; what the porter is then told."""
    assert fleet.porter is not None
    assert fleet.client.ask(CollectArtifacts(min_age_ms=0, dry_run=dry_run)).rows[0]["state"] == "BEGUN"
    for _ in range(10):
        fleet.step()
        for job in fleet.porter.jobs:
            if isinstance(job, Tidy):
                return job
    raise AssertionError("no collection began")


def with_files(fleet: ScriptedFleet, worker: ScriptedWorker, hand: Hand, raw: bytes) -> Finished:
    assert fleet.porter is not None
    return worker.finished(hand).model_copy(update={"outputs": stage(fleet.porter, hand.binding, {"f": raw})})


def finished(fleet: ScriptedFleet, worker: ScriptedWorker, raw: bytes) -> Bundle:
    """A task that has ended with files."""
    fleet.submit()
    hand = worker.claim()
    worker.hands.clear()
    report = with_files(fleet, worker, hand, raw)
    worker.report(report)
    settle(fleet)
    assert report.outputs is not None
    return report.outputs


# --- what is kept --------------------------------------------------------------------------------


def test_what_records_name_is_kept_and_the_rest_goes(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    outputs = finished(fleet, worker, b"good")
    place = stage_object(porter, b"nobody's")
    job = collect(fleet)
    assert (job.bundles, job.blobs, job.keep_places) == ((outputs,), (), ())
    settle(fleet)
    assert objects(porter) == digests({"f": b"good"}) | {outputs.manifest.digest}
    assert place.digest not in objects(porter)
    status = fleet.client.query("status")[0]["artifacts"]
    assert status["counts"] == {"outputs PROMOTED": 1}
    assert (status["collection"]["asked_by"], status["collection"]["removed"]) == ("ada", 1)


def stage_object(porter: HeldPorter, raw: bytes) -> Blob:
    """An object that no record names."""
    from tenure.artifacts.base import Place

    place, blob = Place("lab", "0" * 26, 1, "0" * 16), blob_of(raw)
    porter.store.stage(place, blob, 0, iter([raw]))
    porter.store.promote(place, blob)
    return blob


def test_inputs_are_kept_as_long_as_a_task_may_want_them(fleet: ScriptedFleet) -> None:
    single, folder = blob_of(b"input"), Bundle(manifest=blob_of(b"manifest"), files=1, size=3)
    inputs = (Input(path="a", content=single), Input(path="b", content=folder))
    task = fleet.client.submit(envelope(inputs=inputs))
    for _ in range(3):
        fleet.submit(capability="other")
    job = collect(fleet)
    assert (job.bundles, job.blobs) == ((folder,), (single,))
    settle(fleet)
    fleet.client.cancel(task)
    job = collect(fleet)
    assert (job.bundles, job.blobs) == ((), ())


def test_places_of_holders_of_accepted_files_and_of_undecided_results_are_kept(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    worker = fleet.worker(slots=1)
    fleet.submit()
    late = worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 1_000)
    worker.report(with_files(fleet, worker, late, b"late"))
    second, third = fleet.worker("w2"), fleet.worker("w3")
    fleet.submit()
    fleet.submit()
    fleet.step()
    held, accepted = second.claim(*second.take(limit=1)), third.claim()
    third.report(with_files(fleet, third, accepted, b"accepted"))
    porter.finish("verify")
    fleet.step()
    stage(porter, late.binding.model_copy(update={"nonce": "e" * 16}), FILES)
    job = collect(fleet)
    kept = {(place.fence, place.nonce) for place in job.keep_places}
    assert kept == {(each.ticket.fence, each.nonce) for each in (late, held, accepted)}
    porter.finish("tidy")
    fleet.step()
    assert (1, "e" * 16) not in places(porter)
    assert (1, late.nonce) in places(porter)


def test_checkpoints_that_were_replaced_and_those_of_ended_tasks_go(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    fleet.submit(retry=Retry(lost=1))
    hand = worker.claim()
    bundles: list[Bundle] = []
    for number in (1, 2):
        bundles.append(stage(porter, hand.binding, {"s": b"state %d" % number}))
        worker.report(Checkpointed(binding=hand.binding, ordinal=number, name="s", bundle=bundles[-1]))
        settle(fleet)
    assert collect(fleet).bundles == (bundles[1],)
    settle(fleet)
    worker.finish(hand)
    assert collect(fleet).bundles == ()
    settle(fleet)
    assert objects(porter) == set()
    assert [row["state"] for row in fleet.client.query("artifacts", kind="checkpoint")] == ["COLLECTED"] * 2


def test_more_records_than_one_turn_reads_are_all_kept(fleet: ScriptedFleet) -> None:
    fleet.submit()
    task = fleet.records.rows("SELECT task_id FROM task")[0][0]
    rows = [(task, number, f"{number:064x}") for number in range(2_500)]
    connection = fleet.store._connection
    connection.execute("DROP TRIGGER artifact_log_of_an_attempt")
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO artifact (task_id, fence, attempt, kind, manifest, manifest_size, files, size, state, "
        "place_fence, nonce, recorded_at_ms) VALUES (?, ?, 1, 'log', ?, 1, 1, 1, 'ACCEPTED', 1, '0', 0)",
        rows,
    )
    connection.execute("UPDATE artifact SET state = 'PROMOTED'")
    connection.execute("COMMIT")
    assert len(collect(fleet).blobs) == 2_500


def test_a_collection_that_only_counts_removes_nothing(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    blob = stage_object(porter, b"nobody's")
    assert collect(fleet, dry_run=True).dry_run
    settle(fleet)
    assert objects(porter) == {blob.digest}
    assert fleet.client.query("status")[0]["artifacts"]["collection"]["removed"] == 1


def test_one_collection_at_a_time(fleet: ScriptedFleet) -> None:
    collect(fleet)
    assert fleet.client.ask(CollectArtifacts()).rows[0]["state"] == "UNDER_WAY"


def test_without_a_store_nothing_is_collected(tmp_path: Path) -> None:
    with ScriptedFleet(tmp_path) as fleet:
        assert fleet.client.ask(CollectArtifacts()).rows[0]["state"] == "NO_STORE"


def test_once_a_day_it_collects_by_itself(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    for _ in range(2):
        fleet.clock.advance_ms(DAY_MS)
        fleet.live(3_000)
        assert porter.waiting().count("tidy") == 1
        settle(fleet)
        fleet.live(3_000)
        assert porter.waiting() == []
    assert (
        fleet.records.rows("SELECT asked_by, min_age_ms FROM collection")
        == [("the coordinator, once a day", DAY_MS)] * 2
    )


def test_a_problem_of_a_collection_is_shown(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    collect(fleet)
    porter.fail("artifact_store_unreachable")
    fleet.step()
    assert "unreachable" in fleet.client.query("status")[0]["artifacts"]["collection"]["problem"]


# --- logs ----------------------------------------------------------------------------------------


def logs(fleet: ScriptedFleet) -> list[tuple[int, str, str]]:
    rows = fleet.records.rows("SELECT fence, manifest, state FROM artifact WHERE kind = 'log'")
    return [(row[0], row[1], row[2]) for row in rows]


def printed(fleet: ScriptedFleet, *, printed: bool) -> None:
    worker = fleet.worker()
    fleet.submit()
    hand = worker.claim()
    worker.hands.clear()
    worker.report(worker.finished(hand).model_copy(update={"printed": printed}))


def test_the_log_of_an_attempt_that_has_printed_is_kept_a_few_seconds_after_its_end(
    fleet: ScriptedFleet, porter: HeldPorter
) -> None:
    printed(fleet, printed=True)
    fleet.live(4_000)
    assert porter.waiting() == []
    fleet.live(3_000)
    assert porter.waiting() == ["keep_log"]
    porter.answer("keep_log", BLOB)
    fleet.step()
    fleet.live(10_000)
    assert (logs(fleet), porter.waiting()) == ([(1, BLOB.digest, "PROMOTED")], [])


def test_no_job_is_begun_for_attempts_that_have_not_printed(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    printed(fleet, printed=False)
    fleet.live(20_000)
    assert "keep_log" not in porter.begun


def test_the_log_of_a_lost_attempt_is_always_looked_for(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    fleet.submit()
    worker.claim()
    worker.alive = False
    fleet.live(EXPIRY_MS + 8_000)
    assert porter.waiting() == ["keep_log"]
    porter.answer("keep_log", None)
    fleet.step()
    fleet.live(10_000)
    assert (logs(fleet), porter.waiting()) == ([], [])


def test_what_an_attempt_that_was_given_up_has_printed_is_kept(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker()
    for started in (True, False):
        fleet.submit()
        hand = worker.claim()
        worker.hands.clear()
        worker.report(
            Released(binding=hand.binding, cause=Cause.PROCESS_DIED, started=started, tree_gone=True, printed=started)
        )
    fleet.live(8_000)
    assert [job.fence for job in porter.jobs if job.kind == "keep_log"] == [1]


def test_logs_are_still_kept_after_a_restart_and_only_a_few_at_once(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    worker = fleet.worker(slots=20)
    for _ in range(20):
        fleet.submit()
    fleet.step()
    for hand in [worker.claim(), *worker.hands][1:]:
        worker.report(worker.finished(hand).model_copy(update={"printed": True}))
    worker.hands.clear()
    fleet.restart()
    fleet.live(8_000)
    assert porter.waiting().count("keep_log") == 8
    for number in range(3):
        porter.answer("keep_log", blob_of(b"%d" % number))
        fleet.step()
    assert (len(logs(fleet)), fleet.records.rows("SELECT * FROM log_to_keep")) == (20, [])


def test_a_log_that_cannot_be_kept_is_given_up_in_the_end(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    printed(fleet, printed=True)
    fleet.live(8_000)
    for _ in range(22):
        porter.fail("broker_unreachable")
        fleet.live(17_000)
    assert (len(fleet.records.events("log_lost")), porter.waiting()) == (1, [])


def test_leases_are_listed_with_their_site(fleet: ScriptedFleet) -> None:
    fleet.worker()
    fleet.submit()
    (row,) = fleet.client.query("leases")
    assert row["site"] == "default"
    fleet.workers[0].claim()
    (row,) = fleet.client.query("leases")
    assert row["site"] == "default"


# --- the store's address -------------------------------------------------------------------------


def announced(fleet: ScriptedFleet) -> str:
    return (fleet.server.get(ContentKeys(WORLD).store()) or b"").decode()


def test_the_store_is_announced_and_again_after_the_broker_has_lost_its_data(fleet: ScriptedFleet) -> None:
    assert announced(fleet) == "memory:"
    fleet.server.flush()
    fleet.restart()
    fleet.step()
    assert announced(fleet) == "memory:"


def test_another_address_is_announced_at_the_next_start(fleet: ScriptedFleet, tmp_path: Path) -> None:
    fleet.options = type(fleet.options)(database=tmp_path / "fleet.db", namespace=WORLD, artifacts="/elsewhere")
    fleet.restart()
    fleet.step()
    assert announced(fleet) == "/elsewhere"
    assert "Another store" in fleet.records.events("new_incarnation")[0]
    fleet.restart()
    fleet.step()
    assert len(fleet.records.events("new_incarnation")) == 1


def test_what_the_broker_has_lost_is_put_back_at_every_look_over(fleet: ScriptedFleet, porter: HeldPorter) -> None:
    assert porter.begun == ["restore"]
    fleet.restart()
    fleet.step()
    assert porter.begun == ["restore", "restore"]
