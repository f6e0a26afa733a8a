"""The handler that `tenure demo` runs: how chaotic is the Lorenz system?

The largest Lyapunov exponent by the method of Benettin et al. (Meccanica 15, 1980): state and tangent vector are
integrated together (Runge-Kutta, fourth order, step 0.01), and the vector is scaled back to length 1 every ten steps.
`examples/lorenz` in the repository has a richer one.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Final

import tenure

_DT: Final = 0.01
_SIGMA: Final = 10.0
_BETA: Final = 8 / 3
_SCALE_EVERY: Final = 10
_TRANSIENT: Final = 500
_REPORTS: Final = 10

_Six = tuple[float, float, float, float, float, float]


def exponent(rho: float, steps: int = 300_000) -> float:
    """The largest Lyapunov exponent at `rho`; above 0 means chaos."""
    run = tenure.current()
    state: _Six = (1.0, 1.0, 1.05, 1.0, 0.0, 0.0)
    rounds = steps // _SCALE_EVERY
    grown = 0.0
    for done in range(-_TRANSIENT, rounds):
        for _ in range(_SCALE_EVERY):
            state = _step(state, rho)
        x, y, z, u, v, w = state
        length = sqrt(u * u + v * v + w * w)
        state = (x, y, z, u / length, v / length, w / length)
        if done >= 0:
            grown += log(length)
        if done > 0 and done % (rounds // _REPORTS or 1) == 0:
            run.progress(done / rounds)
    return grown / (rounds * _SCALE_EVERY * _DT)


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
