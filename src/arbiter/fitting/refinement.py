"""The fit that leans on a surface made from the same quotes, as far as that has proved itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arbiter.fitting import cross_validation, initial_point
from arbiter.fitting.cross_validation import DEFAULT_PULL, Fold, HeldOutFolds
from arbiter.fitting.direct_fit import EXACT_LOSS_PER_QUOTE, build_fitted_surface, require_prior
from arbiter.fitting.fitted_surface import FittedSurface
from arbiter.fitting.guided_objective import GuidedObjective, Pull
from arbiter.fitting.interior_point import InteriorPointSolver
from arbiter.fitting.loss import Loss
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.prior_weight import (
    INITIAL_COMPLEMENTARITY_SHARE,
    LINEAR_LOSS_HALF_SPREADS,
    LocalQuadratic,
)
from arbiter.fitting.smoothing import (
    PRIOR_DISPERSION,
    SETTLED_LOG_CHANGE,
    estimate_residual_variance,
    get_roughness_weights,
    set_roughness_weights,
)
from arbiter.inputs import freeze_info
from arbiter.quotes import Quotes
from arbiter.surface import Surface

_APPROACH_TOLERANCE = (
    0.5  # a step that promises less than this share of the objective ends the approach
)
_MAX_APPROACH_STEPS = 4  # of it
_MAX_INNER_STEPS = 3  # walks along constraints on one quadratic model
_MAX_WEIGHT_ROUNDS = 12
_LARGE_LOG_WEIGHT_CHANGE = (
    4.0  # change of the roughness' logarithms after which the point itself was another
)


def refine(
    quotes: Quotes, guide: Surface, held: Sequence[Fold], options: FitOptions
) -> FittedSurface:
    """Fit a surface to quotes and, as far as quotes that it has not seen speak for it, to a guide.

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
    model = GuidedObjective(quotes, options, guide)
    model.set_roughness_and_pull(model.roughness, DEFAULT_PULL)
    z = initial_point.start_from_surface(model, guide)
    interior = InteriorPointSolver(
        model, model.build_constraints(), z, scale=EXACT_LOSS_PER_QUOTE * len(quotes)
    )
    interior.inner = _MAX_INNER_STEPS
    interior.set_expected_value(0.5 * PRIOR_DISPERSION * len(quotes), INITIAL_COMPLEMENTARITY_SHARE)
    soft = replace(options.loss, wall=0.0, far=LINEAR_LOSS_HALF_SPREADS)
    near = _approach_fit(model, interior, soft)
    model.set_roughness_and_pull(near.roughness, None)
    unseen = HeldOutFolds.from_folds(model, held)
    pull = cross_validation.choose_pull(model, interior.z, soft, unseen) if held else DEFAULT_PULL
    model.set_roughness_and_pull(near.roughness, pull)
    interior.refresh()
    interior.set_expected_value(near.loss, INITIAL_COMPLEMENTARITY_SHARE)
    status = interior.run(options.tolerance, options.iterations - interior.iterations)
    dispersion = estimate_residual_variance(model, interior).dispersion
    too_much, trust = cross_validation.find_overstated_precision(
        model, interior.matrix(), dispersion, unseen.guides
    )
    fitted = build_fitted_surface(model, interior, status, ("crossfit", trust), began)
    about = {**fitted.info["fit"], "pull": {**pull._asdict(), "folds": len(held)}}
    known = fitted.uncertainty
    assert known is not None
    return replace(
        fitted,
        info=freeze_info({**fitted.info, "fit": about}),
        uncertainty=replace(known, matrix=known.matrix - too_much),
    )


class _ChosenRoughness(NamedTuple):
    roughness: Roughness
    loss: float  # expected there


def _approach_fit(
    model: GuidedObjective, interior: InteriorPointSolver, loss: Loss
) -> _ChosenRoughness:
    """Steps to a point from which to judge, and the roughness of a fit that knows no guide.

    Where that is quite another than was begun with, the quotes say far more, and the point is too
    smooth: a few more steps.
    """
    limit = model.options.iterations
    for again in (True, False):
        interior.run(_APPROACH_TOLERANCE, min(_MAX_APPROACH_STEPS, limit - interior.iterations))
        model.set_roughness_and_pull(model.roughness, None)
        before = np.log(get_roughness_weights(model))
        local = LocalQuadratic(model, interior.z, loss)
        expected = _settle_roughness(local)
        chosen = model.roughness
        if (
            not again
            or np.abs(np.log(get_roughness_weights(model)) - before).max()
            < _LARGE_LOG_WEIGHT_CHANGE
        ):
            break
        model.set_roughness_and_pull(chosen, Pull(chosen.strike, chosen.strike))
        interior.refresh()
        interior.set_expected_value(expected, INITIAL_COMPLEMENTARITY_SHARE)
    return _ChosenRoughness(chosen, expected)


def _settle_roughness(local: LocalQuadratic) -> float:
    """The likeliest roughness, left in the model; the loss to be expected with it."""
    model = local.model
    previous = np.zeros(get_roughness_weights(model).size)
    for _ in range(_MAX_WEIGHT_ROUNDS):
        change = local.weight_changes(local.solve())
        # it overshoots near its fixed point, and halves are safe
        change = np.where(change * previous < 0.0, 0.5 * change, change)
        previous = change
        set_roughness_weights(model, get_roughness_weights(model) * np.exp(change))
        if np.abs(change).max() < SETTLED_LOG_CHANGE:
            break
    return local.solve().loss
