"""Fifty submitters at once against one budget, over a real broker and a real coordinator: exactly that is taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tenure.errors import OverBudget
from tenure.protocol.campaign_messages import Budget, CreateCampaign
from tenure.protocol.client_messages import Query
from tests.fixtures_fleet import Fleet, open_fleet
from tests.waiting import wait_until

SUBMITTERS, BUDGET, WANTED = 50, 1_000, 40
"""Together they want twice the budget."""
PATIENCE_MS = 50_000


@pytest.fixture(params=["valkey", "redis"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with open_fleet(tmp_path, (), kind=request.param) as fleet:
        yield fleet


def submit_all(fleet: Fleet, number: int) -> tuple[list[str], list[OverBudget]]:
    """Submit portions of changing size; one that does not fit is tried again as smaller ones, down to single tasks."""
    options = ClientOptions(principal=f"p{number}", campaign="x", patience_ms=PATIENCE_MS)
    admitted: list[str] = []
    refusals: list[OverBudget] = []
    with Client(fleet.url, options=options) as client:
        left, size = WANTED, number % 13 + 4
        while left and size:
            try:
                tasks = client.using(cost=1).map("tests.fixtures_fleet_handlers:anything", range(min(size, left)))
            except OverBudget as error:
                refusals.append(error)
                size //= 2
                continue
            admitted += [task.task_id for task in tasks]
            left -= len(tasks)
    return admitted, refusals


def in_the_database(fleet: Fleet) -> tuple[int, int, int, int]:
    """Tasks, charges, and the campaign's own sums of tasks and cost."""
    with closing(sqlite3.connect(fleet.database)) as database:
        ((tasks,),) = database.execute("SELECT COUNT(*) FROM task").fetchall()
        ((charges,),) = database.execute("SELECT COUNT(*) FROM charge WHERE state = 'RESERVED'").fetchall()
        (sums,) = database.execute("SELECT reserved_tasks, reserved_cost FROM campaign").fetchall()
    return tasks, charges, *sums


def test_fifty_submitters_at_once_are_admitted_exactly_the_budget(fleet: Fleet) -> None:
    budget = Budget(tasks=BUDGET, cost=BUDGET * 1_000)
    fleet.client.ask(CreateCampaign(campaign="x", budget=budget))
    with ThreadPoolExecutor(SUBMITTERS) as submitters:
        outcomes = list(submitters.map(partial(submit_all, fleet), range(SUBMITTERS)))
    admitted = [task_id for tasks, _ in outcomes for task_id in tasks]
    assert len(set(admitted)) == len(admitted) == BUDGET
    assert in_the_database(fleet) == (BUDGET, BUDGET, BUDGET, BUDGET * 1_000)
    refusals = [refusal.message for _, refusals in outcomes for refusal in refusals]
    assert f"campaign 'x' has 0 of {BUDGET} tasks left (0 used, {BUDGET} reserved), and 1 are asked for" in refusals


def test_a_coordinator_that_is_killed_meanwhile_admits_no_task_more_or_less(fleet: Fleet) -> None:
    """What was not answered is asked again under the same keys, and takes nothing twice."""
    fleet.client.ask(CreateCampaign(campaign="x", budget=Budget(tasks=BUDGET)))

    def taken() -> int:
        return int(fleet.client.ask(Query(what="campaigns")).rows[0]["reserved_tasks"])

    with ThreadPoolExecutor(SUBMITTERS) as submitters:
        outcomes = submitters.map(partial(submit_all, fleet), range(SUBMITTERS))
        wait_until(lambda: taken() > BUDGET // 4, "a quarter of the budget is taken", 40)
        fleet.processes["coordinator"].kill()
        fleet.start_coordinator()
        admitted = [task_id for tasks, _ in outcomes for task_id in tasks]
    assert len(set(admitted)) == len(admitted) == BUDGET
    assert in_the_database(fleet)[:3] == (BUDGET, BUDGET, BUDGET)
