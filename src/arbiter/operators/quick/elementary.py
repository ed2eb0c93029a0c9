"""Exponential, logarithm and Mills ratio without a branch, for one number, compiled.

A loop that calls a library's functions takes one number at a time. These are rows of products put
where they are called, so that a loop takes as many at a time as the processor's registers hold:
four to six times as quick. To a relative 1e-14, or a few units of single precision; what is no
number stays none, and what is infinite becomes none or large.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import erfcx

from arbiter.compiled import compiled, inlined
from arbiter.pricing import normal

LOWEST, HIGHEST = -708.0, 709.0  # exponents beyond these count as these
_LOG_2, _PER_LOG_2 = math.log(2.0), 1.0 / math.log(2.0)
_HIGH, _LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  # of √½: mantissas are taken from there to √2
# log((1 + s)/(1 − s)) = 2 s + s R(s²) for |s| ≤ 0.1716, as in fdlibm
_R = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
_MIDDLE, _DEGREE = 5.5, 20  # the half-line y ≥ 0 is t = (y − _MIDDLE)/(y + _MIDDLE) from −1 to 1


def _tail(t: Any) -> Any:
    """``(1 + y) R(y)``, which is smooth in t and tends to one."""
    y = _MIDDLE * (1.0 + t) / (1.0 - t)
    return (1.0 + y) * normal.ROOT_HALF_PI * erfcx(normal.ROOT_HALF * y)


def _growth(t: Any) -> Any:
    """``(e^r − 1 − r)/r²`` at ``r = t log(2)/2``, by its series."""
    r = 0.5 * _LOG_2 * t
    return sum(r**n / math.factorial(n + 2) for n in range(18))


def _powers(f: Any, degree: int) -> Any:
    """Coefficients in t of what interpolates f from −1 to 1, the highest power first."""
    return chebyshev.cheb2poly(chebyshev.chebinterpolate(f, degree))[::-1]


# after Shepherd & Laframboise (1981), Math. Comp. 36, 249
_T = tuple(_powers(_tail, _DEGREE).tolist())
# in r itself
_G = tuple((_powers(_growth, 9) / (0.5 * _LOG_2) ** np.arange(9, -1, -1)).tolist())


@inlined
def exp(x: float) -> float:
    """``e^x``."""
    x = LOWEST if x < LOWEST else x
    x = HIGHEST if x > HIGHEST else x
    n = np.floor(x * _PER_LOG_2 + 0.5)
    r = (x - n * _HIGH) - n * _LOW
    p: float = _G[0]
    p = p * r + _G[1]
    p = p * r + _G[2]
    p = p * r + _G[3]
    p = p * r + _G[4]
    p = p * r + _G[5]
    p = p * r + _G[6]
    p = p * r + _G[7]
    p = p * r + _G[8]
    p = p * r + _G[9]
    power = np.int64((np.int64(n) + 1023) << 52).view(np.float64)
    found: float = power * (p * r * r + r + 1.0)
    return found


@inlined
def log(x: float) -> float:
    """``log x`` of a positive number that is not denormal."""
    bits = np.float64(x).view(np.int64)
    k = (bits - _ROOT_HALF_BITS) >> 52
    f = np.int64(bits - (k << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (_R[1] + w * (_R[3] + w * _R[5]))
    R = even + z * (_R[0] + w * (_R[2] + w * (_R[4] + w * _R[6])))
    half = 0.5 * f * f
    found = np.float64(k) * _LOG_2 + (f - (half - s * (half + R)))
    return found if 0.0 < x < math.inf else math.nan


@inlined
def tail(y: float) -> float:
    """Mills ratio ``Φ(−y)/φ(y)`` for ``y ≥ 0``."""
    t = (y - _MIDDLE) / (y + _MIDDLE)
    s = t * t
    even: float = _T[0]
    odd: float = _T[1]
    even, odd = even * s + _T[2], odd * s + _T[3]  # side by side: neither waits for the other
    even, odd = even * s + _T[4], odd * s + _T[5]
    even, odd = even * s + _T[6], odd * s + _T[7]
    even, odd = even * s + _T[8], odd * s + _T[9]
    even, odd = even * s + _T[10], odd * s + _T[11]
    even, odd = even * s + _T[12], odd * s + _T[13]
    even, odd = even * s + _T[14], odd * s + _T[15]
    even, odd = even * s + _T[16], odd * s + _T[17]
    even, odd = even * s + _T[18], odd * s + _T[19]
    even = even * s + _T[20]
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


# in single precision every constant has to be of it, or all becomes double
_S = tuple(np.float32(1.0 / n) for n in (1, 3, 5, 7, 9, 11, 13, 15))
_E = tuple(np.float32(1.0 / math.factorial(n)) for n in range(8))
_ZERO, _ONE, _TWO, _HALF = (np.float32(x) for x in (0.0, 1.0, 2.0, 0.5))
_LOWEST_32 = np.float32(-87.0)
_PER_LOG_2_32, _HIGH_32, _LOW_32 = (
    np.float32(x) for x in (_PER_LOG_2, 0.693359375, _LOG_2 - 0.693359375)
)


@compiled
def softplus32(x: NDArray[np.float32]) -> None:
    """``log(1 + e^x)`` in place, in single precision."""
    for i in range(x.size):
        y = exp32(-abs(x[i]))
        s = y / (_TWO + y)  # log(1 + y) = 2 artanh s, with s up to a third
        z = s * s
        p = _S[7]
        p = p * z + _S[6]
        p = p * z + _S[5]
        p = p * z + _S[4]
        p = p * z + _S[3]
        p = p * z + _S[2]
        p = p * z + _S[1]
        p = p * z + _S[0]
        x[i] = max(x[i], _ZERO) + _TWO * s * p


@compiled
def tanh32(x: NDArray[np.float32]) -> None:
    """``tanh x`` in place, to an absolute 1e-7, in single precision."""
    for i in range(x.size):
        y = exp32(-_TWO * abs(x[i]))
        size = (_ONE - y) / (_ONE + y)
        x[i] = size if x[i] >= _ZERO else -size


@inlined
def exp32(x: np.float32) -> np.float32:
    """``e^x`` of a number that is not positive, in single precision."""
    x = _LOWEST_32 if x < _LOWEST_32 else x
    n = np.floor(x * _PER_LOG_2_32 + _HALF)
    r = (x - n * _HIGH_32) - n * _LOW_32
    p = _E[7]
    p = p * r + _E[6]
    p = p * r + _E[5]
    p = p * r + _E[4]
    p = p * r + _E[3]
    p = p * r + _E[2]
    p = p * r + _E[1]
    p = p * r + _E[0]
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    found: np.float32 = power * p
    return found
