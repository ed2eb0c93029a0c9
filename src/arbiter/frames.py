"""A surface as a polars table: prices, volatilities and Greeks by maturity and strike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from arbiter import forked
from arbiter.forwards import MaturityLike

if TYPE_CHECKING:
    from arbiter.surface import Surface

# Gaussian coordinates of the default strikes: where index options are listed, put side deeper.
DEFAULT_GAUSSIAN_COORDINATES = np.linspace(-3.5, 2.5, 25)


def surface_frame(
    surface: Surface, k: ArrayLike | None = None, T: MaturityLike | None = None
) -> pl.DataFrame:
    """Evaluate a surface on a grid: one row per (T, k), sorted.

    Args:
        surface: The surface to read.
        k: Log-moneyness grid used at every maturity; by default 25 strikes per maturity
            between Gaussian percentiles −3.5 and 2.5.
        T: Maturities; by default the listed ones.

    Returns:
        Columns T, k, strike, forward, discount, call, put, iv, total_variance, delta, gamma,
        vega, theta, density, local_variance. ``call`` and ``put`` are discounted currency.
    """
    forked.require_polars()
    maturities = surface.years(surface.maturities if T is None else T).reshape(-1, 1)  # (U, 1)
    if k is None:
        points = surface.log_strike(DEFAULT_GAUSSIAN_COORDINATES, maturities)
    else:
        row = np.asarray(k, dtype=np.float64).reshape(1, -1)
        points = np.broadcast_to(row, (maturities.size, row.size))
    years = np.broadcast_to(maturities, points.shape)
    strikes = surface.forward(years) * np.exp(points)
    iv = surface.iv(points, years)
    columns = {
        "T": years,
        "k": points,
        "strike": strikes,
        "forward": surface.forward(years),
        "discount": surface.discount(years),
        "call": surface.call(strikes, years),
        "put": surface.put(strikes, years),
        "iv": iv,
        "total_variance": iv**2 * years,
        "delta": surface.delta(strikes, years),
        "gamma": surface.gamma(strikes, years),
        "vega": surface.vega(strikes, years),
        "theta": surface.theta(strikes, years),
        "density": surface.density(points, years),
        "local_variance": surface.local_variance(points, years),
    }
    table = pl.DataFrame({name: np.ravel(values) for name, values in columns.items()})
    return table.sort("T", "k")
