"""The clients that are told of a task's end besides its submitter.

Memory alone: a client that hears nothing for a while asks again for all that it waits for. So a person who has asked
for more than they may have only their oldest forgotten, which costs a client that still waits a little time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import final

from tenure.broker.keys import DEFAULT_PERSON
from tenure.coordinator.addresses import address_of


@final
class Watchers:
    """Who watches which task.

    Args:
        most: how many watches each person with a credential may have; 0: any number.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._clients: dict[str, set[str]] = {}
        self._of_people: dict[str, OrderedDict[tuple[str, str], None]] = {}

    def add(self, task_id: str, client_id: str) -> None:
        """A client, by its word, wants to be told of this task's end."""
        self._clients.setdefault(task_id, set()).add(client_id)
        person = address_of(client_id).person
        if person == DEFAULT_PERSON or not self._most:
            return
        watches = self._of_people.setdefault(person, OrderedDict())
        watches[task_id, client_id] = None
        watches.move_to_end((task_id, client_id))
        if len(watches) > self._most:
            (oldest, client_id), _ = watches.popitem(last=False)
            self._clients[oldest].discard(client_id)
            if not self._clients[oldest]:
                del self._clients[oldest]

    def of(self, task_id: str) -> set[str]:
        """The clients that watch a task."""
        return set(self._clients.get(task_id, ()))

    def forget(self, task_id: str) -> None:
        """Nothing more will be told of a task."""
        for client_id in self._clients.pop(task_id, ()):
            watches = self._of_people.get(address_of(client_id).person)
            if watches is not None:
                watches.pop((task_id, client_id), None)
