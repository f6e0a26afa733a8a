"""Names of the broker's users, and whose they are: the one place that spells them.

`tenure.<namespace>.site.<site>`, `tenure.<namespace>.client.<person>`, `tenure.<namespace>.coordinator` and
`tenure.<namespace>.provisioner`. A worker or a client that is given the address of the broker with such a user's name
takes its site or its person from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, cast, final

from tenure.broker.keys import DEFAULT_PERSON, DEFAULT_SITE
from tenure.errors import InvalidSettings

Part = Literal["site", "client", "coordinator", "provisioner"]
_PREFIX: Final = "tenure."
_RESERVED: Final = frozenset({"coordinator", "provisioner"})
_NAMED: Final = re.compile(r"(site|client)\.([A-Za-z0-9_-]+)")


@final
@dataclass(frozen=True, slots=True)
class Principal:
    """A user of the broker. `name` is the site's or the person's, and empty for the other two.

    Raises `InvalidSettings` for a site or a person that is called like one of the other two: a namespace may hold dots,
    and the site `coordinator` of the fleet `a` would be the coordinator of the fleet `a.site`.
    """

    namespace: str
    part: Part
    name: str = ""

    def __post_init__(self) -> None:
        if self.name in _RESERVED:
            raise InvalidSettings(f"No {self.part} may be called {self.name}", "Choose another name")

    @property
    def user(self) -> str:
        """The name of the broker's user."""
        return f"{_PREFIX}{self.namespace}.{self.part}" + (f".{self.name}" if self.name else "")

    @property
    def whose(self) -> str:
        """Whose credential that is, as it is said to people."""
        kind = "person" if self.part == "client" else self.part
        return f"{kind} {self.name}" if self.name else f"the {self.part}"


def site_of(user: str, namespace: str) -> str:
    """The site that a worker with this user name belongs to; the default one for every other name."""
    return _named(user, namespace, "site") or DEFAULT_SITE


def person_of(user: str, namespace: str) -> str:
    """The person that a client with this user name asks for; the default one for every other name."""
    return _named(user, namespace, "client") or DEFAULT_PERSON


def principal_of(user: str, namespace: str) -> Principal | None:
    """Whose user of this namespace that is; None when the name is none that this module spells."""
    start = f"{_PREFIX}{namespace}."
    rest = user.removeprefix(start)
    if rest == user or rest.partition(".")[2] in _RESERVED:
        return None
    if rest in _RESERVED:
        return Principal(namespace, cast("Part", rest))
    found = _NAMED.fullmatch(rest)
    return Principal(namespace, cast("Part", found[1]), found[2]) if found else None


def is_held_to_its_own(user: str, namespace: str) -> bool:
    """Whether that is the user of a site or of a person, who may write nothing but what is theirs, and list nothing."""
    found = principal_of(user, namespace)
    return found is not None and found.part in {"site", "client"}


def _named(user: str, namespace: str, part: Part) -> str:
    start = f"{_PREFIX}{namespace}.{part}."
    return user[len(start) :] if user.startswith(start) else ""
