"""Files of a client: uploaded once, downloaded whole, and errors that leave nothing behind."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.artifacts.folder import FolderStore
from tenure.artifacts.memory import MemoryStore
from tenure.client.client import Client
from tenure.client.contents import Contents
from tenure.client.session import Wiring
from tenure.errors import ArtifactDamaged, ForbiddenPath, TenureError, UnknownArtifact, UsageError
from tenure.protocol.artifact import Blob, Bundle
from tenure.protocol.client_messages import Done, Notice
from tenure.protocol.envelope import CommandWork, Limits
from tenure.protocol.states import TaskState
from tenure.testing import ManualClock, SeededEntropy
from tests.fixtures_client import ScriptedFleet


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock())


@pytest.fixture
def contents(store: MemoryStore) -> Contents:
    return Contents(lambda: store, ManualClock(), SeededEntropy(1))


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet(ManualClock())


@pytest.fixture
def client(fleet: ScriptedFleet, store: MemoryStore) -> Iterator[Client]:
    wiring = Wiring(fleet.connect, fleet.clock, SeededEntropy(1), lambda: store)
    with Client(wiring=wiring) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "deep" / "empty").touch()
    (source / "deep" / "data.bin").write_bytes(bytes(range(250)) * 12_000)
    return source


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def held(store: MemoryStore) -> int:
    return len(list(store.objects()))


def test_a_folder_comes_back_as_it_was(contents: Contents, store: MemoryStore, folder: Path, tmp_path: Path) -> None:
    moved: list[int] = []
    bundle = contents.upload(folder, moved.append)
    assert isinstance(bundle, Bundle)
    assert (bundle.files, bundle.size, sum(moved)) == (3, 3_000_010, 3_000_010)
    assert not list(store.places()), "nothing stays staged"
    contents.download(bundle, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(folder)
    assert os.access(tmp_path / "back" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "back" / "deep" / "empty", os.X_OK)


def test_equal_contents_are_kept_once(contents: Contents, store: MemoryStore, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("the same")
    assert contents.upload(tmp_path / "a") == contents.upload(tmp_path / "b")
    assert held(store) == 1


def test_many_equal_large_files_are_sent_once(tmp_path: Path) -> None:
    """Several files are on their way at once; none may cut off what another one has staged."""
    store = tmp_path / "store"
    store.mkdir()
    folder = tmp_path / "given"
    folder.mkdir()
    for number in range(8):
        (folder / str(number)).write_bytes(bytes(2_000_000))
    contents = Contents(lambda: FolderStore(store), ManualClock(), SeededEntropy())
    for _ in range(5):
        bundle = contents.upload(folder)
        assert isinstance(bundle, Bundle)
        assert {file.blob.size for file in contents.files(bundle)} == {2_000_000}
        assert len(list(FolderStore(store).objects())) == 2
        shutil.rmtree(store / "objects")


def test_a_file_that_has_changed_is_another_content(contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    before = contents.upload(tmp_path / "a")
    (tmp_path / "a").write_text("and after")
    assert contents.upload(tmp_path / "a") != before


def folder_of_a_link(place: Path) -> None:
    place.mkdir()
    (place / "x").symlink_to("/etc/passwd")


def folder_of_a_pipe(place: Path) -> None:
    place.mkdir()
    os.mkfifo(place / "x")


def folder_of_a_bad_name(place: Path) -> None:
    place.mkdir()
    (place / "a\nb").touch()


UNFIT: list[tuple[Callable[[Path], None], str]] = [
    (lambda place: None, "No such file"),
    (os.mkfifo, "neither a file nor a folder"),
    (folder_of_a_link, "x is a link"),
    (folder_of_a_pipe, "x is a link, a device or a pipe"),
    (folder_of_a_bad_name, "control characters"),
]


@pytest.mark.parametrize(("make", "words"), UNFIT)
def test_what_cannot_be_sent_is_refused_and_nothing_is_stored(
    contents: Contents, store: MemoryStore, tmp_path: Path, make: Any, words: str
) -> None:
    make(tmp_path / "given")
    with pytest.raises(UsageError, match=words):
        contents.upload(tmp_path / "given")
    assert held(store) == 0


def test_a_file_that_changes_while_it_is_sent_is_refused(
    contents: Contents, store: MemoryStore, tmp_path: Path
) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"x" * 2_000_000)

    class Growing:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def has(self, blob: Blob, *, renew: bool = False) -> bool:
            path.write_bytes(b"y" * 2_000_000)
            return store.has(blob, renew=renew)

    watched: Any = Growing()
    with pytest.raises(UsageError, match="was changed while it was sent"):
        Contents(lambda: watched, ManualClock(), SeededEntropy(1)).upload(path)
    assert held(store) == 0
    assert not list(store.places())


def test_files_that_are_there_are_kept_unless_told(contents: Contents, folder: Path, tmp_path: Path) -> None:
    bundle = contents.upload(folder)
    back = tmp_path / "back"
    contents.download(bundle, back)
    (back / "deep" / "data.bin").unlink()
    contents.download(bundle, back)
    assert tree(back) == tree(folder), "what is there already and equal is no obstacle"
    (back / "run.sh").write_text("mine")
    (back / "deep" / "data.bin").unlink()
    with pytest.raises(UsageError, match=r"run\.sh is there already"):
        contents.download(bundle, back)
    assert set(tree(back)) == {"run.sh", "deep/empty"}, "nothing was written"
    contents.download(bundle, back, force=True)
    assert tree(back) == tree(folder)


def test_a_link_in_the_target_leads_nowhere(contents: Contents, folder: Path, tmp_path: Path) -> None:
    bundle = contents.upload(folder)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ForbiddenPath, match="is a link"):
        contents.download(bundle, tmp_path / "back", force=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_damage_is_found_and_leaves_no_file(
    contents: Contents, store: MemoryStore, folder: Path, tmp_path: Path
) -> None:
    bundle = contents.upload(folder)
    assert isinstance(bundle, Bundle)
    broken = next(file.blob for file in contents.files(bundle) if file.path == "run.sh")
    store._objects[broken.digest] = (b"#!/bin/no\n", 0)
    with pytest.raises(ArtifactDamaged):
        contents.download(bundle, tmp_path / "back")
    assert "run.sh" not in tree(tmp_path / "back")
    assert not [name for name in tree(tmp_path / "back") if ".tenure-" in name]


def test_folders_that_were_made_for_nothing_are_removed_again(
    contents: Contents, store: MemoryStore, folder: Path, tmp_path: Path
) -> None:
    bundle = contents.upload(folder)
    assert isinstance(bundle, Bundle)
    for file in contents.files(bundle):
        store.remove(file.blob.digest)
    (tmp_path / "mine").mkdir()
    for target in (tmp_path / "new", tmp_path / "new" / "deep" / "er", tmp_path / "mine", tmp_path / "mine" / "x"):
        with pytest.raises(UnknownArtifact):
            contents.download(bundle, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "source"]
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.parametrize("change", [-1, 1])
def test_a_content_whose_size_was_said_wrong_is_not_called_damaged(
    contents: Contents, folder: Path, change: int
) -> None:
    blob = contents.upload(folder / "run.sh")
    assert isinstance(blob, Blob)
    said = Blob(digest=blob.digest, size=blob.size + change)
    with pytest.raises(ArtifactDamaged, match=f"{said.size} .*said of it") as caught:
        list(contents.read(said))
    assert "is damaged" not in str(caught.value)


# --- tasks ------------------------------------------------------------------------------------------------------------


def only_envelope(fleet: ScriptedFleet) -> Any:
    (envelope,) = fleet.envelopes.values()
    return envelope


def test_a_command_says_all_that_it_needs(fleet: ScriptedFleet, client: Client, folder: Path) -> None:
    limits = Limits(memory_bytes=2**30, files=10)
    submitter = client.using(
        inputs={"data.bin": folder / "deep" / "data.bin", "all": str(folder)},
        secrets=["token"],
        limits=limits,
        keep_folder=True,
        labels={"room": "b12"},
    )
    submitter.command(["train"], form="folder", parameters={"rate": 0.1})
    envelope = only_envelope(fleet)
    assert [one.path for one in envelope.inputs] == ["all", "data.bin"]
    assert isinstance(envelope.inputs[0].content, Bundle)
    assert envelope.inputs[1].content.size == 3_000_000
    assert (envelope.secrets, envelope.limits, envelope.keep_folder) == (("token",), limits, True)
    assert envelope.requirements.labels == (("room", "b12"), ("secret:token", "yes"))
    assert envelope.work == CommandWork(argv=("train",), form="folder", parameters='{"rate":0.1}')


def test_a_function_may_have_files_too(fleet: ScriptedFleet, client: Client, folder: Path) -> None:
    client.using(files=True, inputs={"all": folder}).submit("m:f", 1)
    envelope = only_envelope(fleet)
    assert envelope.work.files
    assert [one.path for one in envelope.inputs] == ["all"]
    assert envelope.work.arguments == '{"args":[1],"kwargs":{}}'


def test_a_content_that_is_there_needs_no_store(fleet: ScriptedFleet) -> None:
    blob = Blob(digest="a" * 64, size=3)
    with Client.over(fleet.connect, clock=fleet.clock, entropy=SeededEntropy(1)) as client:
        client.using(inputs={"x": blob}).command(["true"])
        assert only_envelope(fleet).inputs[0].content == blob
        with pytest.raises(UsageError, match="no store"):
            client.upload(__file__)


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "", "."])
def test_an_input_stays_below_its_folder(fleet: ScriptedFleet, client: Client, path: str) -> None:
    with pytest.raises(UsageError, match="an input cannot be called"):
        client.using(inputs={path: __file__})
    assert not fleet.asks


@pytest.mark.parametrize("names", [["d", "d/x"], ["a/b/c", "a"], ["a", "a-b", "a/b"]])
def test_an_input_lies_in_no_other(fleet: ScriptedFleet, client: Client, store: MemoryStore, names: list[str]) -> None:
    with pytest.raises(UsageError, match="would lie inside"):
        client.using(inputs=dict.fromkeys(names, __file__))
    assert not fleet.asks
    assert not list(store.objects())


def test_names_that_only_begin_alike_are_no_trouble(client: Client) -> None:
    client.using(inputs={"a": __file__, "a.b": __file__, "ab/a": __file__})


def in_xml(client: Client) -> None:
    form: Any = "xml"
    client.command(["true"], form=form)


WRONG: list[Callable[[Client], object]] = [
    lambda client: client.using(inputs={"x": "/no/such/file"}),
    lambda client: client.using(secrets="token"),
    lambda client: client.using(secrets=["no name"]).command(["true"]),
    lambda client: client.command(["true"], parameters=float("nan")),
    in_xml,
]


@pytest.mark.parametrize("ask", WRONG)
def test_what_is_wrong_is_refused_before_anything_is_sent(fleet: ScriptedFleet, client: Client, ask: Any) -> None:
    with pytest.raises(UsageError):
        ask(client)
    assert not fleet.asks


def test_a_wrong_name_is_explained_and_not_its_pattern(client: Client) -> None:
    with pytest.raises(UsageError, match=r"secrets\.0: a name has 1 to 64 letters, digits, _, - and \.,"):
        client.using(secrets=["no name"]).command(["true"])


def end_with(fleet: ScriptedFleet, task_id: str, outputs: Bundle | None) -> None:
    done = Done(task_id=task_id, state=TaskState.SUCCEEDED, attempt=1, fence=7, value='"x"', outputs=outputs)
    fleet.tasks[task_id] = done
    fleet.post(Notice(done=(done,)))


def test_outputs_are_downloaded(fleet: ScriptedFleet, client: Client, folder: Path, tmp_path: Path) -> None:
    bundle = client.upload(folder)
    assert isinstance(bundle, Bundle)
    handle = client.command(["train"])
    assert handle.outputs is None
    end_with(fleet, handle.task_id, bundle)
    assert handle.download(tmp_path / "back", timeout=5) == tmp_path / "back"
    assert handle.outputs == bundle
    assert tree(tmp_path / "back") == tree(folder)


def test_outputs_that_never_come_are_an_error(fleet: ScriptedFleet, client: Client, tmp_path: Path) -> None:
    nowhere = Bundle(manifest=Blob(digest="a" * 64, size=3), files=1, size=3)
    for outputs, words in ((None, "has left no files"), (nowhere, "may still be on its way")):
        handle = client.command(["train", words])
        end_with(fleet, handle.task_id, outputs)
        with pytest.raises(UnknownArtifact, match=words):
            handle.download(tmp_path / "back", timeout=5)


def test_a_failed_upload_serves_nobody_who_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    tries: list[int] = []

    def away() -> MemoryStore:
        tries.append(1)
        raise UsageError("no store")

    contents = Contents(away, ManualClock(), SeededEntropy(1))
    for _ in range(2):
        with pytest.raises(TenureError, match="no store"):
            contents.upload(tmp_path / "a")
    assert len(tries) == 2, "a failure is not remembered"
