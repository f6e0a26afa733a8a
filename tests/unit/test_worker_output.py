"""What a command prints and tells on its way through the runner: masked, whole, bounded, in order."""

import json

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tenure.workers.masking import Mask, MaskedStream
from tenure.workers.outputs import TAIL_BYTES, Kept
from tenure.workers.printing import NEWEST, PrintedText, Printing
from tenure.workers.told_lines import Cutter, LineQueue, SortedOutput

SECRETS = st.lists(st.binary(min_size=4, max_size=9).map(lambda value: value.rstrip(b"\r\n")), max_size=3)
FEW = st.lists(st.sampled_from([b"a", b"ab", b"aab", b"aaab", b"\n", b"x"]), max_size=30).map(b"".join)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    return [*pieces, data]


# --- masking ------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"aaab", b"aabaab", b"abab", b"aaaa"]), max_size=3), FEW, st.lists(st.integers(1, 5)))
@example([b"abcd", b"abcdef"], b"--abcdef--abcd", [4, 2, 2])
def test_a_stream_is_masked_alike_however_it_is_cut(values: list[bytes], data: bytes, cuts: list[int]) -> None:
    mask = Mask({f"s{number}": value for number, value in enumerate(values)})
    stream = MaskedStream(mask)
    masked = b"".join([*(stream.feed(piece) for piece in pieces_of(data, cuts)), stream.finish()])
    assert masked == mask.all_of(data)


@settings(deadline=None)
@given(SECRETS, st.lists(st.binary(max_size=20)), st.data())
def test_no_secret_comes_through(values: list[bytes], around: list[bytes], data: st.DataObject) -> None:
    assume(all(len(value) >= 4 for value in values))
    label = b"[secret name0123456789]"
    assume(not any(value[:1] in label or value[-1:] in label for value in values))
    parts = [part for piece in around for part in (piece, data.draw(st.sampled_from([*values, b""])))]
    masked = Mask({f"name{number}": value for number, value in enumerate(values)}).all_of(b"".join(parts))
    assert not any(value in masked for value in values)


def test_what_cannot_be_a_secret_is_not_held_back() -> None:
    stream = MaskedStream(Mask({"key": b"hush-hush\n"}))
    assert stream.feed(b"say hus") == b"say "
    assert stream.feed(b"kies") == b"huskies"
    assert stream.feed(b"hush-hush") == b"[secret key]"


def test_a_secret_inside_json_text_is_masked_too() -> None:
    value = 'line one\nsays "grün"'
    mask = Mask({"key": value.encode()})
    for ascii_only in (True, False):
        assert mask.all_of(json.dumps([value], ensure_ascii=ascii_only).encode()) == b'["[secret key]"]'


def test_a_secret_as_python_shows_it_in_lists_and_errors_is_masked_too() -> None:
    value = "back\\slash\tand 'quotes'"
    mask = Mask({"key": value.encode()})
    assert mask.all_of(repr([value]).encode()) == b'["[secret key]"]'
    assert mask.all_of(str(KeyError(value)).encode()) == b'"[secret key]"'


def test_values_that_occur_by_chance_are_left_alone() -> None:
    assert Mask({"key": b"abc"}).all_of(b"abcabc") == b"abcabc"


# --- what is kept and passed on -----------------------------------------------------------------


@given(st.lists(st.binary(max_size=3_000), max_size=8), st.integers(0, 5_000))
def test_the_head_or_the_tail_is_kept(chunks: list[bytes], limit: int) -> None:
    head, tail = Kept(limit), Kept()
    for chunk in chunks:
        head.take(chunk)
        tail.take(chunk)
    whole = b"".join(chunks)
    assert head.text() == whole[:limit].decode(errors="replace")
    assert head.over == (len(whole) > limit)
    assert tail.text() == whole[-TAIL_BYTES:].decode(errors="replace")


@given(st.text(max_size=60), st.lists(st.integers(1, 4)))
def test_text_stays_whole_however_its_bytes_are_cut(text: str, cuts: list[int]) -> None:
    printing = Printing()
    printed = PrintedText(1, printing)
    for piece in pieces_of(text.encode(), cuts):
        printed.take(piece)
    printed.finish()
    assert "".join(each for _, _, each in printing.pass_on(0)) == text


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.text(min_size=1, max_size=9), st.booleans()), max_size=50))
def test_positions_are_those_of_one_text(told: list[tuple[int, str, bool]]) -> None:
    printing = Printing()
    passed: list[tuple[int, int, str]] = []
    for stream, text, flush in told:
        printing.take(stream, text)
        passed += printing.pass_on(0) if flush else []
    passed += printing.pass_on(0)
    whole = "".join(text for _, text, _ in told)
    assert "".join(text for _, _, text in passed) == whole
    assert all(whole[position : position + len(text)] == text for _, position, text in passed)


def test_of_too_much_the_newest_of_each_stream_is_passed_on() -> None:
    printing = Printing()
    printing.take(2, "early")
    for number in range(40):
        printing.take(1, f"{number:04}" * 4_096)
    (first, second) = printing.pass_on(0)
    assert first == (2, 0, "early")
    assert second[1] + len(second[2]) == 5 + 40 * 16_384
    assert len(second[2]) == NEWEST
    assert second[2].endswith("0039")
    assert printing.left_out == 40 * 16_384 - NEWEST


def test_very_many_small_pieces_are_bounded() -> None:
    printing = Printing()
    for number in range(10_000):
        printing.take(1 + number % 2, "x")
    assert len(printing.pass_on(0)) <= 1_000
    assert printing.left_out == 9_000


def test_text_is_due_at_once_and_then_once_a_period() -> None:
    printing = Printing()
    assert printing.due_ms() is None
    printing.take(1, "a")
    assert (printing.due_ms() or 0) <= 5_000
    printing.pass_on(5_000)
    printing.take(1, "b")
    assert printing.due_ms() == 5_100


# --- lines --------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs"]), max_size=12)), st.data())
def test_lines_come_out_whole_however_they_are_cut(lines: list[str], data: st.DataObject) -> None:
    found: list[str] = []
    cutter = Cutter(found.append, 100)
    for piece in pieces_of("\n".join(lines).encode(), data.draw(st.lists(st.integers(1, 20)))):
        cutter.take(piece)
    cutter.finish()
    assert found == [stripped for line in lines if (stripped := line.encode().strip().decode())]
    assert not cutter.over


@pytest.mark.parametrize("cut", [1, 7, 1_000])
def test_a_line_over_the_limit_is_left_out_alone(cut: int) -> None:
    found: list[str] = []
    cutter = Cutter(found.append, 10)
    data = b"short\n" + b"x" * 500 + b"\nafter\n"
    for at in range(0, len(data), cut):
        cutter.take(data[at : at + cut])
    assert found == ["short", "after"]
    assert cutter.over


def test_of_a_flood_only_what_matters_and_the_last_is_cut() -> None:
    found: list[str] = []
    cutter = Cutter(found.append, 100, flood=10_000)
    plain = b'{"fraction": 0.5}\n' * 1_000
    for data in (plain[:9_000], plain, plain[:9_000] + b'{"result": 1}\n', b'{"fra', plain + b'{"message": "last"}\n'):
        cutter.take(data)
    assert len(found) + cutter.skipped >= 2 * 500 + 2 * 1_000
    assert cutter.skipped > 1_900
    assert '{"result": 1}' in found
    assert found[-1] == '{"message": "last"}'
    cutter.relax()
    cutter.take(plain[:9_000])
    assert len(found) > 1_000


def test_lines_leave_in_order_and_in_batches() -> None:
    queue = LineQueue()
    lines = [f"{number}" for number in range(450)]
    for line in lines:
        queue.put(line)
    batches = [queue.pass_on(0), queue.pass_on(0), queue.pass_on(0)]
    assert [len(batch) for batch in batches] == [200, 200, 50]
    assert [line for batch in batches for line in batch] == lines
    assert (queue.due_ms(), queue.left_out) == (None, 0)


@given(st.lists(st.booleans(), max_size=400))
def test_what_matters_is_left_out_last_and_the_newest_never(kinds: list[bool]) -> None:
    queue = LineQueue(4_000)
    lines = [f'{{"{"result" if matters else "fraction"}": {number}}}' for number, matters in enumerate(kinds)]
    for line in lines:
        queue.put(line)
    left: list[str] = []
    while queue.due_ms() is not None:
        left += queue.pass_on(0)
    assert left == sorted(left, key=lines.index)
    assert len(left) + queue.left_out == len(lines)
    results = [line for line in lines if "result" in line]
    assert results[-1:] == [line for line in left if "result" in line][-1:]


def test_objects_are_told_and_everything_else_is_text() -> None:
    queue, printing = LineQueue(), Printing()
    output = SortedOutput(queue, printing)
    for line in ('{"fraction": 1}', "Loading", "[1]", '{"log": "x"}'):
        output.give(line)
    assert queue.pass_on(0) == ['{"fraction": 1}', '{"log": "x"}']
    assert printing.pass_on(0) == [(1, 0, "Loading\n[1]\n")]
