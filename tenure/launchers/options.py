"""How a launcher's own options are validated: from a file or from `key=value` words, once, into a frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from tenure.errors import InvalidSettings
from tenure.protocol.message import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class LauncherOptions(BaseModel):
    """The base of every launcher's options. Numbers may be given as text; unknown options are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


_O = TypeVar("_O", bound=LauncherOptions)
_REMEDY: Final = "See docs/launchers.md for what each option takes"


def read_options(kind: type[_O], launcher: str, options: Mapping[str, Any]) -> _O:
    """The options of that launcher. Raises `InvalidSettings`, which never repeats a value: it may hold a secret."""
    known = ", ".join(sorted(kind.model_fields))
    if foreign := sorted(options.keys() - kind.model_fields.keys()):
        raise InvalidSettings(f"the launcher {launcher!r} has no option {foreign[0][:80]!r}", f"It has: {known}")
    for name, value in options.items():
        if isinstance(value, bool) and _is_number(kind.model_fields[name].annotation):
            wrong = f"an option of the launcher {launcher!r} does not fit: {name}: true and false mean nothing there"
            raise InvalidSettings(wrong, _REMEDY)
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        # What is wrong with several options together has no place of its own, and nobody sent a message.
        wrong = describe(error).removeprefix("message: ")
        message = f"an option of the launcher {launcher!r} does not fit: {wrong}"
        raise InvalidSettings(message, _REMEDY) from None


def _is_number(wanted: object) -> bool:
    """Whether true would be taken for 1 there."""
    kinds = set(_kinds(wanted))
    return bool(kinds & {int, float}) and bool not in kinds


def _kinds(wanted: object) -> Iterator[object]:
    """What is wanted, and all that it is made of: `Annotated` in a union in `Annotated` and so on."""
    yield wanted
    for part in get_args(wanted):
        yield from _kinds(part)
