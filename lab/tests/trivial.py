"""One market on thirty days, and models that know little of it: what do metrics say of them?"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from arbiter import Surface
from arbiter.conventions import THIRTY_DAYS, Array
from arbiter.markets import LiftedHeston
from arbiter.pricing import black
from arbiter_lab.metrics import (
    arbitrage,
    densities,
    desk,
    generalisation,
    numeraire,
    volatility,
    wasserstein,
)
from arbiter_lab.metrics import smoothed_arbitrage as smoothed
from arbiter_lab.metrics.marginals import InvertedMarginals
from arbiter_lab.metrics.metric import Metric, worst_day
from arbiter_lab.metrics.panels import price_calls

HESTON = LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.04, sigma=0.5, rho=-0.7)
KAPPA = np.linspace(0.8, 1.2, 17)
T = np.array([1.0 / 12.0, 0.25, 0.5, 1.0])
# variance from 0.03 to 0.07 and back: the one factor is variance less v0
STATES = 0.01 + 0.02 * np.sin(np.linspace(0.0, 6.0, 30))[:, None]


class Models:
    """Calls ``(30, 4, 17)``, indices ``(30,)`` and laws of the truth and of three models."""

    def __init__(self) -> None:
        truth = HESTON.days(STATES, np.log(KAPPA) * np.ones((4, 1)), T)
        truth = truth + np.maximum(1.0 - KAPPA, 0.0)
        exact = [InvertedMarginals(HESTON, state) for state in STATES]
        index = HESTON.vix(STATES)
        flat = [
            Surface.from_slopes([-1.0, 1.0], T, v * np.sqrt(T)[:, None] * np.ones(2))
            for v in index / 100.0
        ]
        one_volatility = np.stack([price_calls(surface, KAPPA, T) for surface in flat])
        intrinsic = np.broadcast_to(np.maximum(1.0 - KAPPA, 0.0), truth.shape)
        first = np.broadcast_to(truth[:1], truth.shape)
        self.truth, self.index, self.exact = truth, index, exact
        self.calls = {
            "truth": truth,
            "one volatility": one_volatility,
            "first day": first,
            "intrinsic": intrinsic,
        }
        self.indices = {
            "truth": index,
            "one volatility": np.array([float(s.vix(THIRTY_DAYS)) for s in flat]),
            "first day": np.broadcast_to(index[:1], index.shape),
            "intrinsic": np.full(30, np.nan),
        }
        self.laws: dict[str, list[Any]] = {
            "truth": exact,
            "one volatility": flat,
            "first day": [exact[0]] * 30,
            "intrinsic": [object()] * 30,
        }


def volatilities(calls: Array) -> Array:
    otm = calls - np.maximum(1.0 - KAPPA, 0.0)
    found = black.implied_total_volatility(
        otm, np.broadcast_to(np.log(KAPPA), calls.shape)
    ).volatility
    return np.asarray(found / np.sqrt(T)[:, None])


@lru_cache(maxsize=1)
def scores() -> dict[str, dict[str, Metric]]:
    """Metrics of each model, by the model's name."""
    models = Models()
    return {name: _scores(models, name) for name in models.calls}


def _scores(models: Models, name: str) -> dict[str, Metric]:
    calls, truth, laws = models.calls[name], models.truth, models.laws[name]
    error = volatility.iv_error_bp(volatilities(calls), volatilities(truth))
    every = slice(None, None, 10)  # audits and laws of three days are enough
    rmse = volatility.iv_rmse_bp(error)
    found = [
        rmse,
        volatility.iv_mae_bp(error),
        volatility.iv_max_bp(error),
        worst_day(rmse),
        desk.vix_rmse(models.indices[name], models.index),
        densities.relative_entropy(laws[every], models.exact[every], T),
        densities.cvar_alignment(laws[every], models.exact[every], T),
        arbitrage.nas(calls, KAPPA, T),
        arbitrage.nas_as_printed(calls, KAPPA, T),
        arbitrage.nas_inequalities(arbitrage.audit_panel(calls[every], KAPPA, T)),
        smoothed.cnas(calls, KAPPA, T),
        smoothed.cnas(calls, KAPPA, T, printed=True),
        smoothed.cnas_convolved(calls, KAPPA, T),
        numeraire.ni(calls, truth),
        numeraire.ni_residual(calls, truth),
        wasserstein.surface_wasserstein(calls, truth, KAPPA, T),
        wasserstein.surface_wasserstein_quantile(laws[every], models.exact[every], T),
        generalisation.gen_gap_p95(calls, truth),
    ]
    return {metric.name: metric for metric in found}
