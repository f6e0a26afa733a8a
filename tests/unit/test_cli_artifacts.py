"""The files of tasks on the command line: listed, fetched, verified, collected; and rejected ones decided about."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.artifacts.base import Place
from tenure.protocol.artifact import Blob, Bundle
from tenure.protocol.client_messages import Adopt, Ask, CollectArtifacts, Drop, Query, Reply
from tests.fixtures_cli import START_MS, CommandLine, FakeFleet, Printed, task_id

TASK = task_id(1)
NONCE = "ab" * 8


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def tenure(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(fleet, capsys)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(b"w" * 5_000)
    (folder / "notes.txt").write_text("it went well\n")
    return folder


@pytest.fixture
def bundle(fleet: FakeFleet, source: Path) -> Bundle:
    found = fleet.contents.upload(source)
    assert isinstance(found, Bundle)
    return found


def row(bundle: Bundle, **more: Any) -> dict[str, Any]:
    names = {"task_id": TASK, "kind": "outputs", "attempt": 1, "fence": 7, "name": "", "state": "PROMOTED"}
    content = {"manifest": bundle.manifest.digest, "manifest_size": bundle.manifest.size}
    return {**names, **content, "files": bundle.files, "size": bundle.size, "recorded_at_ms": START_MS, **more}


def log_row(blob: Blob) -> dict[str, Any]:
    whole = Bundle(manifest=blob, files=1, size=blob.size)
    return row(whole, kind="log")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_line(printed: Printed, code: int, *words: str) -> None:
    assert printed.code == code, printed
    (line,) = printed.err.splitlines()
    assert line.startswith("tenure: ")
    for word in words:
        assert word in line


# --- list, get --------------------------------------------------------------------------------------------------------


def test_the_list_asks_by_task_and_kind(tenure: CommandLine, bundle: Bundle) -> None:
    tenure.fleet.rows["artifacts"] = [row(bundle)]
    printed = tenure("artifacts", "list", "--task", TASK, "--kind", "outputs")
    assert tenure.fleet.asked == [Query(what="artifacts", where=(("task_id", TASK), ("kind", "outputs")))]
    assert "4.9 KiB" in printed.out
    assert tenure("artifacts", "list", "--json").json()[0]["manifest"] == bundle.manifest.digest


def test_all_files_of_a_task_go_into_a_folder(
    tenure: CommandLine, bundle: Bundle, source: Path, tmp_path: Path
) -> None:
    tenure.fleet.rows["artifacts"] = [row(bundle)]
    printed = tenure("artifacts", "get", TASK, "--to", str(tmp_path / "back"))
    assert printed.code == 0, printed.err
    assert tree(tmp_path / "back") == tree(source)
    one_line(tenure("artifacts", "get", TASK), 2, "this is a folder of files", "--to DIR")


def test_one_file_or_one_folder_of_a_task(tenure: CommandLine, bundle: Bundle, tmp_path: Path) -> None:
    tenure.fleet.rows["artifacts"] = [row(bundle)]
    assert tenure("artifacts", "get", f"{TASK}/notes.txt").out == "it went well\n"
    assert tenure("artifacts", "get", f"{TASK}:outputs/model", "--to", str(tmp_path / "m")).code == 0
    assert tree(tmp_path / "m") == {"weights": b"w" * 5_000}
    assert tenure("artifacts", "get", f"{TASK}/model/weights", "--to", str(tmp_path / "w")).code == 0
    assert (tmp_path / "w").stat().st_size == 5_000
    one_line(tenure("artifacts", "get", f"{TASK}/nothing"), 2, "'nothing'", "notes.txt")


def test_contents_by_digest(tenure: CommandLine, bundle: Bundle, source: Path, tmp_path: Path) -> None:
    tenure.fleet.rows["artifacts"] = [row(bundle)]
    notes = next(file.blob for file in tenure.fleet.contents.files(bundle) if file.path == "notes.txt")
    assert tenure("artifacts", "get", notes.digest).out == "it went well\n"
    assert tenure("artifacts", "get", f"sha256:{notes.digest}:{notes.size}").out == "it went well\n"
    assert tenure("artifacts", "get", bundle.manifest.digest, "--to", str(tmp_path / "back")).code == 0
    assert tree(tmp_path / "back") == tree(source)
    one_line(tenure("artifacts", "get", "0" * 64), 2, "the store holds no 000")
    one_line(tenure("artifacts", "get", f"sha256:{'0' * 64}:5"), 2, "000")


def test_a_log_is_printed(tenure: CommandLine, tmp_path: Path) -> None:
    stored = '[1, 0, "step 1\\n"]\n[2, 7, "tepid \\u00e9\\n"]\n[1, 14, ""]\n'
    (tmp_path / "log").write_text(stored)
    blob = tenure.fleet.contents.upload(tmp_path / "log")
    assert isinstance(blob, Blob)
    tenure.fleet.rows["artifacts"] = [log_row(blob)]
    assert tenure("artifacts", "get", f"{TASK}:log").out == "step 1\ntepid é\n"
    tenure("artifacts", "get", f"{TASK}:log", "--to", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == stored


@pytest.mark.parametrize("what", ["nonsense", f"{TASK}:weights", "sha256:12", ""])
def test_what_names_no_content_is_said_with_the_ways(tenure: CommandLine, what: str) -> None:
    one_line(tenure("artifacts", "get", what), 2, "names no content", "TASK:log")


def test_a_task_without_files(tenure: CommandLine) -> None:
    one_line(tenure("artifacts", "get", TASK), 2, "keeps no outputs", TASK)


def test_what_is_there_stays(tenure: CommandLine, bundle: Bundle, tmp_path: Path) -> None:
    tenure.fleet.rows["artifacts"] = [row(bundle)]
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "notes.txt").write_text("mine")
    arguments = ("artifacts", "get", TASK, "--to", str(tmp_path / "back"))
    one_line(tenure(*arguments), 2, "notes.txt is there already", "--force")
    assert tree(tmp_path / "back") == {"notes.txt": b"mine"}
    assert tenure(*arguments, "--force").code == 0
    assert tree(tmp_path / "back")["notes.txt"] == b"it went well\n"


# --- result -----------------------------------------------------------------------------------------------------------


def ended(tenure: CommandLine, end: object, outputs: Bundle | None) -> str:
    tenure.fleet.ends, tenure.fleet.outputs = (lambda _: end), outputs
    return tenure("submit", "--", "train").out.strip()


def test_a_result_brings_its_files_home(tenure: CommandLine, bundle: Bundle, source: Path, tmp_path: Path) -> None:
    done = ended(tenure, "fine\n", bundle)
    printed = tenure("result", done, "--outputs", str(tmp_path / "back"))
    assert (printed.code, json.loads(printed.out)) == (0, "fine\n")
    assert "2 files" in printed.err
    assert tree(tmp_path / "back") == tree(source)
    assert tenure("result", done, "--json").json()["outputs"]["files"] == 2


def test_a_result_without_files_is_said(tenure: CommandLine, tmp_path: Path) -> None:
    done = ended(tenure, "fine\n", None)
    one_line(tenure("result", done, "--outputs", str(tmp_path / "back")), 2, "has left no files")
    assert not (tmp_path / "back").exists()


def test_a_failed_task_says_how_it_failed_and_fetches_nothing(tenure: CommandLine, tmp_path: Path) -> None:
    done = ended(tenure, ValueError("no good"), None)
    printed = tenure("result", done, "--outputs", str(tmp_path / "back"))
    assert printed.code == 1
    assert "no good" in printed.err
    assert not (tmp_path / "back").exists()


def test_map_puts_files_into_one_folder_per_row(
    tenure: CommandLine, bundle: Bundle, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.txt").write_text("a\nb\n")
    tenure.fleet.ends, tenure.fleet.outputs = (lambda _: "x"), bundle
    command = ["map", "--lines", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "out.csv")]
    printed = tenure(*command, "--outputs", str(tmp_path / "left"), "--", "train", "{line}")
    assert printed.code == 0, printed.err
    assert {path.name for path in (tmp_path / "left").iterdir()} == {"000001", "000002"}
    assert tree(tmp_path / "left" / "000002") == tree(source)


# --- verify, gc -------------------------------------------------------------------------------------------------------


def test_verify_reads_everything(tenure: CommandLine, bundle: Bundle) -> None:
    tenure.fleet.rows["artifacts"] = [row(bundle), row(bundle, fence=9, state="ACCEPTED")]
    printed = tenure("artifacts", "verify")
    assert (printed.code, "1 of 1 artifacts are whole: 3 contents" in printed.out) == (0, True), printed
    assert "1 more are on their way" in printed.err


@pytest.mark.parametrize("problem", ["missing", "damaged"])
@pytest.mark.parametrize("which", ["notes.txt", ""])
def test_verify_names_what_is_wrong(tenure: CommandLine, bundle: Bundle, problem: str, which: str) -> None:
    tenure.fleet.rows["artifacts"] = [row(bundle)]
    blobs = {file.path: file.blob for file in tenure.fleet.contents.files(bundle)} | {"": bundle.manifest}
    digest = blobs[which].digest
    if problem == "missing":
        tenure.fleet.store.remove(digest)
    else:
        tenure.fleet.store._objects[digest] = (b"x" * blobs[which].size, 0)
    printed = tenure("artifacts", "verify", "--json")
    assert printed.code == 1
    (found,) = printed.json()["problems"]
    assert (found["file"], found["problem"], found["digest"]) == (which, problem, digest)
    text = tenure("artifacts", "verify")
    assert text.code == 1
    assert "0 of 1 artifacts are whole" in text.out


def test_verify_of_a_task_that_does_not_exist(tenure: CommandLine) -> None:
    one_line(tenure("artifacts", "verify", TASK), 2, TASK)


class Answering(FakeFleet):
    """Calls `then` after each question, so that what is waited for comes about."""

    then: Callable[[Ask], None] | None = None

    def ask(self, request: Ask) -> Reply:
        reply = super().ask(request)
        if self.then is not None:
            self.then(request)
        return reply


def collection(number: int, **more: Any) -> dict[str, Any]:
    last = {"collection_id": number, "ended_at_ms": START_MS, "removed": 3, "size": 4_096, "problem": "", **more}
    return {"now_ms": START_MS, "artifacts": {"collection": last}}


def collecting(capsys: pytest.CaptureFixture[str], last: dict[str, Any]) -> CommandLine:
    fleet = Answering(rows={"status": [collection(1)]})

    def then(request: Ask) -> None:
        if isinstance(request, CollectArtifacts):
            fleet.rows["status"] = [collection(2, ended_at_ms=None)]
        elif fleet.asked[-2:] == [Query(what="status")] * 2:
            fleet.rows["status"] = [last]

    fleet.then = then
    return CommandLine(fleet, capsys)


def test_gc_waits_for_its_end_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = collecting(capsys, collection(2))
    assert tenure("artifacts", "gc", "--older-than", "1h").out == (
        "3 contents and staging places, 4.0 KiB of contents, were removed.\n"
    )
    assert CollectArtifacts(min_age_ms=3_600_000) in tenure.fleet.asked


def test_gc_can_only_count(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = collecting(capsys, collection(2))
    assert "would be removed" in tenure("artifacts", "gc", "--dry-run").out
    assert CollectArtifacts(dry_run=True) in tenure.fleet.asked


@pytest.mark.parametrize(("state", "words"), [("NO_STORE", "keeps no files"), ("UNDER_WAY", "under way already")])
def test_gc_that_cannot_begin_is_said(tenure: CommandLine, state: str, words: str) -> None:
    tenure.fleet.rows["collect_artifacts"] = [{"state": state}]
    one_line(tenure("artifacts", "gc"), 3, words)


def test_gc_that_ends_early_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    one_line(collecting(capsys, collection(2, problem="the store is away"))("artifacts", "gc"), 3, "the store is away")


# --- quarantine -------------------------------------------------------------------------------------------------------


def rejected(bundle: Bundle | None, **more: Any) -> dict[str, Any]:
    outputs = bundle.model_dump_json() if bundle else None
    names = {
        "quarantine_id": "q1",
        "task_id": TASK,
        "attempt": 1,
        "fence": 7,
        "nonce": NONCE,
        "worker_id": "w1",
        "site": "default",
    }
    decision = {"state": "UNDECIDED", "refusal": None, "decided_by": None, "adopted_fence": None}
    return {**names, "reason": "stale_fence", "outputs": outputs, "received_at_ms": START_MS, **decision, **more}


def test_show_lists_the_files_that_would_come_in(tenure: CommandLine, bundle: Bundle) -> None:
    raw = b"".join(tenure.fleet.contents.read(bundle.manifest))
    tenure.fleet.store.remove(bundle.manifest.digest)
    tenure.fleet.store.stage(Place("default", TASK, 7, NONCE), bundle.manifest, 0, iter([raw]))
    tenure.fleet.rows["quarantine"] = [rejected(bundle)]
    printed = tenure("quarantine", "show", "q1")
    assert "4.9 KiB  model/weights" in printed.out
    shown = tenure("quarantine", "show", "q1", "--json").json()
    assert [file["path"] for file in shown["files"]] == ["model/weights", "notes.txt"]
    assert "2" in tenure("quarantine", "list").out


def test_show_writes_every_moment_as_a_date(tenure: CommandLine) -> None:
    tenure.fleet.rows["quarantine"] = [rejected(None, files_until_ms=START_MS + 1)]
    printed = tenure("quarantine", "show", "q1")
    assert "2023-11-1" in next(line for line in printed.out.splitlines() if line.startswith("files_until_ms"))
    assert str(START_MS)[:6] not in printed.out


def test_show_says_when_the_files_are_gone(tenure: CommandLine, bundle: Bundle) -> None:
    tenure.fleet.store.remove(bundle.manifest.digest)
    tenure.fleet.rows["quarantine"] = [rejected(bundle)]
    printed = tenure("quarantine", "show", "q1")
    assert (printed.code, "not in the staging place any more" in printed.err) == (0, True)


def deciding(capsys: pytest.CaptureFixture[str], **decision: Any) -> CommandLine:
    fleet = Answering(rows={"quarantine": [rejected(None)]})
    fleet.rows["drop"] = [{"quarantine_id": "q1", "state": "DROPPED"}]

    def then(request: Ask) -> None:
        if isinstance(request, Adopt):
            fleet.rows["quarantine"] = [rejected(None, state="VERIFYING")]
        elif fleet.asked[-2:] == [request] * 2:
            fleet.rows["quarantine"] = [rejected(None, **decision)]

    fleet.then = then
    return CommandLine(fleet, capsys)


def test_adopting_waits_for_the_decision(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = deciding(capsys, state="ADOPTED", decided_by="ann", adopted_fence=12)
    printed = tenure("quarantine", "adopt", "q1", "--yes", "--note", "it is right")
    assert printed.code == 0, printed.err
    assert Adopt(quarantine_id="q1", note="it is right") in tenure.fleet.asked
    assert f"Task {TASK} has SUCCEEDED by this result, under fence 12. Decided by ann." in printed.out


@pytest.mark.parametrize("decision", [{"refusal": "outputs_damaged"}, {"state": "DROPPED"}])
def test_an_adoption_that_is_refused_is_code_2(capsys: pytest.CaptureFixture[str], decision: Any) -> None:
    printed = deciding(capsys, **decision)("quarantine", "adopt", "q1", "--yes")
    one_line(printed, 2, "was not adopted", next(iter(decision.values())))


def test_dropping_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    tenure = deciding(capsys)
    assert tenure("quarantine", "drop", "q1", "--yes").out == "quarantine_id=q1  state=DROPPED\n"
    assert Drop(quarantine_id="q1") in tenure.fleet.asked


@pytest.mark.parametrize("typed", ["", "n\n", "y\n"])
@pytest.mark.parametrize("command", ["adopt", "drop"])
def test_where_nobody_can_be_asked_nothing_is_decided(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, typed: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    tenure = deciding(capsys, state="ADOPTED", adopted_fence=12)
    one_line(tenure("quarantine", command, "q1"), 2, "give --yes")
    assert not any(isinstance(one, Adopt | Drop) for one in tenure.fleet.asked)


def test_a_person_is_asked_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for typed, asked in (("n\n", False), ("y\n", True)):
        tenure = deciding(capsys)
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        printed = tenure("quarantine", "drop", "q1")
        assert any(isinstance(one, Drop) for one in tenure.fleet.asked) is asked
        assert "Remove the files" in printed.err
        assert printed.code == (0 if asked else 130)


def test_a_quarantined_result_that_does_not_exist(tenure: CommandLine) -> None:
    for command in ("show", "adopt", "drop"):
        given = () if command == "show" else ("--yes",)
        one_line(tenure("quarantine", command, "nothing", *given), 2, "nothing")
