"""Lewis' integral: option prices from a characteristic function, accurate to rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex

_NODES_PER_PANEL = 16  # Gauss-Legendre nodes a panel
MAX_RADIANS_PER_PANEL = 8.0  # that the integrand turns by within a panel, at most
_NEGLIGIBLE_INTEGRAND = 1e-18  # size of the integrand from where on it is left out


def lewis(
    transform: Callable[[Complex], Complex],
    k: Array,
    turning: float,
    radians: float = MAX_RADIANS_PER_PANEL,
) -> Array:
    """Out-of-the-money prices at log-strikes ``(m,)`` from ``E exp(iu log X)``.

    Lewis (2001): the covered call ``E min(X, κ)`` is an integral over the line ``u − i/2``, by
    Gauss-Legendre panels as far as the integrand is not negligible.

    Args:
        transform: The characteristic function, of complex frequencies.
        k: Log-strikes.
        turning: How fast the transform turns, in radians per unit of frequency, at most.
        radians: How far the integrand may turn within a panel.
    """
    reach = np.geomspace(1.0, 1e6, 2000)
    size = np.abs(transform(np.asarray(reach - 0.5j, dtype=np.complex128))) / reach**2
    end = reach[np.flatnonzero(size > _NEGLIGIBLE_INTEGRAND)[-1]]
    longest = radians / max(float(np.abs(k).max()) + turning, 1e-6)
    growth = 0.5 * radians / MAX_RADIANS_PER_PANEL
    edges = [0.0, 0.25]
    while edges[-1] < end:
        edges.append(edges[-1] + min(growth * edges[-1], longest))
    x, w = np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    left, half = np.array(edges[:-1])[:, None], 0.5 * np.diff(edges)[:, None]
    u, weight = (left + half * (1.0 + x)).ravel(), (half * w).ravel()
    line = np.asarray(u - 0.5j, dtype=np.complex128)
    density = weight * transform(line) / (u * u + 0.25)
    # summed by NumPy: a linear algebra library's sum may depend on the number of threads
    covered = np.exp(0.5 * k) / np.pi * (np.exp(-1j * np.outer(k, u)) * density).real.sum(-1)
    return np.asarray(np.minimum(1.0, np.exp(k)) - covered)
