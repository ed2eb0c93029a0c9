"""Black's formula in forward units and its inverse.

Glossary: ``k = log κ`` log-strike, ``a = |k|``, ``v = σ√T`` total volatility, prices undiscounted
and divided by the forward, ``h = a/v``, ``t = v/2``, ``d = t − h``, ``φ Φ R`` as in
:mod:`arbiter.pricing.normal`. The side out of the money is always priced directly:
``otm = min(1, κ)·C(a, v)``, where ``C`` is the call at log-strike ``a ≥ 0``:

    C = φ(d) (R(h − t) − R(h + t)),    1 − C = φ(d) (R(t − h) + R(t + h)).

The first is accurate far in the wings, the second near the upper bound; docs/black.md derives
the rest and states how accurate the inverse is.
"""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array
from arbiter.pricing.elementary import exp, log, tail
from arbiter.pricing.normal import (
    INV_ROOT_2PI,
    MAX_SERIES_WIDTH,
    ROOT_2PI,
    cdf_of,
    narrow_series,
    pdf,
    to_row,
)

SIDES = ("otm", "call", "put")

# R(h−t) − R(h+t) is summed as a Taylor series in t below this v, where the plain difference
# would lose digits; above it, it loses at most a factor 12 of the rounding at the money.
MAX_SERIES_TOTAL_VOLATILITY = MAX_SERIES_WIDTH
LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)
MAX_DEVIATIONS = 1e150  # squares of h and t have to stay finite
_MIN_NORMAL = 1e-300  # below it the quick logarithm is wrong
_EPS = float(np.finfo(np.float64).eps)
_POINTS_PER_BLOCK = 512  # intermediate numbers stay in the nearest cache
_NEAR_BOUND_VOLATILITY = 8.0  # total volatility from which prices may round to their upper bound
_NEAR_BOUND = 1e-6  # share of a price: one as near to its upper bound needs every digit of that
_STEPS = 2  # from a guess within 10 % the first step leaves 1e-4 and the second rounding
MAX_GUESS_ERROR = 1.15  # ratio of the answer to the first guess, or its inverse, at most


class Reason(enum.IntEnum):
    """Outcome of an implied volatility: solved, or the reason why there is none."""

    OK = 0
    BELOW_INTRINSIC = 1
    AT_INTRINSIC = 2
    ABOVE_MAXIMUM = 3
    NOT_FINITE = 4

    def explain(self) -> str:
        """The outcome as a sentence, with the remedy."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.OK: "The price lies strictly between its bounds.",
    Reason.BELOW_INTRINSIC: "Below intrinsic value, an arbitrage: check the forward and discount.",
    Reason.AT_INTRINSIC: (
        "Equal to intrinsic value up to rounding, so the volatility cannot be told from zero: "
        "use the out-of-the-money option of the same strike."
    ),
    Reason.ABOVE_MAXIMUM: (
        "At or above the upper bound, one for a call and K/F for a put: check the units, prices "
        "are undiscounted and divided by the forward."
    ),
    Reason.NOT_FINITE: "The price or the log-strike is NaN or infinite: drop the quote.",
}


class Implied(NamedTuple):
    """Total volatilities, NaN where there is none, and the :class:`Reason` codes (int8)."""

    volatility: Array
    reason: NDArray[np.int8]


@inlined
def otm_price(k: float, v: float) -> float:
    """:func:`otm` of one number, for ``v > 0``."""
    h, t = min(abs(k) / v, MAX_DEVIATIONS), min(0.5 * v, MAX_DEVIATIONS)
    d = t - h
    narrow = v < MAX_SERIES_TOTAL_VOLATILITY
    density, far, near = pdf(d), tail(h + t), tail(h if narrow else abs(d))
    # One minus the complement, which is not small and cannot exceed the bound, or a difference.
    wide = 1.0 - density * (near + far) if d > 0.0 else density * (near - far)
    return exp(min(k, 0.0)) * (2.0 * density * t * narrow_series(h, t, near) if narrow else wide)


@inlined
def total_vega(k: float, v: float) -> float:
    """:func:`vega` of one number, for ``v > 0``."""
    return pdf(0.5 * v - k / v)


@compiled
def _fill_otm(k: Array, v: Array, out: Array) -> None:
    for i in range(k.size):
        out[i] = otm_price(k[i], v[i])
    for i in range(k.size):
        if not (v[i] > 0.0 and abs(k[i]) < math.inf):  # worth nothing
            out[i] = 0.0 if v[i] >= 0.0 and not math.isnan(k[i]) else math.nan
        elif v[i] > _NEAR_BOUND_VOLATILITY:  # the bound itself is to be the library's e^k
            out[i] = otm_price(abs(k[i]), v[i]) * math.exp(min(k[i], 0.0))


@compiled
def _fill_vega(k: Array, v: Array, out: Array) -> None:
    for i in range(k.size):
        if v[i] > 0.0:
            out[i] = total_vega(k[i], v[i])
        elif v[i] == 0.0:
            out[i] = k[i] if math.isnan(k[i]) else (INV_ROOT_2PI if k[i] == 0.0 else 0.0)
        else:
            out[i] = math.nan


@inlined
def _guess_low(a: float, below: float, target: float) -> float:
    """A total volatility in the lower half, within 10 % of the answer.

    Bachelier's formula is inverted by a rational fit (0.2 %), and its moneyness mapped to Black's;
    the map solves ``h²/2 + v²/8 = N`` far from the money.
    """
    # at the money only the ratio a/C matters, and any small one will do (but not log 0)
    distance = max(a, 0.001 * below, _MIN_NORMAL)
    odds = log(distance) + 0.5 * a - target
    growth = max(odds, 0.0) + log(1.0 + exp(-abs(odds)))
    u = 2.0 * growth / (ROOT_2PI + math.sqrt(2.0 * math.pi + 2.0 * growth))
    x = u / (1.0 + u)
    fit = 0.9979 + x * (0.3141 + x * (-0.8118 + x * (2.8972 - 2.3910 * x)))
    hh = (u * fit) ** 2
    inner = max(hh - a * a / (hh + 8.7), 0.0)
    return distance / math.sqrt(0.5 * (hh + math.sqrt(hh * inner)))


@inlined
def _guess_high(a: float, target: float) -> float:
    """A total volatility in the upper half: ``1 − C = m Φ(−d)`` with m between one and two.

    The quantile is Abramowitz & Stegun 26.2.22.
    """
    m = 1.0 + 1.0 / (1.0 + math.sqrt(a))
    tau = math.sqrt(2.0 * (log(m) - target))
    d = tau - (2.30753 + 0.27061 * tau) / (1.0 + tau * (0.99229 + 0.04481 * tau))
    return d + math.sqrt(d * d + 2.0 * a)


@inlined
def _householder_step(v: float, guess: float, a: float, upper: bool, target: float) -> float:
    """One step of fourth order on ``log C``, or on ``log(1 − C)`` in the upper half.

    In units of ``log v`` all derivatives follow from ``∂C/∂v = φ(d)``, so a step costs one
    evaluation. No step leaves the bracket of the guess, inside which the answer lies.
    """
    h, t = a / v, 0.5 * v
    d = t - h
    narrow = v < MAX_SERIES_TOTAL_VOLATILITY and not upper
    far, near = tail(h + t), tail(h if narrow else abs(d))
    # beyond the money the ratio is what is left of a whole one
    inside = ROOT_2PI * exp(0.5 * d * d) - near if upper == (d < 0.0) else near
    wide = inside + far if upper else inside - far
    gap = 2.0 * t * narrow_series(h, t, near) if narrow else wide
    miss = log(gap) - 0.5 * d * d - LOG_ROOT_2PI - target
    slope = -v / gap if upper else v / gap
    hh, tt = h * h, t * t
    second = hh - tt - slope
    third = second * (second - slope) - 3.0 * hh - tt
    newton = -miss / slope
    step = newton * (1.0 + 0.5 * second * newton)
    v += v * step / (1.0 + newton * (second + third * newton / 6.0))
    return min(max(v, guess / MAX_GUESS_ERROR), guess * MAX_GUESS_ERROR)


@compiled
def _measure_bounds(side: int, k: float, price: float) -> tuple[float, float, float]:
    """Distances of a price from its lower and upper bound, and the rounding of the first."""
    if side == 0:
        return price, math.exp(min(k, 0.0)) - price, 0.0
    if side == 1:
        low = -math.expm1(min(k, 0.0))
        return price - low, 1.0 - price, _EPS * low
    low = math.expm1(max(k, 0.0))
    return price - low, math.exp(k) - price, _EPS * low


@compiled
def _measure_targets(
    side: int, quotes: tuple[Array, Array], below: Array, above: Array, target: Array
) -> None:
    """Distances of prices at log-strikes from both bounds, and what the solver meets.

    That is the logarithm of the smaller distance, less ``min(k, 0)``.
    """
    own, strike = quotes
    count = own.size
    if side == 0:
        for i in range(count):
            below[i], above[i] = own[i], exp(min(strike[i], 0.0)) - own[i]
            target[i] = log(min(below[i], above[i])) - min(strike[i], 0.0)
    else:
        for i in range(count):
            below[i], above[i], _ = _measure_bounds(side, strike[i], own[i])
            target[i] = log(min(below[i], above[i])) - min(strike[i], 0.0)
    for i in range(count):
        if above[i] < _NEAR_BOUND * below[i]:
            above[i] = _measure_bounds(side, strike[i], own[i])[1]
            target[i] = math.log(above[i]) - min(strike[i], 0.0) if above[i] > 0.0 else 0.0
        elif 0.0 < below[i] < _MIN_NORMAL:
            target[i] = math.log(below[i]) - min(strike[i], 0.0)


@compiled
def _fill_implied(price: Array, k: Array, side: int, out: Array, reason: NDArray[np.int8]) -> None:
    below, above = np.empty(_POINTS_PER_BLOCK), np.empty(_POINTS_PER_BLOCK)
    guess, target = np.empty(_POINTS_PER_BLOCK), np.empty(_POINTS_PER_BLOCK)
    for first in range(0, k.size, _POINTS_PER_BLOCK):
        count = min(_POINTS_PER_BLOCK, k.size - first)
        own, strike, found = price[first : first + count], k[first : first + count], out[first:]
        _measure_targets(side, (own, strike), below, above, target)
        for i in range(count):
            a, upper = abs(strike[i]), above[i] < below[i]
            guess[i] = _guess_high(a, target[i]) if upper else _guess_low(a, below[i], target[i])
            found[i] = guess[i]
        for _ in range(_STEPS):
            for i in range(count):
                a, upper = abs(strike[i]), above[i] < below[i]
                found[i] = _householder_step(found[i], guess[i], a, upper, target[i])
        for i in range(count):
            if not (below[i] > 0.0 and above[i] > 0.0 and found[i] > 0.0 and side == 0):
                code = _find_reason(side, strike[i], own[i])
                reason[first + i] = code
                if code:
                    found[i] = math.nan


@compiled
def _find_reason(side: int, k: float, price: float) -> int:
    """The :class:`Reason` of one price."""
    if not abs(price + k) < math.inf:  # a sum is finite only if both its terms are
        return 4
    below, above, rounding = _measure_bounds(side, k, price)
    if below < -rounding:
        return 1
    if below <= rounding:
        return 2
    return 3 if above <= 0.0 else 0


def _broadcast_flat(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array, tuple[int, ...]]:
    """Both arguments as rows of one length in C order, and the shape that they stand for."""
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != two.shape:
        one, two = np.broadcast_arrays(one, two)
    return to_row(one), to_row(two), one.shape


def call_parity(k: ArrayLike) -> Array:
    """Call minus out-of-the-money price: ``1 − κ`` below the forward, else zero."""
    return np.asarray(-np.expm1(np.minimum(k, 0.0)))


def put_parity(k: ArrayLike) -> Array:
    """Put minus out-of-the-money price: ``κ − 1`` from the forward up, else zero."""
    with np.errstate(over="ignore"):  # at strikes past 1e308 forwards the price is infinite
        return np.asarray(np.expm1(np.maximum(k, 0.0)))


def otm(k: ArrayLike, v: ArrayLike) -> Array:
    """Price the side out of the money: the call for ``k ≥ 0``, the put for ``k < 0``.

    Args:
        k: log-strike ``log(K/F)``.
        v: total volatility ``σ√T``; zero gives zero, negative or NaN gives NaN.

    Returns:
        Undiscounted prices over the forward, relatively accurate down to 1e-300.
    """
    points, volatility, shape = _broadcast_flat(k, v)
    out = np.empty(points.size)
    _fill_otm(points, volatility, out)
    return out.reshape(shape)


def call(k: ArrayLike, v: ArrayLike) -> Array:
    """Price a call, in the money by parity with the put; arguments as in :func:`otm`.

    Example:
        >>> round(float(call(0.0, 0.2)), 12)
        0.079655674554
    """
    return np.asarray(otm(k, v) + call_parity(k))


def put(k: ArrayLike, v: ArrayLike) -> Array:
    """Price a put, in the money by parity with the call; arguments as in :func:`otm`."""
    return np.asarray(otm(k, v) + put_parity(k))


def vega(k: ArrayLike, v: ArrayLike) -> Array:
    """Derivative of call and put to total volatility, ``φ(v/2 − k/v)``; at ``v = 0`` its limit."""
    points, volatility, shape = _broadcast_flat(k, v)
    out = np.empty(points.size)
    _fill_vega(points, volatility, out)
    return out.reshape(shape)


def implied_total_volatility(price: ArrayLike, k: ArrayLike, side: str = "otm") -> Implied:
    """Total volatility ``σ√T`` of undiscounted prices over the forward.

    For total volatilities from 1e-4 to 10, ``|k| ≤ 15 v`` and prices down to 1e-300 the
    relative error is at most ``max(1e-12, 2ε·price/(v·vega))``, ``ε = 2⁻⁵²``: the second term is
    what rounding the price itself does to the answer. No input data raises: what has no
    volatility gives NaN and a code.

    Args:
        price: undiscounted prices over the forward.
        k: log-strikes ``log(K/F)``, broadcast against ``price``.
        side: ``"otm"`` (calls for ``k ≥ 0``, puts for ``k < 0``), ``"call"`` or ``"put"``.

    Returns:
        Volatilities and :class:`Reason` codes.

    Raises:
        ValueError: if ``side`` is none of the three.

    Example:
        >>> volatility, reason = implied_total_volatility([0.079655674554, 1.5], 0.0, side="call")
        >>> round(float(volatility[0]), 9), Reason(reason[1]).name
        (0.2, 'ABOVE_MAXIMUM')
    """
    if side not in SIDES:
        raise ValueError(f"side={side!r} is unknown: choose one of {', '.join(SIDES)}")
    prices, points, shape = _broadcast_flat(price, k)
    out, reason = np.empty(points.size), np.zeros(points.size, dtype=np.int8)
    _fill_implied(prices, points, SIDES.index(side), out, reason)
    return Implied(out.reshape(shape), reason.reshape(shape))


def differentiate_smile(v: Array, digital: Array, density: Array) -> tuple[Array, Array]:
    """First and second derivative of ``v(k)`` at k = 0, from ``c(k) = Black(k, v(k))``.

    Args:
        v: Total volatility at the money.
        digital: ``P(S_T > F_T)``, undiscounted.
        density: Of ``S_T/F_T`` at one.
    """
    d1, d2 = np.asarray(0.5 * v), np.asarray(-0.5 * v)
    at_money = vega(np.zeros_like(v), v)
    below = cdf_of(d2)
    first = np.asarray((below - digital) / at_money)
    black_kk = -below + at_money / v
    bend = density - digital - black_kk
    second = bend / at_money - (2.0 * d1 * first + d1 * d2 * first**2) / v
    return first, np.asarray(second)
