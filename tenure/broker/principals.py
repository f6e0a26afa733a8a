"""Names of the broker's users, and whose they are: the one place that spells them.

`tenure.<namespace>.site.<site>`, `tenure.<namespace>.client.<person>`, `tenure.<namespace>.coordinator` and
`tenure.<namespace>.provisioner`. A worker or a client that is given the address of the broker with such a user's name
takes its site or its person from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, final

from tenure.broker.keys import DEFAULT_PERSON, DEFAULT_SITE

Part = Literal["site", "client", "coordinator", "provisioner"]
_PREFIX: Final = "tenure."


@final
@dataclass(frozen=True, slots=True)
class Principal:
    """A user of the broker. `name` is the site's or the person's, and empty for the other two."""

    namespace: str
    part: Part
    name: str = ""

    @property
    def user(self) -> str:
        """The name of the broker's user."""
        return f"{_PREFIX}{self.namespace}.{self.part}" + (f".{self.name}" if self.name else "")


def site_of(user: str, namespace: str) -> str:
    """The site that a worker with this user name belongs to; the default one for every other name."""
    return _named(user, namespace, "site") or DEFAULT_SITE


def person_of(user: str, namespace: str) -> str:
    """The person that a client with this user name asks for; the default one for every other name."""
    return _named(user, namespace, "client") or DEFAULT_PERSON


def _named(user: str, namespace: str, part: Part) -> str:
    start = f"{_PREFIX}{namespace}.{part}."
    return user[len(start) :] if user.startswith(start) else ""
