"""What programs are given on the command line: files, secrets, limits, parameters; by `submit` and by `map`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import KeyConflict
from tenure.protocol.artifact import Blob, Bundle
from tenure.protocol.envelope import Limits
from tests.fixtures_cli import CommandLine, FakeFleet, Printed

DIGEST = "a" * 64


@pytest.fixture
def tenure(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("x")
    (tmp_path / "rows.csv").write_text("name,rate\none,0.5\ntwo,7\n")
    monkeypatch.chdir(tmp_path)
    return CommandLine(FakeFleet(ends=lambda _: "done"), capsys)


def options(tenure: CommandLine, *arguments: str) -> dict[str, Any]:
    printed = tenure("submit", *arguments, "--", "train")
    assert printed.code == 0, printed.err
    return dict(tenure.fleet.options[-1])


def one_line(printed: Printed, *words: str, code: int = 2) -> None:
    assert printed.code == code, printed
    (line,) = printed.err.splitlines()
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("data.csv", "data.csv"),
        ("in.csv=data.csv", "in.csv"),
        ("deep/in.csv=data.csv", "deep/in.csv"),
        ("folder/", "folder"),
        ("all=folder", "all"),
        ("folder/../data.csv", "data.csv"),
    ],
)
def test_files_are_sent_and_named(tenure: CommandLine, given: str, name: str) -> None:
    (found,) = options(tenure, "--input", given)["inputs"].items()
    assert found[0] == name
    assert isinstance(found[1], Bundle if "folder" in given and "csv" not in given else Blob)
    assert tenure.fleet.store.has(found[1].manifest if isinstance(found[1], Bundle) else found[1])


def test_the_current_folder_has_a_name_too(tenure: CommandLine, tmp_path: Path) -> None:
    assert list(options(tenure, "--input", ".")["inputs"]) == [tmp_path.name]


def test_a_content_that_is_there_is_named_by_its_digest(tenure: CommandLine) -> None:
    inputs = options(tenure, "--input", f"x=sha256:{DIGEST}:12")["inputs"]
    assert inputs == {"x": Blob(digest=DIGEST, size=12)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["nothing.csv"], ["nothing.csv", "No such file"]),
        (["../x=data.csv"], ["'../x'", "'..'"]),
        (["/x=data.csv"], ["'/x'"]),
        ([f"sha256:{DIGEST}:12"], ["has no name", "NAME=sha256"]),
        (["x=sha256:abc:12"], ["no reference", "64"]),
        (["x="], ["names no file"]),
        (["data.csv", "data.csv"], ["two inputs are called 'data.csv'"]),
        (["x=folder", "x/y=folder"], ["'x/y' would lie inside the input 'x'"]),
        (["x/y/z=data.csv", "x=folder"], ["'x/y/z' would lie inside the input 'x'"]),
    ],
)
def test_inputs_that_cannot_be_are_one_line_and_nothing_is_submitted(
    tenure: CommandLine, given: list[str], words: list[str]
) -> None:
    arguments = [part for text in given for part in ("--input", text)]
    one_line(tenure("submit", *arguments, "--", "train"), *words)
    assert not tenure.fleet.tasks
    assert not list(tenure.fleet.store.objects())


def test_limits_and_secrets_reach_the_fleet(tenure: CommandLine) -> None:
    line = (
        "--memory 2GiB --disk 10G --file-size 500MiB --file-count 100 --printed 64k --secret a --secret b --keep-folder"
    )
    assert options(tenure, *line.split()) == {
        "secrets": ("a", "b"),
        "keep_folder": True,
        "limits": Limits(
            memory_bytes=2**31, disk_bytes=10**10, file_bytes=500 * 2**20, files=100, printed_bytes=64_000
        ),
    }


@pytest.mark.parametrize("option", ["--memory", "--disk", "--file-size", "--printed"])
def test_a_size_that_is_none_names_its_option(tenure: CommandLine, option: str) -> None:
    one_line(tenure("submit", option, "lots", "--", "train"), f"{option} is not a size", "2GiB")


def test_form_and_parameters_of_a_program(tenure: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"rate": 0.5}')
    for text in ('{"rate": 0.5}', "@p.json"):
        tenure.fleet.tasks.clear()
        assert tenure("submit", "--form", "folder", "--parameters", text, "--", "train").code == 0
        (task,) = tenure.fleet.tasks.values()
        assert task.work == (("train",), {"form": "folder", "parameters": {"rate": 0.5}})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--parameters", "{", "--", "train"], ["--parameters is not JSON"]),
        (["--parameters", "@nothing.json", "--", "train"], ["nothing.json", "No such file"]),
        (["--form", "folder", "m:f"], ["--form is for programs"]),
        (["--parameters", "1", "m:f"], ["--parameters is for programs"]),
        (["--form", "xml", "--", "train"], ["xml"]),
    ],
)
def test_wrong_words_about_a_program(tenure: CommandLine, arguments: list[str], words: list[str]) -> None:
    one_line(tenure("submit", *arguments), *words)


def test_the_value_of_a_folder_is_json(tenure: CommandLine) -> None:
    tenure.fleet.ends = lambda _: {"score": 1}
    assert json.loads(tenure("submit", "--wait", "--form", "folder", "--", "train").out) == {"score": 1}
    tenure.fleet.tasks.clear()
    tenure.fleet.ends = lambda _: "text"
    assert tenure("submit", "--wait", "--form", "lines", "--", "train").out == '"text"\n'


# --- map --------------------------------------------------------------------------------------------------------------


def mapped(tenure: CommandLine, *arguments: str) -> list[Any]:
    printed = tenure("map", "--csv", "rows.csv", "--out", "out.csv", *arguments)
    assert printed.code == 0, printed.err
    return [task.work for task in tenure.fleet.tasks.values()]


def test_every_row_may_have_inputs_of_its_own(tenure: CommandLine, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.dat").write_text(name)
    mapped(tenure, "--input", "x.dat={name}.dat", "--input", "{name}=folder", "--", "train", "--rate", "{rate}")
    given = sorted((said.get("inputs", {}) for said in tenure.fleet.options), key=str)
    assert given == [{"x.dat": Path(f"{name}.dat"), name: Path("folder")} for name in ("one", "two")]


def test_an_input_without_a_name_is_called_as_the_rows_file_is(tenure: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "paths.csv").write_text(f"path\n{tmp_path}/data.csv\n")
    printed = tenure("map", "--csv", "paths.csv", "--out", "out.csv", "--input", "{path}", "--", "train")
    assert printed.code == 0, printed.err
    assert [said.get("inputs") for said in tenure.fleet.options] == [{"data.csv": tmp_path / "data.csv"}]


def test_a_program_that_reads_its_task_finds_the_row_there(tenure: CommandLine) -> None:
    works = mapped(tenure, "--form", "folder", "--", "train")
    assert sorted(said["parameters"]["name"] for _, said in works) == ["one", "two"]
    assert {said["parameters"]["rate"] for _, said in works} == {0.5, 7}


def test_parameters_that_are_said_are_the_same_for_every_row(tenure: CommandLine) -> None:
    works = mapped(tenure, "--form", "lines", "--parameters", "[1]", "--", "train", "{name}")
    assert [said for _, said in works] == [{"form": "lines", "parameters": [1]}] * 2


def test_a_run_that_was_begun_otherwise_is_said(tenure: CommandLine) -> None:
    tenure.fleet.error = KeyConflict("key 'k' was used before")
    tenure.fleet.refuses = "using"
    printed = tenure("map", "--csv", "rows.csv", "--out", "out.csv", "--run", "r", "--", "train", "{name}")
    one_line(printed, "the run r was begun with other options or other files", "--run NAME")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "{colour}.dat", "--", "train", "{name}"], ["{colour} names no column"]),
        (["--form", "folder", "--parameters", "1", "--", "train"], ["same command"]),
        (["--input", "data.csv", "--", "train"], ["same command"]),
        (["--form", "folder", "m:f"], ["--form is for programs"]),
    ],
)
def test_wrong_words_about_rows(tenure: CommandLine, arguments: list[str], words: list[str]) -> None:
    printed = tenure("map", "--csv", "rows.csv", "--out", "out.csv", *arguments)
    one_line(printed, *words)
    assert not tenure.fleet.tasks
