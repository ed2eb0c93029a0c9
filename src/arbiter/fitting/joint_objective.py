"""SPX and VIX in one objective: forward variances of the SPX slopes fix ``E VIX²``.

``FV(T) = (W(T+Δ) − W(T))/Δ`` depends on the slopes of the few expiries around T and T+Δ, and the
VIX options and futures of a date depend on the SPX slopes through this one number. So the matrix
of a Gauss-Newton step is that of the two markets by themselves plus one column for each date.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from arbiter.conventions import THIRTY_DAYS, Array
from arbiter.fitting.interior_point import Expansion
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.fitting.order_constraints import OrderConstraints
from arbiter.fitting.vix_objective import VixMisfitPoint, VixObjective
from arbiter.pricing.maturity import (
    slope_derivatives_at,
    slopes_at,
    weight_derivatives_at,
    weights_at,
)
from arbiter.pricing.price_derivatives import (
    KnotQuadrature,
    SliceIntegrals,
    integrate_segments,
    log_mean_gradient,
)
from arbiter.timing.time_change import TimeChange

_SAME_DATE_YEARS = 1e-9  # years: a date this near to a listed expiry is that expiry
_MIN_FORWARD_VARIANCE = 1e-12  # of forward variance, whose logarithm is taken


class ForwardVariances:
    """``log FV`` at dates ``(V,)`` as a function of the unknowns of a fit.

    Every component has mean one, so that ``W`` of a mixture is the sum of those of its components
    with their weights.
    """

    def __init__(
        self, knots: Array, maturities: Array, dates: Array, time: TimeChange | None = None
    ) -> None:
        self.clock_years = maturities if time is None else time.at(maturities)
        both = np.concatenate([dates, dates + THIRTY_DAYS])
        near = np.abs(both[:, None] - maturities).argmin(axis=1)
        self.listed = np.abs(both - maturities[near]) < _SAME_DATE_YEARS  # (2V,) most are, in a fit
        self.listed_at = near[self.listed]
        at = both[~self.listed]  # (u,) the others
        self.at = at if time is None else time.at(at)
        self.line = KnotQuadrature.from_knots(knots)

    def evaluate_at(self, slopes: Array, weights: Array) -> ForwardVariancePoint:
        """Forward variances for slopes ``(J, L, n)`` and weights ``(J, L)`` of the components."""
        here = np.empty((len(slopes), self.listed.size, slopes.shape[2]))
        share = np.empty((len(slopes), self.listed.size))
        here[:, self.listed], share[:, self.listed] = (
            part[:, self.listed_at] for part in (slopes, weights)
        )
        if self.at.size:
            here[:, ~self.listed] = slopes_at(self.clock_years, slopes, self.at)
            share[:, ~self.listed] = weights_at(self.clock_years, weights, self.at)
        slices = [integrate_segments(self.line, part) for part in here]
        each = [
            2.0 * (np.log(part.mean) - own @ self.line.mean)
            for part, own in zip(slices, here, strict=True)
        ]
        return ForwardVariancePoint(self, slopes, weights, slices, share, np.stack(each))


@dataclass(frozen=True, eq=False)
class ForwardVariancePoint:
    """Forward variances at one set of unknowns; windows' beginnings come first, then their ends.

    Attributes:
        function: What was evaluated.
        slopes: ``(J, L, n)`` at the maturities of the fit.
        weights: ``(J, L)`` there.
        slices: J times the integrals of the 2V slices of a component.
        shares: ``(J, 2V)`` weights of the components at the dates.
        variances: ``(J, 2V)`` log-contract variances of the components.
    """

    function: ForwardVariances
    slopes: Array
    weights: Array
    slices: list[SliceIntegrals]
    shares: Array
    variances: Array

    @cached_property
    def forward_variance(self) -> Array:
        """``(V,)``."""
        begin, end = np.split((self.shares * self.variances).sum(axis=0), 2)
        return np.asarray(np.maximum((end - begin) / THIRTY_DAYS, _MIN_FORWARD_VARIANCE))

    @cached_property
    def gradient(self) -> Array:
        """Derivatives ``(V, L·B)`` of ``log FV`` by the log-slopes and shares of a fit."""
        function, slopes = self.function, self.slopes
        line, clock_years = function.line, function.clock_years
        components, count, n = slopes.shape
        own = [
            2.0 * share[:, None] * (log_mean_gradient(line, part) - line.mean)
            for part, share in zip(self.slices, self.shares, strict=True)
        ]  # (J) of (2V, n), of W by the slopes there
        apart = self.variances[-1] - self.variances[0]  # (2V,) of W by the share
        by = np.zeros((apart.size, count, components * n + components - 1))
        at, listed_at = np.flatnonzero(function.listed), function.listed_at
        for j, part in enumerate(slopes):
            by[at, listed_at, j * n : (j + 1) * n] = own[j][at] * part[listed_at]
        if components == 2:
            by[at, listed_at, -1] = apart[at]
        if function.at.size:
            at = np.flatnonzero(~function.listed)
            moved = slope_derivatives_at(clock_years, slopes, function.at)  # (u, J, J, L, n)
            for j, part in enumerate(slopes):
                for i, gradient in enumerate(own):
                    by[at, :, j * n : (j + 1) * n] += gradient[at, None] * moved[:, i, j] * part
            if components == 2:
                share = weight_derivatives_at(clock_years, self.weights, function.at)  # (u, L)
                by[at, :, -1] = apart[at, None] * share
        begin, end = np.split(by.reshape(apart.size, -1), 2)
        return np.asarray((end - begin) / (THIRTY_DAYS * self.forward_variance[:, None]))


@dataclass(frozen=True, eq=False)
class JointObjective:
    """The objective of two markets: SPX unknowns first, then those of the VIX.

    Attributes:
        spx: Objective of the SPX options.
        vix: Objective of the VIX options and futures, not coupled yet.
        variances: Forward variances of the VIX dates from SPX slopes.
    """

    spx: FitObjective
    vix: VixObjective
    variances: ForwardVariances = field(init=False)

    def __post_init__(self) -> None:
        dates = self.vix.quotes.maturities
        found = ForwardVariances(
            self.spx.layout.knots, self.spx.quotes.maturities, dates, self.spx.quotes.time
        )
        object.__setattr__(self, "variances", found)

    @property
    def split(self) -> int:
        """The number of SPX unknowns."""
        return self.spx.layout.size

    def with_spx(self, spx: FitObjective) -> JointObjective:
        """The same objective with other weights on the SPX side."""
        return replace(self, spx=spx)

    def build_constraints(self) -> OrderConstraints:
        """The constraints of both markets."""
        first, second = self.spx.build_constraints(), self.vix.build_constraints()
        move = [np.where(each >= 0, each + self.split, -1) for each in (second.high, second.low)]
        return OrderConstraints(
            np.concatenate([first.high, move[0]]),
            np.concatenate([first.low, move[1]]),
            np.concatenate([first.offset, second.offset]),
        )

    def evaluate(self, z: Array) -> JointPoint:
        """Both markets at the unknowns ``z``, the VIX on the forward variance of the SPX slopes."""
        spx = self.spx.evaluate(z[: self.split])
        windows = self.variances.evaluate_at(*self.spx.layout.decode(spx.misfit.z))
        coupled = self.vix.misfit.with_forward_variance(np.log(windows.forward_variance))
        return self._join(spx, coupled.evaluate_at(z[self.split :]), windows)

    def reweigh(self, point: JointPoint) -> JointPoint:
        """The objective where another one with the same quotes was evaluated."""
        spx = self.spx.add_roughness(point.spx.misfit)
        return self._join(spx, point.vix_misfit, point.windows)

    def _join(
        self, spx: FitPoint, vix: VixMisfitPoint, windows: ForwardVariancePoint
    ) -> JointPoint:
        return JointPoint(self, spx, self.vix.add_roughness(vix), vix, windows)


@dataclass(frozen=True, eq=False)
class JointPoint:
    """A joint objective at one set of unknowns.

    Attributes:
        objective: The function that was evaluated.
        spx: The SPX side.
        vix: The VIX side.
        vix_misfit: The loss of the VIX quotes, which :attr:`vix` holds too.
        windows: Forward variances of the VIX dates.
    """

    objective: JointObjective
    spx: FitPoint
    vix: FitPoint
    vix_misfit: VixMisfitPoint
    windows: ForwardVariancePoint

    @property
    def value(self) -> float:
        """The objective; infinite where forward variance vanishes in rounding."""
        value = self.spx.value + self.vix.value
        return value if np.isfinite(value) else float("inf")

    @cached_property
    def expansion(self) -> Expansion:
        """The objective with gradient, the matrices of both and the columns that couple them."""
        split = self.objective.split
        one, two = self.spx.expansion, self.vix.expansion
        by = self.vix_misfit.linearisation.by_variance
        gradient = np.concatenate(
            [one.gradient + by.gradient @ self.windows.gradient, two.gradient]
        )
        matrix = np.zeros((gradient.size, max(one.matrix.shape[1], two.matrix.shape[1])))
        matrix[:split, : one.matrix.shape[1]] = one.matrix
        matrix[split:, : two.matrix.shape[1]] = two.matrix
        return Expansion(one.value + two.value, gradient, matrix, self.coupling)

    @cached_property
    def coupling(self) -> Array:
        """``(p, V)`` columns that couple the markets, one a date of the VIX."""
        split, by = self.objective.split, self.vix_misfit.linearisation.by_variance
        # q (∇f + c/q)(∇f + c/q)ᵀ: the blocks of the VIX have c cᵀ/q taken out
        root = np.sqrt(by.weight)
        columns = np.zeros((split + self.vix_misfit.z.size, by.weight.size))
        columns[:split] = (root[:, None] * self.windows.gradient).T
        dates = np.arange(by.weight.size)
        blocks = columns[split:].reshape(*self.vix.objective.layout.shape, dates.size)
        blocks[dates, :, dates] = by.cross / np.maximum(root, 1e-150)[:, None]
        return columns
