"""Whatever lies in a folder and whatever a manifest says, files stay below their folder and come back as they were."""

import os
import tempfile
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.artifacts.content import checked
from tenure.artifacts.direct import DirectPorter
from tenure.artifacts.jobs import Collect, Fetch, Promote, StagingPlace
from tenure.artifacts.memory import MemoryStore
from tenure.artifacts.objects import PART_BYTES, _parts
from tenure.errors import ArtifactDamaged
from tenure.protocol.artifact import Blob, Bundle, Input
from tenure.testing import ManualClock
from tests.fixtures_artifacts import PLACE, blob_of, cut

STAGING = StagingPlace(site=PLACE.site, task_id=PLACE.task_id, fence=PLACE.fence, nonce=PLACE.nonce)
SECRET = b"what no task may read"

NAMES = st.sampled_from(["a", "b", "ä", "with space", ".hidden", "x" * 255, "'; rm -rf", "\\", "-f", "a.part"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(PATHS, st.tuples(st.binary(max_size=50), st.booleans()), max_size=8)


def without_clashes(tree: dict[str, tuple[bytes, bool]]) -> dict[str, tuple[bytes, bool]]:
    """The tree without files that would have to be folders, too."""
    return {path: found for path, found in tree.items() if not any(other.startswith(f"{path}/") for other in tree)}


def lying(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file()
    }


@settings(max_examples=60, deadline=None)
@given(TREES.map(without_clashes))
def test_every_folder_comes_back_as_it_was(tree: dict[str, tuple[bytes, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        base, porter = Path(name), DirectPorter(MemoryStore(ManualClock()))
        for path, (raw, executable) in tree.items():
            target = base / "outputs" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(raw)
            target.chmod(0o755 if executable else 0o644)
        ended = porter.carry(
            Collect(number=1, place=STAGING, folder=str(base / "outputs"), most_files=10, skip_empty=False)
        )
        assert ended.bundle is not None, ended.problem
        assert porter.carry(Promote(number=2, place=STAGING, bundle=ended.bundle)).problem is None
        wanted = (Input(path="in", content=ended.bundle),)
        assert porter.carry(Fetch(number=3, folder=str(base / "new"), wanted=wanted)).problem is None
        # As root, everything may be run that anybody may run; so the bit is compared, and it was kept.
        assert lying(base / "new" / "in") == tree


HOSTILE_PATHS = st.one_of(
    PATHS,
    st.sampled_from(
        ["../x", "/etc/x", "a/../../x", "", ".", "..", "a//b", "a/", "link/x", "link", "a\0b", "a\nb", "x" * 256]
    ),
    st.text(max_size=10),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(HOSTILE_PATHS, st.binary(max_size=5)), max_size=4))
def test_no_manifest_writes_outside_of_the_folder(files: list[tuple[str, bytes]]) -> None:
    """The manifest is made by hand, because no honest code would make it; `link` leads out of the folder."""
    import json

    with tempfile.TemporaryDirectory() as name:
        base, store = Path(name), MemoryStore(ManualClock())
        (base / "new" / "in").mkdir(parents=True)
        (base / "outside").mkdir()
        (base / "new" / "in" / "link").symlink_to(base / "outside")
        for _, raw in files:
            store.stage(PLACE, blob_of(raw), 0, [raw])
            store.promote(PLACE, blob_of(raw))
        listed = [{"path": path, "blob": blob_of(raw).model_dump()} for path, raw in sorted(files)]
        manifest = json.dumps({"files": listed}).encode()
        store.stage(PLACE, blob_of(manifest), 0, [manifest])
        store.promote(PLACE, blob_of(manifest))
        bundle = Bundle(manifest=blob_of(manifest), files=len(files), size=sum(len(raw) for _, raw in files))
        DirectPorter(store).carry(Fetch(number=1, folder=str(base / "new"), wanted=(Input(path="in", content=bundle),)))
        assert list((base / "outside").iterdir()) == []
        assert sorted(path.name for path in base.iterdir()) == ["new", "outside"]
        assert [path.name for path in (base / "new").iterdir()] == ["in"]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(1, 50), st.integers(0, 220), st.data())
def test_checked_chunks_are_the_content_or_never_whole(raw: bytes, step: int, skip: int, data: st.DataObject) -> None:
    skip = min(skip, len(raw))
    assert b"".join(checked(blob_of(raw), cut(raw, step), skip)) == raw[skip:]
    wrong = data.draw(st.binary(max_size=220).filter(lambda other: other != raw))
    passed = bytearray()
    with pytest.raises(ArtifactDamaged):
        passed.extend(byte for chunk in checked(blob_of(raw), cut(wrong, step)) for byte in chunk)
    assert len(passed) < len(raw) or not raw


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, PART_BYTES + 1), max_size=4))
def test_parts_have_one_size_and_the_last_what_is_left(sizes: list[int]) -> None:
    parts = [len(part) for part in _parts((bytes(size) for size in sizes), is_empty=not sum(sizes))]
    assert sum(parts) == sum(sizes)
    assert all(part == PART_BYTES for part in parts[:-1])
    assert parts[-1] <= PART_BYTES


@pytest.mark.parametrize("what", ["file", "folder"])
def test_exchanging_files_and_folders_for_links_meanwhile_leads_nowhere(tmp_path: Path, what: str) -> None:
    """A program that still runs swaps what it has made for a link as fast as it can; nothing from there is stored."""
    outside, outputs, over = tmp_path / "outside", tmp_path / "outputs", Event()
    for folder in (outside, outputs / "f"):
        folder.mkdir(parents=True)
        (folder / "a").write_bytes(SECRET if folder == outside else b"harmless")
    victim = outputs / "f" / "a" if what == "file" else outputs / "f"
    target = outside / "a" if what == "file" else outside
    aside = tmp_path / "aside"

    def swap() -> None:
        while not over.is_set():
            victim.rename(aside)
            victim.symlink_to(target)
            victim.unlink()
            aside.rename(victim)

    store = MemoryStore(ManualClock())
    swapper = Thread(target=swap)
    swapper.start()
    try:
        ends = [
            DirectPorter(store).carry(Collect(number=1, place=STAGING, folder=str(outputs), most_files=10))
            for _ in range(300)
        ]
    finally:
        over.set()
        swapper.join()
    assert store.staged_bytes(PLACE, blob_of(SECRET)) == 0
    codes = {ended.problem.code if ended.problem is not None else "" for ended in ends}
    assert codes <= {"", "forbidden_path", "disk", "artifact_damaged"}
    assert "" in codes
    assert all(isinstance(ended.bundle, Bundle | None) for ended in ends)


def test_a_blob_is_compared_by_size_and_digest() -> None:
    with pytest.raises(ArtifactDamaged):
        list(checked(Blob(digest="0" * 64, size=0), []))
