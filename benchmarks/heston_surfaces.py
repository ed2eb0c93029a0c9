"""The 50 Heston surfaces, whose law is :mod:`arbiter.evaluation.heston`, under their old name."""

from __future__ import annotations

from arbiter.evaluation.heston import (
    DAYS,
    DEVIATIONS,
    FEWEST,
    SURFACES,
    Heston,
    HestonSurface,
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
    "heston_surface",
    "oracle_rmse_bp",
]
