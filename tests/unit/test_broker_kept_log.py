"""How kept logs are written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.broker import kept_log
from tenure.broker.base import LogChunk
from tenure.errors import ArtifactDamaged

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), TEXT)))
def test_a_log_is_read_as_it_was_written(pieces: list[tuple[int, int, str]]) -> None:
    position, chunks = 0, list[LogChunk]()
    for stream, gap, text in pieces:
        chunks.append(LogChunk(stream, position + gap, text))
        position += gap + len(text)

    assert kept_log.read(kept_log.write(chunks)) == chunks


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.data())
def test_whatever_was_written_again_is_there_once(text: str, data: st.DataObject) -> None:
    spans = data.draw(st.lists(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    chunks = [LogChunk(1, min(span), text[min(span) : max(span)]) for span in spans]
    chunks.append(LogChunk(1, 0, text))

    assert "".join(each.text for each in kept_log.in_order(chunks)) == text


def test_nothing_printed_is_nothing_kept() -> None:
    assert kept_log.write([LogChunk(0, 0, "")]) == b""
    assert kept_log.read(b"") == []


@pytest.mark.parametrize("raw", [b"text\n", b"[1,2]\n", b"7\n", b'["a","b","c"]\n', b"\xff\n", b"[" * 9_000])
def test_what_is_no_log_is_damaged(raw: bytes) -> None:
    with pytest.raises(ArtifactDamaged):
        kept_log.read(raw)


def test_of_a_log_that_is_too_large_no_more_is_read_and_it_says_so() -> None:
    text = "x" * 1_000_000
    given = (LogChunk(1, number * len(text), text) for number in range(20))

    chunks = kept_log.read(kept_log.write(given))

    assert len(list(given)) == 11
    assert [len(chunk.text) for chunk in chunks[:-1]] == [1_000_000] * 8
    assert (chunks[-1].stream, chunks[-1].position) == (0, 8_000_000)
    assert "was not kept" in chunks[-1].text


def test_many_empty_chunks_are_too_much_as_well() -> None:
    chunks = kept_log.read(kept_log.write(LogChunk(1, number, "") for number in range(200_000)))
    assert [chunk.stream for chunk in chunks] == [0]
