"""The launcher `ray`: executors as detached actors of a Ray cluster, each in a placement group of its own.

A task of Ray would end with the process that asked for it, so an executor would not outlive its parent's restart. A
detached actor does; its name is what makes launching twice the same as launching once, and what it is found by again.
Ray repeats nothing: no restart, no retry. What it says decides nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, final

from tenure.errors import LaunchRefused, MissingExtra, SubstrateUnreachable
from tenure.launchers.base import Handle, Phase, Sighting
from tenure.launchers.options import read_options
from tenure.launchers.ray_link import RayLink
from tenure.launchers.ray_plan import RayOptions, RayPlan, render
from tenure.launchers.ray_sighting import sighting_of

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.launchers.base import ExecutorCommand, LauncherSettings, LaunchOrder

_NAME: Final = "ray"
_PATIENCE_MS: Final = 15_000


@final
class RayLauncher:
    """See `Launcher`. Which plans were launched is noted in `folder`, for Ray forgets an actor that has died."""

    def __init__(self, link: RayLink, options: RayOptions, executor: ExecutorCommand, folder: Path) -> None:
        self._link = link
        self._options = options
        self._executor = executor
        self._launched = folder / "launched"

    @property
    def name(self) -> str:
        """See `Launcher.name`."""
        return _NAME

    def render(self, order: LaunchOrder) -> RayPlan:
        """See `Launcher.render`."""
        return render(order, self._executor, self._options)

    def launch(self, plan: RayPlan) -> Handle:
        """See `Launcher.launch`. Waits until the placement group is ready, at most for the time in the plan."""
        handle = Handle(launcher=_NAME, name=plan.name, address=plan.namespace)
        mark = self._launched / plan.name
        if mark.exists():
            return handle
        patience_ms = int(plan.placement_timeout_s * 1000) + _PATIENCE_MS
        found = self._link.ask({"do": "launch", "plan": plan.request()}, patience_ms)
        if refused := found.get("refused"):
            raise LaunchRefused(str(refused), "See `ray status`; `placement_timeout_s` says how long is waited")
        self._launched.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return handle

    def probe(self, handle: Handle) -> Sighting:
        """See `Launcher.probe`."""
        try:
            return sighting_of(self._link.ask({"do": "probe", "name": handle.name}, _PATIENCE_MS))
        except SubstrateUnreachable as error:
            return Sighting(Phase.UNKNOWN, detail=error.message)

    def cancel(self, handle: Handle) -> None:
        """See `Launcher.cancel`."""
        self._link.ask({"do": "cancel", "name": handle.name}, _PATIENCE_MS)

    def clear(self, handle: Handle) -> None:
        """See `Launcher.clear`."""
        self._link.ask({"do": "clear", "name": handle.name}, _PATIENCE_MS)
        (self._launched / handle.name).unlink(missing_ok=True)

    def close(self) -> None:
        """See `Launcher.close`."""
        self._link.close()


def create(settings: LauncherSettings) -> RayLauncher:
    """The launcher; nothing is connected yet, nor is the library imported. Raises `MissingExtra`, `InvalidSettings`."""
    options = read_options(RayOptions, _NAME, settings.options)
    if find_spec("ray") is None:
        raise MissingExtra("the launcher 'ray' needs the library ray", "pip install 'tenure[ray]'")
    settings.folder.mkdir(parents=True, exist_ok=True)
    return RayLauncher(RayLink(options, settings.folder, settings.clock), options, settings.executor, settings.folder)
