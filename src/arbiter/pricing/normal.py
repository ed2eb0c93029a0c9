"""Normal density, distribution function, quantile, Mills ratio, and lognormal option values.

Glossary: ``φ`` density, ``Φ`` distribution function, ``R(y) = Φ(−y)/φ(y)`` Mills ratio.
Everything here keeps *relative* accuracy far in the wings, where differences of numbers near
one have none left (docs/theory.md, section 4). These are functions of one number, for compiled
loops; :func:`cdf_of` and :func:`quantile_of` take arrays.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array
from arbiter.pricing.elementary import exp, log, tail

ROOT_2PI = math.sqrt(2.0 * math.pi)
INV_ROOT_2PI = 1.0 / math.sqrt(2.0 * math.pi)

# Below this width R(y) − R(y+δ) is summed as a Taylor series about the midpoint; above it the
# plain difference loses at most two digits. Five odd terms leave 1e-17 at the switch.
MAX_SERIES_WIDTH = 0.1
MIN_SERIES_ARGUMENT = -8.0
MAX_SERIES_ARGUMENT = 50.0  # past it the density is zero: the series' powers stay finite
MIN_NORMAL = 2.3e-308  # numbers below have fewer digits, and not the exponent of others
_FAINT_FACTOR, _LOG_FAINT_FACTOR = 2.0**120, 120.0 * math.log(2.0)


@inlined
def pdf(x: float) -> float:
    """Standard normal density."""
    return INV_ROOT_2PI * exp(-0.5 * x * x)


@inlined
def scaled_pdf(k: float, x: float) -> float:
    """``e^k φ(x)`` with the exponents joined, so that neither factor over- or underflows."""
    return INV_ROOT_2PI * exp(k - 0.5 * x * x)


@inlined
def cdf(x: float) -> float:
    """Standard normal distribution function, relatively accurate in the left tail."""
    small = pdf(x) * tail(abs(x))
    return small if x < 0.0 else 1.0 - small


@inlined
def mills(y: float) -> float:
    """Mills ratio ``R(y) = Φ(−y)/φ(y)``; grows like ``√2π e^{y²/2}`` below zero."""
    right = tail(abs(y))
    return right if y >= 0.0 else ROOT_2PI * exp(0.5 * y * y) - right


@inlined
def quantile(u: float) -> float:
    """Inverse of :func:`cdf`, relatively accurate for small ``u``."""
    small = min(u, 1.0 - u)
    faint = small < MIN_NORMAL  # whose logarithm is taken of a multiple
    log_small = log(small * _FAINT_FACTOR if faint else small)
    log_small -= _LOG_FAINT_FACTOR if faint else 0.0
    tau = math.sqrt(-2.0 * log_small)
    above = 2.515517 + tau * (0.802853 + tau * 0.010328)  # Abramowitz & Stegun 26.2.23
    x = tau - above / (1.0 + tau * (1.432788 + tau * (0.189269 + tau * 0.001308)))
    # Halley's method: 5e-4, 1e-10, rounding
    for _ in range(2):
        off = mills(x) - ROOT_2PI * exp(log_small + 0.5 * x * x)
        x += off / (1.0 - 0.5 * x * off)
    x = -x if u < 0.5 else x
    ends = -math.inf if u == 0.0 else (math.inf if u == 1.0 else math.nan)
    return x if 0.0 < u < 1.0 else ends


@inlined
def narrow_series(h: float, t: float, near: float) -> float:
    """``(R(h − t) − R(h + t))/2t`` for small t, with ``near = R(h)``.

    The sum of ``Tⱼ = −t²ʲ R⁽²ʲ⁺¹⁾(h)/(2j+1)!``, where with ``n = 2j+1``
    ``Tⱼ₊₁ = t² ((h² + 2n + 1) Tⱼ − t² Tⱼ₋₁)/((n+1)(n+2))``. Five terms leave 1e-17.
    """
    hh, tt = min(h * h, 1e6), t * t
    first = 1.0 - h * near
    second = tt / 6.0 * ((hh + 3.0) * first - 1.0)
    third = tt / 20.0 * ((hh + 7.0) * second - tt * first)
    fourth = tt / 42.0 * ((hh + 11.0) * third - tt * second)
    fifth = tt / 72.0 * ((hh + 15.0) * fourth - tt * third)
    return first + second + third + fourth + fifth


@compiled
def weighted_mills(k: float, x: float, y: float) -> float:
    """``e^k φ(x) R(y)``, finite wherever the product is, though ``R`` alone overflows."""
    if y >= 0.0:
        return scaled_pdf(k, x) * tail(y)
    return exp(k + 0.5 * (y - x) * (y + x)) * cdf(-y)


@compiled
def scaled_mills_difference(k: float, x: float, y: float, b: float, log_mass: float) -> float:
    """``e^k φ(x) (R(y) − R(y+b))`` with ``y = x − b`` or ``y = x``, without cancellation.

    ``log_mass`` is ``k + (y²−x²)/2``, the same for every strike of a slice's right tail: given
    once, its rounding is common to all of them and bends no smile.
    """
    if b < MAX_SERIES_WIDTH and y > MIN_SERIES_ARGUMENT:
        m = min(y + 0.5 * b, MAX_SERIES_ARGUMENT)
        return scaled_pdf(k, x) * b * narrow_series(m, 0.5 * b, mills(m))
    near = scaled_pdf(k, x) * tail(y) if y >= 0.0 else exp(log_mass) * cdf(-y)
    return near - weighted_mills(k, x, y + b)


@compiled
def excess_above(k: float, x: float, b: float) -> float:
    """``E[(e^{k+b(Z−x)} − e^k)+]``: a call on a lognormal piece, struck at coordinate ``x``.

    This is the Black call at log-strike ``k`` and total volatility ``b`` when
    ``x = k/b + b/2``, and the right tail of a transport slice for any ``x``.
    """
    return scaled_mills_difference(k, x, x - b, b, k + 0.5 * b * (b - 2.0 * x))


@compiled
def excess_below(k: float, x: float, b: float) -> float:
    """``E[(e^k − e^{k+b(Z−x)})+]``: a put on a lognormal piece, struck at coordinate ``x``."""
    return scaled_mills_difference(k, -x, -x, b, k)


@compiled
def _fill_cdf(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = cdf(x[i])


@compiled
def _fill_quantile(u: Array, out: Array) -> None:
    for i in range(u.size):
        out[i] = quantile(u[i])


def to_row(values: ArrayLike) -> Array:
    """A copy of all values in one row of C order.

    Loops are compiled once for each kind of array, and read-only ones would be another kind.
    """
    return np.array(values, dtype=np.float64, order="C").reshape(-1)


def cdf_of(x: ArrayLike) -> Array:
    """:func:`cdf` of an array."""
    row = to_row(x)
    out = np.empty(row.size)
    _fill_cdf(row, out)
    return out.reshape(np.shape(x))


def quantile_of(u: ArrayLike) -> Array:
    """:func:`quantile` of an array."""
    row = to_row(u)
    out = np.empty(row.size)
    _fill_quantile(row, out)
    return out.reshape(np.shape(u))
