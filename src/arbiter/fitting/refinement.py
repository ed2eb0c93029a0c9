"""The fit that leans on a surface made from the same quotes, as far as that has proved itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arbiter.fitting import cross_validation, initial_point
from arbiter.fitting.cross_validation import UNJUDGED, Fold, Unseen
from arbiter.fitting.direct_fit import EXACT, ended, require_prior
from arbiter.fitting.fitted_surface import FittedSurface
from arbiter.fitting.guided_objective import Leaning, Pull
from arbiter.fitting.interior_point import Interior
from arbiter.fitting.loss import Loss
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.prior_weight import FAR, GAP, Local
from arbiter.fitting.smoothing import DISPERSION, SETTLED, reweigh, spread, weights_of
from arbiter.inputs import freeze_info
from arbiter.quotes import Quotes
from arbiter.surface import Surface

_NEAR = 0.5  # a step that promises less than this share of the objective ends the approach
_STEPS = 4  # of it
_INNER = 3  # walks along constraints on one quadratic model
_ROUNDS = 12
_OTHER = 4.0  # change of the roughness' logarithms after which the point itself was another


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
    model = Leaning(quotes, options, guide)
    model.lean(model.roughness, UNJUDGED)
    z = initial_point.warm(model, guide)
    interior = Interior(model, model.order(), z, scale=EXACT * len(quotes))
    interior.inner = _INNER
    interior.expect(0.5 * DISPERSION * len(quotes), GAP)
    soft = replace(options.loss, wall=0.0, far=FAR)
    near = _approach(model, interior, soft)
    model.lean(near.roughness, None)
    unseen = Unseen.of(model, held)
    pull = cross_validation.choose(model, interior.z, soft, unseen) if held else UNJUDGED
    model.lean(near.roughness, pull)
    interior.refresh()
    interior.expect(near.loss, GAP)
    status = interior.run(options.tolerance, options.iterations - interior.iterations)
    dispersion = spread(model, interior).dispersion
    too_much, trust = cross_validation.overstated(
        model, interior.matrix(), dispersion, unseen.guides
    )
    fitted = ended(model, interior, status, ("crossfit", trust), began)
    about = {**fitted.info["fit"], "pull": {**pull._asdict(), "folds": len(held)}}
    known = fitted.uncertainty
    assert known is not None
    return replace(
        fitted,
        info=freeze_info({**fitted.info, "fit": about}),
        uncertainty=replace(known, matrix=known.matrix - too_much),
    )


class _Near(NamedTuple):
    roughness: Roughness
    loss: float  # expected there


def _approach(model: Leaning, interior: Interior, loss: Loss) -> _Near:
    """Steps to a point from which to judge, and the roughness of a fit that knows no guide.

    Where that is quite another than was begun with, the quotes say far more, and the point is too
    smooth: a few more steps.
    """
    limit = model.options.iterations
    for again in (True, False):
        interior.run(_NEAR, min(_STEPS, limit - interior.iterations))
        model.lean(model.roughness, None)
        before = np.log(weights_of(model))
        local = Local(model, interior.z, loss)
        expected = _settle(local)
        chosen = model.roughness
        if not again or np.abs(np.log(weights_of(model)) - before).max() < _OTHER:
            break
        model.lean(chosen, Pull(chosen.strike, chosen.strike))
        interior.refresh()
        interior.expect(expected, GAP)
    return _Near(chosen, expected)


def _settle(local: Local) -> float:
    """The likeliest roughness, left in the model; the loss to be expected with it."""
    model = local.model
    previous = np.zeros(weights_of(model).size)
    for _ in range(_ROUNDS):
        change = local.change(local.solve())
        # it overshoots near its fixed point, and halves are safe
        change = np.where(change * previous < 0.0, 0.5 * change, change)
        previous = change
        reweigh(model, weights_of(model) * np.exp(change))
        if np.abs(change).max() < SETTLED:
            break
    return local.solve().loss
