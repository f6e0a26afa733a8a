"""A client that only looks, for whoever tends a fleet: an unanswered question gives an empty answer and no error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, final

from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.errors import FleetError
from tenure.protocol.client_messages import Query

if TYPE_CHECKING:
    from tenure.protocol.client_messages import Listed

_PATIENCE_MS: Final = 1_000


@final
class Observer:
    """Asks with little patience.

    Args:
        url: the broker's address.
        namespace: the fleet's name.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._options = ClientOptions(namespace=namespace, patience_ms=_PATIENCE_MS)
        self._client: Client | None = None
        self.answered = False
        """Whether the last question was answered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def rows(self, what: Listed, **where: str) -> list[dict[str, Any]]:
        """Records of one kind, newest first; none when nobody answers."""
        try:
            if self._client is None:
                self._client = Client(self._url, options=self._options)
            rows = list(self._client.ask(Query(what=what, where=tuple(where.items()))).rows)
        except FleetError:
            self.answered = False
            return []
        self.answered = True
        return rows
