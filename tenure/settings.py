"""The one place that reads settings: arguments, then `TENURE_*` variables, then `tenure.toml`, then defaults.

`load_settings` merges the four, validates the whole once and answers a frozen value that is passed down; nothing else
in the package reads the environment. An error names the place that the bad value came from, and never repeats an
address, because an address may hold a password.

The broker's address is found in this order: an address or a file that was given, in the order above; else the file
that `tenure up` leaves in the data folder, so that a second terminal needs no setting at all.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast, final
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from tenure.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SETTINGS_FILE: Final = "tenure.toml"
BROKER_URL_FILE: Final = "broker.url"
"""The name of the file in which a part that starts a broker leaves its address, readable by its owner only."""

BROKER_STORE: Final = "broker:"
"""The address of the store at the broker itself, for small files."""

_SCHEMES: Final = frozenset({"redis", "rediss", "unix", "valkey", "valkeys"})
_FORMS: Final = "redis://host:6379/0, rediss://host:6380/0 or unix:///path/to/socket"
_STORAGE_VARIABLES: Final = (
    *("AWS_", "AZURE_STORAGE_", "FSSPEC_", "GOOGLE_", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("REQUESTS_CA_BUNDLE", "SSL_CERT_", "STORAGE_EMULATOR_HOST", "https_proxy", "http_proxy", "no_proxy"),
)
_STORE_FORMS: Final = f"{BROKER_STORE}, /srv/files, file:///srv/files or s3://bucket/prefix"
_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
_SITE: Final = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,31}$"
_MAX_OPTIONS_BYTES: Final = 65_536
_ADDRESS: Final = frozenset({"broker_url", "broker_url_file"})
_PATHS: Final = frozenset({"broker_url_file", "data_dir", "artifacts_options_file"})


def _expanded(path: Path) -> Path:
    return path.expanduser().absolute()


def _default_data_dir() -> Path:
    return user_data_path("tenure", appauthor=False)


def _person() -> str:
    """The name of the account, from the user database: variables such as USER are the caller's to set."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def _store_address(address: str) -> str:
    """An address as other hosts may be told it: a folder as an absolute path, a URL as it is, and never a password."""
    if address == BROKER_STORE:
        return address
    if "://" not in address:
        return str(_expanded(Path(address)))
    try:
        parts = urlsplit(address)
        holds_secret = parts.username is not None or parts.password is not None
    except ValueError:
        raise ValueError(f"an address looks like {_STORE_FORMS}") from None
    if holds_secret:
        # Every worker and client is told the address.
        raise ValueError("a store's address may hold no name or password: put them into artifacts_options_file")
    return address


_Folder = Annotated[Path, AfterValidator(_expanded)]
_Store = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_store_address)]
_Name = Annotated[str, Field(pattern=_NAME)]
_SiteName = Annotated[str, Field(pattern=_SITE)]


@final
class Settings(BaseSettings):
    """Everything that a part of Tenure may be told from outside. Build it with `load_settings`."""

    model_config = SettingsConfigDict(env_prefix="TENURE_", frozen=True, extra="forbid", hide_input_in_errors=True)

    broker_url: SecretStr | None = None
    """Address of the broker; secret, because it may hold a password."""
    broker_url_file: _Folder | None = None
    """File that holds the address, for passwords that belong on no command line."""
    namespace: _Name = "main"
    """The fleet's name on the broker; one namespace has one coordinator."""
    data_dir: _Folder = Field(default_factory=_default_data_dir)
    """Where the parts on this host keep their files."""
    site: _SiteName = "default"
    """The site that workers on this host belong to; "default" is that of their credential, if they have one."""
    principal: Annotated[str, Field(max_length=200)] = Field(default_factory=_person)
    """Who asks; recorded with submissions and decisions."""
    campaign: _Name | None = None
    """The campaign that submissions count against when they name no other."""
    answer_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """How long to wait for a coordinator's answer."""
    artifacts: _Store | None = None
    """Where files are kept, as seen from this host; None: where the coordinator says."""
    artifacts_options_file: _Folder | None = None
    """File with the store's own options (endpoint, key, secret) as a JSON object, readable by its owner only."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic calls this by keyword
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed in: the layers are merged by `load_settings`, which knows where each value came from."""
        return (init_settings,)

    @property
    def up_dir(self) -> Path:
        """The data folder of `tenure up` when it is given none."""
        return self.data_dir / "up"

    def broker_url_source(self) -> Path | None:
        """The file that the broker's address is read from; None when the address itself was given, or none at all."""
        if self.broker_url is not None:
            return None
        if self.broker_url_file is not None:
            return self.broker_url_file
        left_by_up = self.up_dir / BROKER_URL_FILE
        return left_by_up if left_by_up.exists() else None

    def resolve_broker_url(self) -> str:
        """The broker's address, read from its file when it is kept in one.

        Raises:
            InvalidSettings: there is none, it cannot be read, or it is no broker's address.
        """
        if self.broker_url is not None:
            return _checked_url(self.broker_url.get_secret_value(), "broker_url")
        source = self.broker_url_source()
        if source is None:
            raise InvalidSettings(
                "no broker is known",
                "Start a fleet with `tenure up`, or set TENURE_BROKER_URL or TENURE_BROKER_URL_FILE",
            )
        return _checked_url(_first_line(source), str(source))

    def artifacts_options(self) -> dict[str, Any]:
        """The options of the store, read from their file; empty when there is none.

        Raises:
            InvalidSettings: the file cannot be read, others may read it, or it holds no JSON object.
        """
        path = self.artifacts_options_file
        return {} if path is None else _read_options(path)


def load_settings(*, settings_file: Path | None = None, **overrides: object) -> Settings:
    """Merge and check all settings; an override of None counts as not given.

    Raises:
        InvalidSettings: a value does not fit, a name is unknown, or the settings file cannot be read.
    """
    layers = _layers(settings_file, {name: value for name, value in overrides.items() if value is not None})
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    broker_is_set = False
    for place, values in layers:
        broker_here = _ADDRESS & values.keys()
        if broker_here == _ADDRESS:
            raise InvalidSettings(f"{place} gives both broker_url and broker_url_file", "Give one of the two")
        for name, value in values.items():
            # A file named on the command line must win over an address in the environment, not lose to it.
            if name in merged or (broker_is_set and name in broker_here):
                continue
            merged[name], origins[name] = value, place
        broker_is_set = broker_is_set or bool(broker_here)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise _explained(error, origins) from None
    if settings.broker_url is not None:
        # Here already, because only here it is known where a wrong one came from.
        _checked_url(settings.broker_url.get_secret_value(), f"broker_url, as given by {origins['broker_url']},")
    return settings


def broker_url(*, settings_file: Path | None = None, **overrides: object) -> str:
    """The broker's address by the same rules, for programs that need nothing else. Raises `InvalidSettings`."""
    return load_settings(settings_file=settings_file, **overrides).resolve_broker_url()


def inherited_environment(names: tuple[str, ...]) -> dict[str, str]:
    """Those of the named variables that are set, for a part that passes on an allow-list."""
    return {name: os.environ[name] for name in names if name in os.environ}


def storage_environment() -> dict[str, str]:
    """The variables by which libraries of object stores find keys, endpoints and proxies, for a porter."""
    return {name: value for name, value in os.environ.items() if name.startswith(_STORAGE_VARIABLES)}


def adopt_environment(variables: Mapping[str, str]) -> None:
    """Give this process variables that it was told in a safer way than through its environment."""
    os.environ.update(variables)


def _layers(settings_file: Path | None, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "an argument", arguments
    from_environment = EnvSettingsSource(Settings, env_ignore_empty=True)()
    for name, value in from_environment.items():
        if name not in _ADDRESS:
            yield f"the variable TENURE_{name.upper()}", {name: value}
    address: dict[str, Any] = {name: value for name, value in from_environment.items() if name in _ADDRESS}
    if address:
        yield f"the variable {' and '.join(f'TENURE_{name.upper()}' for name in address)}", address
    path = settings_file or Path(SETTINGS_FILE)
    if settings_file is not None or path.exists():
        yield str(path), _read_toml(path)


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the settings file {path} is not TOML: {error}") from error
    # Relative to the file, so that a settings file means the same from every folder.
    for name in _PATHS & values.keys():
        if isinstance(values[name], str):
            values[name] = path.parent / Path(values[name]).expanduser()
    store = values.get("artifacts")
    if isinstance(store, str) and store not in {"", BROKER_STORE} and "://" not in store:
        values["artifacts"] = str(path.parent / Path(store).expanduser())
    return values


def _read_options(path: Path) -> dict[str, Any]:
    name = f"the store's options file {path}"
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(_MAX_OPTIONS_BYTES + 1)
    except OSError as error:
        raise InvalidSettings(f"{name} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidSettings(f"{name} is open to others than its owner", f"chmod 600 {path}")
    try:
        found: object = json.loads(raw) if len(raw) <= _MAX_OPTIONS_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        # What is in it is not repeated: it holds secrets.
        raise InvalidSettings(f"{name} holds no JSON object", 'It looks like {"key": "...", "secret": "..."}')
    return cast("dict[str, Any]", found)


def _explained(error: ValidationError, origins: Mapping[str, str]) -> InvalidSettings:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    place = origins.get(name, "an argument")
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(Settings.model_fields))
        return InvalidSettings(f"{place} holds an unknown setting, {name!r}", f"Known settings are: {known}")
    return InvalidSettings(f"{name} does not fit, as given by {place}: {first['msg']}")


def _first_line(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidSettings(
            f"the broker's address cannot be read from {path}: {error.strerror}",
            "`tenure up` and `tenure broker` write it while they run; for another broker give --broker-url-file",
        ) from error
    if not text:
        raise InvalidSettings(f"{path} holds no broker's address", f"Write one line into it: {_FORMS}")
    return text.splitlines()[0].strip()


def _checked_url(url: str, place: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _SCHEMES and bool(parts.path if parts.scheme == "unix" else parts.hostname)
        valid = valid and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise InvalidSettings(f"{place} is not the address of a broker", f"An address looks like {_FORMS}")
    return url
