"""The handlers that `tenure demo` runs: how chaotic is the Lorenz system, and what does its orbit look like?

The largest Lyapunov exponent by the method of Benettin et al. (Meccanica 15, 1980): state and tangent vector are
integrated together (Runge-Kutta, fourth order, step 0.01), and the vector is scaled back to length 1 every ten steps.
`examples/lorenz` in the repository has a richer one.
"""

from __future__ import annotations

import json
from hashlib import sha256
from math import log, sqrt
from pathlib import Path
from typing import Final

import tenure

_DT: Final = 0.01
_SIGMA: Final = 10.0
_BETA: Final = 8 / 3
_SCALE_EVERY: Final = 10
_TRANSIENT: Final = 500
_REPORTS: Final = 10
_POINTS: Final = 500
_LOOK_EVERY: Final = 500

_Six = tuple[float, float, float, float, float, float]
_START: Final[_Six] = (1.0, 1.0, 1.05, 1.0, 0.0, 0.0)


def exponent(rho: float, steps: int = 300_000, enough: str = "") -> float:
    """The largest Lyapunov exponent at `rho`; above 0 means chaos.

    With `enough` it goes on beyond `steps` until a file of that name is there.
    """
    run = tenure.current()
    rounds = steps // _SCALE_EVERY
    portion = max(1, rounds // _REPORTS)
    state, _ = _grown(_START, rho, _TRANSIENT)
    done, grown = 0, 0.0
    while done < rounds or (enough and not Path(enough).exists()):
        state, more = _grown(state, rho, portion)
        done, grown = done + portion, grown + more
        if done < rounds:
            run.progress(done / rounds)
    return grown / (done * _SCALE_EVERY * _DT)


@tenure.task(files=True)
def record(rho: float, enough: str) -> dict[str, str]:
    """Write down an orbit, then count on which wing it is until the file `enough` is there.

    Answers the digest of each file that it leaves. How far the count comes is up to the moment, so no other run of this
    task leaves the same files.
    """
    run = tenure.current()
    state = _START
    lines = ["t,x,y,z"]
    for point in range(_POINTS):
        lines.append(f"{point * _DT:.2f},{state[0]:.6f},{state[1]:.6f},{state[2]:.6f}")
        state = _step(state, rho)
    orbit, wings = run.outputs / "orbit.csv", run.outputs / "wings.json"
    orbit.write_text("\n".join(lines) + "\n", encoding="ascii")
    run.progress(0.5, "the orbit is written down")
    steps = right = 0
    while steps == 0 or not Path(enough).exists():
        for _ in range(_LOOK_EVERY):
            state = _step((*state[:3], 1.0, 0.0, 0.0), rho)
            right += state[0] > 0
        steps += _LOOK_EVERY
    wings.write_text(json.dumps({"steps": steps, "right": right}) + "\n", encoding="ascii")
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in (orbit, wings)}


def _grown(state: _Six, rho: float, rounds: int) -> tuple[_Six, float]:
    """Where the orbit is after so many rounds, and the logarithm of what the tangent vector has grown by."""
    grown = 0.0
    for _ in range(rounds):
        for _ in range(_SCALE_EVERY):
            state = _step(state, rho)
        x, y, z, u, v, w = state
        length = sqrt(u * u + v * v + w * w)
        state = (x, y, z, u / length, v / length, w / length)
        grown += log(length)
    return state, grown


def _step(s: _Six, rho: float) -> _Six:
    k1 = _slope(s, rho)
    k2 = _slope(_moved(s, k1, _DT / 2), rho)
    k3 = _slope(_moved(s, k2, _DT / 2), rho)
    k4 = _slope(_moved(s, k3, _DT), rho)
    h = _DT / 6
    return (
        s[0] + h * (k1[0] + 2 * (k2[0] + k3[0]) + k4[0]),
        s[1] + h * (k1[1] + 2 * (k2[1] + k3[1]) + k4[1]),
        s[2] + h * (k1[2] + 2 * (k2[2] + k3[2]) + k4[2]),
        s[3] + h * (k1[3] + 2 * (k2[3] + k3[3]) + k4[3]),
        s[4] + h * (k1[4] + 2 * (k2[4] + k3[4]) + k4[4]),
        s[5] + h * (k1[5] + 2 * (k2[5] + k3[5]) + k4[5]),
    )


def _slope(s: _Six, rho: float) -> _Six:
    x, y, z, u, v, w = s
    return (
        _SIGMA * (y - x),
        x * (rho - z) - y,
        x * y - _BETA * z,
        _SIGMA * (v - u),
        (rho - z) * u - v - x * w,
        y * u + x * v - _BETA * w,
    )


def _moved(s: _Six, k: _Six, h: float) -> _Six:
    return (s[0] + h * k[0], s[1] + h * k[1], s[2] + h * k[2], s[3] + h * k[3], s[4] + h * k[4], s[5] + h * k[5])
