"""Arguments to JSON and back, and results."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import InvalidArguments, PayloadTooLarge, ResultNotJson
from tenure.handlers.arguments import Parameters
from tenure.handlers.json_text import to_json
from tenure.handlers.results import Returns
from tenure.protocol.message import MAX_VALUE_BYTES
from tests.fixtures_handlers import Point, anything, exponent, greet, move, uncheckable, when


def bound(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The text of the call's arguments."""
    return Parameters(function, function.__qualname__).bind(args, kwargs)


def arrive(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What the function returns after its arguments have travelled."""
    read = Parameters(function, "it").read(bound(function, args, kwargs))
    return function(*read.args, **read.kwargs)


def test_arguments_arrive_as_they_were() -> None:
    assert arrive(exponent, 28.0, steps=7) == 4.0
    assert arrive(anything, {"a": [1, None]}, second="ü") == [{"a": [1, None]}, "ü"]


def test_rich_arguments_arrive_as_what_the_hints_say() -> None:
    day = dt.date(2024, 2, 29)
    assert arrive(when, day, 1, 2, a="b") == [day, (1, 2), {"a": "b"}]
    assert arrive(move, Point(1.5, (2, 3))) == Point(2.5, (2, 3))


def test_a_whole_number_is_a_float_where_a_float_is_asked_for() -> None:
    read = Parameters(exponent, "it").read('{"args":[28],"kwargs":{}}')
    assert [type(value) for value in read.args] == [float]


def test_the_text_is_compact_and_keeps_the_digits() -> None:
    assert bound(exponent, (0.1,), {}) == '{"args":[0.1],"kwargs":{}}'
    assert bound(anything, (2**60,), {"second": "é"}) == '{"args":[1152921504606846976],"kwargs":{"second":"é"}}'


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (("28",), {}, "parameter 'rho': Input should be a valid number"),
        ((True,), {}, "parameter 'rho'"),
        ((None,), {}, "parameter 'rho'"),
        ((1.0, 2.0), {}, "parameter 'steps': Input should be a valid integer"),
        ((1.0,), {"steps": True}, "parameter 'steps'"),
        ((10**400,), {}, "parameter 'rho': the number is too large for a float"),
        ((), {}, "missing a required argument: 'rho'"),
        ((1.0, 2, 3), {}, "too many positional arguments"),
        ((1.0,), {"rho": 1.0}, "multiple values for argument 'rho'"),
        ((1.0,), {"stepz": 1}, "unexpected keyword argument 'stepz'"),
        ((float("nan"),), {}, "parameter 'rho' has no JSON form: NaN or Infinity"),
        ((float("inf"), 3), {}, "parameter 'rho' has no JSON form: NaN or Infinity"),
        ((object(),), {}, "parameter 'rho' has no JSON form: it holds a value of type object"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_they_are_sent(args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        bound(exponent, args, kwargs)
    assert said in str(caught.value)
    assert "exponent" in str(caught.value)


def circular() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, float("nan")]}, "NaN or Infinity at ['a'][1]"),
        ([Point(float("inf"))], "NaN or Infinity"),
        ({"a": {1, object}}, "type"),
        ("\ud800", "half of a surrogate pair"),
        (circular(), "ircular"),
        (deep(), ""),
        (lambda: 1, "function"),
    ],
)
def test_values_without_a_json_form_are_named(value: Any, said: str) -> None:
    with pytest.raises(InvalidArguments, match="parameter 'first' has no JSON form") as caught:
        bound(anything, (value,), {})
    assert said in str(caught.value)
    with pytest.raises(ResultNotJson, match="the result has no JSON form"):
        to_json(value)


def test_a_hint_that_json_cannot_be_checked_against_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="parameter 'handle' has a type hint"):
        bound(uncheckable, (3,), {})


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "[]",
        "{}",
        '{"args":[]}',
        '{"args":{},"kwargs":{}}',
        '{"args":[],"kwargs":{},"more":1}',
        '{"args":[NaN],"kwargs":{}}',
        '{"args":[Infinity],"kwargs":{}}',
        '{"args":[1e999],"kwargs":{}}',
        '{"args":["SECRET"],"kwargs":{}}',
        '{"args":[' + "9" * 5000 + '],"kwargs":{}}',
        "[" * 100_000,
    ],
)
def test_hostile_arguments_are_refused_and_never_repeated(arguments: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        Parameters(exponent, "tasks:exponent").read(arguments)
    assert "SECRET" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_of_a_handler_that_is_known_by_name_only_nothing_is_checked() -> None:
    parameters = Parameters(None, "tasks:exponent")
    assert parameters.bind(("28",), {"x": 1}) == '{"args":["28"],"kwargs":{"x":1}}'
    with pytest.raises(InvalidArguments, match="parameter '#2' has no JSON form"):
        parameters.bind((1, float("nan")), {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9056, "0.9056"),
        (None, "null"),
        ((1, 2), "[1,2]"),
        (Point(1.0), '{"x":1.0,"y":[0,0]}'),
        (dt.date(2024, 1, 2), '"2024-01-02"'),
        (Path("/tmp/x"), '"/tmp/x"'),  # noqa: S108 - a path as a value
        ({"a": {1}}, '{"a":[1]}'),
    ],
)
def test_results_become_json(value: Any, text: str) -> None:
    assert to_json(value) == text


def test_a_result_over_the_limit_is_refused() -> None:
    assert len(to_json("x" * (MAX_VALUE_BYTES - 2))) == MAX_VALUE_BYTES
    for value in ("x" * (MAX_VALUE_BYTES - 1), "ü" * (MAX_VALUE_BYTES // 2)):
        with pytest.raises(PayloadTooLarge, match="over the limit"):
            to_json(value)


@pytest.mark.parametrize(
    ("function", "text", "value"),
    [
        (exponent, "2", 2.0),
        (exponent, '"odd"', "odd"),
        (greet, '"hello"', "hello"),
        (move, '{"x":1,"y":[2,3]}', Point(1.0, (2, 3))),
        (move, '{"z":1}', {"z": 1}),
        (anything, "[1]", [1]),
        (None, "[1]", [1]),
        (uncheckable, "null", None),
    ],
)
def test_a_value_is_read_as_the_return_hint_says_or_as_it_is(function: Any, text: str, value: Any) -> None:
    read = Returns(function).read(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("function", [None, exponent, greet, move, anything])
@pytest.mark.parametrize(
    "text", ["[" * 9_000, "9" * 4_301, '"\\ud800"', '{"a":"\\udfff"}', "1e999", "NaN", "no json", ""]
)
def test_what_is_no_value_at_all_is_said_to_be_none(function: Any, text: str) -> None:
    with pytest.raises(ResultNotJson, match="cannot be read"):
        Returns(function).read(text)


def test_arguments_of_any_shape_are_bound_quickly_or_slowly_to_the_same_text() -> None:
    for args in ((1.5,), (1.5, 3), (1,), (2, 3)):
        assert json.loads(bound(exponent, args, {})) == {"args": list(args), "kwargs": {}}
