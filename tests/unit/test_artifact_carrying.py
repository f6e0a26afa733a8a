"""What a porter does with folders, over a store in memory: packing, unpacking, verifying, promoting, tidying."""

import os
import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from tenure.artifacts import below
from tenure.artifacts.base import Place
from tenure.artifacts.carrier import Carrier
from tenure.artifacts.direct import DirectPorter
from tenure.artifacts.jobs import (
    Collect,
    Discard,
    Ended,
    Fetch,
    Promote,
    Restore,
    Save,
    StagingPlace,
    Tidy,
    Verify,
)
from tenure.artifacts.memory import MemoryStore
from tenure.artifacts.stopping import Stop
from tenure.errors import ArtifactDamaged, TenureError, UnknownArtifact
from tenure.protocol.artifact import Blob, Bundle, File, Input, encode_manifest
from tenure.testing import ManualClock
from tests.fixtures_artifacts import LATER, PLACE, blob_of, noise

STAGING = StagingPlace(site=PLACE.site, task_id=PLACE.task_id, fence=PLACE.fence, nonce=PLACE.nonce)
NEXT = StagingPlace(site=LATER.site, task_id=LATER.task_id, fence=LATER.fence, nonce=LATER.nonce)


class Scene:
    """A folder `outputs` to pack, and a porter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"
        self.outputs.mkdir()
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.porter = DirectPorter(self.store)

    def write(self, path: str, raw: bytes = b"x") -> Path:
        target = self.outputs / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(raw)
        return target

    def collect(self, *, most_files: int = 100, skip_empty: bool = True, place: StagingPlace = STAGING) -> Ended:
        return self.porter.carry(
            Collect(number=1, place=place, folder=str(self.outputs), most_files=most_files, skip_empty=skip_empty)
        )

    def save(self, path: str, most_files: int = 100) -> Ended:
        return self.porter.carry(
            Save(number=1, place=STAGING, folder=str(self.folder), path=path, most_files=most_files)
        )

    def bundle(self) -> Bundle:
        """All of `outputs`, staged."""
        ended = self.collect(skip_empty=False)
        assert ended.bundle is not None, ended.problem
        return ended.bundle

    def kept(self) -> Bundle:
        """All of `outputs`, promoted."""
        bundle = self.bundle()
        assert self.porter.carry(Promote(number=1, place=STAGING, bundle=bundle, last=True)).problem is None
        return bundle

    def fetch(self, content: Blob | Bundle, path: str = "in") -> Ended:
        return self.porter.carry(
            Fetch(number=1, folder=str(self.folder / "new"), wanted=(Input(path=path, content=content),))
        )

    def staged(self, files: tuple[File, ...], *contents: bytes) -> Bundle:
        """A bundle with any manifest, which no honest executor would make."""
        raw = encode_manifest(files)
        for content in (raw, *contents):
            self.store.stage(PLACE, blob_of(content), 0, [content])
        return Bundle(manifest=blob_of(raw), files=len(files), size=sum(file.blob.size for file in files))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def code(ended: Ended) -> str:
    assert ended.problem is not None
    return ended.problem.code


# --- packing -------------------------------------------------------------------------------------


def test_a_folder_comes_back_as_it_was(scene: Scene) -> None:
    scene.write("a.txt", b"alpha")
    scene.write("deep/er/b.bin", noise(3_000_000))
    scene.write("deep/same.txt", b"alpha")
    scene.write("empty", b"")
    scene.write("run.sh", b"#!/bin/sh\n").chmod(0o755)

    ended = scene.fetch(scene.kept())
    assert (ended.problem, ended.files, ended.size) == (None, 5, 3_000_020)
    there = scene.folder / "new" / "in"
    for path in ("a.txt", "deep/er/b.bin", "deep/same.txt", "empty", "run.sh"):
        assert (there / path).read_bytes() == (scene.outputs / path).read_bytes()
    assert os.access(there / "run.sh", os.X_OK)
    assert not os.access(there / "a.txt", os.X_OK)
    assert sorted(path.name for path in there.iterdir()) == ["a.txt", "deep", "empty", "run.sh"]


def test_one_content_is_staged_once(scene: Scene) -> None:
    for name in "abc":
        scene.write(name, b"the same")
    bundle = scene.bundle()
    assert (bundle.files, bundle.size) == (3, 24)
    assert scene.store.staged_bytes(PLACE, blob_of(b"the same")) == 8


def test_what_is_an_object_is_not_staged_again_and_counts_as_new(scene: Scene) -> None:
    scene.write("a", b"known")
    scene.kept()
    scene.clock.advance_ms(1_000)
    scene.write("b", b"fresh")
    ended = scene.collect(place=NEXT)
    assert scene.store.staged_bytes(LATER, blob_of(b"known")) == 0
    assert scene.store.staged_bytes(LATER, blob_of(b"fresh")) == 5
    assert {stored.blob: stored.age_ms for stored in scene.store.objects()}[blob_of(b"known")] == 0
    assert ended.bundle is not None
    assert scene.porter.carry(Verify(number=1, place=NEXT, bundle=ended.bundle)).problem is None
    assert scene.porter.carry(Promote(number=1, place=NEXT, bundle=ended.bundle)).problem is None


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_folder_makes_a_bundle_only_when_it_is_asked_for(scene: Scene, there: bool) -> None:  # noqa: FBT001
    (scene.outputs / "only" / "folders").mkdir(parents=True)
    if not there:
        scene.outputs = scene.folder / "missing"
    skipped = scene.collect()
    assert (skipped.problem, skipped.bundle) == (None, None)
    bundle = scene.collect(skip_empty=False).bundle
    assert bundle is not None
    assert (bundle.files, bundle.size) == (0, 0)


LINKS = {"link": "/etc/passwd", "folder link": "/etc", "dangling link": "nowhere", "inner link": "good"}


def plant(kind: str, at: Path) -> None:
    if kind in LINKS:
        at.symlink_to(LINKS[kind])
        return
    match kind:
        case "pipe":
            os.mkfifo(at)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(at))
        case "control character":
            at.with_name("a\nb").write_bytes(b"")
        case "control sequence":
            at.with_name("a\x9b2Jb").write_bytes(b"")
        case "no UTF-8":
            (at.parent / os.fsdecode(b"\xff\xfe")).write_bytes(b"")
        case _:
            pytest.fail(f"there is no {kind}")


HOSTILE = (*LINKS, "pipe", "socket", "control character", "control sequence", "no UTF-8")


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("where", ["", "deep/er"])
def test_what_is_no_file_is_refused_before_anything_is_staged(scene: Scene, kind: str, where: str) -> None:
    scene.write("good", b"good")
    (scene.outputs / where).mkdir(parents=True, exist_ok=True)
    plant(kind, scene.outputs / where / "zzz")
    ended = scene.collect()
    assert code(ended) == "forbidden_path"
    assert list(scene.store.places()) == []
    # The message must survive being sent.
    assert ended.model_dump_json().encode()


def test_the_refusal_says_which_and_what(scene: Scene) -> None:
    (scene.outputs / "x").symlink_to("/etc/passwd")
    problem = scene.collect().problem
    assert problem is not None
    assert "'x' is a link" in problem.message


@pytest.mark.parametrize("target", ["/etc", "elsewhere"])
def test_a_folder_that_was_exchanged_for_a_link_is_refused(scene: Scene, target: str) -> None:
    scene.outputs.rmdir()
    (scene.folder / "elsewhere").mkdir()
    scene.outputs.symlink_to(target)
    assert code(scene.collect()) == "forbidden_path"


def test_a_file_in_the_folders_place_is_refused(scene: Scene) -> None:
    scene.outputs.rmdir()
    scene.outputs.write_bytes(b"")
    assert code(scene.collect()) == "forbidden_path"


def test_too_many_files_are_refused_before_anything_is_staged(scene: Scene) -> None:
    for number in range(11):
        scene.write(f"f{number}")
    assert code(scene.collect(most_files=10)) == "too_many_files"
    assert list(scene.store.places()) == []
    assert scene.collect(most_files=11).problem is None


def test_a_deep_folder_needs_no_more_open_files(scene: Scene) -> None:
    scene.write("/".join(["d"] * 500), b"deep")
    assert scene.bundle().files == 1


# --- saving --------------------------------------------------------------------------------------


def test_a_saved_folder_begins_with_its_own_name(scene: Scene) -> None:
    scene.write("step-6/model", b"weights")
    scene.write("step-5", b"not this one")
    bundle = scene.save("outputs/step-6").bundle
    assert bundle is not None
    assert scene.porter.carry(Promote(number=1, place=STAGING, bundle=bundle)).problem is None
    scene.fetch(bundle, "checkpoint")
    there = scene.folder / "new" / "checkpoint"
    assert [str(path.relative_to(there)) for path in there.rglob("*")] == ["step-6", "step-6/model"]


def test_a_saved_file_is_a_bundle_of_one(scene: Scene) -> None:
    scene.write("step-6.json", b"{}")
    bundle = scene.save("outputs/step-6.json").bundle
    assert bundle is not None
    assert (bundle.files, bundle.size) == (1, 2)


@pytest.mark.parametrize("path", ["outputs/none", "none/none", "outputs/file/below"])
def test_what_is_not_there_cannot_be_saved(scene: Scene, path: str) -> None:
    scene.write("file")
    assert code(scene.save(path)) in {"unknown_artifact", "forbidden_path"}


def test_nothing_is_saved_through_a_link(scene: Scene) -> None:
    (scene.outputs / "link").symlink_to("/etc")
    assert code(scene.save("outputs/link")) == "forbidden_path"
    assert code(scene.save("outputs/link/passwd")) == "forbidden_path"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "outputs/../x", ""])
def test_a_path_that_leaves_the_folder_cannot_be_saved(scene: Scene, path: str) -> None:
    assert code(scene.save(path)) == "forbidden_path"


# --- unpacking -----------------------------------------------------------------------------------


def test_what_is_there_already_is_replaced(scene: Scene) -> None:
    scene.write("a", b"new")
    bundle = scene.kept()
    (scene.folder / "new" / "in").mkdir(parents=True)
    (scene.folder / "new" / "in" / "a").write_bytes(b"something old and longer")
    assert scene.fetch(bundle).problem is None
    assert (scene.folder / "new" / "in" / "a").read_bytes() == b"new"


def test_a_link_in_the_way_of_a_file_is_replaced_and_not_followed(scene: Scene) -> None:
    scene.write("a", b"new")
    bundle = scene.kept()
    victim = scene.folder / "victim"
    victim.write_bytes(b"untouched")
    (scene.folder / "new" / "in").mkdir(parents=True)
    (scene.folder / "new" / "in" / "a").symlink_to(victim)
    assert scene.fetch(bundle).problem is None
    assert victim.read_bytes() == b"untouched"
    assert not (scene.folder / "new" / "in" / "a").is_symlink()


def test_a_link_in_the_way_of_a_folder_is_refused(scene: Scene) -> None:
    scene.write("sub/a", b"new")
    bundle = scene.kept()
    outside = scene.folder / "outside"
    outside.mkdir()
    (scene.folder / "new" / "in").mkdir(parents=True)
    (scene.folder / "new" / "in" / "sub").symlink_to(outside)
    assert code(scene.fetch(bundle)) == "forbidden_path"
    assert list(outside.iterdir()) == []


def test_a_folder_in_the_way_of_a_file_is_refused(scene: Scene) -> None:
    scene.write("a")
    bundle = scene.kept()
    (scene.folder / "new" / "in" / "a").mkdir(parents=True)
    assert code(scene.fetch(bundle)) == "forbidden_path"
    assert [path.name for path in (scene.folder / "new" / "in").iterdir()] == ["a"]


def test_damaged_contents_do_not_arrive(scene: Scene) -> None:
    wrong = blob_of(b"right")
    scene.store.stage(PLACE, blob_of(b"wrong"), 0, [b"wrong"])
    scene.store.promote(PLACE, blob_of(b"wrong"))
    scene.store._objects[wrong.digest] = scene.store._objects.pop(blob_of(b"wrong").digest)
    assert code(scene.fetch(wrong)) == "artifact_damaged"
    assert list((scene.folder / "new").iterdir()) == []


def test_what_is_not_there_cannot_be_fetched(scene: Scene) -> None:
    assert code(scene.fetch(blob_of(b"never"))) == "unknown_artifact"


# --- verifying and promoting ---------------------------------------------------------------------


def test_a_staged_bundle_is_no_object_until_it_is_promoted(scene: Scene) -> None:
    scene.write("a")
    bundle = scene.bundle()
    assert scene.porter.carry(Verify(number=1, place=STAGING, bundle=bundle)).problem is None
    assert list(scene.store.objects()) == []
    promoted = scene.porter.carry(Promote(number=1, place=STAGING, bundle=bundle, last=True))
    assert promoted.problem is None
    assert len(list(scene.store.objects())) == 2
    assert list(scene.store.places()) == []
    assert scene.porter.carry(Promote(number=1, place=STAGING, bundle=bundle, last=True)).problem is None
    assert scene.porter.carry(Verify(number=1, place=STAGING, bundle=bundle)).problem is None


def test_a_bundle_whose_file_was_changed_after_staging_is_damaged(scene: Scene) -> None:
    scene.write("a", b"right")
    bundle = scene.bundle()
    scene.store.stage(PLACE, blob_of(b"right"), 0, [b"wrong"])
    assert code(scene.porter.carry(Verify(number=1, place=STAGING, bundle=bundle))) == "artifact_damaged"
    assert code(scene.porter.carry(Promote(number=1, place=STAGING, bundle=bundle))) == "artifact_damaged"
    assert list(scene.store.objects()) == []


def test_a_bundle_that_is_not_there_is_unknown(scene: Scene) -> None:
    bundle = Bundle(manifest=blob_of(b"never"), files=1, size=1)
    assert code(scene.porter.carry(Verify(number=1, place=STAGING, bundle=bundle))) == "unknown_artifact"


@pytest.mark.parametrize("lie", ["files", "size", "no manifest", "two sizes", "disorder"])
def test_a_bundle_that_is_not_what_was_said_is_damaged(scene: Scene, lie: str) -> None:
    a, b = File(path="a", blob=blob_of(b"1")), File(path="b", blob=blob_of(b"22"))
    match lie:
        case "files" | "size":
            true = scene.staged((a, b), b"1", b"22")
            bundle = true.model_copy(update={lie: getattr(true, lie) + 1})
        case "no manifest":
            scene.store.stage(PLACE, blob_of(b"{}"), 0, [b"{}"])
            bundle = Bundle(manifest=blob_of(b"{}"), files=0, size=0)
        case "two sizes":
            twin = Blob(digest=a.blob.digest, size=7)
            bundle = scene.staged((a, File(path="c", blob=twin)), b"1")
        case _:
            bundle = scene.staged((a, a), b"1")
    assert code(scene.porter.carry(Verify(number=1, place=STAGING, bundle=bundle))) == "artifact_damaged"


@pytest.mark.parametrize("error", [UnknownArtifact, ArtifactDamaged])
def test_what_another_job_of_the_place_promotes_meanwhile_is_read_as_an_object(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: type[TenureError]
) -> None:
    """A checkpoint with the same file may come into the store just while the outputs are compared."""
    scene.write("a")
    bundle = scene.bundle()

    read_staged = scene.store.read_staged

    def taken_away(place: Place, blob: Blob) -> Iterator[bytes]:
        monkeypatch.setattr(scene.store, "read_staged", read_staged)
        scene.store.promote(place, blob)
        monkeypatch.setattr(scene.store, "read_staged", taken_away)
        raise error("it is not there any more")

    monkeypatch.setattr(scene.store, "read_staged", taken_away)
    assert scene.porter.carry(Verify(number=1, place=STAGING, bundle=bundle)).problem is None


def test_a_save_that_was_given_up_does_not_cut_off_what_is_collected_beside_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint of a program that has ended is given up for its outputs, which may hold the same file."""
    scene.write("model", b"trained")
    carrier, stop, stage = Carrier(scene.store), Stop(), scene.store.stage
    collect = Collect(number=2, place=STAGING, folder=str(scene.outputs), most_files=9)
    collecting: list[Future[Ended]] = []
    with ThreadPoolExecutor(1) as threads:

        def stage_late(place: Place, blob: Blob, offset: int, chunks: Iterable[bytes]) -> None:
            monkeypatch.setattr(scene.store, "stage", stage)
            stop.give()
            collecting.append(threads.submit(carrier.carry, collect, Stop()))
            wait(collecting, timeout=0.1)  # as far as it comes meanwhile
            stage(place, blob, offset, chunks)

        monkeypatch.setattr(scene.store, "stage", stage_late)
        save = Save(number=1, place=STAGING, folder=str(scene.outputs), path="model", most_files=9)
        assert code(carrier.carry(save, stop)) == "cancelled"
        bundle = collecting[0].result().bundle
    assert bundle is not None
    assert scene.porter.carry(Verify(number=3, place=STAGING, bundle=bundle)).problem is None


def test_a_folder_of_millions_of_names_is_not_read_to_its_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below, "_MOST_ENTRIES", 5)
    for number in range(6):
        scene.write(f"deep/{number}")
    ended = scene.collect(most_files=3)
    assert code(ended) == "too_many_files"
    assert "more than 5 names in 'deep'" in str(ended.problem)


def test_discarding_a_place(scene: Scene) -> None:
    scene.write("a")
    scene.bundle()
    assert scene.porter.carry(Discard(number=1, place=STAGING)).problem is None
    assert list(scene.store.places()) == []


# --- tidying -------------------------------------------------------------------------------------


def test_tidying_removes_what_is_old_and_not_named(scene: Scene) -> None:
    scene.write("a", b"named")
    kept = scene.kept()
    scene.write("a", b"not named")
    scene.kept()
    scene.write("a", b"staged")
    scene.bundle()
    scene.clock.advance_ms(1_000)
    tidy = Tidy(number=1, bundles=(kept,), min_age_ms=1_000)

    looked = scene.porter.carry(tidy.model_copy(update={"dry_run": True}))
    assert (looked.files, looked.size) == (3, 9 + next(s.blob.size for s in scene.store.objects() if s.blob.size > 50))
    assert len(list(scene.store.objects())) == 4
    assert scene.porter.carry(tidy) == looked
    left = {stored.blob.digest for stored in scene.store.objects()}
    assert left == {kept.manifest.digest, blob_of(b"named").digest}
    assert list(scene.store.places()) == []


def test_tidying_keeps_what_is_young_or_named_or_in_a_kept_place(scene: Scene) -> None:
    scene.write("a", b"old")
    old = scene.kept()
    # Staged, with a content that is an object already: only the staged manifest names it.
    ended = scene.collect(place=NEXT)
    scene.clock.advance_ms(1_000)
    scene.write("a", b"young")
    scene.kept()
    assert ended.bundle == old
    assert scene.porter.carry(Tidy(number=1, bundles=(old,), keep_places=(NEXT,), min_age_ms=1_000)).files == 0
    assert scene.porter.carry(Tidy(number=1, blobs=(blob_of(b"old"),), min_age_ms=1_000)).files == 1


def test_a_bundle_that_is_only_staged_keeps_the_objects_that_it_names(scene: Scene) -> None:
    scene.write("a", b"shared")
    scene.kept()
    scene.write("b", b"more")
    bundle = scene.collect(place=NEXT).bundle
    assert bundle is not None
    scene.clock.advance_ms(1_000)
    scene.porter.carry(Tidy(number=1, bundles=(bundle,), keep_places=(NEXT,), min_age_ms=1_000))
    assert scene.store.has(blob_of(b"shared"))
    assert scene.porter.carry(Promote(number=1, place=NEXT, bundle=bundle)).problem is None


def test_what_a_client_named_as_a_bundle_and_is_none_keeps_nothing_from_being_tidied(scene: Scene) -> None:
    scene.write("a", b"no list of files")
    scene.kept()
    scene.clock.advance_ms(1_000)
    false = Bundle(manifest=blob_of(b"no list of files"), files=1, size=1)
    ended = scene.porter.carry(Tidy(number=1, bundles=(false,), min_age_ms=1_000))
    assert ended.problem is None
    assert [stored.blob for stored in scene.store.objects()] == [false.manifest]


# --- the porter ----------------------------------------------------------------------------------


def test_a_direct_porter_tells_each_end_once(scene: Scene) -> None:
    scene.porter.submit(Discard(number=4, place=STAGING))
    scene.porter.cancel(4)
    assert scene.porter.busy()
    assert [ended.number for ended in scene.porter.ended()] == [4]
    assert not scene.porter.busy()
    assert list(scene.porter.ended()) == []
    assert scene.porter.fileno() == -1
    assert scene.porter.carry(Restore(number=5)).files == 0
