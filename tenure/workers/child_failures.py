"""From whatever a handler returned or raised to the message that the agent is told."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING, Final

from tenure.errors import HandlerNotAllowed, InvalidArguments, PayloadTooLarge, TenureError, UnknownHandler
from tenure.handlers.json_text import to_json
from tenure.workers.calls import Raised

if TYPE_CHECKING:
    from tenure.workers.child_secrets import GivenSecrets

_MAX_MESSAGE: Final = 2_000
_MAX_TRACE: Final = 12_000
_KINDS: Final = (
    (UnknownHandler, "unknown_handler"),
    (HandlerNotAllowed, "not_allowed"),
    (InvalidArguments, "invalid_arguments"),
)


class Unfit(Exception):
    """The returned value cannot travel; `kind` says why."""

    def __init__(self, kind: str, error: TenureError) -> None:
        super().__init__(str(error))
        self.kind = kind


def rendered(value: object, given: GivenSecrets) -> str:
    """The value as JSON text, without what was `given` to the call. Raises `Unfit`."""
    try:
        return given.json(to_json(value))
    except PayloadTooLarge as error:
        raise Unfit("result_too_large", error) from error
    except TenureError as error:
        raise Unfit("result_not_json", error) from error


def failed(call: int, duration_ms: int, error: BaseException, given: GivenSecrets) -> Raised:
    """The message about a call that raised, without what was `given` to it."""
    # Masked before they are cut: half a secret is too much.
    message, trace = given.text(_one_line(error))[:_MAX_MESSAGE], given.text(_trace(error))[-_MAX_TRACE:]
    fields = {"kind": kind_of(error), "message": message, "trace": trace}
    return Raised(call, duration_ms, json.dumps(fields))


def kind_of(error: BaseException) -> str:
    """Which kind of failure that is, as `tenure.protocol.worker_messages.FailureKind` spells it."""
    if isinstance(error, Unfit):
        return error.kind
    return next((kind for cause, kind in _KINDS if isinstance(error, cause)), "exception")


def _one_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__
        text = "(its text could not be made)"
    text = text if isinstance(error, (Unfit, TenureError)) else f"{type(error).__name__}: {text}"
    return _printable(text)


def _trace(error: BaseException) -> str:
    if isinstance(error, (Unfit, TenureError)):
        return ""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - the user's own __str__
        return ""
    return _printable(text)


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
