"""Knots, and slopes of an ordinary index smile on them."""

from __future__ import annotations

import numpy as np

from arbiter.conventions import Array

KNOTS = {n: np.linspace(-5.5, 4.5, n) for n in (5, 31, 41)}


def skewed(n: int = 31) -> Array:
    """Slopes of an ordinary index smile, total volatility near 20 %."""
    return np.asarray(0.2 * np.exp(-0.1 * KNOTS[n]) + 0.01 * np.sin(3.0 * KNOTS[n]))
