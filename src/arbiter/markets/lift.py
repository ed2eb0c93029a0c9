"""The fractional kernel as a sum of exponentials (Abi Jaber 2019, "Lifting the Heston model").

``K(t) = t^{H−½}/Γ(H+½) ≈ Σ c_i e^{−x_i t}``: speeds on a geometric grid, weights and speeds the
masses and means of the kernel's mixing measure on the cells of that grid.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Ratio of the grid by number of factors: 2.5 at 20 is the paper's; the law tends to 1 while the
# grid goes on widening, which the paper's convergence theorem asks for.
_RATIO_AT_20 = 2.5


def ratio_of(factors: int) -> float:
    """The ratio of neighbouring speeds that goes with a number of factors."""
    return 1.0 + (_RATIO_AT_20 - 1.0) * float((20.0 / factors) ** 0.9)


def lift(hurst: float, factors: int, ratio: float | None = None) -> tuple[Array, Array]:
    """Weights ``c`` and speeds ``x``, each ``(factors,)``, of the kernel with Hurst index H.

    One factor is the Heston model: weight one, speed zero, whatever the Hurst index.

    Raises:
        ValueError: If H is not in (0, ½), factors are not positive, or the ratio is not above 1.
    """
    if factors < 1:
        raise ValueError(f"factors = {factors}: give at least one")
    if factors == 1:
        return np.ones(1), np.zeros(1)
    if not 0.0 < hurst < 0.5:
        raise ValueError(
            f"hurst = {hurst!r} must lie strictly between 0 and 1/2; one factor is Heston"
        )
    r = ratio_of(factors) if ratio is None else ratio
    if not r > 1.0:
        raise ValueError(f"ratio = {r!r} must be greater than 1")
    a = hurst + 0.5
    i = np.arange(1, factors + 1)
    scale = (r ** (1.0 - a) - 1.0) / (math.gamma(a) * math.gamma(2.0 - a))
    c = scale * r ** ((a - 1.0) * (1.0 + 0.5 * factors)) * r ** ((1.0 - a) * i)
    pace = (1.0 - a) / (2.0 - a) * (r ** (2.0 - a) - 1.0) / (r ** (1.0 - a) - 1.0)
    return c, pace * r ** (i - 1.0 - 0.5 * factors)


def kernel(t: Array, c: Array, x: Array) -> Array:
    """``Σ c_i e^{−x_i t}``."""
    return np.asarray(np.exp(-np.multiply.outer(t, x)) @ c)
