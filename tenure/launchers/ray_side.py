"""The process that speaks with Ray, on behalf of one launcher.

A process that is connected to a Ray cluster is ended by Ray when the cluster's head is away for a minute, blocks in
calls that have no time limit, and has Ray's threads and signal handlers. A worker's agent may have none of that. So the
library lives here, and here only: one request a line, one answer a line, and whoever asked may kill this process at any
time and start another. All that lasts is on the cluster, under names.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, final

from tenure.launchers.ray_task import Executor

_ANSWER_S: Final = 0.5
_MOST_TEXT: Final = 4_000

Answer = dict[str, Any]


@final
class RaySide:
    """The requests, in a cluster that this process is connected to."""

    def __init__(self, address: str, namespace: str) -> None:
        self._ray: Any = import_module("ray")
        self._util: Any = import_module("ray.util")
        strategies = import_module("ray.util.scheduling_strategies")
        self._strategy: Any = strategies.PlacementGroupSchedulingStrategy
        self._errors: type[Exception] = import_module("ray.exceptions").RayError
        self._namespace = namespace
        self._actors: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}
        self._answered: set[str] = set()
        self._ray.init(address=address, namespace=namespace, log_to_driver=False)

    def launch(self, plan: Answer) -> Answer:
        """Make the placement group, wait until it is ready, and make the actor in it; once."""
        name: str = plan["name"]
        if self._actor(name) is not None:
            return {}
        try:
            group = self._group(name) or self._util.placement_group(**plan["group"])
        except (TypeError, ValueError) as error:
            return {"refused": f"Ray takes no such placement group: {error}"}
        if not group.wait(plan["placement_timeout_s"]):
            self._util.remove_placement_group(group)
            return {"refused": f"no node had room for {plan['group']['bundles'][0]} in time"}
        try:
            # Ray's own retries are off for what is called later, too: `max_task_retries` holds for every method.
            options = {**plan["actor"], "scheduling_strategy": self._strategy(group, 0)}
            self._actors[name] = self._ray.remote(Executor).options(**options).remote(*plan["arguments"])
        except ValueError:
            # Taken: another process of this worker has made it since. Anything else is a refusal.
            if self._actor(name) is None:
                raise
        return {}

    def probe(self, name: str) -> Answer:
        """What the actor answers, or what Ray says instead."""
        actor = self._actor(name)
        if actor is None:
            return {"seen": "absent", "group": self._group(name) is not None}
        asked = self._asked.pop(name, None) or actor.exit_code.options(max_task_retries=0).remote()
        ready, _ = self._ray.wait([asked], timeout=_ANSWER_S)
        if not ready:
            self._asked[name] = asked
            return {"seen": "silent", "answered": name in self._answered}
        try:
            code = self._ray.get(asked)
        except self._errors as error:
            return {"seen": "raised", "kind": type(error).__name__, "text": str(error)[:_MOST_TEXT]}
        self._answered.add(name)
        return {"seen": "answered", "code": code}

    def cancel(self, name: str) -> Answer:
        """Kill the actor, wherever it is, and give its place back."""
        actor = self._actor(name)
        if actor is not None:
            self._ray.kill(actor, no_restart=True)
        group = self._group(name)
        if group is not None:
            self._util.remove_placement_group(group)
        return {}

    def clear(self, name: str) -> Answer:
        """The same, and forget it."""
        self.cancel(name)
        self._actors.pop(name, None)
        self._asked.pop(name, None)
        self._answered.discard(name)
        return {}

    def _actor(self, name: str) -> Any:  # noqa: ANN401 - a type of Ray's
        if name not in self._actors:
            with suppress(ValueError):
                self._actors[name] = self._ray.get_actor(name, namespace=self._namespace)
        return self._actors.get(name)

    def _group(self, name: str) -> Any:  # noqa: ANN401 - a type of Ray's
        try:
            return self._util.get_placement_group(name)
        except ValueError:
            return None


def answer(side: RaySide, asked: Answer) -> Answer:
    """The answer to one request. What Ray raises is an answer, too."""
    try:
        match asked:
            case {"do": "launch", "plan": _}:
                return side.launch(asked["plan"])
            case {"do": "probe", "name": str(name)}:
                return side.probe(name)
            case {"do": "cancel", "name": str(name)}:
                return side.cancel(name)
            case {"do": "clear", "name": str(name)}:
                return side.clear(name)
            case _:
                return {"error": "an unknown request"}
    except Exception as error:  # noqa: BLE001 - Ray's errors have no common root
        return {"error": f"{type(error).__name__}: {error}"[:_MOST_TEXT]}


def main(descriptor: int) -> None:
    """Serve the socket until its other end is closed. The first request says where the cluster is."""
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rw", encoding="utf-8") as lines:
        side: RaySide | None = None
        for line in lines:
            asked = json.loads(line)
            if side is None:
                try:
                    side = RaySide(asked["address"], asked["namespace"])
                    reply: Answer = {}
                except Exception as error:  # noqa: BLE001 - as above
                    reply = {"error": f"{type(error).__name__}: {error}"[:_MOST_TEXT]}
            else:
                reply = answer(side, asked)
            lines.write(json.dumps(reply) + "\n")
            lines.flush()
