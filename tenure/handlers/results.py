"""Reading a result's JSON text as what the handler's return hint promises."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from typing import Any, Final, final

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

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
        """The value of a result's JSON text."""
        return self._read(text)


def _reader(function: Callable[..., Any] | None) -> Callable[[str], Any]:
    hint = _hint(function)
    if hint in (None, Any, object) or hint in _AS_IT_IS:
        return json.loads
    if hint is float:
        return _float
    try:
        adapter = TypeAdapter[Any](hint)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return json.loads

    def read(text: str) -> object:
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError:
            # The handler broke its own promise; its value is worth more than its type.
            return json.loads(text)

    return read


def _hint(function: Callable[..., Any] | None) -> Any:  # noqa: ANN401 - a type hint is any object
    try:
        return typing.get_type_hints(function, include_extras=True).get("return") if function else None
    except Exception:  # noqa: BLE001 - a hint is an expression of the user's; the parameters' check reports it
        return None


def _float(text: str) -> object:
    value = json.loads(text)
    return float(value) if type(value) is int else value
