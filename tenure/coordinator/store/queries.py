"""Named SQL statements, read from the `.sql` files beside this module.

Each statement follows a line `-- name: <name>` and one or more comment lines that say what it is for. Names are unique
over all files.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MARK: Final = "-- name: "
_PACKAGE: Final = "tenure.coordinator.store"


@cache
def load_queries() -> Mapping[str, str]:
    """Every named statement of the package's `sql` folder, by name.

    Raises:
        ValueError: two statements have one name, or one has no description.
    """
    found: dict[str, str] = {}
    for entry in sorted(resources.files(_PACKAGE).joinpath("sql").iterdir(), key=lambda item: item.name):
        for name, statement in _statements(entry.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"two statements are called {name}")
            found[name] = statement
    return MappingProxyType(found)


def _statements(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(_MARK)[1:]:
        name, _, rest = part.partition("\n")
        lines = rest.strip().splitlines()
        if not lines or not lines[0].startswith("-- "):
            raise ValueError(f"the statement {name} has no description")
        body = "\n".join(line for line in lines if not line.startswith("--"))
        yield name.strip(), body.strip().rstrip(";")


@cache
def load_migrations() -> tuple[tuple[int, str], ...]:
    """The numbered migrations, in order, as (number, script)."""
    folder = resources.files(_PACKAGE).joinpath("migrations")
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return tuple((int(item.name.split("_")[0]), item.read_text(encoding="utf-8")) for item in files)
