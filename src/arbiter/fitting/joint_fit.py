"""SPX and VIX fitted together: each market by itself first, then both in one system of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import smoothing
from arbiter.fitting.fitted_surface import VixResult
from arbiter.fitting.interior_point import Expansion, InteriorPointSolver, Status
from arbiter.fitting.joint_objective import JointObjective
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.vix_objective import VixObjective
from arbiter.fitting.vix_quotes import VixMarket, with_windows
from arbiter.inputs import freeze_array
from arbiter.pricing.vix_slices import VixSlices
from arbiter.quotes import Quotes
from arbiter.surface import Surface

_EXACT_LOSS_PER_QUOTE = 1e-3  # a loss per quote below this is an exact fit
_MIN_OPTIONS_FOR_ROUGHNESS = 8  # options from which the roughness of VIX smiles can be told
_MAX_INNER_STEPS = 3  # near the end constraints are what blocks a step
_INITIAL_COMPLEMENTARITY_SHARE = (
    0.3  # complementarity at the start, of the losses of the two fits by themselves
)
_MAX_WEIGHT_ROUNDS, _LOOSE_TOLERANCE = 10, 0.02  # of a choice of weights around a prior
_MAX_TIME_APART = np.timedelta64(
    3, "h"
)  # quotes of the two markets further apart are of two moments


def require_one_moment(quotes: Quotes, market: VixMarket, options: FitOptions) -> None:
    """A ``ValueError`` with the remedy where the two markets do not belong together."""
    if options.components != 1:
        raise ValueError(
            f"options.components = {options.components}: a fit with VIX quotes has one component"
        )
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
) -> tuple[VixObjective, InteriorPointSolver, Status]:
    """A free fit of the VIX smiles, futures held, and the roughness that their quotes choose."""
    model = VixObjective(market, replace(options, roughness="likelihood"))
    count = max(model.options_count, 1)
    interior = InteriorPointSolver(
        model, model.build_constraints(), model.initial_point(), scale=_EXACT_LOSS_PER_QUOTE * count
    )
    status = Status.CONVERGED
    if model.options_count >= _MIN_OPTIONS_FOR_ROUGHNESS:
        status = smoothing.choose_roughness(model, interior, options.iterations)
    return model, interior, status


def fit_both_markets(
    model: FitObjective, interior: InteriorPointSolver, market: VixMarket, prior: Surface | None
) -> JointFit:
    """Both markets in one fit, from where ``interior`` has brought the SPX side.

    The roughness of each market is the one that its own quotes chose.
    """
    options = model.options
    vix, smiles, _ = fit_vix_smiles(market, options)
    spx = FitObjective(
        with_windows(model.quotes, market.quotes.maturities), options, model.weights, prior
    )
    spx.roughness, spx.trust = model.roughness, model.trust
    both = JointObjective(spx, vix)
    count = len(spx.quotes) + max(len(vix.quotes), 1)
    start = np.concatenate([_interpolate_log_slopes(model, interior.z, spx), smiles.z])
    joint = InteriorPointSolver(
        both, both.build_constraints(), start, scale=_EXACT_LOSS_PER_QUOTE * count
    )
    joint.inner = _MAX_INNER_STEPS
    joint.set_expected_value(
        interior.local.value + smiles.local.value, _INITIAL_COMPLEMENTARITY_SHARE
    )
    left = max(options.iterations - interior.iterations, options.iterations // 2)
    if prior is not None and not isinstance(options.roughness, Roughness):
        _rechoose_prior_weights(both, joint, left)
    status = joint.run(options.tolerance, max(left - joint.iterations, 1))
    return JointFit(both, joint, status, interior.iterations + smiles.iterations)


def _rechoose_prior_weights(both: JointObjective, joint: InteriorPointSolver, limit: int) -> None:
    """Choose the weights around a prior anew, now that the VIX has its say about it."""
    spx = both.spx
    for _ in range(_MAX_WEIGHT_ROUNDS):
        if joint.run(_LOOSE_TOLERANCE, limit - joint.iterations) is not Status.CONVERGED:
            return
        dispersion, terms = smoothing.compute_traces(spx, SpxIterate(joint, spx))
        change = smoothing.compute_weight_changes(spx, dispersion, terms)
        smoothing.set_roughness_weights(spx, smoothing.get_roughness_weights(spx) * np.exp(change))
        joint.refresh()
        if np.abs(change).max() < smoothing.SETTLED_LOG_CHANGE:
            return


class SpxIterate(NamedTuple):
    """The SPX side of a joint fit, as the choice of weights sees it."""

    joint: InteriorPointSolver
    spx: FitObjective

    @property
    def z(self) -> Array:
        """SPX unknowns."""
        return self.joint.z[: self.spx.size]

    def matrix(self) -> Array:
        """The SPX part of the matrix: what SPX quotes, order and roughness know by themselves."""
        return self.joint.matrix()[: self.spx.band.shape[0], : self.spx.size]


def _interpolate_log_slopes(model: FitObjective, z: Array, spx: FitObjective) -> Array:
    """Log-slopes at the maturities of ``spx``, linear in log √T between those of ``model``.

    Strictly between two expiries, and so strictly inside the star order.
    """
    tau, at = model.penalty.tau, spx.penalty.tau
    logs = z.reshape(model.shape)
    i = np.clip(np.searchsorted(tau, at, side="right") - 1, 0, tau.size - 1)
    j = np.minimum(i + 1, tau.size - 1)
    share = (at - tau[i]) / np.where(j > i, tau[j] - tau[i], 1.0)
    found = logs[i] + np.clip(share, 0.0, 1.0)[:, None] * (logs[j] - logs[i])
    # volatility is flat before the first expiry and after the last, until slopes near their bound
    early, late = at < tau[0], at > tau[-1]
    found[early] = logs[0] + (at[early] - tau[0])[:, None]
    room = spx.highest - logs[-1]
    found[late] = spx.highest - room * np.exp(-(at[late] - tau[-1])[:, None] / room)
    return np.asarray(found.reshape(-1))


class JointFit:
    """Where a joint fit ended, seen from the SPX side.

    Attributes:
        spx: The SPX side of the objective.
        status: How it ended.
        iterations: Steps of both stages.
        z: SPX unknowns.
        slices: Shapes of the VIX.
        result: Residuals of VIX options and futures.
    """

    def __init__(
        self, both: JointObjective, joint: InteriorPointSolver, status: Status, before: int
    ) -> None:
        self.spx, self.joint, self.status = both.spx, joint, status
        self.iterations = before + joint.iterations
        self.z, smiles = both.split_unknowns(joint.z)
        both.value(joint.z)  # futures of the last iterate, not of a trial step
        vix, market = both.vix, both.vix.market
        slopes = np.exp(smiles.reshape(vix.shape))
        self.slices = VixSlices.of(vix.knots, vix.quotes.maturities, slopes)
        self.result = VixResult(
            freeze_array(vix.residuals[: vix.options_count]),
            freeze_array(vix.future()[market.at] - market.price),
            vix.roughness,
        )

    @property
    def local(self) -> Expansion:
        """The joint objective at the end."""
        return self.joint.local

    def matrix(self) -> Array:
        """The SPX part of the matrix."""
        return SpxIterate(self.joint, self.spx).matrix()
