"""Effective dimensions d90, d95, d99 (docs/metrics/effective-dimension.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from arbiter_lab.metrics.metric import Metric

SPECTRUM_SHARES = (0.90, 0.95, 0.99)


def effective_dimensions(
    rows: ArrayLike, *, suffix: str = "", centred: bool = False
) -> list[Metric]:
    """Return the number of directions with 90, 95 and 99 % of the spectrum of the Gram matrix.

    The rows are inputs by section 5.2 (no suffix) and features of the operator by sections 2.3 and
    7.3 (``suffix="features"``). As the paper has it the matrix is not centred: the mean row is then
    a direction, and usually the first (errata 56).

    Args:
        rows: ``(N, p)`` one input, or one feature vector, a row.
        suffix: Joined to the names ``d90``, ``d95`` and ``d99``.
        centred: Take the mean row away first; names then end in ``centred``.

    Example:
        >>> effective_dimensions([[3.0, 0.0], [0.0, 1.0]])  # a spectrum of 9 and 1
        [d90 = 1, d95 = 2, d99 = 2]
    """
    table = np.asarray(rows, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"rows has shape {table.shape}: give (samples, coordinates)")
    parts = [part for part in (suffix, "centred" if centred else "") if part]
    names = ["_".join([f"d{100 * share:.0f}", *parts]) for share in SPECTRUM_SHARES]
    if not np.isfinite(table).all():
        return [Metric.undefined(name, "a row is not finite") for name in names]
    table = table - table.mean(axis=0) if centred else table
    # rows of any size: eigenvalues are squares, which could overflow or vanish
    table = table / (np.abs(table).max() or 1.0)
    spectrum = np.linalg.svd(table, compute_uv=False) ** 2
    if not spectrum.sum() > 0.0:
        reason = "all rows are equal" if centred else "all rows are zero"
        return [Metric.undefined(name, reason) for name in names]
    held = np.cumsum(spectrum) / spectrum.sum()
    # a share that is met exactly may have been rounded below itself
    found = [int(np.searchsorted(held, share * (1.0 - 1e-12))) + 1 for share in SPECTRUM_SHARES]
    return [Metric(name, float(d)) for name, d in zip(names, found, strict=True)]
