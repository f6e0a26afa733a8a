"""The chain of seals: whatever is not as it was sealed is found, and what is untouched is not complained about."""

import copy

import pytest

from tenure.protocol.chain import COLUMNS, Head, Span, digest_of
from tests.sealed_log import HEAD, Line, anchor_of, check, event, fed, log, place

# --- what is untouched ---------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(), (1,), (3,), (1, 1, 1), (4, 1, 2, 3, 1)])
def test_a_log_as_it_was_sealed_has_no_findings(sizes: tuple[int, ...]) -> None:
    checker = fed(log(*sizes))
    assert checker.findings() == ()
    assert (checker.checked.events, checker.checked.seals) == (sum(sizes), len(sizes))


def test_an_anchor_of_any_earlier_time_is_met() -> None:
    anchors = [anchor_of(log(2, 1)), anchor_of(log(2, 1, 3))]
    checker = fed(log(2, 1, 3, 1), *anchors)
    assert checker.findings() == ()
    assert checker.checked.anchors == 2


def test_a_log_without_a_seal_has_no_anchor() -> None:
    assert fed(log()).anchor() is None


# --- what was done to it -------------------------------------------------------------------------


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_a_change_of_any_field_is_found_and_said_where(column: str) -> None:
    lines = log(2, 2, 1)
    row = lines[place(lines, 3)]["event"]
    row[column] = row[column] + 1 if column == "at_ms" else "another"
    assert check(lines) == ["changed: events 3 to 4, or the seal before, are not what seal 2 was made over"]


@pytest.mark.parametrize("gone", range(1, 9))
def test_an_event_taken_out_is_found_by_its_number(gone: int) -> None:
    lines = log(1, 4, 2, 1)
    del lines[place(lines, gone)]
    assert check(lines) == [f"missing: event {gone} is missing"]


def test_events_that_change_places_are_found() -> None:
    lines = log(3)
    first, second = lines[place(lines, 1)]["event"], lines[place(lines, 2)]["event"]
    first["event_id"], second["event_id"] = 2, 1
    lines[1], lines[2] = lines[2], lines[1]
    assert check(lines) == ["changed: events 1 to 3, or the seal before, are not what seal 1 was made over"]


def test_lines_that_change_places_are_found() -> None:
    lines = log(1, 1)
    lines[1], lines[3] = lines[3], lines[1]
    assert "disordered: event 1 comes after event 2" in check(lines)


def test_an_event_put_in_between_is_found() -> None:
    lines = log(2)
    lines.insert(2, event(2, text="never happened"))
    assert check(lines)[0] == "disordered: event 2 comes after event 2"


def test_an_event_at_the_end_without_a_seal_is_found() -> None:
    assert check([*log(2), event(3)]) == ["unsealed: events 3 at the end are in no seal"]


def test_an_event_between_two_seals_that_neither_is_over_is_found() -> None:
    lines = log(1, 1)
    seal = lines[-1]["seal"]
    span = Span(2, 3, 3, seal["at_ms"], seal["epoch"])
    row = event(3)
    seal |= {"first_event": 3, "last_event": 3}
    seal["digest"] = digest_of(lines[2]["seal"]["digest"], span, [[row["event"][name] for name in COLUMNS]])
    lines.insert(-1, row)
    assert check(lines) == ["unsealed: events 2 are in no seal"]


def test_a_seal_taken_out_is_found_with_the_events_that_it_was_over() -> None:
    lines = [line for line in log(2, 2, 1) if line.get("seal", {}).get("seal_id") != 2]
    assert check(lines) == ["missing: seal 2 is missing", "unsealed: events 3 to 4 are in no seal"]


def test_a_seal_over_what_was_changed_breaks_the_one_after_it() -> None:
    """Whoever changes an event and seals it anew has to do so up to the end."""
    lines = log(1, 1, 1)
    row = lines[place(lines, 2)]["event"]
    row["text"] = "another"
    seal = next(line["seal"] for line in lines if line.get("seal", {}).get("seal_id") == 2)
    span = Span(2, 2, 2, seal["at_ms"], seal["epoch"])
    seal["digest"] = digest_of(lines[2]["seal"]["digest"], span, [[row[name] for name in COLUMNS]])
    assert check(lines) == ["changed: event 3, or the seal before, are not what seal 3 was made over"]


@pytest.mark.parametrize("name", ["at_ms", "epoch"])
def test_a_change_of_what_a_seal_says_is_found(name: str) -> None:
    lines = log(1, 1)
    lines[2]["seal"][name] += 1
    assert check(lines) == ["changed: event 1, or the seal before, are not what seal 1 was made over"]


def test_a_log_that_was_cut_is_found_only_by_an_anchor() -> None:
    anchor = anchor_of(log(2, 1, 2))
    assert check(log(2)) == []
    assert check(log(2), anchor) == [
        "cut: the log ends with seal 1, and an anchor names seal 3 (event 5): what came last is gone"
    ]


def test_a_log_that_was_made_anew_is_found_only_by_an_anchor() -> None:
    old, new = log(2, 1), log(1, 1, 1)
    assert check(new) == []
    assert check(new, anchor_of(old)) == ["rewritten: seal 2 is not the one that an anchor names: the chain is new"]


@pytest.mark.parametrize("other", [Head(world="other", created_at_ms=7), Head(world="main", created_at_ms=8)])
def test_a_log_of_another_world_passes_neither_for_this_one_nor_for_its_anchor(other: Head) -> None:
    lines = log(1, head=other)
    assert check(lines, anchor_of(log(1))) == ["foreign: the anchor of seal 1 is of another log than this"]
    lines[0] = {"chain": HEAD.model_dump()}
    assert check(lines) == ["changed: event 1, or the seal before, are not what seal 1 was made over"]


def test_one_bad_place_is_one_finding() -> None:
    lines = log(1, 1, 1, 1, 1)
    lines[place(lines, 2)]["event"]["text"] = "another"
    del lines[place(lines, 4)]
    assert [finding.split(":")[0] for finding in check(lines)] == ["changed", "missing"]


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"event": {}},
        {"event": 1},
        event(2, event_id="x"),
        event(2, at_ms=None),
        {"seal": {"seal_id": 2}},
        {"other": 1},
        {"chain": {"format": 2}},
    ],
)
def test_a_line_that_cannot_be_read_is_a_finding_and_no_error(line: Line) -> None:
    assert check([*log(1), line])[0].startswith("unreadable: ")


def test_a_log_without_its_first_line_cannot_be_read() -> None:
    assert any(finding.startswith("unreadable: it does not begin") for finding in check(log(1)[1:]))


def test_a_second_beginning_is_found() -> None:
    assert check([*log(1), *copy.deepcopy(log(1))])[0] == "disordered: after event 1 another log begins"


def test_the_digest_of_a_seal_stays_what_it_is() -> None:
    """Anchors are kept for years: what is hashed never changes without a new format."""
    assert anchor_of(log(1)).digest == "a893d62ed2f9539a8d0a1826b17f201c9ed4efd2c15a6ba54279149dfc2e04d1"
