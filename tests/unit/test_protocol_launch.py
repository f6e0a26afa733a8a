"""What launches are called on their substrates."""

from __future__ import annotations

import re

from tenure.launchers.base import LaunchOrder
from tenure.protocol.launch import launch_name
from tests.stand_in import order

TASK = "01JD0000000000000000000000"


def by(parent: str, given: LaunchOrder) -> str:
    return given.ticket.model_copy(update={"parent": parent}).name


def test_a_launch_has_the_same_name_however_often_it_is_tried() -> None:
    assert order(TASK, 7).ticket.name == order(TASK, 7).ticket.name == launch_name(TASK, 7, "w1")


def test_no_two_launches_have_one_name() -> None:
    """Not those of two parents of one assignment either: each would end what the other one has started."""
    given = order(TASK, 7)
    names = {by("w1", given), by("w2", given), by("w1", order(TASK, 8)), by("w1", order(TASK.replace("1", "2"), 7))}
    assert len(names) == 4


def test_a_name_fits_every_substrate() -> None:
    name = launch_name("Z" * 26, 10**16 - 1, "p" * 64)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) == 60
