"""Who may ask for what. A person is known by the stream that the request came on, never by what the request says.

The person `default` is everybody on a broker without credentials, and the holder of the first credential on one with
them: an operator whose word for who asks is recorded as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.broker.keys import DEFAULT_PERSON
from tenure.errors import NotAllowed
from tenure.protocol.audit_messages import ReadEvents
from tenure.protocol.cancellation_messages import CancelMany
from tenure.protocol.client_messages import Cancel, Explain, Query, Submit, Watch
from tenure.protocol.principal_messages import Role

if TYPE_CHECKING:
    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import Request

READS: Final = (Watch, Query, Explain, ReadEvents)
"""What everybody may ask who may ask at all."""
_STEPS_OF_SUBMITTERS: Final = (Submit, Cancel, CancelMany)
_FOR_OPERATORS: Final = frozenset({"credentials"})
"""Lists that only operators may read."""


def principal_of(person: str, request: Request) -> str:
    """Who asks, as it is recorded."""
    return request.principal if person == DEFAULT_PERSON else person


def require(turn: Turn, person: str, ask: object) -> None:
    """Refuse what the person's role does not allow. Raises `NotAllowed`."""
    role = role_of(turn, person)
    if role is Role.OPERATOR:
        return
    allowed = isinstance(ask, READS) or (role is Role.SUBMITTER and isinstance(ask, _STEPS_OF_SUBMITTERS))
    if isinstance(ask, Query) and ask.what in _FOR_OPERATORS:
        allowed = False
    if not allowed:
        kind = str(getattr(ask, "kind", "this")).replace("_", " ")
        who = f"{person} is {'a' if role is Role.SUBMITTER else 'an'} {role}" if role else f"{person} is not known"
        raise NotAllowed(f"{who} and may not ask for {kind!r}", "Ask an operator of this fleet")


def role_of(turn: Turn, person: str) -> Role | None:
    """The person's role; None when there is no such person, or none any more."""
    if person == DEFAULT_PERSON:
        return Role.OPERATOR
    row = turn.store.row("person_on_record", (person,))
    return Role(row[0]) if row is not None and row[1] == "ACTIVE" else None


def require_own(turn: Turn, person: str, principals: set[str]) -> None:
    """Refuse a step on tasks of these principals, unless they are the person's own or it is an operator's."""
    foreign = sorted(principals - {person})
    if foreign and role_of(turn, person) is not Role.OPERATOR:
        raise NotAllowed(
            f"{person} may not cancel what {foreign[0] or 'somebody else'} has submitted", "Ask an operator"
        )
