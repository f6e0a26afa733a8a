"""Handlers for tests: plain functions of an importable module."""

import datetime as dt
import os  # the guard against reaching other modules through this one is tested with it
from dataclasses import dataclass
from os import getcwd as borrowed
from threading import Event
from typing import TYPE_CHECKING, Any

import tenure

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = ["borrowed", "os"]


@dataclass(frozen=True)
class Point:
    x: float
    y: tuple[int, int] = (0, 0)


@tenure.task(capability="cpu", lease_ttl="2m", retry=tenure.Retry(lost=2))
def exponent(rho: float, steps: int = 200_000) -> float:
    tenure.current().progress(0.5, "integrating")
    return rho / steps


@tenure.task
async def greet(name: str) -> str:
    return f"hello {name}"


def move(point: Point, *, by: float = 1.0) -> Point:
    return Point(point.x + by, point.y)


def when(day: dt.date, *more: int, **named: str) -> list[Any]:
    return [day, more, named]


def anything(first: Any, second: Any = 2) -> Any:
    return [first, second]


def unresolvable(price: "Decimal") -> None: ...


def uncheckable(handle: Event) -> None: ...


def make_local() -> Any:
    def local() -> None: ...

    return local


class Tools:
    @staticmethod
    def double(value: int) -> int:
        return value * 2

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    def method(self) -> None: ...


nameless = lambda: None  # noqa: E731
NOT_A_FUNCTION = 3
