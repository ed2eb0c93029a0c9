"""Lower convex hull of points in the plane."""

from __future__ import annotations

import numpy as np

from arbiter.audit.grid import Places
from arbiter.conventions import Array


def find_lower_hull(x: Array, y: Array, steepest: float) -> Places:
    """Indices of the hull's vertices, from left to right, while its slope is below ``steepest``."""
    xs, ys = x.tolist(), y.tolist()
    hull: list[int] = []
    slopes: list[float] = []  # slopes[n] leads to hull[n]
    for at in np.lexsort((y, x)).tolist():
        slope = -np.inf
        if hull and xs[at] == xs[hull[-1]]:
            continue  # the same strike, not cheaper
        while hull:
            slope = (ys[at] - ys[hull[-1]]) / (xs[at] - xs[hull[-1]])
            if slope > slopes[-1]:
                break
            hull.pop()
            slopes.pop()
        if slope < steepest:
            hull.append(at)
            slopes.append(slope)
    return np.array(hull, dtype=np.int64)
