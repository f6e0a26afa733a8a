"""A mutant: the package with one of the protocol's own rules broken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

PACKAGE: Final = Path(__file__).parents[2] / "tenure"


@final
@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `old`, which is in `file` exactly once, by `new`. `file` is relative to the package."""

    file: str
    old: str
    new: str

    def count(self, package: Path = PACKAGE) -> int:
        """How often the old text is in the file."""
        return (package / self.file).read_text(encoding="utf-8").count(self.old)

    def apply(self, package: Path) -> None:
        """Make the replacement in a copy of the package."""
        path = package / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.old, self.new), encoding="utf-8")


@final
@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule. Where two places hold a rule, both are broken, for one of them alone would change nothing."""

    name: str
    rule: str
    edits: tuple[Edit, ...]


def mutant(name: str, rule: str, file: str, old: str, new: str) -> Mutant:
    """A mutant with one edit."""
    return Mutant(name, rule, (Edit(file, old, new),))
