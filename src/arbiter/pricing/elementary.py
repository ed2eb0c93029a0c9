"""Exponential, logarithm and Mills ratio of one number, without a branch, compiled.

A loop that calls a library's function takes one number at a time. These are rows of products that
are put where they are called, so that a loop takes as many numbers at a time as the registers of
the processor hold. Exponential and logarithm are right to a unit in the last place, the Mills
ratio to 6e-16. NaN stays NaN.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.compiled import inlined

MIN_EXPONENT, MAX_EXPONENT = -708.0, 709.0  # e^x is zero below the first, and held at the second
_LOG_2, _PER_LOG_2 = math.log(2.0), 1.0 / math.log(2.0)
_LOG_2_HIGH, _LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  # of √½: mantissas are taken from there to √2
# (e^r − 1 − r)/r² for |r| ≤ log(2)/2, the highest power first
_EXP = (
    2.537329530822043e-08,
    2.764489718072901e-07,
    2.7556583445152186e-06,
    2.4801465717933495e-05,
    0.00019841270402974417,
    0.0013888888954505557,
    0.008333333333193617,
    0.04166666666654974,
    0.16666666666666693,
    0.5000000000000003,
)
# log((1 + s)/(1 − s)) = 2 s + s R(s²) for |s| ≤ 0.1716, as in fdlibm
_LOG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
# (1 + y) R(y) on the half-line y ≥ 0, mapped to t = (y − 5)/(y + 5) (Shepherd and Laframboise,
# 1981, Math. Comp. 36, 249): Chebyshev interpolation with 60 digits, the highest power first.
_TAIL_MIDDLE = 5.0
_TAIL = (
    -7.231108021949056e-10,
    5.5214624772750975e-09,
    9.178862997871726e-09,
    -6.377877629924255e-08,
    -6.609470334164999e-08,
    4.7227476072784846e-07,
    3.2081792057719536e-07,
    -3.259594825178372e-06,
    -1.765610461697322e-07,
    2.269926090128769e-05,
    -2.480571624657323e-05,
    -0.00013437030708913402,
    0.00045704388164876,
    1.9529659469871244e-05,
    -0.004201290320221854,
    0.01634823142851537,
    -0.03802659218695909,
    0.061505045827832776,
    -0.06617760077902489,
    0.025072179302116814,
    0.07778159886873591,
    -0.22948753825211862,
    1.1568486282918946,
)


@inlined
def exp(x: float) -> float:
    """``e^x``; zero where it would be below the smallest normal number."""
    held = MIN_EXPONENT if x < MIN_EXPONENT else x
    held = MAX_EXPONENT if held > MAX_EXPONENT else held
    n = np.floor(held * _PER_LOG_2 + 0.5)
    r = (held - n * _LOG_2_HIGH) - n * _LOG_2_LOW
    p: float = _EXP[0]
    p = p * r + _EXP[1]
    p = p * r + _EXP[2]
    p = p * r + _EXP[3]
    p = p * r + _EXP[4]
    p = p * r + _EXP[5]
    p = p * r + _EXP[6]
    p = p * r + _EXP[7]
    p = p * r + _EXP[8]
    p = p * r + _EXP[9]
    power = np.int64((np.int64(n) + 1023) << 52).view(np.float64)
    found: float = power * (p * r * r + r + 1.0)
    return 0.0 if x < MIN_EXPONENT else found


@inlined
def log(x: float) -> float:
    """``log x`` of a finite number from 2.2e-308 up; zero and negative ones give NaN."""
    bits = np.float64(x).view(np.int64)
    k = (bits - _ROOT_HALF_BITS) >> 52
    f = np.int64(bits - (k << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (_LOG[1] + w * (_LOG[3] + w * _LOG[5]))
    R = even + z * (_LOG[0] + w * (_LOG[2] + w * (_LOG[4] + w * _LOG[6])))
    half = 0.5 * f * f
    found = np.float64(k) * _LOG_2 + (f - (half - s * (half + R)))
    return found if 0.0 < x < math.inf else math.nan


@inlined
def tail(y: float) -> float:
    """Mills ratio ``Φ(−y)/φ(y)`` for ``y ≥ 0``."""
    t = 1.0 - 2.0 * _TAIL_MIDDLE / (y + _TAIL_MIDDLE)  # one at infinity
    s = t * t
    even: float = _TAIL[0]
    odd: float = _TAIL[1]
    even, odd = even * s + _TAIL[2], odd * s + _TAIL[3]  # side by side: neither waits
    even, odd = even * s + _TAIL[4], odd * s + _TAIL[5]
    even, odd = even * s + _TAIL[6], odd * s + _TAIL[7]
    even, odd = even * s + _TAIL[8], odd * s + _TAIL[9]
    even, odd = even * s + _TAIL[10], odd * s + _TAIL[11]
    even, odd = even * s + _TAIL[12], odd * s + _TAIL[13]
    even, odd = even * s + _TAIL[14], odd * s + _TAIL[15]
    even, odd = even * s + _TAIL[16], odd * s + _TAIL[17]
    even, odd = even * s + _TAIL[18], odd * s + _TAIL[19]
    even, odd = even * s + _TAIL[20], odd * s + _TAIL[21]
    even = even * s + _TAIL[22]
    return (even + odd * t) / (1.0 + y)


@inlined
def tanh(x: float) -> float:
    """``tanh x``, to an absolute 1e-15."""
    return 1.0 - 2.0 / (1.0 + exp(2.0 * x))


@inlined
def asinh(x: float) -> float:
    """``asinh x``, to an absolute 1e-15."""
    size = abs(x)
    found = log(size + math.sqrt(size * size + 1.0))
    return found if x >= 0.0 else -found
