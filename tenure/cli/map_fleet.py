"""How rows reach the fleet: as calls of a handler, many per request, or as programs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from tenure.cli.programs import run_program
from tenure.client.calls import Call
from tenure.errors import UsageError
from tenure.protocol.client_messages import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.cli.desk import Fleet
    from tenure.cli.map_run import Keyed
    from tenure.cli.map_work import CallTemplate, CommandTemplate
    from tenure.client.handle import Handle
    from tenure.client.options import SubmitOptions

_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_DIGITS: Final = 10
_AT_ONCE: Final = 16


@final
class Past:
    """Tells tasks of an earlier start from those of this one, by the coordinator's own clock.

    Args:
        fleet: who is asked.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        rows = fleet.ask(Query(what="status")).rows
        self._start_ms: Final = int(rows[0]["now_ms"])

    def is_old(self, task_id: str) -> bool:
        """Whether the task was submitted before this object was made: a task's id begins with that moment."""
        submitted_ms = 0
        for digit in task_id[:_TIME_DIGITS]:
            submitted_ms = submitted_ms * len(_DIGITS) + _DIGITS.index(digit)
        return submitted_ms < self._start_ms

    def exists(self, key: str) -> bool:
        """Whether there is a task of that key; no, when the coordinator is too old to be asked that."""
        try:
            return bool(self._fleet.ask(Query(what="tasks", where=(("key", key),), limit=1)).rows)
        except UsageError:
            return False


@final
class CallRows:
    """Rows as calls of a handler.

    Args:
        fleet: where they go.
        template: the handler.
        options: how the tasks run.
    """

    def __init__(self, fleet: Fleet, template: CallTemplate, options: SubmitOptions) -> None:
        self._past = Past(fleet)
        self._template = template
        self._submitter = fleet.using(**options)
        self.is_old = self._past.is_old
        self.exists = self._past.exists

    def submit(self, rows: Sequence[Keyed]) -> Sequence[Handle[Any]]:
        """See `Submitting.submit`. Raises `InvalidArguments` that names the row."""
        return self._submitter.submit_many([self._call(keyed) for keyed in rows])

    def _call(self, keyed: Keyed) -> Call:
        try:
            args, kwargs = self._template.arguments(keyed.row)
            if self._template.handler is not None:
                self._template.handler.parameters.bind(args, kwargs)
        except UsageError as error:
            raise type(error)(f"row {keyed.row.index + 1}: {error.message}", error.remedy) from error
        return Call(self._template.function, tuple(args), kwargs, keyed.key)


@final
class CommandRows:
    """Rows as programs; one request each, several on their way at once.

    Args:
        fleet: where they go.
        template: the program and its arguments.
        options: how the tasks run.
    """

    def __init__(self, fleet: Fleet, template: CommandTemplate, options: SubmitOptions) -> None:
        self._past = Past(fleet)
        self._fleet = fleet
        self._template = template
        self._options = options
        self.is_old = self._past.is_old
        self.exists = self._past.exists

    def submit(self, rows: Sequence[Keyed]) -> Sequence[Handle[Any]]:
        """See `Submitting.submit`."""
        with ThreadPoolExecutor(_AT_ONCE) as senders:
            return list(senders.map(self._send, rows))

    def _send(self, keyed: Keyed) -> Handle[Any]:
        options: SubmitOptions = {**self._options, "key": keyed.key}
        template, row = self._template, keyed.row
        try:
            if template.program.inputs:
                options["inputs"] = {one.name: one.content or Path(one.source) for one in template.inputs(row)}
            submitter = self._fleet.using(**options)
            return run_program(submitter, template.argv(row), template.program.form, template.parameters(row))
        except UsageError as error:
            error.add_note(f"row {keyed.row.index + 1}")
            raise
