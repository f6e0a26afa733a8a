"""From a function to its reference "package.module:function", and from a reference to a callable handler.

Finding a handler imports code, so it is guarded: the module must be among the allowed ones *before* it is imported,
and what is found there must have been defined in an allowed module, too. Otherwise "tasks:os.system" would run whatever
an allowed module happens to have imported.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from tenure.errors import HandlerNotAllowed, UnknownHandler
from tenure.handlers.arguments import Parameters
from tenure.handlers.options import TaskDefaults
from tenure.handlers.task import defaults_noted_on

_REFERENCE: Final = re.compile(r"([A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII)
_IMPORTABLE: Final = "Put the function at the top level of a module that workers can import, and submit it from there"
_LONGEST: Final = 255


@final
class Handler:
    """A function that a worker may call, with its parameters. Keep it: it remembers how to check arguments."""

    def __init__(self, reference: str, function: Callable[..., Any]) -> None:
        self.reference: Final = reference
        self.function: Final = function
        self.defaults: Final[TaskDefaults] = defaults_noted_on(function)
        self.is_async: Final[bool] = inspect.iscoroutinefunction(inspect.unwrap(function))
        self.parameters: Final = Parameters(function, reference)

    def call(self, arguments: str) -> Any:  # noqa: ANN401 - whatever the user's function returns
        """Call the function with the arguments in a JSON text; an async function gives its coroutine.

        Raises:
            InvalidArguments: they do not fit; the function was not called. What the function raises passes through.
        """
        args, kwargs = self.parameters.read(arguments)
        return self.function(*args, **kwargs)


def reference_of(function: Callable[..., Any]) -> str:
    """The function's reference, "package.module:qualified.name".

    Raises:
        UnknownHandler: a worker could not import it under that name: a lambda, a function inside a function, one of the
            script that is being run, a bound method, or a name that now stands for something else.
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or inspect.isclass(function):
        raise UnknownHandler(
            f"what was given (type {type(function).__name__}) is not a function with a name", _IMPORTABLE
        )
    _refuse_unimportable(function, module, name)
    reference = f"{module}:{name}"
    if len(reference) > _LONGEST or not _REFERENCE.fullmatch(reference):
        raise UnknownHandler("the function's name has characters other than ASCII letters, or is too long", _IMPORTABLE)
    return reference


def _refuse_unimportable(function: Callable[..., Any], module: str, name: str) -> None:
    if name.endswith("<lambda>"):
        raise UnknownHandler("a lambda has no name that a worker could import", _IMPORTABLE)
    if "<locals>" in name:
        raise UnknownHandler(f"{name.rpartition('.')[2]} is defined inside another function", _IMPORTABLE)
    if module == "__main__":
        raise UnknownHandler(f"{name} is defined in the script that is being run", _IMPORTABLE)
    if inspect.ismethod(function) and not inspect.isclass(function.__self__):
        raise UnknownHandler(f"{name} is bound to an object, which a worker does not have", _IMPORTABLE)
    if module in sys.modules and _walk(sys.modules[module], name) != function:
        raise UnknownHandler(f"{module}:{name} is not this function any more", _IMPORTABLE)


def load(reference: str, allowed: Sequence[str]) -> Handler:
    """Import the function behind a reference.

    Args:
        reference: "package.module:qualified.name".
        allowed: module names; each allows itself and its submodules.

    Raises:
        HandlerNotAllowed: the module, or the module that the function was defined in, is not allowed.
        UnknownHandler: the module cannot be imported or has no such function.
        InvalidArguments: the function's type hints cannot be resolved.
    """
    match = _REFERENCE.fullmatch(reference) if len(reference) <= _LONGEST else None
    if match is None:
        raise UnknownHandler("the handler's reference is malformed", 'It must look like "package.module:function"')
    module, name = match.groups()
    _check_allowed(module, reference, allowed)
    imported = _imported(module, reference)
    function = _walk(imported, name)
    if function is None and getattr(imported, "__file__", None) is None and hasattr(imported, "__path__"):
        file = f"{module.rpartition('.')[2]}.py"
        raise UnknownHandler(f"{module} is a folder here, and no module", f"Start in the folder that holds {file}")
    if not callable(function) or inspect.isclass(function):
        raise UnknownHandler(
            f"{module} has no function {name}", "Check the spelling, and that the worker's copy is new"
        )
    _check_allowed(getattr(function, "__module__", None) or "", reference, allowed)
    return Handler(reference, function)


def _check_allowed(module: str, reference: str, allowed: Sequence[str]) -> None:
    if not any(module == name or module.startswith(f"{name}.") for name in allowed):
        raise HandlerNotAllowed(
            f"{reference} is not among the modules that this worker may run",
            f"Start the worker with --allow {module or reference.partition(':')[0]}",
        )


def _imported(module: str, reference: str) -> object:
    try:
        return importlib.import_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise UnknownHandler(
            f"{reference} cannot be imported: {reason}", "Install the module where the worker runs, or fix its import"
        ) from error


def _walk(module: object, name: str) -> object:
    """The object of that name, reached through classes only; None when there is none."""
    *classes, last = name.split(".")
    owner = module
    for part in classes:
        owner = getattr(owner, part, None)
        if not inspect.isclass(owner):
            return None
    return None if last.startswith("__") else getattr(owner, last, None)
