"""A worker's identity: durable, counted, and held by one agent at a time."""

import os
import shutil
from pathlib import Path

import pytest

from tenure.errors import InvalidSettings, WorkerBusy
from tenure.testing import ManualClock, SeededEntropy
from tenure.workers.identity import Identity, Kind, assume


def identity(folder: Path, name: str | None = None, seed: int = 0) -> Identity:
    return assume(folder, name, ManualClock(), SeededEntropy(seed))


def test_an_id_is_made_once_and_remembered(tmp_path: Path) -> None:
    first = identity(tmp_path / "state", seed=1)
    first.release()
    second = identity(tmp_path / "state", seed=2)
    second.release()
    assert first.worker_id == second.worker_id
    assert second.generation == first.generation + 1


def test_every_id_has_a_folder_of_its_own(tmp_path: Path) -> None:
    one, other = identity(tmp_path, "one"), identity(tmp_path, "other")
    assert one.folder != other.folder
    one.release()
    other.release()


@pytest.mark.parametrize(
    ("site", "name", "worker_id"),
    [("lab", "w1", "lab.w1"), ("lab", "lab.w1", "lab.w1"), ("lab", "labour", "lab.labour"), ("default", "w1", "w1")],
)
def test_an_id_begins_with_the_name_of_its_site(tmp_path: Path, site: str, name: str, worker_id: str) -> None:
    identity = assume(tmp_path, name, ManualClock(), SeededEntropy(), site=site)
    identity.release()
    assert (identity.worker_id, identity.folder.name) == (worker_id, worker_id)


def test_a_remembered_id_serves_at_every_site(tmp_path: Path) -> None:
    plain, there = (assume(tmp_path, None, ManualClock(), SeededEntropy(), site=site) for site in ("default", "lab"))
    assert there.worker_id == f"lab.{plain.worker_id}"
    plain.release()
    there.release()


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (Kind.RUNNER, Kind.PARENT, "runs tasks itself, and cannot be one that starts them"),
        (Kind.PARENT, Kind.RUNNER, "starts them through a launcher, and cannot be one that runs"),
    ],
)
def test_an_id_is_of_one_kind_for_good(tmp_path: Path, before: Kind, after: Kind, says: str) -> None:
    """One kind cannot read what the other has begun, and would take it from the broker and begin it again."""
    first = identity(tmp_path, "w")
    first.records(before).touch()
    first.release()
    again = identity(tmp_path, "w")
    assert again.records(before) == first.folder / before
    with pytest.raises(InvalidSettings, match=says) as refused:
        again.records(after)
    assert "--worker-id" in refused.value.remedy
    again.release()
    other = identity(tmp_path, "other")
    assert other.records(after).parent == other.folder
    other.release()


def test_an_id_that_its_site_s_name_makes_too_long_is_refused(tmp_path: Path) -> None:
    identity(tmp_path, "w" * 64).release()
    with pytest.raises(InvalidSettings, match="cannot be a worker's id"):
        assume(tmp_path, "w" * 61, ManualClock(), SeededEntropy(), site="lab")


def test_a_second_agent_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    first = identity(tmp_path, "w")
    with pytest.raises(WorkerBusy, match="another agent runs as worker w"):
        identity(tmp_path, "w")
    first.release()
    identity(tmp_path, "w").release()


def test_an_agent_waits_for_its_predecessors_runners_and_says_when_they_do_not_end(tmp_path: Path) -> None:
    first = identity(tmp_path, "w")
    runners = os.dup(first.runners_lock)
    first.release()
    with pytest.raises(WorkerBusy, match="do not end"):
        identity(tmp_path, "w")
    os.close(runners)
    identity(tmp_path, "w").release()


@pytest.mark.parametrize("name", ["a/b", "..", " ", "x" * 65])
def test_an_id_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSettings):
        identity(tmp_path, name)


def test_a_folder_that_cannot_be_used_is_an_error_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSettings, match="cannot be used"):
        identity(tmp_path / "file", "w")


def test_only_an_agent_of_the_same_boot_knows_its_predecessor_gone(tmp_path: Path) -> None:
    """Locks prove nothing about a folder that came from another host or from before a restart of this one."""
    first = identity(tmp_path, "w1")
    first.release()
    second = identity(tmp_path, "w1")
    second.release()
    (tmp_path / "workers" / "w1" / "place").write_text("another boot 1:2\n")
    third = identity(tmp_path, "w1")
    third.release()

    assert [first.predecessor, second.predecessor, third.predecessor] == [0, first.generation, 0]


def test_an_agent_that_never_began_was_nobody_s_predecessor(tmp_path: Path) -> None:
    """It told nobody its number: the coordinator knows the one before it, whose losses the next one tells at once."""
    first = identity(tmp_path, "w1")
    first.release()
    refused = identity(tmp_path, "w1")
    refused.never_began()
    refused.release()
    second = identity(tmp_path, "w1")
    second.release()
    assert (second.predecessor, second.generation) == (first.generation, first.generation + 1)


def test_a_number_that_cannot_be_given_back_hides_no_other_error(tmp_path: Path) -> None:
    identity(tmp_path, "w1").release()
    refused = identity(tmp_path, "w1")
    in_the_way = refused.folder / "generation.new"
    in_the_way.mkdir()
    refused.never_began()
    in_the_way.rmdir()
    refused.release()
    second = identity(tmp_path, "w1")
    second.release()
    assert second.predecessor == refused.generation


def test_where_nothing_is_known_of_the_last_agent_one_that_never_began_changes_nothing(tmp_path: Path) -> None:
    first = identity(tmp_path, "w1")
    first.release()
    (tmp_path / "workers" / "w1" / "place").write_text("another boot 1:2\n")
    refused = identity(tmp_path, "w1")
    refused.never_began()
    refused.release()
    second = identity(tmp_path, "w1")
    second.release()
    assert second.predecessor == refused.generation


def test_a_copied_folder_proves_nothing_about_the_last_agent(tmp_path: Path) -> None:
    identity(tmp_path / "one", "w1").release()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    copy = identity(tmp_path / "copy", "w1")
    copy.release()

    assert copy.predecessor == 0


def test_agents_of_one_id_on_two_machines_never_have_one_number(tmp_path: Path) -> None:
    clock, entropy = ManualClock(), SeededEntropy()
    one = assume(tmp_path / "one", "w", clock, entropy)
    clock.advance_ms(1)
    other = assume(tmp_path / "other", "w", clock, entropy)
    assert one.generation < other.generation
    one.release()
    clock.jump_wall_ms(-600_000)
    again = assume(tmp_path / "one", "w", clock, entropy)
    assert again.generation == one.generation + 1, "it grows also when the wall clock is set back"
    other.release()
    again.release()


def test_the_next_agent_outranks_the_one_that_its_predecessor_gave_way_to(tmp_path: Path) -> None:
    # Else a machine whose clock is behind could not take its id back when the other machine is gone.
    first = identity(tmp_path, "w")
    first.note_outranked(first.generation + 1_000_000)
    first.release()
    second = identity(tmp_path, "w")
    second.release()
    assert second.generation == first.generation + 1_000_001
    assert second.predecessor == first.generation
