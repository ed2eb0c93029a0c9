"""The normal law and Black's formula for one number, compiled: :mod:`arbiter.normal` and others.

To a relative 1e-12, prices to 1e-11, as long as nothing underflows.
"""

from __future__ import annotations

import math

from arbiter import black, normal
from arbiter.compiled import compiled


@compiled
def cdf(x: float) -> float:
    """``Φ(x)``, relatively accurate in the left tail."""
    return 0.5 * math.erfc(-normal.ROOT_HALF * x)


@compiled
def log_cdf(x: float) -> float:
    """``log Φ(x)``."""
    if x > 0.0:
        return math.log1p(-cdf(-x))
    if x > -normal._FAR:
        return math.log(cdf(x))
    return math.log(mills(-x)) - 0.5 * x * x - black._LOG_ROOT_2PI


@compiled
def quantile(u: float) -> float:
    """Inverse of :func:`cdf` for ``u ≤ ½``, from 1e-300 up."""
    tau = math.sqrt(-2.0 * math.log(u))
    above = 2.515517 + tau * (0.802853 + tau * 0.010328)  # Abramowitz & Stegun 26.2.23
    x = above / (1.0 + tau * (1.432788 + tau * (0.189269 + tau * 0.001308))) - tau
    for _ in range(2):  # Halley's method: 5e-4, 1e-10, rounding
        off = (cdf(x) - u) * math.exp(0.5 * x * x + black._LOG_ROOT_2PI)
        x -= off / (1.0 + 0.5 * x * off)
    return x


@compiled
def mills(y: float) -> float:
    """Mills ratio ``Φ(−y)/φ(y)``; overflows for y far below zero."""
    if y < normal._FAR:
        return normal.ROOT_HALF_PI * math.erfc(normal.ROOT_HALF * y) * math.exp(0.5 * y * y)
    w = 1.0 / (y * y)
    series = 1.0 - w * (1.0 - 3.0 * w * (1.0 - 5.0 * w * (1.0 - 7.0 * w * (1.0 - 9.0 * w))))
    return series / y


@compiled
def otm(k: float, v: float) -> float:
    """As :func:`arbiter.black.otm`, for ``v > 0``."""
    h, t = abs(k) / v, 0.5 * v
    d = t - h
    density = normal.INV_ROOT_2PI * math.exp(-0.5 * d * d)
    discount = math.exp(min(k, 0.0))
    if v >= black._NARROW:
        if d > 0.0:  # one minus the complement, which is not small
            return discount * (1.0 - density * (mills(d) + mills(h + t)))
        return discount * density * (mills(-d) - mills(h + t))
    # the odd terms of a series about the middle
    near, hh, tt = mills(h), min(h * h, 1e6), t * t
    carried, term = -1.0, h * near - 1.0
    total = term
    for n in (1, 3, 5, 7):
        following = tt / ((n + 1) * (n + 2)) * ((hh + (2 * n + 1)) * term - carried)
        carried, term = tt * term, following
        total += term
    return -2.0 * discount * density * t * total
