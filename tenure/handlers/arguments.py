"""A function's parameters: binding a call's arguments to JSON text, and reading them back checked against type hints.

Checks are strict: a text is no number, a number no text, True no integer. What JSON cannot tell apart is forgiven: a
whole number for a float, a list for a tuple or set, an ISO text for a datetime. Errors name the parameter and the
problem and never repeat the value, which may be a secret.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from tenure.errors import InvalidArguments
from tenure.handlers.json_text import NotJson, dump, parse

_PLAIN: Final[frozenset[object]] = frozenset({int, float, str, bool, dict, list})
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SHOWN_CHARACTERS: Final = 300


class Bound(NamedTuple):
    """One call's arguments, ready for `function(*args, **kwargs)`."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@final
class Parameters:
    """The parameters of one function. Building one costs a look at its signature, so keep it.

    Args:
        function: the function, or None when only its name is known. That one, and one without a readable signature
            (some builtins), is not checked.
        name: what errors call it.

    Raises:
        InvalidArguments: the type hints cannot be resolved.
    """

    def __init__(self, function: Callable[..., Any] | None, name: str) -> None:
        self._name = name
        self._signature = _signature(function) if function else None
        self._hints = _hints(function, name) if function else {}
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._positional, self._required = self._positional_hints()

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The call's arguments as JSON text `{"args": [...], "kwargs": {...}}`, checked as the worker will check them.

        Raises:
            InvalidArguments: they do not fit the signature or a hint, or have no JSON form.
        """
        plain = self._fits_plainly(args, kwargs)
        if not plain:
            self._bound(args, kwargs)
        try:
            text = dump({"args": args, "kwargs": kwargs})
        except NotJson as error:
            raise self._not_json(args, kwargs, error) from None
        if not plain:
            self.read(text)
        return text

    def read(self, arguments: str) -> Bound:
        """The arguments in a JSON text made by `bind`, converted to what the hints ask for.

        Raises:
            InvalidArguments: the text is malformed, or the arguments do not fit.
        """
        args, kwargs = self._parts(arguments)
        if self._fits_plainly(args, kwargs):
            return Bound(args, kwargs)
        bound = self._bound(args, kwargs)
        if bound is None:
            return Bound(args, kwargs)
        for name, value in bound.arguments.items():
            bound.arguments[name] = self._converted(name, value)
        return Bound(bound.args, bound.kwargs)

    def _positional_hints(self) -> tuple[tuple[Any, ...], int]:
        """Hints of the positional parameters, and how many arguments a purely positional call needs at least."""
        if self._signature is None:
            return (), 1
        parameters = self._signature.parameters.values()
        positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
        needs_names = any(
            parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty
            for parameter in parameters
        )
        required = sum(parameter.default is inspect.Parameter.empty for parameter in positional)
        hints = tuple(self._hints.get(parameter.name, Any) for parameter in positional)
        return hints, len(hints) + 1 if needs_names else required

    def _fits_plainly(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a quick look shows that the call fits and nothing needs converting: the hot path."""
        if kwargs or not self._required <= len(args) <= len(self._positional):
            return False
        for hint, value in zip(self._positional, args, strict=False):
            if hint is not Any and (type(value) is not hint or hint not in _PLAIN):
                return False
        return True

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments | None:
        if self._signature is None:
            return None
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArguments(
                f"the arguments do not fit {self._name}: {str(error)[:_SHOWN_CHARACTERS]}",
                f"Its signature is {str(self._signature)[:_SHOWN_CHARACTERS]}",
            ) from None

    def _parts(self, arguments: str) -> Bound:
        try:
            given = parse(arguments)
        except NotJson as error:
            raise InvalidArguments(f"the arguments of {self._name} cannot be read: {error}") from None
        match given:
            case {"args": list(), "kwargs": dict(), **others} if not others:
                return Bound(given["args"], given["kwargs"])
            case _:
                raise InvalidArguments(
                    f"the arguments of {self._name} cannot be read", 'Expected is {"args": [...], "kwargs": {...}}'
                )

    def _converted(self, name: str, value: Any) -> Any:  # noqa: ANN401 - a handler's arguments are of any type
        if self._signature is None or name not in self._hints:
            return value
        match self._signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                return tuple(self._checked(name, part) for part in value)
            case inspect.Parameter.VAR_KEYWORD:
                return {key: self._checked(name, part) for key, part in value.items()}
            case _:
                return self._checked(name, value)

    def _checked(self, name: str, value: Any) -> Any:  # noqa: ANN401 - a handler's arguments are of any type
        hint = self._hints[name]
        if type(value) is hint and hint in _PLAIN:
            return value
        if hint is float and type(value) is int and abs(value) > sys.float_info.max:
            raise InvalidArguments(f"{self._name}: parameter {name!r}: the number is too large for a float")
        try:
            # Through JSON, because only its strict mode takes a list for a tuple and an ISO text for a datetime.
            return self._adapter(name).validate_json(dump(value), strict=True)
        except ValidationError as error:
            raise InvalidArguments(f"{self._name}: {_problems(name, error)}") from None

    def _adapter(self, name: str) -> TypeAdapter[Any]:
        adapter = self._adapters.get(name)
        if adapter is None:
            try:
                adapter = TypeAdapter(self._hints[name])
            except (PydanticUserError, PydanticUndefinedAnnotation):
                raise InvalidArguments(
                    f"{self._name}: parameter {name!r} has a type hint that no JSON value can be checked against",
                    "Hint it as plain values (list[float], dict, a dataclass) and convert inside the function",
                ) from None
            self._adapters[name] = adapter
        return adapter

    def _not_json(self, args: Sequence[Any], kwargs: Mapping[str, Any], problem: NotJson) -> InvalidArguments:
        bound = self._bound(args, kwargs)
        named = bound.arguments if bound else {**{f"#{place}": value for place, value in enumerate(args, 1)}, **kwargs}
        for name, value in named.items():
            try:
                dump(value)
            except NotJson as error:
                problem = NotJson(f"parameter {name!r} has no JSON form: {error}")
                break
        return InvalidArguments(f"{self._name}: {problem}", "Convert it to plain values, or pass a path to a file")


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The hints that are checked; parameters without one, or with `Any` or `object`, are left out."""
    target: Any = function if hasattr(function, "__annotations__") else getattr(function, "__call__", None)  # noqa: B004
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except TypeError:
        return {}
    except Exception as error:  # noqa: BLE001 - a hint is an expression of the user's and may raise anything
        raise InvalidArguments(
            f"the type hints of {name} cannot be resolved: {str(error)[:_SHOWN_CHARACTERS]}",
            "Import what they name at run time, outside `if TYPE_CHECKING`",
        ) from None
    hints.pop("return", None)
    return {
        parameter: hint
        for parameter, hint in hints.items()
        if hint not in (Any, object) and typing.get_origin(hint) is not typing.Unpack
    }


def _problems(parameter: str, error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)[:3]
    return "; ".join(
        f"parameter {'.'.join([parameter, *map(str, problem['loc'])])!r}: {problem['msg'][:_SHOWN_CHARACTERS]}"
        for problem in found
    )
