"""From functions to references and back."""

import asyncio
import functools
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import HandlerNotAllowed, InvalidArguments, UnknownHandler
from tenure.handlers.resolve import load, reference_of
from tests import fixtures_handlers as handlers

HERE = "tests.fixtures_handlers"


def script_function() -> None: ...


script_function.__module__ = "__main__"


def imposter() -> None: ...


imposter.__qualname__ = "script_function"


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (handlers.exponent, f"{HERE}:exponent"),
        (handlers.greet, f"{HERE}:greet"),
        (handlers.Tools.double, f"{HERE}:Tools.double"),
        (handlers.Tools.name, f"{HERE}:Tools.name"),
        (math.sqrt, "math:sqrt"),
    ],
)
def test_a_function_has_a_reference_that_leads_back_to_it(function: Any, reference: str) -> None:
    assert reference_of(function) == reference
    assert load(reference, [HERE, "math"]).function == function


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (handlers.nameless, "lambda"),
        (handlers.make_local(), "defined inside another function"),
        (script_function, "defined in the script"),
        (handlers.Tools().method, "bound to an object"),
        (functools.partial(handlers.exponent, 1.0), "type partial. is not a function"),
        (handlers.Point, "is not a function"),
        (handlers.NOT_A_FUNCTION, "type int. is not a function"),
        (imposter, "is not this function any more"),
    ],
)
def test_what_a_worker_could_not_import_is_refused_with_advice(function: Any, said: str) -> None:
    with pytest.raises(UnknownHandler, match=said) as caught:
        reference_of(function)
    assert "module that workers can import" in caught.value.remedy


@pytest.mark.parametrize("allowed", [["tests"], [HERE], ["other", "tests"]])
def test_an_allowed_module_allows_itself_and_its_submodules(allowed: list[str]) -> None:
    assert load(f"{HERE}:exponent", allowed).reference == f"{HERE}:exponent"


@pytest.mark.parametrize("allowed", [[], ["test"], ["tests.fixtures"], [f"{HERE}.more"], ["os"]])
def test_other_modules_are_not_allowed(allowed: list[str]) -> None:
    with pytest.raises(HandlerNotAllowed, match="not among the modules") as caught:
        load(f"{HERE}:exponent", allowed)
    assert f"--allow {HERE}" in caught.value.remedy


def test_a_module_that_is_not_allowed_is_not_even_imported() -> None:
    with pytest.raises(HandlerNotAllowed):
        load("no_such_module:run", ["tests"])


@pytest.mark.parametrize("name", ["os.system", "borrowed", "os.path.join", "Point.__init__", "exponent.__globals__"])
def test_an_allowed_module_is_no_way_to_others(name: str) -> None:
    with pytest.raises((HandlerNotAllowed, UnknownHandler)):
        load(f"{HERE}:{name}", [HERE])


@pytest.mark.parametrize("name", ["missing", "Tools.missing", "NOT_A_FUNCTION", "Point", "exponent.nothing"])
def test_a_name_that_is_no_function_is_unknown(name: str) -> None:
    with pytest.raises(UnknownHandler, match="has no function"):
        load(f"{HERE}:{name}", [HERE])


def test_a_folder_that_is_taken_for_a_module_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder_of_lorenz").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(UnknownHandler, match=r"folder_of_lorenz is a folder .* holds folder_of_lorenz\.py"):
        load("folder_of_lorenz:exponent", ["folder_of_lorenz"])


def test_a_module_that_cannot_be_imported_says_why() -> None:
    with pytest.raises(UnknownHandler, match=r"No module named 'tests\.nowhere'"):
        load("tests.nowhere:run", ["tests"])


@pytest.mark.parametrize(
    "reference", ["", "tasks", "tasks:", ":run", "a b:c", "tasks:run()", "tasks:1", "a" * 300 + ":b"]
)
def test_a_malformed_reference_is_unknown(reference: str) -> None:
    with pytest.raises(UnknownHandler, match="malformed"):
        load(reference, ["tasks"])


def test_a_handler_is_called_with_checked_arguments() -> None:
    handler = load(f"{HERE}:exponent", ["tests"])
    assert not handler.is_async
    assert handler.call('{"args":[28],"kwargs":{"steps":7}}') == 4.0
    assert handler.defaults.capability == "cpu"


def test_an_async_handler_gives_its_coroutine() -> None:
    handler = load(f"{HERE}:greet", ["tests"])
    assert handler.is_async
    assert asyncio.run(handler.call('{"args":["you"],"kwargs":{}}')) == "hello you"


def test_a_handler_is_not_called_with_wrong_arguments() -> None:
    with pytest.raises(InvalidArguments, match="parameter 'rho'"):
        load(f"{HERE}:exponent", ["tests"]).call(json.dumps({"args": ["28"], "kwargs": {}}))


def test_hints_that_cannot_be_resolved_say_so() -> None:
    with pytest.raises(InvalidArguments, match="name 'Decimal' is not defined"):
        load(f"{HERE}:unresolvable", ["tests"])
