"""The objective of a fit: the loss of all quotes and the roughness of the slopes.

In logarithms of the slopes the star order is a set of linear inequalities and the roughness is
quadratic. An objective never changes: :meth:`FitObjective.evaluate` returns a point with all that
later steps need, and other weights make another objective.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import prior_mean
from arbiter.fitting.interior_point import Expansion
from arbiter.fitting.misfit import MisfitPoint, QuoteMisfit
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.order_constraints import OrderConstraints
from arbiter.fitting.roughness import Penalty, QuadraticPenalty
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.pricing.knots import MAX_SLOPE
from arbiter.quotes import Quotes
from arbiter.surface import Surface

LOWEST_LOG_SLOPE = np.log(2e-6)  # log-slope, inside what a surface accepts
# As high: far puts that are bid at a tick put mass near zero, which takes steep slopes.
HIGHEST_LOG_SLOPE = float(np.log(MAX_SLOPE)) - 0.03
LOWEST_SHARE, HIGHEST_SHARE = 1e-6, 0.6  # of the second component
# Two components start looser: too stiff a second one loses its share, and never returns.
INITIAL_ROUGHNESS = {1: Roughness(1.0, 10.0, 1.0), 2: Roughness(0.1, 1.0, 0.1)}
_INITIAL_PRIOR_WEIGHT = 1.0  # weight of the distance from a prior


class PackedMean(NamedTuple):
    """A :class:`~arbiter.fitting.prior_mean.PriorMean` over the unknowns."""

    flat: Array  # (p,)
    shape: Array  # (p,) zero without a prior
    is_prior: bool  # whether it was read from a surface

    @classmethod
    def from_prior_mean(
        cls, found: prior_mean.PriorMean, layout: UnknownLayout, is_prior: bool
    ) -> PackedMean:
        """The mean in the places of the unknowns."""
        shares = (
            found.shares[None, :] if layout.components == 2 else np.zeros((0, layout.expiry_count))
        )
        flat, shape = layout.pack(found.flat, shares), layout.pack(found.shape, 0.0 * shares)
        return cls(flat, shape, is_prior)

    def at_trust(self, trust: float) -> Array:
        """``(p,)`` the mean with this share of the prior's shape."""
        return self.flat + trust * self.shape


@dataclass(frozen=True, eq=False)
class FitObjective:
    """The loss of quotes plus the roughness, over unknowns laid out by ``layout``.

    Attributes:
        misfit: The loss of the quotes.
        penalty: The roughness at unit weights.
        mean: What the unknowns are drawn to.
        roughness: Weights of the roughness.
        trust: Share of the prior's shape in the mean.
        quadratic: The roughness with these weights around that mean.
    """

    misfit: QuoteMisfit
    penalty: Penalty
    mean: PackedMean
    roughness: Roughness
    trust: float
    quadratic: QuadraticPenalty = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "quadratic", self._build_quadratic())

    @classmethod
    def from_quotes(
        cls,
        quotes: Quotes,
        options: FitOptions,
        weights: Array | None = None,
        prior: Surface | None = None,
    ) -> FitObjective:
        """The objective of a fit with the roughness that it starts from.

        Args:
            quotes: What is fitted.
            options: Components, knots, loss and floors of the half-spreads.
            weights: ``(m,)`` factors of each quote's loss, or None for ones.
            prior: A surface of as many components, whose distance is penalised.
        """
        misfit = QuoteMisfit.from_quotes(quotes, options, weights)
        layout, smiles = misfit.layout, misfit.smiles
        unquoted = np.asarray(np.diff(smiles.starts) == 0)
        penalty = Penalty(layout, quotes.clock_years, smiles.quoted_range, unquoted)
        roughness = INITIAL_ROUGHNESS[layout.components]
        if prior is None:
            found = prior_mean.make_flat_prior_mean(
                penalty.tau, layout.knot_count, layout.components
            )
        else:
            found = prior_mean.read_prior_mean(
                prior, layout.knots, quotes.maturities, penalty.tau, penalty.mass
            )
            roughness = replace(roughness, level=_INITIAL_PRIOR_WEIGHT)
        mean = PackedMean.from_prior_mean(found, layout, prior is not None)
        return FitObjective(misfit, penalty, mean, roughness, 1.0)

    @property
    def quotes(self) -> Quotes:
        """What is fitted."""
        return self.misfit.quotes

    @property
    def options(self) -> FitOptions:
        """Options of the fit."""
        return self.misfit.options

    @property
    def layout(self) -> UnknownLayout:
        """The places of the unknowns."""
        return self.misfit.layout

    def with_roughness(self, roughness: Roughness) -> Self:
        """The same objective with other weights of the roughness."""
        return replace(self, roughness=roughness)

    def with_trust(self, roughness: Roughness, trust: float) -> Self:
        """The same objective with other weights and another share of the prior's shape."""
        return replace(self, roughness=roughness, trust=trust)

    def while_choosing(self, choosing: bool) -> Self:
        """The same objective as roughness is chosen by it, or as the last steps take it."""
        return replace(self, misfit=replace(self.misfit, choosing=choosing))

    def without_prior_shape(self) -> Self:
        """The same objective with the flat part of the prior alone."""
        flat = self.mean._replace(shape=np.zeros_like(self.mean.shape))
        return replace(self, mean=flat, trust=0.0)

    def evaluate(self, z: Array) -> FitPoint:
        """The objective at the unknowns ``z``."""
        return self.add_roughness(self.misfit.evaluate_at(z))

    def add_roughness(self, misfit: MisfitPoint) -> FitPoint:
        """The objective where the loss of the quotes is known already."""
        roughness, gradient = self.quadratic.evaluate_at(misfit.z)
        return FitPoint(self, misfit, misfit.loss + roughness, gradient)

    def build_constraints(self) -> OrderConstraints:
        """The star order, the nesting of components, and bounds at both ends."""
        return build_order(self.layout)

    def _build_quadratic(self) -> QuadraticPenalty:
        return QuadraticPenalty(self.mean.at_trust(self.trust), self.penalty.weigh(self.roughness))


@dataclass(frozen=True, eq=False)
class FitPoint:
    """An objective at one set of unknowns.

    Attributes:
        objective: The function that was evaluated.
        misfit: Its loss of the quotes, with prices, residuals and linearisation.
        value: The objective.
        roughness_gradient: ``(p,)``.
    """

    objective: FitObjective
    misfit: MisfitPoint
    value: float
    roughness_gradient: Array

    @cached_property
    def expansion(self) -> Expansion:
        """The objective with gradient and Gauss-Newton matrix, computed once."""
        return self.misfit.expand(
            self.value, self.roughness_gradient, self.objective.quadratic.band
        )


def build_order(layout: UnknownLayout) -> OrderConstraints:
    """The star order first, then bounds at both ends and the nesting of components."""
    n = layout.knot_count
    index = np.arange(layout.size).reshape(layout.shape)
    slopes = layout.components * n
    none = np.full(n, -1)
    high = [index[1:].ravel(), index[0, :n], none]
    low = [index[:-1].ravel(), none, index[-1, slopes - n : slopes]]
    offset = [
        np.zeros(index[1:].size),
        np.full(n, -LOWEST_LOG_SLOPE),
        np.full(n, HIGHEST_LOG_SLOPE),
    ]
    if layout.components == 2:
        high += [index[:, n:slopes].ravel(), index[0, -1:], none[:1]]
        low += [index[:, :n].ravel(), none[:1], index[-1, -1:]]
        offset += [
            np.zeros(layout.expiry_count * n),
            np.array([-LOWEST_SHARE]),
            np.array([HIGHEST_SHARE]),
        ]
    return OrderConstraints(np.concatenate(high), np.concatenate(low), np.concatenate(offset))
