"""The 50 Heston surfaces, whose law is :mod:`arbiter.evaluation.heston`, under their old name."""

from __future__ import annotations

from arbiter.evaluation.heston import (
    DAYS,
    DEVIATIONS,
    FEWEST,
    SURFACES,
    HestonSurface,
    draw_heston,
    heston_surface,
    oracle_rmse_bp,
)
from arbiter.markets.heston import Heston

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
