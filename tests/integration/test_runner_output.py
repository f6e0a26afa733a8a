"""What a command prints and tells reaches the agent while it runs, whole and bounded."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.protocol.worker_messages import FailureKind
from tests.fixtures_runner import LIMIT, RunnerBench
from tests.waiting import wait_until

WAIT = "\nimport sys\nsys.stdin.read()\nimport os, time\nwhile not os.path.exists('checkpoint/go'): time.sleep(0.01)\n"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    bench = RunnerBench(tmp_path)
    yield bench
    bench.close()


def let_go(folder: Path) -> None:
    (folder / "checkpoint" / "go").touch()


def test_what_is_printed_arrives_while_the_command_runs(bench: RunnerBench) -> None:
    folder = bench.python("import sys; print('out', flush=True); print('err', file=sys.stderr)" + WAIT)
    bench.until(lambda: len(bench.printed) >= 2, "both are there")
    let_go(folder)
    assert bench.value() == '"out\\n"'
    assert (bench.text(1), bench.text(2)) == ("out\n", "err\n")


def test_positions_say_in_which_order_and_what_is_missing(bench: RunnerBench) -> None:
    bench.start("sh", "-c", "printf 'gr\\303\\274n'; head -c 3000000 /dev/zero | tr '\\0' x; printf end")
    report = bench.report()
    total = 4 + 3_000_000 + 3
    stream, position, text = bench.printed[-1]
    assert (stream, position + len(text), text[-4:]) == (1, total, "xend")
    assert sum(len(text) for _, _, text in bench.printed) + report["left_out"][0] == total
    assert report["left_out"][0] > 0
    assert bench.failure() is FailureKind.RESULT_TOO_LARGE


def test_a_character_that_arrives_in_pieces_stays_whole(bench: RunnerBench) -> None:
    script = "import os, time\nfor byte in 'grün€'.encode(): os.write(1, bytes([byte])); time.sleep(0.12)"
    bench.python(script)
    bench.report()
    assert bench.text(1) == "grün€"


def test_a_command_that_prints_without_end_is_not_held_up_by_a_silent_agent(bench: RunnerBench) -> None:
    """Nobody listens until it has ended; the report still comes, and little waits before it."""
    folder = bench.start("sh", "-c", "yes | head -c 200000000; touch outputs/done")
    wait_until((folder / "outputs" / "done").exists, "it has printed everything", 30)
    bench.report()
    assert sum(len(text) for _, _, text in bench.printed) < 3_000_000


def test_progress_is_followed_line_by_line(bench: RunnerBench) -> None:
    script = (
        "f = open('progress.jsonl', 'a', buffering=1)\n"
        "print('{\"fraction\": 0.5}', file=f); f.write('{\"fra'); f.flush()"
    )
    more = 'f.write(\'ction": 1}\\n\'); f.write(\'{"message": "last"}\')'
    folder = bench.python(script + WAIT + more)
    bench.until(lambda: bench.lines, "the first line is there")
    assert bench.lines == ['{"fraction": 0.5}']
    let_go(folder)
    bench.report()
    assert bench.lines[1:] == ['{"fraction": 1}', '{"message": "last"}']


@pytest.mark.parametrize("again", ["os.rename('new', 'progress.jsonl')", "open('progress.jsonl', 'w').write('{}\\n')"])
def test_progress_goes_on_in_a_file_that_was_replaced_or_cut_off(bench: RunnerBench, again: str) -> None:
    script = "open('progress.jsonl', 'w').write('{\"message\": \"first\"}\\n')"
    more = f"import os; open('new', 'w').write('{{}}\\n'); {again}"
    folder = bench.python(script + WAIT + more)
    bench.until(lambda: bench.lines, "the first line is there")
    let_go(folder)
    bench.report()
    assert bench.lines[1:] == ["{}"]


def test_progress_that_is_a_link_is_not_read(bench: RunnerBench, tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"message": "private"}\n')
    bench.start("ln", "-s", str(tmp_path / "other"), "progress.jsonl")
    bench.report()
    assert bench.lines == []


def test_of_very_much_progress_the_newest_and_the_checkpoints_arrive(bench: RunnerBench) -> None:
    script = (
        "f = open('progress.jsonl', 'w')\n"
        'print(\'{"checkpoint": "one"}\', file=f)\n'
        "f.writelines('{\"fraction\": 0.%06d}\\n' % n for n in range(30000))\n"
    )
    bench.python(script)
    report = bench.report()
    assert bench.lines[0] == '{"checkpoint": "one"}'
    assert bench.lines[-1] == '{"fraction": 0.029999}'
    assert report["left_out"][1] == 30_001 - len(bench.lines) > 0


# --- the form `lines` ---------------------------------------------------------------------------


def test_the_first_line_is_the_task_and_then_nothing(bench: RunnerBench) -> None:
    script = (
        "import json, sys; task = json.loads(sys.stdin.readline())\n"
        "print(json.dumps({'result': [task['parameters'], sys.stdin.read()]}))"
    )
    bench.python(script, form="lines")
    assert bench.value() == '[{"steps":10},""]'


def test_lines_are_told_and_the_rest_is_printed(bench: RunnerBench) -> None:
    said = ['{"fraction": 1}', "Loading ...", '{"result": 1}', '{"result": 2}', '{"checkpoint": "a", "state": [1]}']
    bench.start("printf", "%s\\n", *said, form="lines")
    assert bench.value() == "2"
    assert bench.lines == [line for line in said if line.startswith("{")]
    assert bench.text(1) == "Loading ...\n"


def test_the_last_result_arrives_however_much_is_told_around_it(bench: RunnerBench) -> None:
    script = (
        'n = 0\nfor n in range(100000): print(\'{"fraction": 0.5, "message": "%d"}\' % n)\n'
        'print(\'{"result": "here"}\')\nfor n in range(100000): print(\'{"fraction": 0.5}\')\n'
    )
    bench.python(script, form="lines")
    assert bench.value() == '"here"'


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("print(1)", FailureKind.INVALID_RESULT),
        (f"print('{{\"result\": \"' + 'x' * {LIMIT} + '\"}}')", FailureKind.RESULT_TOO_LARGE),
        ("print('{\"result\": \"' + 'x' * 100000 + '\"}')", FailureKind.RESULT_TOO_LARGE),
    ],
)
def test_each_bad_result_line_has_its_own_outcome(bench: RunnerBench, script: str, kind: FailureKind) -> None:
    bench.python(script, form="lines")
    assert bench.failure() is kind


def test_the_notes_on_a_good_result_say_what_was_left_out(bench: RunnerBench) -> None:
    bench.start("sh", "-c", "yes | head -c 1000000 >&2; sleep 600 >/dev/null 2>&1 & echo fine")
    ended = bench.ended()
    assert ended.outcome is not None
    assert json.loads(ended.outcome.value or "") == "fine\n"
    assert any("left behind" in note for note in ended.notes)


def test_what_ends_with_its_program_was_not_left_behind(bench: RunnerBench) -> None:
    bench.start("sh", "-c", "sleep 0.02 & echo fine")
    assert bench.ended().notes == ()
