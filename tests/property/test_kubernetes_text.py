"""How names become labels, and values become YAML."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenure.launchers.kubernetes_labels import label_value
from tenure.launchers.yaml_text import yaml_text
from tests.kubernetes_objects import is_label_value, read_yaml


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", fullmatch=True))
def test_every_name_makes_a_label(name: str) -> None:
    assert is_label_value(label_value(name))


texts = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | texts
    | st.sampled_from(["yes", "1e3", "0x1", "~", "- a", "a: b", "'\"", "a\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(texts, values, max_size=3), min_size=1, max_size=3))
def test_what_is_written_as_yaml_is_read_back(documents: list[dict[str, Any]]) -> None:
    assert read_yaml(yaml_text(documents)) == documents
