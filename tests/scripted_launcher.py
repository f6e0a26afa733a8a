"""Parents and executors of a scripted fleet: what a worker's launcher would start, without any substrate."""

from typing import Any

from tenure.protocol.worker_messages import Cause, ExecutorGone
from tests.scripted_fleet import Hand, ScriptedFleet, ScriptedWorker


def launch(parent: ScriptedWorker) -> Hand:
    """Let a parent take one assignment, and list it as launched from now on."""
    (hand,) = parent.take(1)
    hand.state = "launched"
    return hand


def executor(fleet: ScriptedFleet, parent: ScriptedWorker, launched: Hand, name: str = "x0", **hello: Any) -> Hand:
    """An executor of what a parent has launched, which has said hello and claims nothing yet; its hand on the task.

    It is the newest of the fleet's workers.
    """
    given: dict[str, Any] = {"site": parent.site, "executor_of": parent.worker_id, "window": 0}
    worker = fleet.worker(f"{parent.worker_id}.{name}", **(given | hello))
    hand = Hand(launched.ticket, fleet.entropy.token(8))
    worker.hands.append(hand)
    return hand


def started(fleet: ScriptedFleet, parent: ScriptedWorker, name: str = "x0") -> tuple[Hand, ScriptedWorker, Hand]:
    """A task that a parent has launched, its executor that was granted it, and the executor's hand on it."""
    launched = launch(parent)
    hand = executor(fleet, parent, launched, name)
    worker = fleet.workers[-1]
    worker.claim(hand)
    return launched, worker, hand


def told(hand: Hand, *, proved: bool = True, cause: Cause = Cause.OOM_KILLED, **changes: Any) -> ExecutorGone:
    """What the parent whose hand this is says of its executor; `changes` falsify the binding."""
    binding = hand.binding.model_copy(update=changes)
    return ExecutorGone(binding=binding, cause=cause, proved=proved, detail="exit status 137")
