"""Which launchers there are, by name. Nothing of a substrate is imported before its launcher is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast, final

from tenure.errors import InvalidSettings, MissingExtra, UnknownLauncher

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.launchers.base import Launcher, LauncherFactory, LauncherSettings, LaunchOrder, Plan

GROUP: Final = "tenure.launchers"
"""The group of entry points that other packages add launchers by."""

_BUILT_IN: Final = MappingProxyType({"kubernetes": "kubernetes", "local": None, "ray": "ray", "rq": "rq"})
"""The launchers that come with Tenure, and the library that each needs; its extra is called like the launcher."""


@final
@dataclass(frozen=True, slots=True)
class KnownLauncher:
    """A launcher that could be asked for, as far as it can be told without importing anything of it."""

    name: str
    origin: str
    """`tenure`, or the distribution that it comes with."""
    ready: bool = True
    """Whether the library that it needs is installed; what those of other packages need is not known."""
    remedy: str = ""


def known_launchers() -> tuple[KnownLauncher, ...]:
    """All launchers that could be asked for, by name, those of other packages included."""
    own = [
        KnownLauncher(name, "tenure", library is None or find_spec(library) is not None, _remedy(name))
        for name, library in _BUILT_IN.items()
    ]
    others = [
        KnownLauncher(point.name, point.dist.name if point.dist is not None else point.module)
        for point in entry_points(group=GROUP)
        if point.name not in _BUILT_IN
    ]
    return tuple(sorted([*own, *others], key=lambda each: each.name))


def require_launcher(name: str) -> None:
    """See that there is a launcher of that name, importing nothing of it. Raises `UnknownLauncher`."""
    if name not in launcher_names():
        raise _unknown(name)


def require_library(name: str) -> None:
    """See that the library which a launcher of Tenure's needs is there, importing nothing. Raises `MissingExtra`."""
    library = _BUILT_IN.get(name)
    if library is not None and find_spec(library) is None:
        raise MissingExtra(f"the launcher {name!r} needs the library {library}", _remedy(name))


def launcher_names() -> tuple[str, ...]:
    """The names of all launchers that could be asked for, those of other packages included."""
    return tuple(sorted({*_BUILT_IN, *(point.name for point in entry_points(group=GROUP))}))


def make_launcher(name: str, settings: LauncherSettings) -> Launcher[Any]:
    """The launcher of that name. A launcher that comes with Tenure cannot be replaced by another package's.

    Raises:
        UnknownLauncher: there is none of that name.
        MissingExtra: the library that it needs is not installed.
        InvalidSettings: its options cannot be, or another package's launcher cannot be loaded.
    """
    require_library(name)
    return _factory(name)(settings)


def make_renderer(name: str, settings: LauncherSettings) -> Callable[[LaunchOrder], Plan]:
    """The launcher's `render` alone, which needs no library where the launcher's module can do without it.

    Raises:
        UnknownLauncher, MissingExtra, InvalidSettings: as `make_launcher` does.
    """
    if name in _BUILT_IN:
        rendering = getattr(import_module(f"tenure.launchers.{name}_launcher"), "rendering", None)
        if rendering is not None:
            return cast("Callable[[LaunchOrder], Plan]", rendering(settings))
    return make_launcher(name, settings).render


def _factory(name: str) -> LauncherFactory:
    if name in _BUILT_IN:
        return cast("LauncherFactory", import_module(f"tenure.launchers.{name}_launcher").create)
    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                return cast("LauncherFactory", point.load())
            except (ImportError, AttributeError) as error:
                whose = point.dist.name if point.dist is not None else point.module
                message = f"the launcher {name!r} cannot be loaded: {error}"
                raise InvalidSettings(message, f"It comes with {whose}: see what that needs") from error
    raise _unknown(name)


def _unknown(name: str) -> UnknownLauncher:
    return UnknownLauncher(f"there is no launcher called {name!r}", f"Choose one of: {', '.join(launcher_names())}")


def _remedy(name: str) -> str:
    return f"pip install 'tenure[{name}]'"
