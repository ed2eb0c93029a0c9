"""The fit with a guide, a surface made from the same quotes; cross-validation sets its weight."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arbiter.fitting import cross_validation, initial_point
from arbiter.fitting.cross_validation import DEFAULT_PULL, HeldOutFolds, QuoteFold
from arbiter.fitting.direct_fit import build_fitted_surface, require_prior
from arbiter.fitting.fit_end import MAX_INNER_STEPS, RIM_TOLERANCE, FitEnd, run_last_steps
from arbiter.fitting.fitted_surface import FittedSurface
from arbiter.fitting.guided_objective import GuidedObjective, Pull
from arbiter.fitting.interior_point import InteriorPoint
from arbiter.fitting.loss import EXACT_LOSS_PER_QUOTE, Loss
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.prior_weight import (
    INITIAL_COMPLEMENTARITY_SHARE,
    LocalQuadratic,
    LocalSolution,
)
from arbiter.fitting.smoothing import (
    PRIOR_DISPERSION,
    SETTLED_LOG_CHANGE,
    bound_roughness,
    estimate_residual_variance,
    get_roughness_weights,
    reweigh_iterate,
)
from arbiter.inputs import freeze_info
from arbiter.quotes import Quotes
from arbiter.surface import Surface

_APPROACH_TOLERANCE = 0.5  # a step that promises less of the objective ends the approach
_MAX_APPROACH_STEPS = 4
_MAX_WEIGHT_ROUNDS = 12
_LARGE_LOG_WEIGHT_CHANGE = 4.0  # a change of the roughness' logarithms that calls for more steps


def refine(
    quotes: Quotes, guide: Surface, held: Sequence[QuoteFold], options: FitOptions
) -> FittedSurface:
    """Fit a surface to quotes with a pull to a guide, whose weight cross-validation sets.

    Args:
        quotes: Three or more.
        guide: A surface made from these quotes.
        held: Folds of the quotes, each with the guide of all others; none if there are too few.
        options: Of the fit: one component.

    Returns:
        The surface. ``result.trust`` is the share of the fit's freedom that the guide takes, from 0
        for the fit alone to 1 for the guide alone; ``info["fit"]["pull"]`` the chosen weights.
    """
    began = time.perf_counter()
    require_prior(guide, options)
    model = GuidedObjective.from_guide(quotes, options, guide).while_choosing(True)
    first = model.with_pull(model.roughness, DEFAULT_PULL)
    z = initial_point.start_from_surface(first, guide)
    interior: InteriorPoint[FitPoint] = InteriorPoint.start_at(
        first, first.build_constraints(), z, scale=EXACT_LOSS_PER_QUOTE * len(quotes)
    )
    interior = interior.with_inner_steps(MAX_INNER_STEPS).with_expected_value(
        0.5 * PRIOR_DISPERSION * len(quotes), INITIAL_COMPLEMENTARITY_SHARE
    )
    soft = options.loss.soften()
    interior, near = _approach_fit(model, interior, soft)
    free = model.with_pull(near.roughness, None)
    unseen = HeldOutFolds.from_folds(free, held)
    pull = (
        cross_validation.choose_pull(free, interior.point.misfit, soft, unseen)
        if held
        else DEFAULT_PULL
    )
    pulled = model.with_pull(near.roughness, pull)
    interior = reweigh_iterate(interior, pulled).with_expected_value(
        near.loss, INITIAL_COMPLEMENTARITY_SHARE
    )
    interior, _ = interior.run(RIM_TOLERANCE, options.iterations - interior.iterations)
    interior, status = run_last_steps(interior, options)
    ended = FitEnd.from_iterate(interior, status)
    dispersion = estimate_residual_variance(ended.point, ended.matrix).dispersion
    too_much, trust = cross_validation.find_overstated_precision(
        pulled, ended.point.misfit, ended.matrix, dispersion, unseen.guides
    )
    fitted = build_fitted_surface(ended, ("crossfit", trust), began)
    about = {**fitted.info["fit"], "pull": {**pull._asdict(), "folds": len(held)}}
    known = fitted.uncertainty
    return replace(
        fitted,
        info=freeze_info({**fitted.info, "fit": about}),
        uncertainty=replace(known, matrix=known.matrix - too_much),
    )


class _ChosenRoughness(NamedTuple):
    roughness: Roughness
    loss: float  # expected with it


def _approach_fit(
    model: GuidedObjective, interior: InteriorPoint[FitPoint], loss: Loss
) -> tuple[InteriorPoint[FitPoint], _ChosenRoughness]:
    """A point from which to choose the pull, and the roughness of a fit without a guide.

    Where that roughness is far from the first one the point is too smooth, and a few more steps
    are taken.
    """
    limit, first = model.options.iterations, model.roughness
    for again in (True, False):
        interior, _ = interior.run(
            _APPROACH_TOLERANCE, min(_MAX_APPROACH_STEPS, limit - interior.iterations)
        )
        free = model.with_pull(first, None)
        local = LocalQuadratic.at_point(interior.point.misfit, loss)
        found = _settle_roughness(local, free)
        chosen = found.objective.roughness
        change = np.log(get_roughness_weights(found.objective)) - np.log(
            get_roughness_weights(free)
        )
        if not again or np.abs(change).max() < _LARGE_LOG_WEIGHT_CHANGE:
            break
        pulled = model.with_pull(chosen, Pull(chosen.strike, chosen.strike))
        interior = reweigh_iterate(interior, pulled).with_expected_value(
            found.loss, INITIAL_COMPLEMENTARITY_SHARE
        )
        first = chosen
    return interior, _ChosenRoughness(chosen, found.loss)


def _settle_roughness(local: LocalQuadratic, model: FitObjective) -> LocalSolution:
    """The solution with the likeliest roughness, starting from that of ``model``."""
    previous = np.zeros(get_roughness_weights(model).size)
    for _ in range(_MAX_WEIGHT_ROUNDS):
        change = local.weight_changes(local.solve(model))
        # it overshoots near its fixed point, and halves are safe
        change = np.where(change * previous < 0.0, 0.5 * change, change)
        previous = change
        weights = get_roughness_weights(model) * np.exp(change)
        model = model.with_roughness(bound_roughness(weights))
        if np.abs(change).max() < SETTLED_LOG_CHANGE:
            break
    return local.solve(model)
