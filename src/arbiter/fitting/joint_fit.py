"""SPX and VIX fitted together: each market by itself first, then both in one system of steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import solve_triangular

from arbiter.conventions import Array
from arbiter.fitting import banded, smoothing
from arbiter.fitting.fit_end import FitEnd, leave_out_rim
from arbiter.fitting.fitted_surface import VixResult
from arbiter.fitting.interior_point import InteriorPoint, Status, add_ridge
from arbiter.fitting.joint_objective import JointObjective, JointPoint
from arbiter.fitting.loss import EXACT_LOSS_PER_QUOTE
from arbiter.fitting.objective import (
    HIGHEST_LOG_SLOPE,
    HIGHEST_SHARE,
    LOWEST_SHARE,
    FitObjective,
    FitPoint,
)
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.vix_objective import VixObjective
from arbiter.fitting.vix_quotes import VixMarket, describe_open_windows, with_windows
from arbiter.inputs import freeze_array
from arbiter.pricing.vix_slices import VixSlices
from arbiter.quotes import Quotes
from arbiter.surface import Surface

_MIN_OPTIONS_FOR_ROUGHNESS = 8  # options from which the roughness of VIX smiles can be told
_INITIAL_COMPLEMENTARITY_SHARE = 0.1  # complementarity at the start, of the two losses apart
_MAX_WEIGHT_ROUNDS, _LOOSE_TOLERANCE = 10, 0.02  # of a choice of weights around a prior
_MAX_TIME_APART = np.timedelta64(3, "h")  # quotes further apart are of two moments


def require_one_moment(quotes: Quotes, market: VixMarket) -> None:
    """A ``ValueError`` with the remedy where the two markets do not belong together."""
    other = market.quotes.as_of
    if (
        quotes.as_of is not None
        and other is not None
        and abs(quotes.as_of - other) > _MAX_TIME_APART
    ):
        raise ValueError(
            f"the index quotes are as of {quotes.as_of}, those on the VIX as of {other}: give two "
            "markets of one moment"
        )


def fit_vix_smiles(
    market: VixMarket, options: FitOptions
) -> tuple[InteriorPoint[FitPoint], Status]:
    """A free fit of the VIX smiles, futures held, with the roughness that their quotes choose."""
    model = VixObjective.from_market(market, replace(options, roughness="likelihood"))
    count = len(market.quotes)
    interior: InteriorPoint[FitPoint] = InteriorPoint.start_at(
        model,
        model.build_constraints(),
        model.initial_point(),
        scale=EXACT_LOSS_PER_QUOTE * max(count, 1),
    )
    if count < _MIN_OPTIONS_FOR_ROUGHNESS:
        return interior, Status.CONVERGED
    return smoothing.choose_roughness(interior, options.iterations)


def fit_both_markets(
    interior: InteriorPoint[FitPoint],
    market: VixMarket,
    smiles: InteriorPoint[FitPoint],
    prior: Surface | None,
) -> FitEnd:
    """Both markets in one fit; the roughness of each is the one that its own quotes chose.

    Args:
        interior: Where a fit of SPX quotes alone has come to.
        market: What is quoted on the VIX.
        smiles: Where a fit of the VIX alone has come to (:func:`fit_vix_smiles`).
        prior: The surface to depart from, or None.
    """
    model = interior.point.objective
    options = model.options
    warnings = describe_open_windows(model.quotes, market.quotes.maturities)
    quotes = with_windows(model.quotes, market.quotes.maturities)
    fresh = FitObjective.from_quotes(quotes, options, model.misfit.weights, prior)
    rechosen = prior is not None and not isinstance(options.roughness, Roughness)
    spx = fresh.with_trust(model.roughness, model.trust).while_choosing(rechosen)
    vix = VixObjective.from_market(market, options)
    both = JointObjective(spx, vix.with_roughness(smiles.point.objective.roughness))
    count = len(quotes) + max(len(market.quotes), 1)
    start = np.concatenate([_interpolate_unknowns(interior.point, spx), smiles.z])
    joint = InteriorPoint.start_at(
        both, both.build_constraints(), start, scale=EXACT_LOSS_PER_QUOTE * count
    )
    joint = joint.with_expected_value(
        interior.point.value + smiles.point.value, _INITIAL_COMPLEMENTARITY_SHARE
    )
    left = max(options.iterations - interior.iterations, options.iterations // 2)
    if rechosen:
        joint = _rechoose_prior_weights(both, joint, left)
        both = joint.point.objective
        both = both.with_spx(both.spx.while_choosing(False))
        joint = joint.with_objective(both, both.evaluate(joint.z))
    joint, status = joint.run(options.tolerance, max(left - joint.iterations, 1))
    ended = _end_joint_fit(joint, market, status)
    iterations = interior.iterations + smiles.iterations + joint.iterations
    return ended._replace(iterations=iterations, warnings=warnings)


def _rechoose_prior_weights(
    both: JointObjective, joint: InteriorPoint[JointPoint], limit: int
) -> InteriorPoint[JointPoint]:
    """The iterate after the weights around a prior are chosen anew, with the VIX in the fit."""
    for _ in range(_MAX_WEIGHT_ROUNDS):
        joint, status = joint.run(_LOOSE_TOLERANCE, limit - joint.iterations)
        if status is not Status.CONVERGED:
            break
        spx = joint.point.spx.objective
        dispersion, terms = smoothing.compute_traces(joint.point.spx, _spx_matrix(joint))
        change = smoothing.compute_weight_changes(spx, dispersion, terms)
        weights = smoothing.get_roughness_weights(spx) * np.exp(change)
        both = both.with_spx(spx.with_roughness(smoothing.bound_roughness(weights)))
        joint = joint.with_objective(both, both.reweigh(joint.point))
        if np.abs(change).max() < smoothing.SETTLED_LOG_CHANGE:
            break
    return joint


def _spx_matrix(joint: InteriorPoint[JointPoint]) -> Array:
    """The SPX part of the matrix: SPX quotes, order and roughness, without the VIX."""
    size, width = joint.point.spx.objective.quadratic.band.shape
    return np.ascontiguousarray(joint.matrix()[:size, :width])


def _interpolate_unknowns(point: FitPoint, spx: FitObjective) -> Array:
    """Unknowns at the maturities of ``spx``, linear in log √T between those of ``point``.

    Strictly between two expiries, and so strictly inside the star order.
    """
    layout = point.objective.layout
    tau, at = point.objective.penalty.tau, spx.penalty.tau
    known = point.misfit.z.reshape(layout.shape)
    i = np.clip(np.searchsorted(tau, at, side="right") - 1, 0, tau.size - 1)
    j = np.minimum(i + 1, tau.size - 1)
    share = (at - tau[i]) / np.where(j > i, tau[j] - tau[i], 1.0)
    found = known[i] + np.clip(share, 0.0, 1.0)[:, None] * (known[j] - known[i])
    early, late = at < tau[0], at > tau[-1]
    before, after = (at[early] - tau[0])[:, None], (at[late] - tau[-1])[:, None]
    # volatility is flat before the first expiry and after the last, until slopes near their bound
    slopes = slice(layout.components * layout.knot_count)
    found[early, slopes] = known[0, slopes] + before
    room = HIGHEST_LOG_SLOPE - known[-1, slopes]
    found[late, slopes] = HIGHEST_LOG_SLOPE - room * np.exp(-after / room)
    if layout.components == 2:  # and shares move towards theirs
        found[early, -1:] = LOWEST_SHARE + (known[0, -1] - LOWEST_SHARE) * np.exp(before)
        found[late, -1:] = HIGHEST_SHARE - (HIGHEST_SHARE - known[-1, -1]) * np.exp(-after)
    return np.asarray(found.reshape(-1))


def eliminate_vix(matrix: Array, columns: Array, split: int) -> Array:
    """Columns ``(split, r)`` U whose ``U Uᵀ`` is what the VIX says about the SPX unknowns.

    Args:
        matrix: ``(p, w)`` A, banded, without entries between the unknowns of the two markets.
        columns: ``(p, r)`` C, whose ``C Cᵀ`` is added to it and couples them.
        split: Number of SPX unknowns, which come first.
    """
    spx, vix = columns[:split], columns[split:]
    factor = banded.factorise(add_ridge(np.ascontiguousarray(matrix[split:])))
    seen = banded.solve_lower(factor, vix)
    inner = np.eye(spx.shape[1]) + seen.T @ seen
    return np.asarray(solve_triangular(np.linalg.cholesky(inner), spx.T, lower=True).T)


def _end_joint_fit(joint: InteriorPoint[JointPoint], market: VixMarket, status: Status) -> FitEnd:
    """The end of a joint fit, with shapes and residuals of the VIX."""
    point, vix = joint.point, joint.point.vix_misfit
    layout = vix.misfit.layout
    slopes = np.exp(vix.z.reshape(layout.shape))
    return FitEnd(
        *leave_out_rim(point.spx, _spx_matrix(joint)),
        point.value,
        joint.iterations,
        status,
        slices=VixSlices.of(layout.knots, market.quotes.maturities, slopes),
        vix=VixResult(
            freeze_array(vix.residuals[: len(market.quotes)]),
            freeze_array(vix.futures()[market.at] - market.price),
            point.vix.objective.roughness,
        ),
        coupling=eliminate_vix(joint.matrix(), point.coupling, point.objective.split),
    )
