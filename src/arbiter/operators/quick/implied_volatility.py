"""Implied volatilities of out-of-the-money prices, compiled: :mod:`..black`.

To a relative 1e-11; NaN where there is none, or a price is next to nothing (:data:`LEAST`).
"""

from __future__ import annotations

import math

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array
from arbiter.operators.quick import scalars
from arbiter.operators.quick.elementary import exp, log, tail
from arbiter.pricing import black

LEAST = 1e-290  # price; near the end of the numbers logarithms are wrong


@compiled
def volatilities(price: Array, k: Array, T: Array, found: Array) -> None:
    """Of prices at log-moneyness k and maturity T, ``(m,)`` each."""
    for i in range(price.size):
        found[i] = implied(price[i], k[i]) / math.sqrt(T[i])


@inlined
def implied(price: float, k: float) -> float:
    """Total volatility of an out-of-the-money price within its bounds; else NaN."""
    above = exp(min(k, 0.0)) - price
    a, upper = abs(k), above < price
    # of the smaller side, whose logarithm is none where a bound is met
    target = log(above if upper else price) - min(k, 0.0)
    guess = _high(a, target) if upper else _low(a, price, target)
    v = _stepped(guess, guess, a, upper, target)
    v = _stepped(v, guess, a, upper, target)
    return v if price > LEAST and above > 0.0 else math.nan


@inlined
def _low(a: float, below: float, target: float) -> float:
    """A guess in the lower half, as :func:`arbiter.pricing.black._guess_total_volatility`."""
    level = max(a, 0.001 * below, 1e-300)
    odds = log(level) + 0.5 * a - target
    growth = max(odds, 0.0) + log(1.0 + exp(-abs(odds)))
    u = 2.0 * growth / (scalars.ROOT_2PI + math.sqrt(2.0 * math.pi + 2.0 * growth))
    x = u / (1.0 + u)
    fit = 0.9979 + x * (0.3141 + x * (-0.8118 + x * (2.8972 - 2.3910 * x)))
    hh = (u * fit) ** 2
    inner = max(hh - a * a / (hh + 8.7), 0.0)
    return level / math.sqrt(0.5 * (hh + math.sqrt(hh * inner)))


@inlined
def _high(a: float, target: float) -> float:
    """A guess in the upper half."""
    m = 1.0 + 1.0 / (1.0 + math.sqrt(a))
    tau = math.sqrt(2.0 * (log(m) - target))
    d = tau - (2.30753 + 0.27061 * tau) / (1.0 + tau * (0.99229 + 0.04481 * tau))
    return d + math.sqrt(d * d + 2.0 * a)


@inlined
def _stepped(v: float, guess: float, a: float, upper: bool, target: float) -> float:
    """One step of fourth order, as in :func:`arbiter.pricing.black._solve_total_volatility`."""
    h, t = a / v, 0.5 * v
    d = t - h
    narrow = v < black.MAX_SERIES_TOTAL_VOLATILITY and not upper
    far, near = tail(h + t), tail(h if narrow else abs(d))
    # beyond the money the ratio is what is left of a whole one
    inside = scalars.ROOT_2PI * exp(0.5 * d * d) - near if upper == (d < 0.0) else near
    wide = inside + far if upper else inside - far
    gap = 2.0 * t * scalars.series(h, t, near) if narrow else wide
    miss = log(gap) - 0.5 * d * d - black.LOG_ROOT_2PI - target
    slope = -v / gap if upper else v / gap
    hh, tt = h * h, t * t
    second = hh - tt - slope
    third = second * (second - slope) - 3.0 * hh - tt
    newton = -miss / slope
    step = newton * (1.0 + 0.5 * second * newton)
    v += v * step / (1.0 + newton * (second + third * newton / 6.0))
    return min(max(v, guess / 1.15), guess * 1.15)
