"""A fitted surface after some of its quotes changed: a fit of few expiries between fixed ones.

With the weights of the roughness given, a quote moves the slopes of its own expiry and, through
roughness and star order, those of its neighbours, less and less with distance. So only a window of
expiries is fitted again, and it grows until its ends stay where they are.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting.direct_fit import fit
from arbiter.fitting.fitted_surface import FitInput, FittedSurface, build_surface
from arbiter.fitting.interior_point import Expansion, InteriorPoint, Status
from arbiter.fitting.loss import EXACT_LOSS_PER_QUOTE
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.fitting.order_constraints import OrderConstraints
from arbiter.fitting.smoothing import compute_unevenness
from arbiter.inputs import freeze_array
from arbiter.quotes import Quotes

logger = logging.getLogger(__name__)

# A window is wide enough when the expiries beside it have no more to gain by moving, in squared
# half-spreads. One that would be wider than this share of all expiries is the whole chain.
MAX_GAIN_BESIDE = 0.003
_MAX_WINDOW_SHARE = 0.3
# Slacks of a start are at least this share of their part of the room between the fixed expiries.
_START_SLACK_SHARE, _MAX_START_SLACK = 0.3, 1e-3  # the second of log-slopes
# Log-slopes may pass those of a fixed neighbour by this much, where both are squeezed to one value;
# afterwards they are put in order.
_ORDER_SLACK = 1e-9
_EXPECTED_GAP_SHARE = 1e-3  # complementarity at the start, as a share of the objective


class Window(NamedTuple):
    """Expiries ``first`` to ``end − 1``, which move."""

    first: int
    end: int

    @property
    def fixed_first(self) -> int:
        """The fixed expiry before the window, or the window's first if there is none."""
        return max(self.first - 1, 0)

    def widen(self, count: int) -> Window:
        """The window with as many expiries again on each side."""
        more = max((self.end - self.first) // 2, 1)
        return Window(max(self.first - more, 0), min(self.end + more, count))


@dataclass(frozen=True, eq=False)
class WindowPoint:
    """The objective of a window, its neighbours fixed.

    Attributes:
        whole: The objective of the window and its neighbours.
        first: The first unknown of the window.
        size: The number of its unknowns.
    """

    whole: FitPoint
    first: int
    size: int

    @property
    def value(self) -> float:
        """The objective."""
        return self.whole.value

    @cached_property
    def expansion(self) -> Expansion:
        """The objective with gradient and Gauss-Newton matrix over the window's unknowns."""
        local = self.whole.expansion
        own = slice(self.first, self.first + self.size)
        matrix = local.matrix[own].copy()
        reach = np.arange(matrix.shape[1])
        for row in range(max(self.size - reach.size + 1, 0), self.size):
            matrix[row, self.size - row :] = 0.0
        return Expansion(local.value, local.gradient[own], matrix)


@dataclass(frozen=True, eq=False)
class WindowObjective:
    """The objective of a fit as a function of the log-slopes of a window.

    Attributes:
        whole: The objective of the window and of the fixed expiries beside it.
        before: Log-slopes ``(n,)`` of the fixed expiry before the window; empty if there is none.
        after: Those of the one after it.
    """

    whole: FitObjective
    before: Array
    after: Array

    def evaluate(self, z: Array) -> WindowPoint:
        """The objective at the unknowns of the window."""
        point = self.whole.evaluate(np.concatenate([self.before, z, self.after]))
        return WindowPoint(point, self.before.size, z.size)

    def build_constraints(self, size: int) -> OrderConstraints:
        """The star order within the window and with its fixed neighbours, or the bounds."""
        order, first = self.whole.build_constraints(), self.before.size
        values = np.concatenate([self.before, np.zeros(size), self.after])
        offset, ends = order.offset.copy(), []
        for index, sign in ((order.high, 1.0), (order.low, -1.0)):
            free = (index >= first) & (index < first + size)
            fixed = (index >= 0) & ~free
            offset[fixed] += sign * values[index[fixed]] + _ORDER_SLACK
            ends.append(np.where(free, index - first, -1))
        kept = (ends[0] >= 0) | (ends[1] >= 0)
        return OrderConstraints(ends[0][kept], ends[1][kept], offset[kept])


def update_surface(surface: FittedSurface, quotes: Quotes) -> FittedSurface:
    """The surface with some quotes replaced, its roughness kept.

    Args:
        surface: A direct fit of one component, without a prior and without the VIX.
        quotes: All quotes, those that did not change included, at the same maturities.

    Raises:
        ValueError: If the surface is another kind of fit, or the maturities differ.
    """
    began = time.perf_counter()
    source, duals = _require_plain_fit(surface, quotes)
    changed = np.flatnonzero(_find_changed_expiries(source.quotes, quotes))
    if not changed.size:
        return _follow_forwards(surface, source, quotes)
    count = quotes.maturities.size
    window = Window(max(int(changed[0]) - 1, 0), min(int(changed[-1]) + 2, count))
    start = np.log(surface.slopes[0])
    logs, steps = start.copy(), 0
    while True:
        if window.end - window.first > _MAX_WINDOW_SHARE * count:
            options = replace(source.options, roughness=surface.result.roughness)
            return fit(quotes, options=options, start=surface).with_vix(surface.vix_slices)
        interior, status = _fit_window(surface, source, quotes, window, logs)
        steps += interior.iterations
        if _bound_gain_beside(duals, window, interior, start) <= MAX_GAIN_BESIDE:
            break
        logs[window.first : window.end] = interior.z.reshape(-1, logs.shape[1])
        window = window.widen(count)
    warnings: tuple[str, ...] = ()
    if status is not Status.CONVERGED:
        warnings = (f"the update ended as {status.value}: {status.explain()}",)
        logger.warning(warnings[0])
    result = replace(
        surface.result,
        status=status,
        iterations=steps,
        objective=_update_objective(surface, source, window, interior.point.whole),
        chosen="kept",
        residuals=_update_residuals(surface, source, window, interior.point.whole),
        seconds=time.perf_counter() - began,
        warnings=warnings,
    )
    slopes = _update_slopes(surface, window, interior.z)
    matrix = _update_matrix(surface, source, window, interior)
    duals = duals.copy()
    first, n = window.fixed_first, slopes.shape[2]
    own = interior.point.whole.objective.layout.expiry_count - 1
    duals[first : first + own] = interior.duals[: own * n].reshape(own, n)
    source = replace(source, quotes=quotes, order_duals=duals)
    return build_surface(source, slopes, result, matrix).with_vix(surface.vix_slices)


def _follow_forwards(surface: FittedSurface, source: FitInput, quotes: Quotes) -> FittedSurface:
    """The surface where no quote in forward units has changed, at its new curves and moment."""
    made, curves = source.quotes, ("forwards", "discounts")
    same = all(np.array_equal(getattr(made, name), getattr(quotes, name)) for name in curves)
    if same and made.as_of == quotes.as_of:
        return surface
    moved, matrix = replace(source, quotes=quotes), surface.uncertainty.matrix
    found = build_surface(moved, surface.slopes, surface.result, matrix)
    return found.with_vix(surface.vix_slices)


def _require_plain_fit(surface: FittedSurface, quotes: Quotes) -> tuple[FitInput, Array]:
    """What was fitted, and the multipliers of its star order, where an update is possible."""
    remedy, source = "take fit(quotes, start=surface)", surface.source
    if source is None:
        raise ValueError(f"the surface comes from a file, which holds no quotes: {remedy}")
    made, duals = source.quotes, source.order_duals
    if not np.array_equal(made.maturities, quotes.maturities):
        raise ValueError(
            f"the quotes have {quotes.maturities.size} maturities and those of the fit were "
            f"{made.maturities.size}, or they differ: {remedy}"
        )
    if source.options.components != 1:
        raise ValueError(f"an update is for fits of one component: {remedy}")
    if surface.result.trust is not None or duals is None:
        raise ValueError(
            "the surface was fitted with a prior or with the VIX, which an update leaves out: fit "
            "both again"
        )
    if source.weights is not None:
        raise ValueError(f"the quotes of the fit had weights, and new ones have none: {remedy}")
    return source, duals


def _find_changed_expiries(before: Quotes, after: Quotes) -> NDArray[np.bool_]:
    """``(L,)`` whether any quote of an expiry is another one."""
    count = before.maturities.size
    changed = np.zeros(count, dtype=bool)
    if np.array_equal(before.expiry, after.expiry):
        other = (before.k != after.k) | (before.bid != after.bid) | (before.ask != after.ask)
        changed[after.expiry[other]] = True
        return changed
    edges = [np.searchsorted(quotes.expiry, np.arange(count + 1)) for quotes in (before, after)]
    for at in range(count):
        one, two = (slice(edge[at], edge[at + 1]) for edge in edges)
        changed[at] = not all(
            np.array_equal(getattr(before, name)[one], getattr(after, name)[two])
            for name in ("k", "bid", "ask")
        )
    return changed


def _fit_window(
    surface: FittedSurface, source: FitInput, quotes: Quotes, window: Window, logs: Array
) -> tuple[InteriorPoint[WindowPoint], Status]:
    """The fit of a window, from the log-slopes ``(L, n)`` of all expiries."""
    options, result, count = source.options, surface.result, quotes.maturities.size
    first, end = window.fixed_first, min(window.end + 1, count)
    some = quotes.select((quotes.expiry >= first) & (quotes.expiry < end))
    whole = FitObjective.from_quotes(some, options).with_roughness(result.roughness)
    whole = replace(whole, highest_log_slope=source.highest_log_slope)
    before, after = logs[first : window.first].reshape(-1), logs[window.end : end].reshape(-1)
    objective = WindowObjective(whole, before, after)
    z = _open_slacks(logs, window, source.highest_log_slope)
    # what counts as converged is the same as in a fit of all quotes
    scale = max(result.objective, EXACT_LOSS_PER_QUOTE * len(quotes))
    interior = InteriorPoint.start_at(objective, objective.build_constraints(z.size), z, scale)
    interior = interior.with_expected_value(0.0, _EXPECTED_GAP_SHARE)
    return interior.run(options.tolerance, options.iterations)


def _open_slacks(logs: Array, window: Window, highest: float) -> Array:
    """The log-slopes ``(p,)`` of a window, moved strictly inside the order with its neighbours."""
    own = logs[window.first : window.end].copy()
    steps = len(own) + 1
    low = logs[window.first - 1] if window.first > 0 else own[0] - _MAX_START_SLACK
    high = logs[window.end] if window.end < len(logs) else np.full(len(low), highest)
    low, high = low - 0.5 * _ORDER_SLACK, high + 0.5 * _ORDER_SLACK
    room = np.minimum(_START_SLACK_SHARE * (high - low) / steps, _MAX_START_SLACK)
    for at in range(len(own)):
        own[at] = np.maximum(own[at], (own[at - 1] if at else low) + room)
    for at in range(len(own) - 1, -1, -1):
        own[at] = np.minimum(own[at], (own[at + 1] if at < len(own) - 1 else high) - room)
    return own.reshape(-1)


def _bound_gain_beside(
    known: Array, window: Window, interior: InteriorPoint[WindowPoint], start: Array
) -> float:
    """What the objective would fall by if the fixed expiries beside a window moved too.

    To second order, by the forces that the window's move has put on them: through the roughness,
    and through the multipliers of the star order.
    """
    whole, n = interior.point.whole, start.shape[1]
    first, count = window.fixed_first, whole.objective.layout.expiry_count
    move = whole.misfit.z - start[first : first + count].reshape(-1)
    force = whole.objective.quadratic.multiply(move).reshape(count, n)
    stiffness = whole.expansion.matrix[:, 0].reshape(count, n)
    # the order between neighbours comes first among the constraints
    duals = interior.duals[: (count - 1) * n].reshape(count - 1, n)
    duals = duals - known[first : first + count - 1]
    gain = 0.0
    if window.first > 0:
        gain += 0.5 * float(np.sum((force[0] + duals[0]) ** 2 / stiffness[0]))
    if window.end < len(start):
        gain += 0.5 * float(np.sum((force[-1] - duals[-1]) ** 2 / stiffness[-1]))
    return gain


def _update_residuals(
    surface: FittedSurface, source: FitInput, window: Window, point: FitPoint
) -> Array:
    """``(m,)`` the residuals of all quotes, those of the window new."""
    old, before = surface.result.residuals, source.quotes.expiry
    own = point.objective.quotes.expiry + window.fixed_first
    new = point.misfit.residuals[(own >= window.first) & (own < window.end)]
    return freeze_array(
        np.concatenate([old[before < window.first], new, old[before >= window.end]])
    )


def _update_objective(
    surface: FittedSurface, source: FitInput, window: Window, point: FitPoint
) -> float:
    """The objective of all quotes: that of the window and its neighbours has changed alone."""
    first, end = window.fixed_first, window.fixed_first + point.objective.layout.expiry_count
    before, result = source.quotes.expiry, surface.result
    old = result.residuals[(before >= first) & (before < end)]
    logs = np.log(surface.slopes[0, first:end])
    roughness, _ = point.objective.quadratic.evaluate_at(logs.reshape(-1))
    left = float(source.options.loss(old).value.sum()) + roughness
    return result.objective + point.value - left


def _update_slopes(surface: FittedSurface, window: Window, z: Array) -> Array:
    """Slopes ``(1, L, n)`` in exact order."""
    slopes = surface.slopes.copy()
    slopes[0, window.first : window.end] = np.exp(z).reshape(-1, slopes.shape[2])
    if window.end < slopes.shape[1]:
        own = slopes[0, window.first : window.end]
        own[:] = np.minimum(own, slopes[0, window.end])
    return np.maximum.accumulate(slopes, axis=1)


def _update_matrix(
    surface: FittedSurface,
    source: FitInput,
    window: Window,
    interior: InteriorPoint[WindowPoint],
) -> Array:
    """The information of the fit, of which the rows of the window are new."""
    point, result, n = interior.point.whole, surface.result, surface.knots.size
    own = slice(interior.point.first, interior.point.first + interior.point.size)
    stiffness = source.options.loss(result.residuals).weight
    uneven = compute_unevenness(result.freedom, np.ones(stiffness.size), stiffness)
    rows = point.expansion.matrix[own] - (1.0 - 1.0 / uneven) * point.misfit.linearisation.band[own]
    interior.constraints.add_weighted_gram(rows, interior.duals / interior.slacks)
    matrix = surface.uncertainty.matrix.copy()
    matrix[window.first * n : window.end * n] = rows
    return matrix
