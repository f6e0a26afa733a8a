"""Plain values as YAML, for people to read and `kubectl` to apply.

Only what has one meaning in every version of YAML is written without quotes; any other text stands in
quotes: double ones, or single ones where it holds double ones. It is written here, so that a plan can be shown where no
YAML library is installed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Sized

_PLAIN: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_./@:-]*[A-Za-z0-9_/@-])?")
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_STEP: Final = "  "


def yaml_text(documents: Iterable[Any]) -> str:
    """The documents, one after the other: dicts with text keys, lists, tuples, texts, whole numbers, bools, None."""
    return "---\n".join("\n".join(_lines(document, "")) + "\n" for document in documents)


def _lines(value: object, indent: str) -> Iterator[str]:
    if not _has_items(value):
        yield indent + _scalar(value)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            yield from _entry(f"{indent}{_scalar(key)}:", item, indent)
    else:
        for item in cast("Sequence[object]", value):
            yield from _item(item, indent)


def _has_items(value: object) -> bool:
    return isinstance(value, (dict, list, tuple)) and bool(cast("Sized", value))


def _entry(head: str, item: object, indent: str) -> Iterator[str]:
    if _has_items(item):
        yield head
        yield from _lines(item, indent + _STEP)
    else:
        yield f"{head} {_scalar(item)}"


def _item(item: object, indent: str) -> Iterator[str]:
    first, *rest = _lines(item, indent + _STEP)
    yield f"{indent}- {first[len(indent) + len(_STEP) :]}"
    yield from rest


def _scalar(value: object) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        if '"' in value and value.isascii() and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        return '"' + "".join(map(_escaped, value)) + '"'
    # What has items never comes here.
    return json.dumps(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
