"""A store for small files in the broker itself, so that a fleet needs no shared disk.

Contents are plain strings, written and read in pieces. A content that waits for its promotion expires weeks after
its last piece; an object does not, but carries a far-off expiry, by which its age is known. What is promoted was
compared on its way into another key, which then takes the object's name: nobody can exchange it in between.

On a broker that knows its users, sites and people write to staging places of their own and nowhere else, and may not
list keys. A site may not lengthen an object's life: it counts on an object only while it is young, and stages its
content again when it is not. A person gives a content a name that is free, and never one that is taken: whoever could
replace an object could destroy it. All that a person may do with one that is there is to take its expiry away, which
the next list of objects, or the next attempt to remove it, gives back: its age begins anew by that. How much all
contents together may have, only the broker's own memory limit tells guests.

The broker's memory is for messages. A content may have 16 MiB, all together 512 MiB; more belongs into a folder or an
object store.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

from tenure.artifacts.base import PLACE_SITE, Place, StagedPlace, Stored
from tenure.artifacts.content import checked
from tenure.artifacts.lending import Lending
from tenure.broker.principals import principal_of
from tenure.broker.redis_connection import RedisConnection
from tenure.errors import (
    ArtifactDamaged,
    ArtifactStoreFull,
    ArtifactStoreUnreachable,
    BrokerError,
    BrokerFull,
    UnknownArtifact,
)
from tenure.protocol.artifact import Blob

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from tenure.broker.keys import ContentKeys
    from tenure.broker.redis_connection import Answer, Command, Reply
    from tenure.broker.url import BrokerUrl
    from tenure.clock import Entropy

MAX_CONTENT_BYTES: Final = 16 * 1024 * 1024
MAX_TOTAL_BYTES: Final = 512 * 1024 * 1024

_PIECE: Final = 256 * 1024
_DAY_MS: Final = 24 * 3_600_000
_STAGED_LIFE_MS: Final = 35 * _DAY_MS
"""Longer than a quarantine is kept; what nobody needs, the coordinator collects after a day."""

_OBJECT_LIFE_MS: Final = 36_500 * _DAY_MS
_YOUNG_MS: Final = 12 * 3_600_000
"""What is younger than this is not collected for as long again, however little anybody needs it."""

_NO_EXPIRY: Final = -1
_GONE: Final = -2
"""What `PTTL` says of a key that a person wants to be kept, and of one that has just expired."""

_AT_ONCE: Final = 500
_RELIED_ON: Final = 2 * MAX_CONTENT_BYTES
_ANY: Final = "*"
_OBJECT: Final = re.compile(r"[0-9a-f]{64}")
_STAGED: Final = re.compile(
    rf"({PLACE_SITE.pattern}):([0-9A-Z]{{26}}):([1-9][0-9]*):([0-9a-f]{{16,64}}):[0-9a-f]{{64}}"
)
_REMEDY: Final = "Keep large files in a folder or an object store: `tenure coordinator --artifacts ADDRESS`"

_Found: TypeAlias = "tuple[str, int, int]"
"""The variable part of a key, its size, and its age in milliseconds."""


@final
class BrokerStore:
    """See `tenure.artifacts.base.Store`.

    Args:
        broker: where the broker is.
        keys: the namespace.
        entropy: names what is being promoted.
        total_bytes: how much all contents together may have.
    """

    def __init__(
        self, broker: BrokerUrl, keys: ContentKeys, entropy: Entropy, *, total_bytes: int = MAX_TOTAL_BYTES
    ) -> None:
        user = principal_of(broker.user, keys.namespace)
        self._is_site = user is not None and user.part == "site"
        self._is_person = user is not None and user.part == "client"
        self._left_by_guest: set[str] = set()
        self._keys = keys
        self._entropy = entropy
        self._total_bytes = total_bytes
        self._counting = Lock()
        self._room = 0
        self._address = broker.address
        self._connections: Lending[RedisConnection] = Lending(lambda: RedisConnection(broker), RedisConnection.close)

    def has(self, blob: Blob, *, renew: bool = False) -> bool:
        """See `Store.has`."""
        key = self._keys.stored(blob.digest)
        # An empty content is a key of its own kind: the server knows no empty strings that were written by pieces.
        commands: list[Command] = [("EXISTS", key), ("STRLEN", key)]
        if renew:
            # Before the look, so that what is seen then is kept.
            commands.insert(0, self._renewal(key))
        *renewed, there, size = self._call(commands)
        if renewed and self._is_site and not _is_young(cast("int", renewed[0])):
            return False
        return bool(there) and size == blob.size

    def read(self, blob: Blob, offset: int = 0) -> Iterator[bytes]:
        """See `Store.read`."""
        return self._read(self._keys.stored(blob.digest), blob, offset)

    def staged_bytes(self, place: Place, blob: Blob) -> int:
        """See `Store.staged_bytes`."""
        size = self._call([("STRLEN", self._staged(place, blob.digest))])[0]
        return min(cast("int", size), blob.size)

    def stage(self, place: Place, blob: Blob, offset: int, chunks: Iterable[bytes]) -> None:
        """See `Store.stage`."""
        if blob.size > MAX_CONTENT_BYTES:
            raise ArtifactStoreFull(
                f"A file of {blob.size} bytes is over the {MAX_CONTENT_BYTES} that the broker keeps", _REMEDY
            )
        key = self._staged(place, blob.digest)
        if self._is_guest:
            self._left_by_guest.add(key)
        else:
            self._take_room(blob.size - offset)
        if not offset:
            self._call([("SET", key, b"", "PX", _STAGED_LIFE_MS)])
        self._write(key, offset, chunks)

    def read_staged(self, place: Place, blob: Blob) -> Iterator[bytes]:
        """See `Store.read_staged`."""
        if self.has(blob):
            return self.read(blob)
        return self._read(self._staged(place, blob.digest), blob, 0)

    def promote(self, place: Place, blob: Blob) -> None:
        """See `Store.promote`."""
        if self.has(blob, renew=self._is_guest):
            return
        try:
            self._promote(place, blob)
        except (UnknownArtifact, ArtifactDamaged):
            if not self.has(blob):  # else somebody has promoted the same content at the same time
                raise

    def _promote(self, place: Place, blob: Blob) -> None:
        source = self._staged(place, blob.digest)
        draft = self._staged(place, f"{blob.digest}.{self._entropy.token(8)}")
        if self._is_guest:
            self._left_by_guest.add(draft)
        self._call([("SET", draft, b"", "PX", _STAGED_LIFE_MS)])
        self._write(draft, 0, checked(blob, self._read(source, blob, 0)))
        target = self._keys.stored(blob.digest)
        naming = "RENAMENX" if self._is_guest else "RENAME"
        # The expiry first, because it moves along: whatever happens in between, no object has the short one. A draft
        # that came too late for the name has the long one by then, and nobody would ever collect it.
        _, named, _ = self._call(
            [("PEXPIRE", draft, _OBJECT_LIFE_MS), (naming, draft, target), ("UNLINK", source, draft)]
        )
        if not named and not self.has(blob, renew=True):
            raise ArtifactDamaged(
                f"The broker keeps something else under the name of content {blob.digest[:12]}…",
                "Ask an operator: `tenure artifacts verify`",
            )

    def discard(self, place: Place) -> None:
        """See `Store.discard`."""
        if self._is_guest:
            self._discard_as_guest(self._staged(place, ""))
            return
        for found in self._scan(self._staged(place, _ANY)):
            self._call([("UNLINK", *found)])

    def places(self) -> Iterator[StagedPlace]:
        """See `Store.places`."""
        youngest: dict[Place, int] = {}
        for name, _, age_ms in self._listed(self._keys.staged(_ANY, _ANY), _STAGED, _STAGED_LIFE_MS):
            site, task_id, fence, nonce, _ = name.split(":")
            place = Place(site, task_id, int(fence), nonce)
            youngest[place] = min(age_ms, youngest.get(place, age_ms))
        return (StagedPlace(place, age_ms) for place, age_ms in youngest.items())

    def objects(self) -> Iterator[Stored]:
        """See `Store.objects`."""
        for digest, size, age_ms in self._listed(self._keys.stored(_ANY), _OBJECT, _OBJECT_LIFE_MS):
            yield Stored(Blob(digest=digest, size=size), age_ms)

    def remove(self, digest: str, min_age_ms: int = 0) -> None:
        """See `Store.remove`."""
        key = self._keys.stored(digest)
        left_ms = cast("int", self._call([("PTTL", key)])[0])
        if left_ms == _NO_EXPIRY and min_age_ms:
            self._call([("PEXPIRE", key, _OBJECT_LIFE_MS)])
        elif left_ms <= _OBJECT_LIFE_MS - min_age_ms:
            self._call([("UNLINK", key)])

    def close(self) -> None:
        """See `Store.close`."""
        self._connections.close()

    @property
    def _is_guest(self) -> bool:
        return self._is_site or self._is_person

    def _renewal(self, key: str) -> Command:
        """A site looks how old an object is, a person takes its expiry away, the coordinator begins it anew."""
        if self._is_site:
            return ("PTTL", key)
        return ("PERSIST", key) if self._is_person else ("PEXPIRE", key, _OBJECT_LIFE_MS)

    # --- pieces ---------------------------------------------------------------------------------

    def _staged(self, place: Place, digest: str) -> str:
        return self._keys.staged(f"{place.site}:{place.task_id}:{place.fence}:{place.nonce}", digest)

    def _write(self, key: str, offset: int, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            for start in range(0, len(chunk), _PIECE):
                piece = chunk[start : start + _PIECE]
                self._call([("SETRANGE", key, offset, piece), ("PEXPIRE", key, _STAGED_LIFE_MS)])
                offset += len(piece)

    def _read(self, key: str, blob: Blob, offset: int) -> Iterator[bytes]:
        there, size = self._call([("EXISTS", key), ("STRLEN", key)])
        if not there or cast("int", size) < blob.size:
            raise UnknownArtifact(f"The broker holds no content {blob.digest[:12]}…")
        return self._pieces(key, blob, offset)

    def _pieces(self, key: str, blob: Blob, offset: int) -> Iterator[bytes]:
        while offset < blob.size:
            last = offset + _PIECE - 1
            piece = cast("bytes", self._call([("GETRANGE", key, offset, last)])[0])
            if not piece:
                return
            yield piece
            offset += len(piece)

    def _discard_as_guest(self, prefix: str) -> None:
        """A guest cannot look for what is there; what another process of its own has left is collected in time."""
        if mine := [key for key in tuple(self._left_by_guest) if key.startswith(prefix)]:
            self._call([("UNLINK", *mine)])
            self._left_by_guest.difference_update(mine)

    # --- lists ----------------------------------------------------------------------------------

    def _take_room(self, size: int) -> None:
        """Raises `ArtifactStoreFull`. Counting looks at every key, so what was found is used for a while."""
        with self._counting:
            if size > self._room:
                self._room = self._free()
            if size > self._room:
                raise ArtifactStoreFull(
                    f"The files at the broker at {self._address} would be over {self._total_bytes} bytes together",
                    _REMEDY,
                )
            # Others write there, too: never rely on more than a few contents' worth.
            self._room = min(self._room, _RELIED_ON) - size

    def _free(self) -> int:
        used = sum(size for _, size, _ in self._listed(self._keys.stored(_ANY), _OBJECT, _OBJECT_LIFE_MS))
        used += sum(size for _, size, _ in self._listed(self._keys.staged(_ANY, _ANY), _STAGED, _STAGED_LIFE_MS))
        return self._total_bytes - used

    def _listed(self, pattern: str, name: re.Pattern[str], life_ms: int) -> Iterator[_Found]:
        prefix = len(pattern.partition(_ANY)[0])
        for keys in self._scan(pattern):
            names = [(key, key[prefix:].decode("ascii", "replace")) for key in keys]
            fitting = [(key, text) for key, text in names if name.fullmatch(text)]
            commands = [(command, key) for key, _ in fitting for command in ("STRLEN", "PTTL")]
            answers = cast("list[int]", self._call(commands)) if commands else []
            found = list(zip(fitting, answers[::2], answers[1::2], strict=True))
            if kept := [key for (key, _), _, left_ms in found if left_ms == _NO_EXPIRY]:
                self._call([("PEXPIRE", key, life_ms) for key in kept])
            for (_, text), size, left_ms in found:
                if left_ms != _GONE:
                    yield text, size, 0 if left_ms == _NO_EXPIRY else max(life_ms - left_ms, 0)

    def _scan(self, pattern: str) -> Iterator[list[bytes]]:
        # The namespace's braces mean nothing in a pattern; a name may hold no other signs that do.
        cursor: bytes = b"0"
        seen: set[bytes] = set()
        while True:
            answer = self._call([("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_ONCE)])[0]
            cursor, keys = cast("tuple[bytes, list[bytes]]", answer)
            fresh = [key for key in keys if key not in seen]
            seen.update(fresh)
            if fresh:
                yield fresh
            if cursor == b"0":
                return

    def _call(self, commands: Sequence[Command]) -> list[Reply]:
        with self._translated(), self._connections.lent() as connection:
            answers: list[Answer] = connection.call_all(commands)
            return [connection.checked(answer) for answer in answers]

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except BrokerFull as error:
            raise ArtifactStoreFull(error.message, error.remedy) from error
        except BrokerError as error:
            raise ArtifactStoreUnreachable(error.message, error.remedy) from error


def _is_young(left_ms: int) -> bool:
    return left_ms == _NO_EXPIRY or left_ms >= _OBJECT_LIFE_MS - _YOUNG_MS
