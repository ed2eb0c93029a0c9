"""Choices of a fit, with defaults that serve from three quotes to a full index chain."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arbiter.fitting.loss import Loss
from arbiter.pricing.knots import DEFAULT_KNOTS

# Thirds, zero among them: segments short enough for the decoder to use them uncut.


@dataclass(frozen=True)
class Roughness:
    """Weights of the roughness penalties, in units of squared half-spreads.

    Attributes:
        strike: Of ``∫ (∂²log b/∂x²)² dx``, summed over expiries.
        maturity: Of ``Σ ∫ (Δ log(b/√T))² dx / Δ log √T`` over neighbouring expiries.
        twist: Of ``Σ ∫ (Δ ∂²log b/∂x²)² dx / Δ log √T``, the same of the smiles' curvature.
        level: Of ``∫ (log b − log b₀)² dx``, summed over expiries: the distance from a prior b₀.

    With a prior the first three are of ``log b − log b₀`` too.
    """

    strike: float
    maturity: float
    twist: float = 0.0
    level: float = 0.0

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """The four weights."""
        return self.strike, self.maturity, self.twist, self.level

    def __post_init__(self) -> None:
        positive = 0.0 < self.strike < np.inf and 0.0 < self.maturity < np.inf
        if not (positive and 0.0 <= self.twist < np.inf and 0.0 <= self.level < np.inf):
            raise ValueError(
                f"{self}: strike and maturity must be positive and finite, twist and level not "
                "negative"
            )


@dataclass(frozen=True)
class FitOptions:
    """Options of :func:`arbiter.fit`.

    Attributes:
        components: 1 for one transport, 2 for a nested mixture with a crash mode.
        roughness: Given weights, or how the data choose them: ``"likelihood"`` (marginal
            likelihood, the default) or ``"gcv"`` (generalised cross-validation).
        knots: Gaussian coordinates of the slopes, increasing.
        loss: Cost of a residual.
        finest: Half-spreads below this many volatility points count as this many; a quote
            without a spread counts as ``unsure`` points.
        unsure: See ``finest``.
        tolerance: The fit has converged when a step promises less than this share of the loss.
        iterations: Gauss-Newton steps allowed.
    """

    components: int = 1
    roughness: Roughness | str = "likelihood"
    knots: tuple[float, ...] = DEFAULT_KNOTS
    loss: Loss = field(default_factory=Loss)
    finest: float = 0.5e-4
    unsure: float = 10e-4
    tolerance: float = 1e-4
    iterations: int = 200

    def __post_init__(self) -> None:
        if self.components not in (1, 2):
            raise ValueError(f"components = {self.components!r}: give 1 or 2")
        if isinstance(self.roughness, str) and self.roughness not in ("likelihood", "gcv"):
            raise ValueError(
                f"roughness = {self.roughness!r}: give 'likelihood', 'gcv' or Roughness(strike, "
                "maturity)"
            )
        if len(self.knots) < 4 or not np.all(np.diff(self.knots) > 0.0):
            raise ValueError("knots must be at least four increasing numbers")
        if not (0.0 < self.tolerance < 1.0 and self.iterations > 0):
            raise ValueError(
                f"tolerance = {self.tolerance!r} must lie in (0, 1) and iterations = "
                f"{self.iterations!r} be positive"
            )

    def line(self) -> NDArray[np.float64]:
        """The knots as an array."""
        return np.array(self.knots)
