"""Sites as the loop sees them: who takes part, what each is granted, and whose streams are read. Pure.

A site is known by the inbox that a report arrived on, a person by the stream of a request; what either claims to be
decides nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tenure.broker.base import Readers
from tenure.broker.keys import DEFAULT_PERSON, DEFAULT_SITE
from tenure.coordinator.dealing import Idle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SITE_LABEL: Final = "site"
"""The label that says where a worker is; the coordinator gives it, whatever the worker says."""

DEVICE_LABEL: Final = "device"
"""The label by which a worker says which device it works with, and a task which one it wants."""


@final
@dataclass(frozen=True, slots=True)
class Site:
    """A site that may take part.

    Without granted capabilities it may offer every one: only the default one is so, and that one may use any device.
    """

    name: str
    capabilities: frozenset[str] = frozenset()
    most_leases: int = 0
    """How many live leases it may hold at once; 0: as many as its workers want."""
    devices: frozenset[str] = frozenset()
    """Which devices its workers may say that they work with."""

    def granted(self, offered: Iterable[str]) -> frozenset[str]:
        """What it may offer of these."""
        return frozenset(offered) & self.capabilities if self.capabilities else frozenset(offered)

    def labels(self, claimed: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """The labels of a worker here: what it says, but for where it is and for devices that the site was not granted.

        A device that anybody could make up would attract what is meant for it, and keep from everybody else's
        campaigns what could come to it.
        """
        own = {label for label in claimed if label[0] != SITE_LABEL and self._may_say(label)}
        return frozenset(own | {(SITE_LABEL, self.name)})

    def _may_say(self, label: tuple[str, str]) -> bool:
        return label[0] != DEVICE_LABEL or self.name == DEFAULT_SITE or label[1] in self.devices


def site_of(row: tuple[Any, ...]) -> Site:
    """A site as it is on record among those that take part: its name and what it is granted."""
    name, capabilities, most_leases, devices = row
    return Site(name, frozenset(json.loads(capabilities)), most_leases, frozenset(json.loads(devices)))


@final
class Sites:
    """The sites and people that take part, the sites that have just been revoked, and all names that are taken."""

    def __init__(self) -> None:
        self.idle = Idle()
        """Sites that are given something only where no other site could take it."""
        self._active: dict[str, Site] = {}
        self._people: set[str] = {DEFAULT_PERSON}
        self._names: set[str] = set()
        self._leaving: dict[str, int] = {}
        self._clearing: dict[str, str] = {}
        self.kept: set[tuple[str, int]] = set()
        """Offers, by task and fence, that may be taken up although their site is not granted such work any more."""

    def get(self, name: str) -> Site | None:
        """The ACTIVE site of that name."""
        return self._active.get(name)

    def put(self, site: Site) -> None:
        """Take up a site."""
        self._active[site.name] = site
        self._names.add(site.name)

    def put_people(self, people: Iterable[str]) -> None:
        """Whose requests are read, besides those of a broker without credentials."""
        self._people = {DEFAULT_PERSON, *people}

    def revoke(self, name: str, until_ms: int) -> None:
        """A site takes part no more; until then its inbox is still read, and what it says is refused."""
        self._active.pop(name, None)
        self._names.add(name)
        self.idle.discard(name)
        self._clearing.pop(name, None)
        self._leaving[name] = until_ms

    def keep_name(self, name: str) -> None:
        """The name of a site that was revoked, and of which nothing is left, is taken all the same."""
        self._names.add(name)

    def to_clear(self, elapsed_ms: int) -> list[tuple[str, str]]:
        """The revoked sites whose moment is over, each with the worker up to which all is gone that it has left.

        Nothing is read of them any more.
        """
        for name in [name for name, until_ms in self._leaving.items() if until_ms <= elapsed_ms]:
            del self._leaving[name]
            self._clearing[name] = ""
        return list(self._clearing.items())

    def cleared(self, name: str, worker_id: str | None) -> None:
        """All is gone of a revoked site up to this worker; None: of all of them."""
        if worker_id is None:
            self._clearing.pop(name, None)
        else:
            self._clearing[name] = worker_id

    def readers(self) -> Readers:
        """Whose streams are read, those of sites that are leaving among them."""
        names = self._active.keys() | self._leaving.keys()
        return Readers(sites=tuple(sorted(names)), people=tuple(sorted(self._people)))

    def home_of(self, worker_id: str) -> str:
        """The site whose workers have such ids: the first part of the id, if that is a site's name."""
        first, dot, _ = worker_id.partition(".")
        return first if dot and first in self._names else DEFAULT_SITE

    def full(self, holding: Mapping[str, int]) -> frozenset[str]:
        """The sites that hold as many live leases as they may, of these numbers of live leases."""
        return frozenset(name for name, site in self._active.items() if 0 < site.most_leases <= holding.get(name, 0))
