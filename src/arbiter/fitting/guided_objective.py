"""The objective of a fit that leans on a guide: a surface made from the same quotes.

Roughness is that of the log-slopes themselves, as without a guide, so that what is rough in a guide
is smoothed like anything else. Beside it stands a pull to the guide. Without it this is the plain
fit, and with ever more of it the guide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solveh_banded

from arbiter.conventions import Array
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.prior_mean import log_slopes
from arbiter.quotes import Quotes
from arbiter.surface import Surface

_BEYOND_QUOTES_FACTOR = 10.0
_RIDGE_PRECISION = 1e-10  # constants cost nothing where there is no pull of the level


class Pull(NamedTuple):
    """Weights of the distance from a guide b₀, in squared half-spreads."""

    level: float  # of ∫ (log b − log b₀)² dx, summed over expiries
    bend: float  # of ∫ (∂²(log b − log b₀)/∂x²)² dx

    @property
    def beyond_quotes(self) -> float:
        """Of ``∫ (∂(log b − log b₀)/∂x)² dx`` beyond the quotes of each expiry.

        No quote can judge it. A guide has seen wings and a fit has not, so it is more than the
        others where they are little, and goes with them.
        """
        return float(_BEYOND_QUOTES_FACTOR * np.sqrt(self.level))


class GuidedObjective(FitObjective):
    """A :class:`Model` of one component with a pull to a guide.

    Args:
        quotes: What is fitted.
        options: How.
        guide: A surface of one component.

    Attributes:
        guide: ``(p,)`` its log-slopes at the knots and maturities of the fit.
        parts: ``(L or 1, n, n)`` matrices of the pull at weight one: level, bend, beyond. None has
            links between expiries.
    """

    _drawn: Array | None = None  # the matrix of the present pull

    def __init__(self, quotes: Quotes, options: FitOptions, guide: Surface) -> None:
        super().__init__(quotes, options)
        self.guide = self.read(guide)
        self.raise_slope_bound(self.guide)
        self.parts = self._unit_pull_blocks()

    def read(self, surface: Surface) -> Array:
        """Log-slopes ``(p,)`` of a surface at the knots and maturities of the fit."""
        logs, _ = log_slopes(surface, self.knots, self.quotes.maturities)
        return np.asarray(logs[0].reshape(-1))

    def set_roughness_and_pull(self, roughness: Roughness, pull: Pull | None) -> None:
        """Set the weights; without a pull this is the model of a fit that knows no guide."""
        self._drawn = None if pull is None else self.pull_blocks(pull)
        self.roughness = roughness
        self.centre = self.flat_mean
        if self._drawn is not None:
            # a product of two Gaussians is one: its mean is where roughness and pull balance
            matrix = self.band.copy()
            matrix[0] += _RIDGE_PRECISION
            force = self.multiply_blocks(self._drawn, self.guide - self.flat_mean)
            self.centre = self.flat_mean + solveh_banded(matrix, force, lower=True)

    def precision(self) -> tuple[Array, Array]:
        """Blocks of the roughness' matrix, the pull's included, and those beside them."""
        blocks, link = super().precision()
        return (blocks if self._drawn is None else blocks + self._drawn), link

    def current_pull_blocks(self) -> Array:
        """``(L, n, n)`` the matrix of the present pull."""
        return np.zeros((self.L, self.n, self.n)) if self._drawn is None else self._drawn

    def pull_blocks(self, pull: Pull) -> Array:
        """``(L, n, n)`` the matrix of a pull."""
        level, bend, beyond = self.parts
        return np.asarray(pull.level * level + pull.bend * bend + pull.beyond_quotes * beyond)

    def multiply_blocks(self, blocks: Array, away: Array) -> Array:
        """A matrix without links times a change of the unknowns."""
        table = away.reshape(self.shape)
        return np.asarray(np.matmul(blocks, table[:, :, None])[:, :, 0].reshape(-1))

    def banded(self, blocks: Array) -> Array:
        """A matrix without links in lower banded form."""
        band = np.zeros_like(self.band)
        rows = np.broadcast_to(blocks, (self.L, self.n, self.n)).reshape(self.L, -1)
        band.reshape(-1)[self.band_positions] = rows[:, self.lower_positions].ravel()
        return band

    def residual_jacobian(self, z: Array) -> Array:
        """``(m, n)`` of the residuals by the log-slopes of their expiries."""
        rows, factor = self.scaled_jacobian(self.evaluate_at(z), 1.0 / self.unit)
        return np.asarray(rows * factor[self.quotes.expiry])

    def _unit_pull_blocks(self) -> tuple[Array, Array, Array]:
        reach = self.quoted_range()
        middle = 0.5 * (self.knots[1:] + self.knots[:-1])
        outside = (middle < reach[:, :1]) | (middle > reach[:, 1:])  # (L, n-1)
        step = (np.eye(self.n, k=1) - np.eye(self.n))[:-1]
        weight = outside / np.diff(self.knots)
        beyond = np.matmul(step.T * weight[:, None, :], step)
        return np.diag(self.penalty.mass)[None], self.penalty.bend[None], beyond
