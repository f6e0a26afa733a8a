"""The checkpoints of one attempt on their way to the store: one at a time, and of those that wait only the newest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, final

from tenure.protocol.message import MAX_VALUE_BYTES
from tenure.workers.inputs import CheckpointSaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.artifacts.jobs import Ended
    from tenure.workers.freight import Freight
    from tenure.workers.inputs import Input
    from tenure.workers.workplace import Workplace


@final
class Saves:
    """See the module.

    Args:
        place: the attempt's.
        freight: carries them.
        say: takes words for the attempt's log.
        settled: called when nothing is on its way any more; answers what follows.
    """

    def __init__(
        self, place: Workplace, freight: Freight, say: Callable[[str], None], settled: Callable[[], list[Input]]
    ) -> None:
        self._place = place
        self._freight = freight
        self._say = say
        self._settled = settled
        self._waiting: tuple[str, str | None] | None = None
        self._job = 0
        self._dropped = False

    @property
    def busy(self) -> bool:
        """Whether one is on its way."""
        return self._job != 0

    def save(self, name: str, state: str | None = None) -> None:
        """Keep `checkpoint/<name>`, or the JSON text of a state under that name."""
        self._waiting = (name, state)
        self._begin_next()

    def drop(self) -> None:
        """Begin nothing more, and tell nothing more of what has begun."""
        self._dropped, self._waiting = True, None
        if self._job:
            self._freight.cancel(self._job)

    def _begin_next(self) -> None:
        if self._job or self._waiting is None or self._dropped:
            return
        (name, state), self._waiting = self._waiting, None
        folder, path = self._place.folder / "checkpoint", name
        if state is not None:
            folder, path = self._place.states, f"{name}.json"
            try:
                self._write(path, state)
            except (OSError, ValueError) as error:
                self._say(f"checkpoint {name} was not kept: {error}")
                return
        self._job = self._freight.submit(self._place.save(folder, path), lambda ended: self._ended(name, ended))

    def _ended(self, name: str, ended: Ended) -> list[Input]:
        self._job = 0
        inputs: list[Input] = []
        if ended.bundle is not None and not self._dropped:
            inputs.append(CheckpointSaved(self._place.slot, self._place.call, name, ended.bundle))
        elif ended.problem is not None and not self._dropped:
            self._say(f"checkpoint {name} was not kept: {ended.problem.message}")
        self._begin_next()
        return inputs if self._job else [*inputs, *self._settled()]

    def _write(self, name: str, state: str) -> None:
        data = state.encode()
        if len(data) > MAX_VALUE_BYTES:
            raise ValueError(f"its state is over {MAX_VALUE_BYTES} bytes; write it to a file")
        self._place.states.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._place.states / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
