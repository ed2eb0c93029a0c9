"""The fractional kernel as a sum of exponentials, positive and on a geometric grid of speeds.

``K(t) = t^{H−½}/Γ(H+½) = ∫ e^{−xt} μ(dx)`` with ``μ(dx) = x^{−H−½} dx / (Γ(½+H) Γ(½−H))``. In
``log x`` that integral is over the whole line and analytic, so the trapezoidal rule converges
exponentially (Beylkin and Monzón 2010, "Approximation by exponential sums revisited"). What lies
beyond the grid is gathered in its two end factors: at the slow end their weight and mean speed are
kept, at the fast end their integral over time and its mean.

Grid and ratio are those of Abi Jaber (2019), "Lifting the Heston model". There a factor has the
mass and the mean of its cell, which makes the kernel some percent too small at every time, and
nothing stands for the slower speeds, which are two fifths of it at a year for H = 0.4.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.conventions import Array

# Ratio of the grid by number of factors: 2.5 at 20 is the paper's; the law tends to 1 while the
# grid goes on widening, which the paper's convergence theorem asks for.
_RATIO_AT_20 = 2.5


def default_speed_ratio(factors: int) -> float:
    """The ratio of neighbouring speeds that goes with a number of factors."""
    return 1.0 + (_RATIO_AT_20 - 1.0) * float((20.0 / factors) ** 0.9)


def lift(hurst: float, factors: int, ratio: float | None = None) -> tuple[Array, Array]:
    """Weights ``c`` and speeds ``x``, each ``(factors,)``, of the kernel with Hurst index H.

    One factor is the Heston model: weight one, speed zero, whatever the Hurst index.

    Raises:
        ValueError: If H is not in (0, ½), factors are not positive, or the ratio is not above 1.
    """
    if type(factors) is not int or factors < 1:
        raise ValueError(f"factors = {factors!r}: give a whole number, at least one")
    if factors == 1:
        return np.ones(1), np.zeros(1)
    if not 0.0 < hurst < 0.5:
        raise ValueError(
            f"hurst = {hurst!r} must lie strictly between 0 and 1/2; one factor is Heston"
        )
    r = default_speed_ratio(factors) if ratio is None else ratio
    if not r > 1.0:
        raise ValueError(f"ratio = {r!r} must be greater than 1")
    step, b = math.log(r), 0.5 - hurst
    x = np.exp(step * (np.arange(factors) - 0.5 * (factors - 1)))
    c = step * x**b / (math.gamma(1.0 - b) * math.gamma(b))

    def total(power: float) -> float:
        """``1 + r^{−power} + r^{−2 power} + …``, the grid from an end outwards."""
        return -1.0 / math.expm1(-step * power)

    slow, slow_pace = total(b), total(b + 1.0)  # Σ c and Σ c x over what is slower
    fast, fast_delay = total(1.0 - b), total(2.0 - b)  # Σ c/x and Σ c/x² over what is faster
    c[0], x[0] = c[0] * slow, x[0] * slow_pace / slow
    c[-1], x[-1] = c[-1] * fast**2 / fast_delay, x[-1] * fast / fast_delay
    return c, x


def kernel(t: Array, c: Array, x: Array) -> Array:
    """The lifted kernel ``Σ c_i e^{−x_i t}`` at times ``t``."""
    return np.asarray(np.exp(-np.multiply.outer(t, x)) @ c)
