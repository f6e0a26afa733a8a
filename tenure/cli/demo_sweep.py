"""The demo's first act: a small sweep over a chaotic system, with its progress bar and its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tenure.cli import demo_tasks
from tenure.cli.demo_stage import CAPABILITY, FIRST, LEASE_TTL
from tenure.cli.map_progress import Tally, meter
from tenure.cli.output import Column

if TYPE_CHECKING:
    from tenure.cli.demo_stage import Stage
    from tenure.client.handle import Handle

_RHO: Final = (2.0, 8.0, 14.0, 20.0, 23.0, 25.0, 26.0, 28.0, 30.0, 35.0, 45.0, 60.0, 80.0, 100.0, 125.0, 160.0)
# Enough for an error of about 0.005, and few enough for a machine that is busy with other things.
_STEPS: Final = 80_000
_SLOTS: Final = 2
_CLASSIC: Final = 28.0
_PUBLISHED: Final = 0.9056
_ERROR: Final = 0.01
_CHAOTIC: Final = 0.01

_COLUMNS: Final = (
    Column("RHO", "rho", right=True),
    Column("EXPONENT", "exponent", "{:.3f}".format, right=True),
    Column("BEHAVIOUR", "behaviour"),
)


@final
@dataclass(frozen=True, slots=True)
class Swept:
    """What the sweep found, and how long it took."""

    exponents: dict[float, float]
    took_ms: int

    def problems(self) -> list[str]:
        """What is not as it must be."""
        found = self.exponents.get(_CLASSIC, 0.0)
        missing = [f"{len(_RHO) - len(self.exponents)} results are missing"] if len(self.exponents) < len(_RHO) else []
        wrong = [f"at rho = 28 the exponent is {found:.4f}"] if abs(found - _PUBLISHED) > _ERROR else []
        return missing + wrong

    def facts(self) -> dict[str, Any]:
        """The results, for programs."""
        points = [{"rho": rho, "exponent": value} for rho, value in sorted(self.exponents.items())]
        return {"points": points, "seconds": round(self.took_ms / 1000, 1), "published_at_28": _PUBLISHED}


def sweep(stage: Stage) -> Swept:
    """Start the first worker and let it compute the sweep."""
    stage.say("Act 1. A sweep: how chaotic is the Lorenz system?", bold=True)
    stage.start_worker(FIRST, _SLOTS)
    stage.say(f"A broker, a coordinator and {FIRST} with {_SLOTS} slots run. {len(_RHO)} tasks, one per value of rho:")
    clock = stage.desk.session.clock
    started_ms = clock.elapsed_ms()
    submitter = stage.client.using(capability=CAPABILITY, lease_ttl=LEASE_TTL, run="sweep")
    handles = submitter.map(demo_tasks.exponent, _RHO, [_STEPS] * len(_RHO))
    _watch(stage, handles)
    values = {handle.args[0]: handle.result(0) for handle in handles}
    swept = Swept(values, clock.elapsed_ms() - started_ms)
    _show(stage, swept)
    return swept


def _watch(stage: Stage, handles: list[Handle[float]]) -> None:
    tally = Tally(total=len(handles))
    with meter(tally, stage.desk.session.clock) as bar:

        def all_done() -> bool:
            tally.done = sum(handle.done() for handle in handles)
            bar.show()
            return tally.done == len(handles)

        stage.wait("the sweep", all_done)


def _show(stage: Stage, swept: Swept) -> None:
    output = stage.desk.output
    if output.as_json:
        return
    rows = [
        {"rho": rho, "exponent": value, "behaviour": _behaviour(value)}
        for rho, value in sorted(swept.exponents.items())
    ]
    output.table(_COLUMNS, rows, empty="")
    found = swept.exponents[_CLASSIC]
    stage.say(f"At rho = 28 the largest Lyapunov exponent is {found:.3f}; published is {_PUBLISHED}.")
    accepted = len([row for row in stage.rows("tasks", run="sweep") if row["state"] == "SUCCEEDED"])
    stage.say(f"On record: {accepted} accepted results for {len(rows)} tasks, in {swept.took_ms / 1000:.1f} s.")


def _behaviour(exponent: float) -> str:
    """Neighbouring orbits part, keep their distance, or meet."""
    if exponent > _CHAOTIC:
        return "chaotic"
    return "periodic" if exponent > -_CHAOTIC else "comes to rest"
