"""What a Ray worker runs: a detached actor that starts one executor and can be asked about it.

Making the actor is starting the executor, and its name is taken by then, so no executor is started twice. Every call of
it answers at once, so whoever asks next, also the worker's next agent, gets an answer. It carries no results.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

from tenure.launchers.on_site import start_on_site

if TYPE_CHECKING:
    import subprocess


@final
class Executor:
    """One executor, with an environment of its own: what the raylet was started with does not reach it.

    It is killed when this Ray worker ends. When it has ended and nobody has cleared it away after `linger_s`, the actor
    gives up its placement group, and with it its own life.
    """

    def __init__(self, argv: list[str], environment: dict[str, str], linger_s: int) -> None:
        ray = import_module("ray")
        # Ray says by a variable which devices are this worker's, and the executor inherits none.
        devices = [str(device) for device in ray.get_gpu_ids()]
        given = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        # Ray ends the process group of a worker that is over, with SIGTERM first, and an executor obeys that by giving
        # its task back: the cause would be that it was drained, and not what has become of the Ray worker.
        self._process = start_on_site(argv, {**given, **environment}, apart=True)
        group = import_module("ray.util").get_current_placement_group()
        threading.Thread(target=_give_up, args=(self._process, linger_s, group), daemon=True).start()

    def exit_code(self) -> int | None:
        """How the executor has ended, negative for a signal; None while it runs."""
        return self._process.poll()


def _give_up(process: subprocess.Popen[bytes], linger_s: int, group: Any) -> None:  # noqa: ANN401 - a type of Ray's
    process.wait()
    threading.Event().wait(linger_s)
    if group is not None:
        import_module("ray.util").remove_placement_group(group)
