"""The base of every message, and the one door for bytes from outside.

`decode` checks the size before it parses, so that a hostile message costs nothing, and its errors name the place but
never repeat what was received (it may hold a secret). Models are strict, frozen and refuse unknown fields.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

from tenure.errors import MalformedMessage, PayloadTooLarge

MAX_ENVELOPE_BYTES: Final = 64 * 1024
MAX_VALUE_BYTES: Final = 256 * 1024
MAX_ENTRY_BYTES: Final = 768 * 1024
"""The most that one stream entry may carry; a value of the largest size still fits, escaped, with its frame."""

MAX_INT: Final = 2**53 - 1
"""Whole numbers stay exact in every JSON reader up to here (RFC 8785)."""

_MANY_FIELDS: Final = 4_000
_MOST_FIELDS: Final = 256

_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
Name = Annotated[str, Field(pattern=_NAME)]
"""An ASCII identifier: capability, worker, label key, run."""

SITE_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,31}$"
SiteName = Annotated[str, Field(pattern=SITE_NAME)]
"""Name of a site or of a person: no dot, colon or glob character, for it is a part of keys and of rights to them."""

TaskId = Annotated[str, Field(pattern=r"^[0-9A-Z]{26}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
Count = Annotated[int, Field(ge=0, le=MAX_INT)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_INT)]
Moment = Annotated[int, Field(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970, up to the end of the year 9999: a date that can be written."""
Text = Annotated[str, Field(max_length=4_000)]


class Message(BaseModel):
    """A frozen value with strict types and no unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        hide_input_in_errors=True,
        allow_inf_nan=False,
        ser_json_inf_nan="null",
    )


_M = TypeVar("_M")


def decode(adapter: TypeAdapter[_M], raw: bytes, limit_bytes: int = MAX_ENTRY_BYTES) -> _M:
    """Parse `raw` into the adapter's type.

    Raises:
        PayloadTooLarge: `raw` is longer than `limit_bytes`; it was not parsed.
        MalformedMessage: `raw` is not a valid message; the error says where, never what.
    """
    if len(raw) > limit_bytes:
        message = f"a message of {len(raw)} bytes is over the limit of {limit_bytes}"
        raise PayloadTooLarge(message, "Send less, or pass a reference to a file")
    if raw.count(b":") > _MANY_FIELDS and _has_crowd(raw):
        raise MalformedMessage("a message could not be read: it has far more fields than any message has") from None
    try:
        return adapter.validate_json(raw)
    except (ValidationError, RecursionError) as error:
        raise MalformedMessage(f"a message could not be read: {describe(error)}") from None


def _has_crowd(raw: bytes) -> bool:
    """Whether some object in there has so many fields that to complain of each would hold everybody up.

    A field needs a colon, so messages with few of them are not looked at: most are, and those are read once only.
    """
    try:
        waiting: list[object] = [from_json(raw)]
    except ValueError:
        return False  # no JSON; whoever reads it finds that out as fast
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found = cast("dict[str, object]", value)
            if len(found) > _MOST_FIELDS:
                return True
            waiting.extend(found.values())
        elif isinstance(value, list):
            waiting.extend(cast("list[object]", value))
    return False


def describe(error: ValidationError | RecursionError) -> str:
    """The first few problems of a validation error, without the input that caused them."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    # A list whose items do not fit is also called too short, which is no problem of its own.
    inner = {problem["loc"][:-1] for problem in problems}
    told = [each for each in problems if each["type"] != "too_short" or each["loc"] not in inner]
    return "; ".join(map(_described, told[:3]))


def _described(problem: ErrorDetails) -> str:
    place, text = problem["loc"], problem["msg"]
    # These two repeat what was received: the unknown field's name in the place, the unknown kind in the text.
    match problem["type"]:
        case "extra_forbidden":
            place, text = place[:-1], "a field that does not belong there"
        case "union_tag_invalid":
            text = "no kind that is known"
        case "string_pattern_mismatch" if _NAME in text:
            text = "a name has 1 to 64 letters, digits, _, - and ., and begins with none of the last two"
        case "string_pattern_mismatch" if SITE_NAME in text:
            text = "a site's or person's name has 1 to 32 letters, digits, _ and -, and does not begin with -"
        case "greater_than_equal" | "less_than_equal":
            words = "at least" if problem["type"] == "greater_than_equal" else "at most"
            text = f"it must be {words} {text.rpartition(' ')[2]}"
        case "tuple_type":
            text = "it must be a list"
        case "value_error":
            text = text.removeprefix("Value error, ")
        case _:
            pass
    return f"{'.'.join(map(str, place)) or 'message'}: {text}"
