"""Whether the broker still accepts the credential of the worker's site: said once, and not once per line and try.

A line goes on trying, because a rotated credential may reach this host's file late, and a broker that has forgotten its
users may be given them again. What makes the worker leave is the coordinator's order, which comes with a revocation.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from tenure.errors import CredentialRefused

if TYPE_CHECKING:
    from tenure.errors import BrokerError

_LOG: Final = logging.getLogger(__name__)


@final
class Admission:
    """What the lines of one worker of `site` have met. Any thread may call."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._lock = Lock()
        self._refused: dict[str, CredentialRefused] = {}
        self._is_said = False

    @property
    def refusal(self) -> CredentialRefused | None:
        """What to say of it, once the worker has ended; None when no line was refused, or all were let in again."""
        with self._lock:
            found = next(iter(self._refused.values()), None)
        if found is None:
            return None
        return CredentialRefused(
            f"the credential of site {self._site} is not good any more, it was revoked or replaced: {found.message}",
            f"See `tenure sites show {self._site}`, or ask whoever issued it",
        )

    def hush(self) -> None:
        """The worker leaves, and what there is to say is said when it has ended."""
        self._is_said = True

    def met(self, line: str, error: BrokerError, failures: int) -> bool:
        """A line has failed so many times in a row; whether that is said here, and not to be said by the line."""
        if not isinstance(error, CredentialRefused):
            return False
        with self._lock:
            self._refused[line] = error
            says = not self._is_said and failures >= 3  # noqa: PLR2004 - a hiccup is not worth a line
            self._is_said = self._is_said or says
        if says:
            _LOG.warning("%s; the worker goes on trying", self.refusal)
        return True

    def passed(self, line: str) -> None:
        """A line has done what it had to without being refused."""
        if line in self._refused:
            with self._lock:
                self._refused.pop(line, None)
                self._is_said = bool(self._refused) and self._is_said
