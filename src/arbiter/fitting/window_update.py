"""A fitted surface after some of its quotes changed: a fit of few expiries between fixed ones.

With the weights of the roughness given, a quote moves the slopes of its own expiry and, through
roughness and star order, those of its neighbours, less and less with distance. So only a window of
expiries is fitted again, and it grows until its ends stay where they are.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting.direct_fit import fit
from arbiter.fitting.fitted_surface import FitInput, FittedSurface, Optimum, build_surface
from arbiter.fitting.interior_point import InteriorPoint, Status
from arbiter.fitting.loss import EXACT_LOSS_PER_QUOTE
from arbiter.fitting.smoothing import compute_unevenness
from arbiter.fitting.window_objective import ORDER_SLACK, Window, WindowObjective, WindowPoint
from arbiter.inputs import freeze_array
from arbiter.quotes import Quotes

logger = logging.getLogger(__name__)

# A window is wide enough when the expiries beside it have no more to gain by moving, in squared
# half-spreads. One that would be wider than this share of all expiries is the whole chain.
MAX_GAIN_BESIDE = 0.003
_MAX_WINDOW_SHARE = 0.3
# Slacks of a start are at least this share of their part of the room between the fixed expiries.
_START_SLACK_SHARE, _MAX_START_SLACK = 0.3, 1e-3  # the second of log-slopes
_EXPECTED_GAP_SHARE = 1e-3  # complementarity at the start, as a share of the objective


def update_surface(surface: FittedSurface, quotes: Quotes) -> FittedSurface:
    """The surface with some quotes replaced, its roughness kept.

    Args:
        surface: A direct fit of one component, without a prior and without the VIX.
        quotes: All quotes, those that did not change included, at the same maturities.

    Raises:
        ValueError: If the surface is another kind of fit, or the maturities differ.
    """
    began = time.perf_counter()
    source, optimum = _require_plain_fit(surface, quotes)
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
        if _bound_gain_beside(optimum, window, interior, start) <= MAX_GAIN_BESIDE:
            break
        logs[window.first : window.end] = interior.z.reshape(-1, logs.shape[1])
        window = window.widen(count)
    warnings: tuple[str, ...] = ()
    if status is not Status.CONVERGED:
        warnings = (f"the update ended as {status.value}: {status.explain()}",)
        logger.warning(warnings[0])
    objective, residuals = _update_misfit(surface, source, window, interior.point)
    result = replace(
        surface.result,
        status=status,
        iterations=steps,
        objective=objective,
        chosen="kept",
        residuals=residuals,
        seconds=time.perf_counter() - began,
        warnings=warnings,
    )
    slopes = _update_slopes(surface, window, interior.z)
    matrix = _update_matrix(surface, source, window, interior)
    source = replace(source, quotes=quotes, optimum=_update_optimum(optimum, window, interior))
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


def _require_plain_fit(surface: FittedSurface, quotes: Quotes) -> tuple[FitInput, Optimum]:
    """What was fitted, and the forces at its end, where an update is possible."""
    remedy, source = "take fit(quotes, start=surface)", surface.source
    if source is None:
        raise ValueError(f"the surface comes from a file, which holds no quotes: {remedy}")
    made, optimum = source.quotes, source.optimum
    if not np.array_equal(made.maturities, quotes.maturities):
        raise ValueError(
            f"the quotes have {quotes.maturities.size} maturities and those of the fit were "
            f"{made.maturities.size}, or they differ: {remedy}"
        )
    if source.options.components != 1:
        raise ValueError(f"an update is for fits of one component: {remedy}")
    if surface.result.trust is not None or optimum is None:
        raise ValueError(
            "the surface was fitted with a prior or with the VIX, which an update leaves out: fit "
            "both again"
        )
    if source.weights is not None:
        raise ValueError(f"the quotes of the fit had weights, and new ones have none: {remedy}")
    return source, optimum


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
    options, result = source.options, surface.result
    objective = WindowObjective.from_quotes(quotes, source, result.roughness, window, logs)
    z = _open_slacks(logs, window, source.highest_log_slope)
    # what counts as converged is the same as in a fit of all quotes
    scale = max(result.objective, EXACT_LOSS_PER_QUOTE * len(quotes))
    interior = InteriorPoint.start_at(objective, objective.build_constraints(), z, scale)
    interior = interior.with_expected_value(0.0, _EXPECTED_GAP_SHARE)
    return interior.run(options.tolerance, options.iterations)


def _open_slacks(logs: Array, window: Window, highest: float) -> Array:
    """The log-slopes ``(p,)`` of a window, moved strictly inside the order with its neighbours."""
    own = logs[window.first : window.end].copy()
    steps = len(own) + 1
    low = logs[window.first - 1] if window.first > 0 else own[0] - _MAX_START_SLACK
    high = logs[window.end] if window.end < len(logs) else np.full(len(low), highest)
    low, high = low - 0.5 * ORDER_SLACK, high + 0.5 * ORDER_SLACK
    room = np.minimum(_START_SLACK_SHARE * (high - low) / steps, _MAX_START_SLACK)
    for at in range(len(own)):
        own[at] = np.maximum(own[at], (own[at - 1] if at else low) + room)
    for at in range(len(own) - 1, -1, -1):
        own[at] = np.minimum(own[at], (own[at + 1] if at < len(own) - 1 else high) - room)
    return own.reshape(-1)


def _bound_gain_beside(
    optimum: Optimum, window: Window, interior: InteriorPoint[WindowPoint], start: Array
) -> float:
    """What the objective would fall by if the fixed expiries beside a window moved too.

    To second order, by the forces that the window's move has put on them: through the roughness,
    and through the multipliers of the star order.
    """
    objective, n = interior.point.objective, start.shape[1]
    z = objective.join_neighbours(interior.z)
    first, count = window.fixed_first, objective.expiry_count
    beside = slice(first, first + count)
    force = objective.quadratic.multiply(z - start[beside].reshape(-1)).reshape(count, n)
    stiffness = objective.quadratic.band[:, 0].reshape(count, n) + optimum.stiffness[beside]
    # the order between neighbours comes first among the constraints
    duals = interior.duals[: (count - 1) * n].reshape(count - 1, n)
    duals = duals - optimum.duals[first : first + count - 1]
    gain = 0.0
    if window.first > 0:
        gain += 0.5 * float(np.sum((force[0] + duals[0]) ** 2 / stiffness[0]))
    if window.end < len(start):
        gain += 0.5 * float(np.sum((force[-1] - duals[-1]) ** 2 / stiffness[-1]))
    return gain


def _update_optimum(
    optimum: Optimum, window: Window, interior: InteriorPoint[WindowPoint]
) -> Optimum:
    """The forces of all expiries, those of the window new."""
    duals, stiffness = optimum.duals.copy(), optimum.stiffness.copy()
    n, point = stiffness.shape[1], interior.point
    stiffness[window.first : window.end] = point.misfit.linearisation.band[:, 0].reshape(-1, n)
    first, links = window.fixed_first, point.objective.expiry_count - 1
    duals[first : first + links] = interior.duals[: links * n].reshape(links, n)
    return Optimum(freeze_array(duals), freeze_array(stiffness))


def _update_misfit(
    surface: FittedSurface, source: FitInput, window: Window, point: WindowPoint
) -> tuple[float, Array]:
    """The objective of all quotes and their residuals: those of the window alone have changed."""
    result, first = surface.result, window.fixed_first
    start, end = np.searchsorted(source.quotes.expiry, [window.first, window.end])
    logs = np.log(surface.slopes[0, first : first + point.objective.expiry_count])
    roughness, _ = point.objective.quadratic.evaluate_at(logs.reshape(-1))
    old = float(source.options.loss(result.residuals[start:end]).value.sum()) + roughness
    parts = [result.residuals[:start], point.misfit.residuals, result.residuals[end:]]
    return result.objective + point.value - old, freeze_array(np.concatenate(parts))


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
    point, result, n = interior.point, surface.result, surface.knots.size
    stiffness = source.options.loss(result.residuals).weight
    uneven = compute_unevenness(result.freedom, np.ones(stiffness.size), stiffness)
    roughness = point.objective.quadratic.band[point.objective.own]
    rows = roughness + point.misfit.linearisation.band / uneven
    interior.constraints.add_weighted_gram(rows, interior.duals / interior.slacks)
    matrix = surface.uncertainty.matrix.copy()
    matrix[window.first * n : window.end * n] = rows
    return matrix
