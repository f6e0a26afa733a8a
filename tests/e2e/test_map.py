"""`tenure map` on a real fleet: interrupted and started again, nothing runs twice and nothing is missing."""

import csv
import json
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fixtures_e2e import ROOT, Up, up
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    with up(tmp_path_factory.mktemp("map"), "--workers", "2") as running:
        yield running


def tasks_of(fleet: Up, run: str) -> list[str]:
    return [row["state"] for row in fleet.rows("tasks", "list", "--run", run, "--limit", "1000")]


def test_interrupted_by_ctrl_c_it_goes_on_where_it_was(fleet: Up) -> None:
    gates = [fleet.folder / f"gate{number}" for number in range(6)]
    (fleet.folder / "gates.txt").write_text("\n".join(map(str, gates)))
    line = ["map", "e2e_handlers:hold", "--lines", "gates.txt", "--out", "gates.csv", "--run", "gates"]
    for gate in gates[:2]:
        gate.touch()
    first = fleet.start(*line)
    wait_until(lambda: tasks_of(fleet, "gates").count("SUCCEEDED") == 2, "two rows are done")
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=20)
    assert first.returncode == 130
    assert "4 tasks go on in the fleet" in err
    assert "tenure cancel --run gates" in err
    assert not (fleet.folder / "gates.csv").exists()
    for gate in gates:
        gate.touch()
    printed = fleet.run(*line, "--json")
    assert printed.code == 0, printed.err
    assert printed.json()["done"] == 6
    with (fleet.folder / "gates.csv").open(newline="") as file:
        assert [row["result"] for row in csv.DictReader(file)] == [str(gate) for gate in gates]
    assert len(tasks_of(fleet, "gates")) == 6, "no row was submitted twice"
    assert not (fleet.folder / "gates.csv.partial").exists()


def test_interrupted_with_the_wish_to_cancel_it_cancels(fleet: Up) -> None:
    (fleet.folder / "never.txt").write_text(f"{fleet.folder}/never1\n{fleet.folder}/never2\n{fleet.folder}/never3\n")
    line = ["map", "e2e_handlers:hold", "--lines", "never.txt", "--out", "never.csv", "--run", "never"]
    process = fleet.start(*line, "--cancel-on-interrupt")
    wait_until(lambda: tasks_of(fleet, "never").count("RUNNING") == 2, "two rows run")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "3 tasks are being cancelled" in err
    wait_until(lambda: tasks_of(fleet, "never") == ["CANCELLED"] * 3, "all three are cancelled", timeout_s=20)


def test_a_folder_of_files_with_a_program(fleet: Up) -> None:
    texts = ROOT / "examples" / "files" / "texts"
    printed = fleet.run("map", "--files", f"{texts}/*.txt", "--out", "counts.jsonl", "--", "wc", "-w", "{path}")
    assert printed.code == 0, printed.err
    lines = [json.loads(line) for line in (fleet.folder / "counts.jsonl").read_text().splitlines()]
    assert len(lines) == 20
    for line in lines:
        assert line["result"] == f"{len(Path(line['path']).read_text().split())} {line['path']}\n"


def test_some_rows_fail_and_the_others_do_not_mind(fleet: Up) -> None:
    (fleet.folder / "grid.csv").write_text("x\n1\n2\n3\n")
    printed = fleet.run("map", "--csv", "grid.csv", "--out", "tested.csv", "--", "test", "{x}", "-ne", "2")
    assert printed.code == 1
    assert "1 of 3 rows have no result" in printed.err
    with (fleet.folder / "tested.csv").open(newline="") as file:
        assert [bool(row["error"]) for row in csv.DictReader(file)] == [False, True, False]
