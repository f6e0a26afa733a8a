"""Reading a result's JSON text as what the handler's return hint promises."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Final, final

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from tenure.errors import ResultNotJson
from tenure.handlers.json_text import NotJson, dump, parse

_AS_IT_IS: Final = frozenset({int, str, bool, dict, list, type(None)})


@final
class Returns:
    """What a function returns. A value that does not fit the hint, or has none, is given as plain JSON values.

    Args:
        function: the function, or None when only its name is known.
    """

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self._read: Final = _reader(function)

    def read(self, text: str) -> Any:  # noqa: ANN401 - whatever the user's function returned
        """The value of a result's JSON text. Raises `ResultNotJson` when whoever reported it wrote something else."""
        return self._read(text)


def _reader(function: Callable[..., Any] | None) -> Callable[[str], Any]:
    hint = _hint(function)
    if hint in (None, Any, object) or hint in _AS_IT_IS:
        return _plain
    if hint is float:
        return _float
    try:
        adapter = TypeAdapter[Any](hint)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return _plain

    def read(text: str) -> object:
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError:
            # The handler broke its own promise; its value is worth more than its type.
            return _plain(text)

    return read


def _plain(text: str) -> Any:  # noqa: ANN401 - whatever the text holds
    """The value as it is; a site's worker may have sent anything, and what is read here is printed and written."""
    try:
        value = parse(text)
        if "\\u" in text:
            dump(value)  # refuses halves of surrogate pairs
    except NotJson as error:
        raise ResultNotJson(
            f"the value that its worker sent cannot be read: {error}", "`tenure explain` tells whose worker it was"
        ) from None
    return value


def _hint(function: Callable[..., Any] | None) -> Any:  # noqa: ANN401 - a type hint is any object
    try:
        return typing.get_type_hints(function, include_extras=True).get("return") if function else None
    except Exception:  # noqa: BLE001 - a hint is an expression of the user's; the parameters' check reports it
        return None


def _float(text: str) -> object:
    value = _plain(text)
    return float(value) if type(value) is int else value
