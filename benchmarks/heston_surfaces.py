"""The 50 Heston surfaces of :mod:`arbiter_lab.evaluation.heston_surfaces`, under their old name."""

from __future__ import annotations

from arbiter.models.heston import Heston
from arbiter_lab.evaluation.heston_surfaces import (
    MATURITY_DAYS,
    MIN_QUOTES_PER_SLICE,
    STRIKE_DEVIATIONS,
    SURFACE_COUNT,
    HestonSurface,
    draw_heston,
    heston_surface,
    oracle_rmse_bp,
)

__all__ = [
    "DAYS",
    "DEVIATIONS",
    "FEWEST",
    "SURFACES",
    "Heston",
    "HestonSurface",
    "draw_heston",
    "heston_surface",
    "oracle_rmse_bp",
]
