"""A window of expiries fitted again between fixed ones, and what that changes in the whole fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import banded
from arbiter.fitting.fitted_surface import FitInput, FittedSurface, Optimum
from arbiter.fitting.interior_point import InteriorPoint, Status
from arbiter.fitting.loss import EXACT_LOSS_PER_QUOTE
from arbiter.fitting.objective import HIGHEST_LOG_SLOPE
from arbiter.fitting.roughness import measure_reach_change
from arbiter.fitting.smoothing import compute_unevenness
from arbiter.fitting.window_objective import (
    ORDER_SLACK,
    Window,
    WindowObjective,
    WindowPoint,
)
from arbiter.inputs import freeze_array
from arbiter.quotes import Quotes

# Slacks of a start are at least this share of their part of the room between the fixed expiries.
_START_SLACK_SHARE, _MAX_START_SLACK = 0.3, 1e-3  # the second of log-slopes
_EXPECTED_GAP_SHARE = 1e-3  # complementarity at the start, as a share of the objective
_EXPIRIES_BESIDE = 8  # whose response to a window is looked at, on each side


@dataclass(frozen=True, eq=False)
class FittedWindow:
    """A window fitted again.

    Attributes:
        surface: The surface before.
        source: What it was fitted to.
        optimum: Where that fit ended.
        window: The expiries that moved.
        interior: The last iterate of the window.
        status: How its steps ended.
    """

    surface: FittedSurface
    source: FitInput
    optimum: Optimum
    window: Window
    interior: InteriorPoint[WindowPoint]
    status: Status

    @classmethod
    def from_quotes(
        cls,
        surface: FittedSurface,
        before: tuple[FitInput, Optimum],
        quotes: Quotes,
        window: Window,
        logs: Array,
    ) -> FittedWindow:
        """The fit of a window to ``quotes``, from the log-slopes ``(L, n)`` of all expiries."""
        (source, optimum), result = before, surface.result
        objective = WindowObjective.from_quotes(quotes, source, result.roughness, window, logs)
        z = _open_slacks(logs, window)
        # what counts as converged is the same as in a fit of all quotes
        scale = max(result.objective, EXACT_LOSS_PER_QUOTE * len(quotes))
        interior = InteriorPoint.start_at(objective, objective.build_constraints(), z, scale)
        known, links = np.zeros(interior.slacks.size), objective.expiry_count - 1
        duals = optimum.duals[window.fixed_first : window.fixed_first + links]
        known[: duals.size] = duals.reshape(-1)
        interior = interior.with_expected_value(0.0, _EXPECTED_GAP_SHARE, known)
        ended = interior.run(source.options.tolerance, source.options.iterations)
        return cls(surface, source, optimum, window, *ended)

    @property
    def _links(self) -> slice:
        """The links, among all between neighbouring expiries, that touch the window."""
        first = self.window.fixed_first
        return slice(first, first + self.interior.point.objective.expiry_count - 1)

    def _link_values(self, values: Array) -> Array:
        """Values of the constraints on the links ``(l, n)``, which come first among them."""
        count, n = self._links.stop - self._links.start, self.surface.knots.size
        return values[: count * n].reshape(count, n)

    def _old_logs(self) -> Array:
        """Log-slopes, before, of the window and of the fixed expiries beside it."""
        first = self.window.fixed_first
        end = first + self.interior.point.objective.expiry_count
        return np.asarray(np.log(self.surface.slopes[0, first:end]))

    def pushes_quotes_out(self) -> bool:
        """Whether a quote is outside its spread that was inside before.

        Beyond the edge the loss is not convex: a fit of all quotes may end in another minimum.
        """
        source, own = self.source.quotes, slice(*self.window)
        edges = np.searchsorted(source.expiry, [own.start, own.stop])
        before = np.abs(self.surface.result.residuals[edges[0] : edges[1]])
        now = np.abs(self.interior.point.misfit.residuals)
        if now.size != before.size:
            return bool(np.any(now > 1.0))
        return bool(np.any((now > 1.0) & (before <= 1.0)))

    def bound_gain_beside(self) -> float:
        """What the objective would fall by if the expiries beside the window moved too.

        To second order, by the forces that the window's move has put on them: through the
        roughness, and through the multipliers of the star order.
        """
        objective, old = self.interior.point.objective, self._old_logs()
        move = objective.join_neighbours(self.interior.z) - old.reshape(-1)
        force = objective.quadratic.multiply(move).reshape(old.shape)
        duals = self._link_values(self.interior.duals)
        change, (first, end) = duals - self.optimum.duals[self._links], self.window
        low, high = (
            self._matrix_beside(first - _EXPIRIES_BESIDE, first),
            self._matrix_beside(end, end + _EXPIRIES_BESIDE),
        )
        push, pull = force[0] + change[0], force[-1] - change[-1]
        if low.size and high.size:
            # multipliers of slopes squeezed to one value from both sides have a common part, which
            # nothing determines: they take the one with the least gain
            soft, softer = 1.0 / low[-1, :, 0], 1.0 / high[0, :, 0]
            common = (push * soft - pull * softer) / (soft + softer)
            common = np.clip(common, 0.0, duals.min(axis=0))
            push, pull = push - common, pull + common
        return _measure_gain(low, -1, push) + _measure_gain(high, 0, pull)

    def _matrix_beside(self, first: int, end: int) -> Array:
        """The information ``(l, n, w)`` of expiries beside the window, as far as there are any.

        At both ends the order does not hold: its stiffness would block them, as it never lets go.
        """
        n, barrier = self.surface.knots.size, self.optimum.barrier
        first, end = max(first, 0), min(end, len(barrier) + 1)
        matrix = banded.cut_out(self.surface.uncertainty.matrix, slice(first * n, end * n))
        table = matrix.reshape(end - first, n, matrix.shape[1])
        if 0 < first < end:
            table[0, :, 0] -= barrier[first - 1]
        if first < end <= len(barrier):
            table[-1, :, 0] -= barrier[end - 1]
        return table

    def update_optimum(self) -> Optimum:
        """Where the whole fit ends now."""
        duals, barrier, reach, losses = (part.copy() for part in self.optimum)
        duals[self._links] = self._link_values(self.interior.duals)
        barrier[self._links] = self._link_values(self.interior.duals / self.interior.slacks)
        misfit, own = self.interior.point.misfit, slice(*self.window)
        reach[own] = misfit.misfit.smiles.quoted_range
        losses[own] = misfit.sum_by_expiry()
        return Optimum(*(freeze_array(part) for part in (duals, barrier, reach, losses)))

    def update_misfit(self) -> tuple[float, Array]:
        """The objective of all quotes and their residuals: the window's alone have changed."""
        source, result, point = self.source, self.surface.result, self.interior.point
        first, end = self.window
        old = self._old_logs()
        roughness, _ = point.objective.quadratic.evaluate_at(old.reshape(-1))
        # the penalty has changed as well, where quotes end elsewhere
        own = old[first - self.window.fixed_first :][: end - first]
        both = self.optimum.reach[first:end], point.objective.misfit.smiles.quoted_range
        roughness += measure_reach_change(self.surface.knots, both, own, result.roughness.strike)
        start, stop = np.searchsorted(source.quotes.expiry, [first, end])
        loss = float(self.optimum.losses[first:end].sum())
        parts = [result.residuals[:start], point.misfit.residuals, result.residuals[stop:]]
        value = result.objective + point.value - loss - roughness
        return value, freeze_array(np.concatenate(parts))

    def update_slopes(self) -> Array:
        """Slopes ``(1, L, n)`` of the whole fit, in exact order."""
        slopes, (first, end) = self.surface.slopes.copy(), self.window
        slopes[0, first:end] = np.exp(self.interior.z).reshape(-1, slopes.shape[2])
        if end < slopes.shape[1]:
            slopes[0, first:end] = np.minimum(slopes[0, first:end], slopes[0, end])
        return np.maximum.accumulate(slopes, axis=1)

    def update_information(self) -> Array:
        """The information of the whole fit, of which the window's is new."""
        point, result, interior = self.interior.point, self.surface.result, self.interior
        n, (first, end) = self.surface.knots.size, self.window
        stiffness = self.source.options.loss.without_rim()(result.residuals).weight
        uneven = compute_unevenness(result.freedom, np.ones(stiffness.size), stiffness)
        matrix = self.surface.uncertainty.matrix.copy()
        table = matrix.reshape(-1, n, matrix.shape[1])  # (L, n, w)
        _add_barrier(table, self._links, -self.optimum.barrier[self._links])
        rows = point.objective.quadratic.band[point.objective.own]
        whole, quoted = point.misfit.linearisation.band, point.misfit.of_quotes.band
        rows = rows + point.misfit.while_choosing().of_quotes.band / uneven + (whole - quoted)
        table[first:end] = rows.reshape(end - first, n, -1)
        barrier = interior.duals / interior.slacks
        links = self._link_values(barrier)
        _add_barrier(table, self._links, links)
        bounds = iter(barrier[links.size :].reshape(-1, n))  # the lowest slope, then the highest
        if first == 0:
            table[0, :, 0] += next(bounds)
        if end == len(table):
            table[-1, :, 0] += next(bounds)
        return matrix


def _measure_gain(table: Array, at: int, force: Array) -> float:
    """The gain of expiries with the information ``(l, n, w)``, one of which feels a force."""
    if not table.size:
        return 0.0
    push = np.zeros(table.shape[:2])
    push[at] = force
    try:
        factor = banded.factorise(table.reshape(-1, table.shape[2]))
    except banded.SingularMatrixError:
        return np.inf
    return 0.5 * float(push.reshape(-1) @ banded.solve(factor, push.reshape(-1)))


def _add_barrier(table: Array, links: slice, barrier: Array) -> None:
    """Add the stiffness ``(l, n)`` of links between expiries to a matrix ``(L, n, w)``."""
    n = table.shape[1]
    after = slice(links.start + 1, links.stop + 1)
    table[links, :, 0] += barrier
    table[after, :, 0] += barrier
    table[links, :, n] -= barrier


def _open_slacks(logs: Array, window: Window) -> Array:
    """The log-slopes ``(p,)`` of a window, moved strictly inside the order with its neighbours."""
    own = logs[window.first : window.end].copy()
    steps = len(own) + 1
    low = logs[window.first - 1] if window.first > 0 else own[0] - _MAX_START_SLACK
    high = logs[window.end] if window.end < len(logs) else np.full(len(low), HIGHEST_LOG_SLOPE)
    low, high = low - 0.5 * ORDER_SLACK, high + 0.5 * ORDER_SLACK
    room = np.minimum(_START_SLACK_SHARE * (high - low) / steps, _MAX_START_SLACK)
    for at in range(len(own)):
        own[at] = np.maximum(own[at], (own[at - 1] if at else low) + room)
    for at in range(len(own) - 1, -1, -1):
        own[at] = np.minimum(own[at], (own[at + 1] if at < len(own) - 1 else high) - room)
    return own.reshape(-1)
