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

from arbiter.fitting.direct_fit import begin_fit, finish_fit
from arbiter.fitting.fitted_surface import FitInput, FittedSurface, Optimum, build_surface
from arbiter.fitting.fitted_window import FittedWindow
from arbiter.fitting.interior_point import Status
from arbiter.fitting.window_objective import Window
from arbiter.quotes import Quotes

logger = logging.getLogger(__name__)

# A window is wide enough when the expiries beside it have no more to gain by moving than this, in
# squared half-spreads: half the square of a twentieth.
MAX_GAIN_BESIDE = 0.00125


def update_surface(surface: FittedSurface, quotes: Quotes) -> FittedSurface:
    """The surface with some quotes replaced, its roughness and its clock kept.

    Args:
        surface: A direct fit of one component, without a prior and without the VIX.
        quotes: All quotes, those that did not change included, at the same maturities.

    Raises:
        ValueError: If the surface is another kind of fit, or the maturities differ.
    """
    began = time.perf_counter()
    before = source, _ = _require_plain_fit(surface, quotes)
    quotes = replace(quotes, clock=source.quotes.clock, time=source.quotes.time)
    changed = np.flatnonzero(_find_changed_expiries(source.quotes, quotes))
    if not changed.size:
        return _follow_forwards(surface, source, quotes)
    count = quotes.maturities.size
    window = Window(max(int(changed[0]) - 1, 0), min(int(changed[-1]) + 2, count))
    logs, steps = np.log(surface.slopes[0]), 0
    while True:
        found = FittedWindow.from_quotes(surface, before, quotes, window, logs)
        steps += found.interior.iterations
        if found.pushes_quotes_out():
            return _fit_again(surface, source, quotes, steps, began)
        if found.bound_gain_beside() <= MAX_GAIN_BESIDE:
            break
        logs[window.first : window.end] = found.interior.z.reshape(-1, logs.shape[1])
        window = window.widen(count)
    warnings: tuple[str, ...] = ()
    if found.status is not Status.CONVERGED:
        warnings = (f"the update ended as {found.status.value}: {found.status.explain()}",)
        logger.warning(warnings[0])
    objective, residuals = found.update_misfit()
    result = replace(
        surface.result,
        status=found.status,
        iterations=steps,
        objective=objective,
        chosen="kept",
        residuals=residuals,
        seconds=time.perf_counter() - began,
        warnings=warnings,
    )
    source = replace(source, quotes=quotes, optimum=found.update_optimum())
    updated = build_surface(source, found.update_slopes(), result, found.update_information())
    return updated.with_vix(surface.vix_slices)


def _fit_again(
    surface: FittedSurface, source: FitInput, quotes: Quotes, steps: int, began: float
) -> FittedSurface:
    """A fit of all quotes at the same roughness, after ``steps`` that led elsewhere."""
    rough = surface.result.roughness
    options = replace(source.options, roughness=rough)
    whole = finish_fit(begin_fit(quotes, options), began)
    result = replace(whole.result, chosen="kept", iterations=steps + whole.result.iterations)
    # the next update knows how the roughness was chosen
    kept = None if whole.source is None else replace(whole.source, options=source.options)
    return replace(whole, result=result, source=kept).with_vix(surface.vix_slices)


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
    """What was fitted and where that ended, where an update is possible."""
    remedy, source = "take fit(quotes, start=surface)", surface.source
    if source is None:
        raise ValueError(f"the surface comes from a file, which holds no quotes: {remedy}")
    made = source.quotes
    if not np.array_equal(made.maturities, quotes.maturities):
        raise ValueError(
            f"the quotes have {quotes.maturities.size} maturities and those of the fit were "
            f"{made.maturities.size}, or they differ: {remedy}"
        )
    if source.options.components != 1:
        raise ValueError(f"an update is for fits of one component: {remedy}")
    if surface.result.trust is not None or source.optimum is None:
        raise ValueError(
            "the surface was fitted with a prior or with the VIX, which an update leaves out: fit "
            "both again"
        )
    if source.weights is not None:
        raise ValueError(f"the quotes of the fit had weights, and new ones have none: {remedy}")
    return source, source.optimum


def _find_changed_expiries(before: Quotes, after: Quotes) -> NDArray[np.bool_]:
    """``(L,)`` whether any quote or bound of an expiry is another one."""
    count = before.maturities.size
    changed = _find_changed_bounds(before, after)
    if np.array_equal(before.expiry, after.expiry):
        other = (before.k != after.k) | (before.bid != after.bid) | (before.ask != after.ask)
        changed[after.expiry[other]] = True
        return changed
    edges = [np.searchsorted(quotes.expiry, np.arange(count + 1)) for quotes in (before, after)]
    for at in range(count):
        one, two = (slice(edge[at], edge[at + 1]) for edge in edges)
        changed[at] |= not all(
            np.array_equal(getattr(before, name)[one], getattr(after, name)[two])
            for name in ("k", "bid", "ask")
        )
    return changed


def _find_changed_bounds(before: Quotes, after: Quotes) -> NDArray[np.bool_]:
    changed = np.zeros(before.maturities.size, dtype=bool)
    one, two = before.bounds, after.bounds
    if all(np.array_equal(getattr(one, n), getattr(two, n)) for n in ("expiry", "k", "ask")):
        return changed
    for at in range(changed.size):
        own, new = one.expiry == at, two.expiry == at
        changed[at] = not (
            np.array_equal(one.k[own], two.k[new]) and np.array_equal(one.ask[own], two.ask[new])
        )
    return changed
