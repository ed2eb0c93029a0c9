"""The normal law and Black's formula for one number, compiled: :mod:`.normal` and others.

To a relative 1e-13, prices to 1e-11, as long as nothing underflows.
"""

from __future__ import annotations

import math

from arbiter.compiled import inlined
from arbiter.operators.quick.elementary import exp, log, tail
from arbiter.pricing import black, normal

ROOT_2PI = 1.0 / normal.INV_ROOT_2PI


@inlined
def pdf(x: float) -> float:
    """``φ(x)``."""
    return normal.INV_ROOT_2PI * exp(-0.5 * x * x)


@inlined
def cdf(x: float) -> float:
    """``Φ(x)``, relatively accurate in the left tail."""
    small = pdf(x) * tail(abs(x))
    return small if x < 0.0 else 1.0 - small


@inlined
def quantile(u: float) -> float:
    """Inverse of :func:`cdf` for ``u ≤ ½``, from 1e-300 up."""
    tau = math.sqrt(-2.0 * log(u))
    above = 2.515517 + tau * (0.802853 + tau * 0.010328)  # Abramowitz & Stegun 26.2.23
    x = tau - above / (1.0 + tau * (1.432788 + tau * (0.189269 + tau * 0.001308)))
    # Halley's method: 5e-4, 1e-10, rounding
    off = tail(x) - u * ROOT_2PI * exp(0.5 * x * x)
    x += off / (1.0 - 0.5 * x * off)
    off = tail(x) - u * ROOT_2PI * exp(0.5 * x * x)
    x += off / (1.0 - 0.5 * x * off)
    return -x


@inlined
def mills(y: float) -> float:
    """Mills ratio ``Φ(−y)/φ(y)``; grows like ``√2π e^{y²/2}`` below zero, as far as that goes."""
    right = tail(abs(y))
    return right if y >= 0.0 else ROOT_2PI * exp(0.5 * y * y) - right


@inlined
def otm(k: float, v: float) -> float:
    """As :func:`arbiter.pricing.black.otm`, for ``v > 0``."""
    h, t = abs(k) / v, 0.5 * v
    return exp(min(k, 0.0)) * call(h, t)


@inlined
def call(h: float, t: float) -> float:
    """Of the side out of the money at ``h = |k|/v``, over its strike; ``t = v/2``."""
    d = t - h
    narrow = t < 0.5 * black.MAX_SERIES_TOTAL_VOLATILITY
    density, far, near = pdf(d), tail(h + t), tail(h if narrow else abs(d))
    # one minus the complement, which is not small, or a difference of two tails
    wide = 1.0 - density * (near + far) if d > 0.0 else density * (near - far)
    return 2.0 * density * t * series(h, t, near) if narrow else wide


@inlined
def series(h: float, t: float, near: float) -> float:
    """``(R(h − t) − R(h + t))/2t`` for small t, ``near = R(h)``; as :mod:`..pricing.black`."""
    hh, tt = min(h * h, 1e6), t * t
    first = 1.0 - h * near
    second = tt / 6.0 * ((hh + 3.0) * first - 1.0)
    third = tt / 20.0 * ((hh + 7.0) * second - tt * first)
    fourth = tt / 42.0 * ((hh + 11.0) * third - tt * second)
    fifth = tt / 72.0 * ((hh + 15.0) * fourth - tt * third)
    return first + second + third + fourth + fifth
