"""Of a reply no more is kept than there is room for, and the next one is read right after it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as DriverConnectionError
from redis.exceptions import InvalidResponse, ResponseError

from tenure.broker.redis_connection import Reply
from tenure.broker.redis_replies import BoundedReplies, CutList, ReplyTooLarge

ROOM = 1_000
REPLIES = st.recursive(
    st.none() | st.integers(-(2**62), 2**62) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)


def encoded(reply: Reply) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n" % len(reply) + b"".join(map(encoded, reply))


def replies(raw: bytes, *, piece: int = 100, room: int = ROOM) -> BoundedReplies:
    """A reader of these bytes, which come in pieces."""
    at = 0

    def receive(most: int) -> bytes:
        nonlocal at
        found = raw[at : at + min(most, piece)]
        at += len(found)
        return found

    return BoundedReplies(receive, room)


@given(st.lists(REPLIES, min_size=1, max_size=3), st.integers(1, 50))
def test_what_fits_is_read_whole_wherever_it_is_torn(given: list[Reply], piece: int) -> None:
    reader = replies(b"".join(map(encoded, given)), piece=piece)
    assert [reader.read() for _ in given] == given


def test_of_each_list_only_so_much_is_kept() -> None:
    large = b"x" * 5_000
    entries: list[Reply] = [[b"1-1", [b"m", large]], [b"1-2", [large, b"v"]], [b"1-3", [b"m", b"ok", b"x", large]]]
    reader = replies(encoded([[b"key", entries], 7]) + encoded(b"next"))

    found = reader.read()

    kept = ROOM - 64 - 1
    assert found == [
        [b"key", [[b"1-1", [b"m", large[:kept]]], [b"1-2", [large[:ROOM]]], [b"1-3", [b"m", b"ok", b"x", b"x" * 804]]]],
        7,
    ]
    assert reader.read() == b"next"


def test_empty_values_take_up_room_too() -> None:
    (found, after) = (reader := replies(encoded(list[Reply]([b""] * 500)) + encoded(b"next"))).read(), reader.read()
    assert isinstance(found, list)
    assert (len(found), after) == (16, b"next")


def test_of_a_list_no_more_values_are_kept_than_any_entry_has() -> None:
    found = replies(encoded(list[Reply]([b"x"] * 500)), room=10**6).read()
    assert found == [b"x"] * 64


def test_what_was_thrown_away_is_known() -> None:
    found = replies(encoded(list[Reply]([b"m", b"x" * 950, *[b"yy"] * 500]))).read()
    assert isinstance(found, CutList)
    assert len(found) == 2
    assert found.thrown == 15 + 500 * (64 + 2)
    assert not isinstance(replies(encoded(list[Reply]([b"m", b"x"]))).read(), CutList)


@pytest.mark.parametrize("raw", [encoded(list[Reply]([b"x" * 900, *[b""] * 10_010])), b"*2\r\n:1\r\n$300000000\r\n"])
def test_what_would_have_to_be_thrown_away_by_the_thousands_is_not_read_on(raw: bytes) -> None:
    with pytest.raises(ReplyTooLarge, match="far more than any entry may hold"):
        replies(raw, piece=2**16).read()


def test_a_refusal_an_end_and_what_is_no_reply_are_told_apart() -> None:
    refusal = replies(b"-NOGROUP no such key\r\n").read()
    assert isinstance(refusal, ResponseError)
    assert str(refusal) == "NOGROUP no such key"
    assert replies(b"+OK\r\n").read() == b"OK"
    with pytest.raises(DriverConnectionError):
        replies(b"$10\r\nshort").read()
    with pytest.raises(InvalidResponse):
        replies(b"HTTP/1.1 400\r\n").read()
