"""The largest Lyapunov exponent of the Lorenz system, as a handler of Tenure and as a command.

The exponent says how fast two trajectories that start close together part: e-fold per unit of time. Above 0 the system
is chaotic. At the classic parameters (rho = 28, sigma = 10, beta = 8/3) the published value is 0.9056 (J. C. Sprott,
"Chaos and Time-Series Analysis", Oxford University Press, 2003).

Method: G. Benettin, L. Galgani, A. Giorgilli, J.-M. Strelcyn, "Lyapunov characteristic exponents for smooth dynamical
systems and for Hamiltonian systems; a method for computing all of them", Meccanica 15 (1980). The state and one tangent
vector are integrated together (Runge-Kutta, fourth order); the vector is scaled back to length 1 every ten steps, and
the exponent is the mean of the logarithms of what it had grown by.

Run it alone:  python lorenz.py --rho 28
"""

from __future__ import annotations

import argparse
import json
from math import log, sqrt
from typing import TypedDict

import tenure

SCALE_EVERY = 10
TRANSIENT_STEPS = 5_000
REPORTS = 20

State = tuple[float, float, float, float, float, float]


class Exponent(TypedDict):
    """What `exponent` answers."""

    rho: float
    exponent: float
    uncertainty: float
    """Half of how much the running mean still moved over the second half of the trajectory."""
    time: float


def advance(state: State, rho: float, sigma: float, beta: float, dt: float) -> State:
    """One step of state (x, y, z) and tangent vector (u, v, w). Written out: a loop would take five times as long."""
    x, y, z, u, v, w = state
    half, sixth = dt / 2, dt / 6

    a1, b1, c1 = sigma * (y - x), x * (rho - z) - y, x * y - beta * z
    d1, e1, f1 = sigma * (v - u), (rho - z) * u - v - x * w, y * u + x * v - beta * w

    xx, yy, zz = x + half * a1, y + half * b1, z + half * c1
    uu, vv, ww = u + half * d1, v + half * e1, w + half * f1
    a2, b2, c2 = sigma * (yy - xx), xx * (rho - zz) - yy, xx * yy - beta * zz
    d2, e2, f2 = sigma * (vv - uu), (rho - zz) * uu - vv - xx * ww, yy * uu + xx * vv - beta * ww

    xx, yy, zz = x + half * a2, y + half * b2, z + half * c2
    uu, vv, ww = u + half * d2, v + half * e2, w + half * f2
    a3, b3, c3 = sigma * (yy - xx), xx * (rho - zz) - yy, xx * yy - beta * zz
    d3, e3, f3 = sigma * (vv - uu), (rho - zz) * uu - vv - xx * ww, yy * uu + xx * vv - beta * ww

    xx, yy, zz = x + dt * a3, y + dt * b3, z + dt * c3
    uu, vv, ww = u + dt * d3, v + dt * e3, w + dt * f3
    return (
        x + sixth * (a1 + 2 * (a2 + a3) + sigma * (yy - xx)),
        y + sixth * (b1 + 2 * (b2 + b3) + xx * (rho - zz) - yy),
        z + sixth * (c1 + 2 * (c2 + c3) + xx * yy - beta * zz),
        u + sixth * (d1 + 2 * (d2 + d3) + sigma * (vv - uu)),
        v + sixth * (e1 + 2 * (e2 + e3) + (rho - zz) * uu - vv - xx * ww),
        w + sixth * (f1 + 2 * (f2 + f3) + yy * uu + xx * vv - beta * ww),
    )


@tenure.task
def exponent(rho: float, steps: int = 600_000, dt: float = 0.01, sigma: float = 10.0, beta: float = 8 / 3) -> Exponent:
    """The largest Lyapunov exponent over `steps` steps, after a transient that does not count."""
    run = tenure.current()
    state: State = (1.0, 1.0, 1.05, 1.0, 0.0, 0.0)
    for _ in range(TRANSIENT_STEPS):
        state = scaled(advance(state, rho, sigma, beta, dt))[0]
    grown, means = 0.0, []
    chunk = max(SCALE_EVERY, steps // REPORTS)
    for done in range(SCALE_EVERY, steps + 1, SCALE_EVERY):
        for _ in range(SCALE_EVERY):
            state = advance(state, rho, sigma, beta, dt)
        state, length = scaled(state)
        grown += log(length)
        if done % chunk < SCALE_EVERY:
            means.append(grown / (done * dt))
            run.progress(done / steps, f"rho {rho:g}: {means[-1]:.3f}")
    late = means[len(means) // 2 :]
    return {"rho": rho, "exponent": means[-1], "uncertainty": (max(late) - min(late)) / 2, "time": steps * dt}


def scaled(state: State) -> tuple[State, float]:
    """The state with its tangent vector at length 1, and the length that it had."""
    x, y, z, u, v, w = state
    length = sqrt(u * u + v * v + w * w)
    return (x, y, z, u / length, v / length, w / length), length


def main() -> None:
    """Print one exponent as JSON."""
    parser = argparse.ArgumentParser(description="The largest Lyapunov exponent of the Lorenz system.")
    parser.add_argument("--rho", type=float, required=True)
    parser.add_argument("--steps", type=int, default=600_000)
    arguments = parser.parse_args()
    print(json.dumps(exponent(arguments.rho, steps=arguments.steps)))


if __name__ == "__main__":
    main()
