"""The instrument sees what must not be: each kind of harm, made up, is found."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.fault.figures import Figures, merged, table
from tests.fault.instrument import Execution, Findings, Instrument, Records, check, cut, false_deaths
from tests.waiting import wait_until

MS = 1_000_000
SCHEMA = """
    CREATE TABLE task (task_id, state); CREATE TABLE lease (task_id, attempt, fence, state);
    CREATE TABLE directive (task_id, next_attempt, state); CREATE TABLE result (task_id, fence);
    INSERT INTO task VALUES ('t', 'SUCCEEDED');
    INSERT INTO lease VALUES ('t', 1, 1, 'EXPIRED'), ('t', 2, 2, 'COMPLETED');
    INSERT INTO directive VALUES ('t', 2, 'APPROVED');
    INSERT INTO result VALUES ('t', 2);
"""


def test_a_busy_machine_is_not_held_against_the_fleet_and_no_more_than_that() -> None:
    late = Figures("broker away", notice_limit_ms=4_400, notice_ms=[4_500], serve_ms=[10_100])
    assert len(late.too_late()) == 2
    late.delay_ms = 12
    assert late.too_late() == []
    late.notice_ms.append(4_521)
    assert [problem.partition(":")[0] for problem in late.too_late()] == [
        "broker away, on a machine that wakes everyone 12 ms late"
    ]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "fleet.db")
    connection.executescript(SCHEMA)
    yield connection
    connection.close()


def run(attempt: int, started_ms: int, ended_ms: int, *, finished: bool = True) -> Execution:
    return Execution("t", attempt, attempt, 100 + attempt, started_ms * MS, ended_ms * MS, finished)


FIRST = run(1, 0, 50, finished=False)
SECOND = run(2, 60, 90)


def problems(path: Path, *executions: Execution) -> str:
    return "; ".join(check(executions, Records(path / "fleet.db"), ["t"]).problems())


def test_a_good_history_is_good_and_its_closest_approach_is_measured(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    findings = check([FIRST, SECOND], Records(tmp_path / "fleet.db"), ["t"])
    assert (findings.problems(), findings.executions, findings.closest_ms) == ([], 2, 10)


def test_an_overlap_is_found_also_when_the_earlier_one_never_ended(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    assert "started 5 ms before fence 1 ended" in problems(tmp_path, FIRST, run(2, 45, 90))
    assert "before fence 1 ended" in problems(tmp_path, run(1, 0, 0), SECOND)
    assert "before fence" in problems(tmp_path, run(1, 0, 200), run(2, 60, 70), run(3, 100, 110))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE directive SET state = 'PENDING'", "ran without a directive"),
        ("DELETE FROM lease WHERE fence = 1", "ran under unknown fence 1"),
        ("UPDATE task SET state = 'RUNNING'", "is RUNNING in the end"),
        ("DELETE FROM task", "is not on record in the end"),
        ("DELETE FROM result", "has no result"),
        ("UPDATE result SET fence = 1", "which never finished"),
        ("UPDATE lease SET state = 'COMPLETED'", "results under fences [1, 2]"),
    ],
)
def test_a_broken_record_is_found(tmp_path: Path, database: sqlite3.Connection, change: str, words: str) -> None:
    with database:
        database.execute(change)
    assert words in problems(tmp_path, FIRST, SECOND)


def test_an_attempt_that_ran_twice_is_found(tmp_path: Path, database: sqlite3.Connection) -> None:
    assert "attempt 2 ran twice" in problems(tmp_path, FIRST, SECOND, run(2, 95, 99))


def test_a_result_that_nobody_computed_is_found(tmp_path: Path, database: sqlite3.Connection) -> None:
    assert "accepted under fence 2, which never finished" in problems(tmp_path)
    assert "accepted under fence 2, which never finished" in problems(tmp_path, FIRST)


def test_what_a_suspended_process_had_begun_ends_at_the_stop_and_nothing_else_does() -> None:
    before, during, unended, after = (
        run(each, *times) for each, times in enumerate([(0, 50), (60, 900), (70, 0), (700, 800)], 1)
    )
    pids = {each.pid for each in (before, during, unended, after)}
    shortened = [run(2, 60, 500, finished=False), run(3, 70, 500, finished=False)]
    assert cut([before, during, unended, after], pids, 500 * MS) == [before, *shortened, after]
    assert cut([before, during], {before.pid}, 500 * MS) == [before, during]


def test_what_began_elsewhere_before_the_stop_overlaps(tmp_path: Path, database: sqlite3.Connection) -> None:
    first = run(1, 0, 900)
    assert problems(tmp_path, *cut([first, run(2, 510, 800)], {first.pid}, 500 * MS)) == ""
    early = problems(tmp_path, *cut([first, run(2, 490, 800)], {first.pid}, 500 * MS))
    assert "started 10 ms before fence 1 ended" in early


def test_what_a_suspended_process_finished_after_the_stop_is_no_result(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    second = run(2, 60, 900)
    assert "which never finished" in problems(tmp_path, *cut([FIRST, second], {second.pid}, 500 * MS))


def test_a_live_worker_was_given_up_also_where_its_work_had_not_begun(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    records = Records(tmp_path / "fleet.db")
    assert false_deaths(check([SECOND], records, ["t"]), records, ["t"]) == 1
    assert false_deaths(check([FIRST, SECOND], records, ["t"]), records, ["t"]) == 1
    with database:
        database.execute("UPDATE directive SET task_id = 'other'")
    assert false_deaths(check([SECOND], records, ["t"]), records, ["t"]) == 0
    assert false_deaths(check([FIRST, SECOND], records, ["t"]), records, ["t"]) == 1


def test_a_time_that_was_not_kept_is_found_and_no_gap_at_all_is_the_closest() -> None:
    figures = Figures("a fault", notice_limit_ms=4_400, notice_ms=[100, 4_500], serve_ms=[10_001])
    assert len(figures.too_late()) == 2
    assert Figures("a fault", notice_limit_ms=4_400, notice_ms=[4_400], serve_ms=[9_999]).too_late() == []
    figures.add(Findings(closest_ms=0.0))
    figures.add(Findings(closest_ms=5.0))
    figures.merge(Figures("a fault", closest_ms=7.0))
    assert figures.closest_ms == 0.0


def cells(*figures: Figures) -> list[list[str]]:
    """The counts of each row, from the trials to the false deaths."""
    everything = merged(asdict(each) for each in figures)
    return [
        line.removeprefix(each.fault).split()[:7] for each, line in zip(everything, table(everything)[1:], strict=True)
    ]


def test_what_was_not_measured_is_not_shown_as_none_found() -> None:
    assert cells(Figures("a", trials=1, serve_ms=[100])) == [["1", "-", "-", "-", "-", "-", "-"]]
    judged = Figures("b")
    judged.add(Findings(executions=4, lost=["t"]))
    assert cells(judged) == [["1", "4", "0", "1", "0", "0", "-"]]
    judged.add_false_deaths(0)
    assert cells(judged) == [["1", "4", "0", "1", "0", "0", "0"]]


def test_what_only_one_of_two_tests_has_measured_is_kept() -> None:
    judged = Figures("a")
    judged.add(Findings(executions=4, overlaps=["t"]))
    judged.add_false_deaths(2)
    once = ["2", "4", "1", "0", "0", "0", "2"]
    assert cells(judged, Figures("a", trials=1)) == cells(Figures("a", trials=1), judged) == [once]
    assert cells(judged, judged) == [["2", "8", "2", "0", "0", "0", "4"]]


def test_a_mark_that_is_seen_half_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    instrument = Instrument(tmp_path / "marks")
    try:
        file = os.open(instrument.path, os.O_WRONLY | os.O_APPEND)
        os.write(file, f"start t 1 7 {os.getpid()} 1000\nstart u 1 8 ".encode())
        assert [each.task_id for each in instrument.running()] == ["t"]
        os.write(file, f"{os.getpid()} 2000\n".encode())
        os.close(file)
        assert [(each.task_id, each.started_ns) for each in instrument.running()] == [("t", 1000), ("u", 2000)]
    finally:
        instrument.close()


def test_marks_are_read_and_the_end_of_a_killed_process_is_seen(tmp_path: Path) -> None:
    instrument = Instrument(tmp_path / "marks")
    try:
        process = subprocess.Popen(["sleep", "60"])
        file = os.open(instrument.path, os.O_WRONLY | os.O_APPEND)
        os.write(file, f"start t 1 7 {process.pid} 1000\nstart u 1 8 {process.pid} 1000\n".encode())
        os.write(file, f"end u 1 8 {process.pid} 5000\n".encode())
        os.close(file)
        assert [(each.task_id, each.fence) for each in instrument.running()] == [("t", 7)]
        process.kill()
        process.wait()
        wait_until(lambda: not instrument.running(), "its end is seen")
        assert [(each.task_id, each.finished) for each in instrument.executions()] == [("t", False), ("u", True)]
    finally:
        instrument.close()


def test_what_results_went_through_is_added_up_and_a_site_without_a_reboot_has_no_spool() -> None:
    cut_off, rebooted = Figures("a"), Figures("b")
    cut_off.add_outage(under_way=True, from_spool=None)
    cut_off.add_outage(under_way=False, from_spool=None)
    rebooted.add_outage(under_way=True, from_spool=True)
    rebooted.merge(rebooted)
    lines = table([cut_off, rebooted, Figures("c")])[1:]
    assert [line.split()[-2:] for line in lines] == [["1", "-"], ["2", "2"], ["-", "-"]]
