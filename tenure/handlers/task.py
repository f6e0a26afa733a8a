"""The decorator that notes how a function's tasks run by default. The function itself stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

from tenure.errors import UsageError
from tenure.handlers.options import TaskDefaults, TaskOptions, defaults_of

if TYPE_CHECKING:
    from collections.abc import Callable

_F = TypeVar("_F", bound="Callable[..., Any]")

ATTRIBUTE: Final = "__tenure__"
"""The attribute in which a function's defaults are noted."""


@overload
def task(function: _F, /) -> _F: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[_F], _F]: ...
def task(function: _F | None = None, /, **options: Unpack[TaskOptions]) -> _F | Callable[[_F], _F]:
    """Note how tasks of a function run unless the submitter says otherwise.

    The same function is returned: it stays callable and testable as it is, sync or async. The decorator is optional:
    a function without it can be submitted, too. Used bare (`@tenure.task`) or with options (see `TaskOptions`).

    Raises:
        UsageError: an option is unknown or malformed, or two contradict each other.
    """
    defaults = defaults_of(options)

    def note(decorated: _F) -> _F:
        if not callable(decorated):
            raise UsageError("@tenure.task decorates functions", 'Give options by name: @tenure.task(capability="cpu")')
        setattr(decorated, ATTRIBUTE, defaults)
        return decorated

    return note if function is None else note(function)


def defaults_noted_on(function: object) -> TaskDefaults:
    """What `task` noted on the function; empty defaults when it was not decorated."""
    noted = getattr(function, ATTRIBUTE, None)
    return noted if isinstance(noted, TaskDefaults) else TaskDefaults()
