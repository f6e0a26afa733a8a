"""Where a broker is: the one place that reads its URL, and the last one that shows its password.

A URL that came from a file is read again before every connection, so that a credential may be exchanged while its
holders work: the file first, then, when the broker knows the new one, the old one's end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from tenure.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.settings import Settings

_PLAIN: Final = frozenset({"redis", "valkey"})
_ENCRYPTED: Final = frozenset({"rediss", "valkeys"})
_FORMS: Final = "Use redis://user:password@host:6379, rediss://... for TLS, or unix://user:password@/path/to/socket"
_OPTIONS: Final = frozenset(
    {"db", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile"}
)
_OWN_KEY: Final = frozenset({"ssl_certfile", "ssl_keyfile"})
_YES: Final = frozenset({"1", "true", "yes"})
_DEFAULT_PORT: Final = 6379


@final
@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """A broker's URL. It may hold a password, so its text form shows only the address.

    Raises `InvalidSettings` when the URL is none.

    Attributes:
        url: the URL.
        source: the file that it was read from, if any.
        called: what it is called when it cannot be used.
    """

    url: str
    source: Path | None = None
    called: str = field(default="The broker URL", compare=False)

    def __post_init__(self) -> None:
        self.parts()

    def __repr__(self) -> str:
        return f"BrokerUrl({self.address})"

    @classmethod
    def of(cls, settings: Settings) -> BrokerUrl:
        """The broker that the settings name, with the file that names it. Raises `InvalidSettings`."""
        return cls(settings.resolve_broker_url(), settings.broker_url_source())

    def latest(self) -> BrokerUrl:
        """What the file says now; the URL as it is when there is no file, or none that can be used at this moment."""
        if self.source is None:
            return self
        try:
            # A file that is gone or half written is one that somebody is about to replace.
            return BrokerUrl(self.source.read_text(encoding="utf-8").strip().partition("\n")[0].strip(), self.source)
        except (OSError, UnicodeDecodeError, InvalidSettings):
            return self

    @property
    def user(self) -> str:
        """The name of the broker's user; "" when the URL names none."""
        return unquote(self._split().username or "")

    @property
    def address(self) -> str:
        """Host and port, or the path of a socket; fit for messages."""
        split = self._split()
        if split.scheme == "unix":
            return unquote(split.path)
        return f"{split.hostname or 'localhost'}:{split.port or _DEFAULT_PORT}"

    @property
    def encrypted(self) -> bool:
        """Whether the connection is to use TLS."""
        return self._split().scheme in _ENCRYPTED

    def for_user(self, user: str, secret: str, *, with_key: bool = False) -> str:
        """The same broker as this user is told of it: without the options that name files of this host's own key.

        `with_key` leaves them in, for an address that names the files of the host which is to use it.
        """
        split = self._split()
        options = {name: value for name, value in parse_qsl(split.query) if with_key or name not in _OWN_KEY}
        netloc = f"{quote(user, safe='')}:{quote(secret, safe='')}@{_place(split)}"
        return urlunsplit((split.scheme, netloc, split.path, urlencode(options, safe="/"), ""))

    def for_anybody(self) -> str:
        """The same broker as somebody without a name and a secret."""
        split = self._split()
        query = f"?{split.query}" if split.query else ""
        return f"{split.scheme}://{_place(split)}{split.path}{query}"

    def parts(self) -> dict[str, object]:
        """The driver's parameters: `path`, or `host` and `port`; and, where given, user, password, db and ssl_*."""
        split = self._split()
        found: dict[str, object] = dict(parse_qsl(split.query))
        if foreign := sorted(found.keys() - _OPTIONS):
            message = f"{self.called} of {self.address} carries {', '.join(foreign)}"
            raise InvalidSettings(message, f"After the question mark may stand: {', '.join(sorted(_OPTIONS))}")
        if "ssl_check_hostname" in found:
            found["ssl_check_hostname"] = str(found["ssl_check_hostname"]).lower() in _YES
        if split.scheme == "unix":
            found["path"] = unquote(split.path)
        else:
            found |= {"host": split.hostname or "localhost", "port": split.port or _DEFAULT_PORT}
            if split.path.strip("/"):
                found["db"] = split.path.strip("/")
        return found | self._database(found) | _credentials(split)

    def _database(self, found: dict[str, object]) -> dict[str, object]:
        text = str(found.get("db", "0"))
        if not text.isdecimal():
            raise InvalidSettings(f"{self.called} of {self.address} names no database number", _FORMS)
        return {"db": int(text)}

    def _split(self) -> SplitResult:
        try:
            split = urlsplit(self.url)
            known = split.port != 0 and split.scheme in _PLAIN | _ENCRYPTED | {"unix"}
        except ValueError:
            known, split = False, SplitResult("", "", "", "", "")
        if not known or (split.scheme == "unix" and len(split.path) <= 1):
            raise InvalidSettings(f"{self.called} cannot be read", _FORMS) from None
        return split


def _place(split: SplitResult) -> str:
    return split.netloc.rpartition("@")[2]


def _credentials(split: SplitResult) -> dict[str, object]:
    named = {"username": split.username, "password": split.password}
    return {name: unquote(value) for name, value in named.items() if value}
