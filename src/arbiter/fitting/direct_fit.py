"""The direct fit: quotes in, one surface out that cannot be arbitraged."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.fitting import initial_point, joint_fit, smoothing
from arbiter.fitting.fit_end import RIM_TOLERANCE, FitEnd, run_last_steps
from arbiter.fitting.fitted_surface import FitInput, FitResult, FittedSurface, build_surface
from arbiter.fitting.interior_point import InteriorPoint, Status
from arbiter.fitting.loss import EXACT_LOSS_PER_QUOTE
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.prior_weight import choose_initial_weights, drop_unlikely_prior
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.futures import FuturesCurve
from arbiter.inputs import freeze_array
from arbiter.quotes import MIN_QUOTES, ExpiryLike, Quotes, drop_expiries, require_quotes
from arbiter.surface import Surface
from arbiter.timing.clock import Clock

logger = logging.getLogger(__name__)


def fit(  # noqa: PLR0913 - one keyword for each thing that a caller may bring
    quotes: Quotes,
    *,
    vix_quotes: Quotes | None = None,
    vix_futures: FuturesCurve | None = None,
    options: FitOptions | None = None,
    start: Surface | None = None,
    prior: Surface | None = None,
    weights: ArrayLike | None = None,
    clock: Clock | None = None,
    drop: Iterable[ExpiryLike] | ExpiryLike = (),
) -> FittedSurface:
    """Fit a surface to two-sided quotes.

    Minimises the distance from the mid in half-spreads (gentle inside the spread, steep at its
    edges, linear far out) plus the roughness of the log-slopes, subject to the star order, by
    an interior-point Gauss-Newton method whose steps are linear in the number of expiries. With
    options or futures on the VIX both markets are fitted together, tied by forward variance.

    Args:
        quotes: From a chain's ``quotes()`` or :meth:`Quotes.from_frame`: three or more.
        vix_quotes: Options on the VIX: ``quotes()`` of a VIX chain, whose forwards are the implied
            futures in index points.
        vix_futures: Futures on the VIX; without them those that ``vix_quotes`` imply.
        options: Components, roughness, knots, loss, tolerances; see :class:`FitOptions`.
        start: A previous surface to start from, yesterday's for instance; the prior where there
            is one.
        prior: A surface to depart from only as far as the quotes ask: roughness is that of the
            difference from it, and the quotes choose how much of it to believe.
        weights: ``(m,)`` factors of each quote's loss; ones when left out, 0 ignores a quote.
        clock: How fast variance passes, and scheduled events; that of the quotes if left out.
        drop: Expiries to leave out: labels, or maturities in years.

    Returns:
        The surface. ``.result`` says how the fit ended, ``.iv_error`` and ``.vix_error`` how
        sure it is. With the VIX it has ``vix_slices``, its maturities include the ends of 30-day
        windows that lie between expiries, and ``.result.vix`` has the VIX residuals.

    Raises:
        ValueError: If there are fewer than three quotes, or the arguments do not fit together.

    Example:
        >>> smile = {"T": [0.5] * 3, "k": [-0.1, 0.0, 0.1]}
        >>> quotes = Quotes.from_frame(
        ...     {**smile, "iv_bid": [0.21, 0.19, 0.17], "iv_ask": [0.22, 0.20, 0.18]}
        ... )
        >>> surface = fit(quotes)
        >>> bool(abs(surface.iv(0.0, 0.5) - 0.195) < 0.005), surface.result.status.value
        (True, 'converged')
    """
    began = time.perf_counter()
    options = FitOptions() if options is None else options
    require_quotes(quotes, "a fit")
    require_prior(prior, options)
    quotes, weights = _drop(quotes, weights, drop)
    if clock is not None:
        quotes = quotes.with_clock(clock)
    market = None
    if vix_quotes is not None or vix_futures is not None:
        market = VixMarket.from_quotes(vix_quotes, vix_futures)
        joint_fit.require_one_moment(quotes, market)
    stage = begin_fit(quotes, options, weights, start, prior)
    if market is None:
        return finish_fit(stage, began)
    smiles, _ = joint_fit.fit_vix_smiles(market, options)
    return finish_joint_fit(stage, market, smiles, prior, began)


class FitStage(NamedTuple):
    """A fit to SPX quotes whose weights are chosen, before its last steps.

    Attributes:
        interior: Where it has come to.
        status: How the choice of weights ended.
        choice: How they were chosen, and the trust in a prior.
    """

    interior: InteriorPoint[FitPoint]
    status: Status
    choice: tuple[str, float | None]


def begin_fit(
    quotes: Quotes,
    options: FitOptions,
    weights: ArrayLike | None = None,
    start: Surface | None = None,
    prior: Surface | None = None,
) -> FitStage:
    """The first stage of :func:`fit`, which the fit of both markets has in common with it."""
    checked = _check_weights(weights, len(quotes))
    model = FitObjective.from_quotes(quotes, options, checked, prior)
    start = prior if start is None else start
    z = (
        initial_point.start_from_quotes(model)
        if start is None
        else initial_point.start_from_surface(model, start)
    )
    given = options.roughness if isinstance(options.roughness, Roughness) else None
    model = model.while_choosing(True)
    if given is not None:
        model = model.with_roughness(given)
    interior = InteriorPoint.start_at(
        model, model.build_constraints(), z, scale=EXACT_LOSS_PER_QUOTE * len(quotes)
    )
    interior, status = (
        _choose_roughness(interior)
        if given is None
        else interior.run(RIM_TOLERANCE, options.iterations)
    )
    trust = interior.point.objective.trust if prior is not None else None
    return FitStage(interior, status, (str(options.roughness) if given is None else "given", trust))


def finish_fit(stage: FitStage, began: float) -> FittedSurface:
    """The surface of SPX quotes alone."""
    interior, status, choice = stage
    if status is Status.CONVERGED:
        interior, status = run_last_steps(interior, interior.point.objective.options)
    return build_fitted_surface(FitEnd.from_iterate(interior, status), choice, began)


def finish_joint_fit(
    stage: FitStage,
    market: VixMarket,
    smiles: InteriorPoint[FitPoint],
    prior: Surface | None,
    began: float,
) -> FittedSurface:
    """The surface of both markets, from the first stages of each."""
    ended = joint_fit.fit_both_markets(stage.interior, market, smiles, prior)
    return build_fitted_surface(ended, stage.choice, began)


def build_fitted_surface(
    ended: FitEnd, choice: tuple[str, float | None], began: float
) -> FittedSurface:
    """The surface of the last iterate, with its result and standard errors.

    Args:
        ended: Where the fit ended.
        choice: How the weights were chosen, and the trust in a prior.
        began: The clock's reading at the start.
    """
    status, point, warnings = ended.status, ended.point, ended.warnings
    if status is not Status.CONVERGED:
        ending = f"the fit ended as {status.value}: {status.explain()}"
        logger.warning(ending)
        warnings = (*warnings, ending)
    variance = smoothing.estimate_residual_variance(point, ended.matrix)
    result = FitResult(
        status=status,
        iterations=ended.iterations,
        objective=ended.value,
        roughness=point.objective.roughness,
        chosen=choice[0],
        trust=choice[1],
        freedom=variance.freedom,
        dispersion=variance.dispersion,
        residuals=freeze_array(point.misfit.residuals),
        seconds=time.perf_counter() - began,
        vix=ended.vix,
        warnings=warnings,
    )
    matrix = ended.matrix - (1.0 - 1.0 / variance.uneven) * point.misfit.of_quotes.band
    return _surface_from_end(ended, result, matrix)


def _choose_roughness(
    interior: InteriorPoint[FitPoint],
) -> tuple[InteriorPoint[FitPoint], Status]:
    """Roughness chosen by the data and, with a prior, the share of the prior's shape."""
    model = interior.point.objective
    limit = model.options.iterations
    if not model.mean.is_prior or model.options.roughness != "likelihood":
        return smoothing.choose_roughness(interior, limit)
    interior, status = smoothing.choose_roughness(choose_initial_weights(interior), limit)
    if status is Status.CONVERGED:
        without = drop_unlikely_prior(interior)
        if without is not None:
            return smoothing.choose_roughness(without, limit)
    return interior, status


def require_prior(prior: Surface | None, options: FitOptions) -> None:
    """A ``ValueError`` with the remedy where a prior and options do not fit together."""
    if prior is None:
        level = options.roughness.level if isinstance(options.roughness, Roughness) else 0.0
        if level > 0.0:
            raise ValueError(
                f"roughness.level = {level:g} is the weight of the distance from a prior: give "
                "prior=surface, or leave level at 0"
            )
    elif not isinstance(prior, Surface):
        raise ValueError(
            f"prior is a {type(prior).__name__}: give a Surface, an operator's or a fitted one"
        )
    elif prior.slopes.shape[0] != options.components:
        raise ValueError(
            f"prior has {prior.slopes.shape[0]} components and options.components is "
            f"{options.components}: make them equal, or give it as start"
        )


def _drop(
    quotes: Quotes, weights: ArrayLike | None, asked: Iterable[ExpiryLike] | ExpiryLike
) -> tuple[Quotes, ArrayLike | None]:
    """Quotes and weights without the expiries that are not wanted."""
    kept = drop_expiries(quotes, asked)
    if len(kept) == len(quotes):
        return quotes, weights
    require_quotes(kept, "a fit")
    checked = _check_weights(weights, len(quotes))
    return kept, None if checked is None else checked[np.isin(quotes.T, kept.maturities)]


def _check_weights(weights: ArrayLike | None, count: int) -> Array | None:
    if weights is None:
        return None
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (count,) or not np.all(np.isfinite(array) & (array >= 0.0)):
        raise ValueError(
            f"weights must be {count} finite numbers, not negative, one per quote; got shape "
            f"{array.shape}"
        )
    if np.count_nonzero(array) < MIN_QUOTES:
        raise ValueError(f"fewer than {MIN_QUOTES} quotes have a positive weight")
    return array


def _surface_from_end(ended: FitEnd, result: FitResult, matrix: Array) -> FittedSurface:
    objective = ended.point.objective
    slopes, weights = objective.layout.decode(ended.point.misfit.z)
    factors = objective.misfit.weights
    source = FitInput(
        objective.quotes,
        objective.options,
        None if np.all(factors == 1.0) else freeze_array(factors),
        ended.optimum,
    )
    surface = build_surface(source, slopes, result, matrix, weights, ended.coupling)
    return surface.with_vix(ended.slices)
