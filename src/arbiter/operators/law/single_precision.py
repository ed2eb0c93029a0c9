"""The exponential in single precision, where a network needs no more digits.

Every constant has to be of that precision, or all becomes double.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled, inlined

# the exponential by its series
_EXP = tuple(np.float32(1.0 / math.factorial(n)) for n in range(8))
_ZERO, _HALF, _ONE = (np.float32(x) for x in (0.0, 0.5, 1.0))
_MIN_EXPONENT = np.float32(-87.0)
_PER_LOG_2, _LOG_2_HIGH, _LOG_2_LOW = (
    np.float32(x) for x in (1.0 / math.log(2.0), 0.693359375, math.log(2.0) - 0.693359375)
)


@compiled
def fill_silu(x: NDArray[np.float32]) -> None:
    """``x/(1 + e^{−x})``, in place."""
    for i in range(x.size):
        t = exp32(-abs(x[i]))
        x[i] *= (_ONE if x[i] > _ZERO else t) / (_ONE + t)


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
