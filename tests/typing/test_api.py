"""What type checkers see of the public names; checked by mypy and pyright, never run."""

from pathlib import Path
from typing import Any, assert_type

import tenure
from tenure import Client, FleetExecutor, Handle, as_completed, current, task, wait
from tenure.client.calls import Call


@task(capability="cpu", lease_ttl="2m", retry=tenure.Retry(lost=2))
def exponent(rho: float, steps: int = 200_000) -> float:
    current().progress(0.5, "integrating")
    return rho / steps


@tenure.task
async def greet(name: str) -> str:
    return name


def decorated_functions_keep_their_types() -> None:
    assert_type(exponent(1.0), float)
    exponent("1.0")  # type: ignore[arg-type]


def submitting_follows_the_function(fleet: Client) -> None:
    assert_type(fleet.submit(exponent, 28.0), Handle[float])
    assert_type(fleet.submit(exponent, 28.0, steps=3).result(), float)
    assert_type(fleet.submit(greet, "you"), Handle[str])
    assert_type(fleet.submit("tasks:exponent", 28.0), Handle[Any])
    assert_type(fleet.using(capability="gpu").submit(exponent, 28.0), Handle[float])
    assert_type(fleet.command(["ls"]), Handle[str])
    assert_type(fleet.command(["ls"], stdin="x", env={"A": "1"}), Handle[str])


def files_are_typed(fleet: Client) -> None:
    given = fleet.using(inputs={"a": "a.csv", "b": Path("b")}, secrets=["token"], limits=tenure.Limits(files=3))
    assert_type(given.command(["train"], form="folder", parameters={"rate": 0.1}), Handle[Any])
    assert_type(fleet.upload("a.csv"), tenure.Blob | tenure.Bundle)
    assert_type(fleet.command(["train"]).outputs, tenure.Bundle | None)
    assert_type(fleet.command(["train"]).download("model"), Path)


def submitting_many_follows_the_function(fleet: Client) -> None:
    assert_type(fleet.map(exponent, [20.0, 24.0]), list[Handle[float]])
    assert_type(fleet.map(greet, ["you"]), list[Handle[str]])
    assert_type(fleet.map("tasks:exponent", [20.0]), list[Handle[Any]])
    assert_type(fleet.using().submit_many([Call(exponent, (1.0,))]), list[Handle[Any]])


def waiting_keeps_the_type(fleet: Client) -> None:
    handles = fleet.map(exponent, [20.0])
    for done in as_completed(handles, timeout=1):
        assert_type(done, Handle[float])
    assert_type(wait(handles).done, list[Handle[float]])
    assert_type(handles[0].fence, int | None)


def the_executor_is_typed(fleet: Client) -> None:
    with FleetExecutor(fleet) as executor:
        assert_type(executor.submit(exponent, 28.0), Handle[float])
        assert_type(list(executor.map(exponent, [28.0])), list[float])


def wrong_calls_are_found(fleet: Client) -> None:
    fleet.submit(exponent, "28")  # type: ignore[call-overload]
    fleet.submit(exponent, stepz=1)  # type: ignore[call-overload]
    fleet.using(capabilty="cpu")  # type: ignore[call-arg]
    task(lease_ttl=1.5)  # type: ignore[call-overload]
