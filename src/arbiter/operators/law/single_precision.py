"""Functions of arrays in single precision, where a network needs no more digits.

Every constant has to be of that precision, or all becomes double.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled, inlined

# log((1 + s)/(1 − s)) = 2 s (1 + s²/3 + …), and the exponential, by their series
_LOG = tuple(np.float32(1.0 / n) for n in (1, 3, 5, 7, 9, 11, 13, 15))
_EXP = tuple(np.float32(1.0 / math.factorial(n)) for n in range(8))
_ZERO, _TWO, _HALF = (np.float32(x) for x in (0.0, 2.0, 0.5))
_MIN_EXPONENT = np.float32(-87.0)
_PER_LOG_2, _LOG_2_HIGH, _LOG_2_LOW = (
    np.float32(x) for x in (1.0 / math.log(2.0), 0.693359375, math.log(2.0) - 0.693359375)
)


@compiled
def softplus32(x: NDArray[np.float32]) -> None:
    """``log(1 + e^x)`` in place, to a relative 4e-7."""
    for i in range(x.size):
        y = exp32(-abs(x[i]))
        s = y / (_TWO + y)  # log(1 + y) = 2 artanh s, with s up to a third
        z = s * s
        p = _LOG[7]
        p = p * z + _LOG[6]
        p = p * z + _LOG[5]
        p = p * z + _LOG[4]
        p = p * z + _LOG[3]
        p = p * z + _LOG[2]
        p = p * z + _LOG[1]
        p = p * z + _LOG[0]
        x[i] = max(x[i], _ZERO) + _TWO * s * p


@inlined
def exp32(x: np.float32) -> np.float32:
    """``e^x`` of a number that is not positive."""
    x = _MIN_EXPONENT if x < _MIN_EXPONENT else x
    n = np.floor(x * _PER_LOG_2 + _HALF)
    r = (x - n * _LOG_2_HIGH) - n * _LOG_2_LOW
    p = _EXP[7]
    p = p * r + _EXP[6]
    p = p * r + _EXP[5]
    p = p * r + _EXP[4]
    p = p * r + _EXP[3]
    p = p * r + _EXP[2]
    p = p * r + _EXP[1]
    p = p * r + _EXP[0]
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    found: np.float32 = power * p
    return found
