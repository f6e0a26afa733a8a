"""Values to JSON text and back, with everything refused that other JSON readers would not read the same way.

Plain values (dict, list, str, numbers) take the standard library's encoder, which is the fastest way for them; the rest
(pydantic models, dataclasses, datetimes, paths, sets, enums) goes through pydantic. NaN and Infinity are not JSON.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, Final, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from tenure.errors import PayloadTooLarge, ResultNotJson
from tenure.protocol.message import MAX_VALUE_BYTES
from tenure.protocol.texts import is_utf8


class NotJson(ValueError):
    """The value has no JSON form; the text says why. Translated by whoever knows what the value is."""


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson("a number in it is too large for a float")
    return number


def _refuse_constant(name: str) -> float:
    raise NotJson(f"it holds {name}")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
_CANNOT: Final = (TypeError, ValueError, RecursionError)


def dump(value: object) -> str:
    """`value` as compact JSON text.

    Raises:
        NotJson: the value has no JSON form.
    """
    try:
        text = _ENCODER.encode(value)
    except _CANNOT:
        text = _dump_rich(value)
    if not text.isascii() and not is_utf8(text):
        raise NotJson("a text in it holds half of a surrogate pair")
    return text


def parse(text: str) -> Any:  # noqa: ANN401 - whatever the JSON text says
    """The value of a JSON text.

    Raises:
        NotJson: it is not JSON, or a number in it is not finite.
    """
    try:
        return _DECODER.decode(text)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(f"no valid JSON at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        raise NotJson(reason(error)) from None


def to_json(value: object) -> str:
    """A task's result as JSON text.

    Raises:
        ResultNotJson: the value has no JSON form; NaN and Infinity have none.
        PayloadTooLarge: the text is over `MAX_VALUE_BYTES`.
    """
    try:
        text = dump(value)
    except NotJson as error:
        raise ResultNotJson(
            f"the result has no JSON form: {error}", "Return plain values, dataclasses or pydantic models"
        ) from None
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_VALUE_BYTES:
        raise PayloadTooLarge(
            f"the result is {size} bytes, over the limit of {MAX_VALUE_BYTES}", "Write it to a file and return its path"
        )
    return text


def reason(error: Exception) -> str:
    """What a library says against a value or a text, in our words."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error)
    if text.startswith("Exceeds the limit"):
        return f"it holds a number of more than {sys.get_int_max_str_digits()} digits"
    if text.startswith("Out of range float"):
        return "it holds NaN or Infinity"
    if text.startswith("Unable to serialize unknown type: "):
        name = text.removeprefix("Unable to serialize unknown type: ").removeprefix("<class '").removesuffix("'>")
        return f"it holds a value of type {name}"
    return text.partition("\n")[0][:200]


def _dump_rich(value: object) -> str:
    try:
        return _ENCODER.encode(to_jsonable_python(value))
    except (*_CANNOT, PydanticSerializationError) as error:
        place = _place_of_non_finite(value)
        raise NotJson(f"NaN or Infinity{place}" if place is not None else reason(error)) from None


def _place_of_non_finite(value: object, depth: int = 0) -> str | None:
    """Where in plain containers a NaN or Infinity sits, as a subscript such as "[3]['x']"; None when there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ""
    if depth > 20:  # noqa: PLR2004 - deep enough for people's data, and an end for circular ones
        return None
    if isinstance(value, dict):
        parts = cast("dict[object, object]", value).items()
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(cast("list[object]", value))).items()
    else:
        return None
    inner = ((key, _place_of_non_finite(part, depth + 1)) for key, part in parts)
    return next(((f" at [{key!r}]" + place.removeprefix(" at ")) for key, place in inner if place is not None), None)
