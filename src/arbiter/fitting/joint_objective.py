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
from arbiter.pricing.maturity import slope_derivatives_at, slopes_at
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
    """``log FV`` at dates ``(V,)`` and its derivatives by the log-slopes ``(L, n)`` of a fit."""

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
        self.size = dates.size

    def log_forward_variances(self, slopes: Array) -> Array:
        """``log FV`` ``(V,)`` for slopes ``(L, n)``."""
        return np.asarray(np.log(self._forward_variances(*self._integrate_dates(slopes))))

    def gradient(self, slopes: Array) -> Array:
        """Derivatives ``(V, L·n)`` of ``log FV`` by the log-slopes."""
        here, slices = self._integrate_dates(slopes)
        variance = self._forward_variances(here, slices)
        by_slope = 2.0 * (log_mean_gradient(self.line, slices) - self.line.mean)  # (2V, n) of W
        each = by_slope[:, None, :] * self._interpolation_jacobian(slopes) * slopes  # (2V, L, n)
        change = each[self.size :] - each[: self.size]
        rate = change / (THIRTY_DAYS * variance[:, None, None])
        return np.asarray(rate.reshape(self.size, -1))

    def _integrate_dates(self, slopes: Array) -> tuple[Array, SliceIntegrals]:
        here = np.empty((self.listed.size, slopes.shape[1]))
        here[self.listed] = slopes[self.listed_at]
        if self.at.size:
            here[~self.listed] = slopes_at(self.clock_years, slopes[None], self.at)[0]
        return here, integrate_segments(self.line, here)

    def _forward_variances(self, here: Array, slices: SliceIntegrals) -> Array:
        total = 2.0 * (np.log(slices.mean) - here @ self.line.mean)  # W
        return np.maximum(
            (total[self.size :] - total[: self.size]) / THIRTY_DAYS, _MIN_FORWARD_VARIANCE
        )

    def _interpolation_jacobian(self, slopes: Array) -> Array:
        """``(2V, L, n)`` derivatives of the slopes at the dates by the listed ones."""
        found = np.zeros((self.listed.size, *slopes.shape))
        found[np.flatnonzero(self.listed), self.listed_at] = 1.0
        if self.at.size:
            moved = slope_derivatives_at(self.clock_years, slopes[None], self.at)
            found[~self.listed] = moved[:, 0, 0]
        return found


@dataclass(frozen=True, eq=False)
class JointObjective:
    """The objective of two markets: SPX unknowns first, then those of the VIX.

    Attributes:
        spx: Objective of the SPX options, one component.
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
        slopes = np.exp(spx.misfit.z.reshape(self.spx.layout.shape))
        coupled = self.vix.misfit.with_forward_variance(
            self.variances.log_forward_variances(slopes)
        )
        return self._join(spx, coupled.evaluate_at(z[self.split :]))

    def reweigh(self, point: JointPoint) -> JointPoint:
        """The objective where another one with the same quotes was evaluated."""
        return self._join(self.spx.add_roughness(point.spx.misfit), point.vix_misfit)

    def _join(self, spx: FitPoint, vix: VixMisfitPoint) -> JointPoint:
        return JointPoint(self, spx, self.vix.add_roughness(vix), vix)


@dataclass(frozen=True, eq=False)
class JointPoint:
    """A joint objective at one set of unknowns.

    Attributes:
        objective: The function that was evaluated.
        spx: The SPX side.
        vix: The VIX side.
        vix_misfit: The loss of the VIX quotes, which :attr:`vix` holds too.
    """

    objective: JointObjective
    spx: FitPoint
    vix: FitPoint
    vix_misfit: VixMisfitPoint

    @property
    def value(self) -> float:
        """The objective; infinite where forward variance vanishes in rounding."""
        value = self.spx.value + self.vix.value
        return value if np.isfinite(value) else float("inf")

    @cached_property
    def _by_spx(self) -> Array:
        """``(V, L·n)`` derivatives of the forward variances' logarithms by the SPX unknowns."""
        slopes = np.exp(self.spx.misfit.z.reshape(self.spx.objective.layout.shape))
        return self.objective.variances.gradient(slopes)

    @cached_property
    def expansion(self) -> Expansion:
        """The objective with gradient, the matrices of both and the columns that couple them."""
        split = self.objective.split
        one, two = self.spx.expansion, self.vix.expansion
        by = self.vix_misfit.linearisation.by_variance
        gradient = np.concatenate([one.gradient + by.gradient @ self._by_spx, two.gradient])
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
        columns[:split] = (root[:, None] * self._by_spx).T
        dates = np.arange(by.weight.size)
        blocks = columns[split:].reshape(*self.vix.objective.layout.shape, dates.size)
        blocks[dates, :, dates] = by.cross / np.maximum(root, 1e-150)[:, None]
        return columns
