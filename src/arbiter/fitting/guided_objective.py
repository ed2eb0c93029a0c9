"""The objective of a fit with a guide: a surface made from the same quotes.

The roughness is that of the log-slopes themselves, as without a guide, so that a rough guide is
smoothed. A second quadratic term pulls the log-slopes to the guide. With weight zero the objective
is that of the plain fit; with growing weight the fit tends to the guide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import banded
from arbiter.fitting.interior_point import add_ridge
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.prior_mean import log_slopes
from arbiter.fitting.roughness import QuadraticPenalty
from arbiter.quotes import Quotes
from arbiter.surface import Surface

_BEYOND_QUOTES_FACTOR = 10.0
_RIDGE_PRECISION = 1e-10  # the roughness alone does not fix constants


class Pull(NamedTuple):
    """Weights of the distance from a guide b₀, in squared half-spreads."""

    level: float  # of ∫ (log b − log b₀)² dx, summed over expiries
    bend: float  # of ∫ (∂²(log b − log b₀)/∂x²)² dx

    @property
    def beyond_quotes(self) -> float:
        """The weight of ``∫ (∂(log b − log b₀)/∂x)² dx`` beyond the quotes of each expiry.

        No quote is there to choose it. It grows with the root of ``level``, and is larger than
        the other weights where they are small, since the guide was made with wings in view.
        """
        return float(_BEYOND_QUOTES_FACTOR * np.sqrt(self.level))


class UnitPulls(NamedTuple):
    """Matrices ``(p, w)`` of the pull at weight one; none couples expiries."""

    value: Array
    bend: Array
    beyond: Array

    @classmethod
    def from_objective(cls, plain: FitObjective) -> UnitPulls:
        """The matrices at the knots of a fit and for the ranges of its quotes."""
        knots, n = plain.layout.knots, plain.layout.knot_count
        step = (np.eye(n, k=1) - np.eye(n))[:-1]
        weight = plain.penalty.outside / np.diff(knots)
        beyond = np.matmul(step.T * weight[:, None, :], step)
        ones, bands = np.ones(plain.layout.expiry_count), np.zeros((2, *plain.layout.band_shape))
        for block, band in zip(
            (np.diag(plain.penalty.mass), plain.penalty.bend), bands, strict=True
        ):
            plain.layout.add_spread_block(block, ones, 0.0 * ones[1:], 1.0, band)
        return cls(bands[0], bands[1], plain.layout.to_band(beyond))

    def weigh(self, pull: Pull) -> Array:
        """``(p, w)`` the matrix of a pull."""
        return np.asarray(
            pull.level * self.value + pull.bend * self.bend + pull.beyond_quotes * self.beyond
        )


@dataclass(frozen=True, eq=False)
class GuidedObjective(FitObjective):
    """A :class:`FitObjective` of one component with a pull to a guide.

    Attributes:
        guide: ``(p,)`` log-slopes of the guide at the knots and maturities of the fit.
        unit_pulls: Matrices of the pull at weight one.
        pull: Weights of the pull; None for none, as in a fit without a guide.
    """

    guide: Array
    unit_pulls: UnitPulls
    pull: Pull | None

    @classmethod
    def from_guide(cls, quotes: Quotes, options: FitOptions, guide: Surface) -> GuidedObjective:
        """The objective without a pull.

        Args:
            quotes: What is fitted.
            options: Knots, loss and floors of the half-spreads; one component.
            guide: A surface of one component.
        """
        plain = FitObjective.from_quotes(quotes, options)
        logs = read_log_slopes(plain, guide)
        return GuidedObjective(
            misfit=plain.misfit,
            penalty=plain.penalty,
            mean=plain.mean,
            roughness=plain.roughness,
            trust=plain.trust,
            guide=logs,
            unit_pulls=UnitPulls.from_objective(plain),
            pull=None,
        )

    def with_pull(self, roughness: Roughness, pull: Pull | None) -> GuidedObjective:
        """The same objective with other weights; without a pull that of a fit without a guide."""
        return replace(self, roughness=roughness, pull=pull)

    def pull_band(self) -> Array:
        """``(p, w)`` the matrix of the pull, zero without one."""
        if self.pull is None:
            return np.zeros(self.layout.band_shape)
        return self.unit_pulls.weigh(self.pull)

    def _build_quadratic(self) -> QuadraticPenalty:
        rough = super()._build_quadratic()
        if self.pull is None:
            return rough
        drawn = self.pull_band()
        band = rough.band + drawn
        # a product of two Gaussians is one: its mean is where roughness and pull balance
        ridged = add_ridge(band, _RIDGE_PRECISION)
        force = banded.multiply(drawn, self.guide - self.mean.flat)
        centre = self.mean.flat + banded.solve(banded.factorise(ridged), force)
        return QuadraticPenalty(centre, band)


def read_log_slopes(objective: FitObjective, surface: Surface) -> Array:
    """Log-slopes ``(p,)`` of a surface of one component at the knots and maturities of a fit."""
    logs, _ = log_slopes(surface, objective.layout.knots, objective.quotes.maturities)
    return np.asarray(logs[0].reshape(-1))
