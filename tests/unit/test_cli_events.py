"""`tenure events`: lists, exports, checks and anchors, and what they say of a log that was changed."""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tenure import coordinator
from tenure.errors import CoordinatorUnreachable
from tenure.protocol.audit_messages import KINDS, EventFilter, ReadEvents
from tenure.protocol.client_messages import Ask, Reply
from tests.fixtures_cli import START_MS, CommandLine, FakeFleet, task_id
from tests.sealed_log import HEAD, anchor_of, log

TASK = task_id(1)
PAGE = {"beyond": None, "world": HEAD.world, "created_at_ms": HEAD.created_at_ms}
HOUR_MS = 3_600_000


def fleet_with(lines: list[dict[str, Any]]) -> FakeFleet:
    """A fleet whose log is these lines; the first one travels as the page."""
    return FakeFleet({"read_events": [PAGE, *lines[1:]]})


class BrokenOff(FakeFleet):
    """It answers once."""

    def ask(self, request: Ask) -> Reply:
        if self.asked:
            raise CoordinatorUnreachable("it does not answer")
        return super().ask(request)


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    return log(2, 1)


def line_of(lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(fleet_with(lines), capsys)


def only_events(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "event" in line]


def test_a_list_shows_who_decided_what(lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    printed = line_of([lines[0], *only_events(lines)], capsys)("events", "list")
    assert printed.code == 0
    heading, *rows = printed.out.splitlines()
    assert heading.split()[:4] == ["EVENT", "TIME", "KIND", "PRINCIPAL"]
    assert len(rows) == 3
    assert "coordinator" in rows[0]


def test_filters_are_asked_of_the_fleet(lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of([lines[0]], capsys)
    where = ["--task", TASK.lower(), "--worker", "w1", "--site", "lab", "--principal", "person:ada", "--kind", "lost"]
    printed = line("events", "list", *where, "--since", "1h", "--until", "2023-11-15T00:00+00:00", "--limit", "5")
    assert printed.code == 0
    (ask,) = line.fleet.asked
    assert isinstance(ask, ReadEvents)
    assert ask.newest_first
    assert not ask.seals
    assert ask.limit == 5
    assert ask.only == EventFilter(
        task_id=TASK,
        worker_id="w1",
        site="lab",
        principal="person:ada",
        kind="lost",
        since_ms=START_MS - HOUR_MS,
        until_ms=1_700_006_400_000,
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--since", "yesterday"], "--since is no time: 'yesterday'. Write how long ago, like 90m or 2h, or a date"),
        (["--until", "90"], "--until is no time: '90'"),
        (["--task", "x"], "'x' is not a task id"),
        (["--site", "a b"], "site: a name has 1 to 64"),
        (["--kind", "submited"], "--kind 'submited' is no kind of event. Did you mean submitted?"),
        (["--kind", "x"], "There are accepted, "),
        (["--principal", "ada"], "--principal 'ada' is no principal. Write it like person:ada"),
        (["--principal", "person:"], "is no principal"),
    ],
)
def test_a_filter_that_cannot_be_is_wrong_use(
    lines: list[dict[str, Any]], wrong: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = line_of(lines, capsys)
    printed = line("events", "list", *wrong)
    assert (printed.code, line.fleet.asked) == (2, [])
    assert words in printed.err


@pytest.mark.parametrize("who", ["person:default/ada", "site:lab", "policy:retry", "coordinator", "unrecorded"])
def test_every_principal_can_be_asked_for(
    lines: list[dict[str, Any]], who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line_of(lines[:1], capsys)("events", "list", "--principal", who).code == 0


def test_every_kind_that_is_recorded_can_be_asked_for() -> None:
    """Kinds are written where the coordinator decides; one that is missing from the list could not be filtered by."""
    text = "".join(path.read_text() for path in Path(coordinator.__file__).parent.rglob("*.py"))
    recorded = set(re.findall(r"\.record\(\s*\"([a-z_]+)\"", text))
    assert len(recorded) > 40
    assert recorded <= KINDS


def test_a_file_that_is_not_there_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = line_of([], capsys)("events", "verify", "--file", str(tmp_path / "none"))
    assert (printed.code, "none cannot be read: No such file or directory." in printed.err) == (2, True), printed


def test_an_export_can_be_checked_anywhere(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    line = line_of(lines, capsys)
    assert line("events", "export", "--out", str(file)).code == 0
    assert [json.loads(text) for text in file.read_text().splitlines()] == lines
    printed = line("events", "verify", "--file", str(file))
    assert (printed.code, printed.out) == (0, "3 events under 2 seals were checked: all are as they were written.\n")
    assert len(line.fleet.asked) == 1


def test_one_event_under_one_seal_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(log(1), capsys)("events", "verify").out.startswith("1 event under 1 seal was checked: all")


def test_an_export_says_where_it_is(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    line = line_of(lines, capsys)
    assert line("events", "export", "--out", str(file)).out == f"3 events are in {file}.\n"
    assert line("events", "export", "--out", str(file), "--json").json() == {"file": str(file), "events": 3}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("broken_off", [False, True])
def test_an_export_that_fails_leaves_the_one_before_it(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str], *, broken_off: bool
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("before\n")
    line = line_of(lines, capsys)
    if broken_off:  # the second page never comes
        line.fleet = BrokenOff({"read_events": [PAGE | {"beyond": 2}, *lines[1:3]]})
    else:
        line.fleet.error = CoordinatorUnreachable("it does not answer")
    assert line("events", "export", "--out", str(file)).code == 3
    assert file.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [file]


def test_an_export_goes_to_what_is_no_file_as_it_is(
    lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert line_of(lines, capsys)("events", "export", "--out", os.devnull).code == 0
    assert not Path(os.devnull).is_file()


def test_an_export_through_a_link_replaces_what_it_leads_to(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link, file = tmp_path / "link", tmp_path / "events.jsonl"
    link.symlink_to(file)
    assert line_of(lines, capsys)("events", "export", "--out", str(link)).code == 0
    assert link.is_symlink()
    assert len(file.read_text().splitlines()) == len(lines)


def test_an_export_that_cannot_be_written_is_wrong_use(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = line_of(lines, capsys)("events", "export", "--out", str(tmp_path / "none" / "events.jsonl"))
    assert (printed.code, "cannot be written: No such file" in printed.err) == (2, True)


def test_an_export_to_the_standard_output_is_the_same(
    lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = line_of(lines, capsys)("events", "export")
    assert [json.loads(text) for text in printed.out.splitlines()] == lines


def test_a_filtered_export_has_no_seals(lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of([lines[0], *only_events(lines)], capsys)
    printed = line("events", "export", "--kind", "lost")
    assert [json.loads(text) for text in printed.out.splitlines()] == only_events(lines)
    (ask,) = line.fleet.asked
    assert isinstance(ask, ReadEvents)
    assert not ask.seals


def test_a_filtered_export_is_not_checked_and_not_called_changed(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in only_events(lines)))
    printed = line_of(lines, capsys)("events", "verify", "--file", str(file))
    assert (printed.code, printed.out) == (2, "")
    assert "events and no seals, like an export with a filter. Export the whole log" in printed.err


@pytest.mark.parametrize("lacks", ["seal", "chain"])
def test_a_log_that_lacks_its_seals_or_its_beginning_is_not_taken_for_a_filtered_one(
    lines: list[dict[str, Any]], lacks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines if lacks not in line))
    assert line_of(lines, capsys)("events", "verify", "--file", str(file)).code == 1


def test_a_changed_log_ends_with_one_and_says_where(
    lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    lines[1]["event"]["text"] = "nothing happened"
    printed = line_of(lines, capsys)("events", "verify")
    assert printed.code == 1
    assert printed.out.startswith("changed: events 1 to 2,")
    printed = line_of(lines, capsys)("events", "verify", "--json")
    assert printed.code == 1
    assert [finding["kind"] for finding in json.loads(printed.out)["findings"]] == ["changed"]


def test_anchors_are_collected_in_a_file_and_notice_a_cut(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anchors = tmp_path / "anchors"
    early = line_of(log(2), capsys)
    assert early("events", "anchor", "--append", str(anchors)).code == 0
    late = line_of(lines, capsys)
    printed = late("events", "anchor", "--append", str(anchors), "--json")
    assert printed.json() == anchor_of(lines).model_dump() | {"file": str(anchors)}
    assert len(anchors.read_text().splitlines()) == 2
    printed = late("events", "verify", "--anchor", str(anchors))
    assert (printed.code, "and 2 of 2 anchors met" in printed.out) == (0, True)
    printed = early("events", "verify", "--anchor", str(anchors))
    assert (printed.code, printed.out.split(":")[0]) == (1, "cut")


def test_an_anchor_is_one_line_for_another_place(
    lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = line_of(lines, capsys)("events", "anchor")
    assert json.loads(printed.out) == anchor_of(lines).model_dump()


def test_a_log_that_was_changed_gets_no_anchor(lines: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    lines[1]["event"]["text"] = "nothing happened"
    printed = line_of(lines, capsys)("events", "anchor")
    assert printed.code == 3
    assert printed.out == ""


@pytest.mark.parametrize("content", ["", "no line\n", "[1]\n"])
def test_a_file_that_is_no_export_is_not_taken_for_a_good_one(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(content)
    assert line_of(log(1), capsys)("events", "verify", "--file", str(file)).code in {1, 2}


def test_a_file_of_anchors_that_holds_none_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "anchors"
    file.write_text("{}\n")
    assert line_of(log(1), capsys)("events", "verify", "--anchor", str(file)).code == 2
