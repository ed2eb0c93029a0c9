"""Two benches of markets that lie outside the training prior in family and in parameters.

Maturities, strikes, spreads and noise are those of the unseen surfaces
(:mod:`arbiter_lab.evaluation.unseen_surfaces`). Training has lifted Heston markets with
``H ≥ 0.03``, reversion up to 6, correlation up to 0.2 and up to 4 Gaussian jumps a year
(:mod:`arbiter_lab.training.parameter_prior`, and near a preset a little more than 1.6 jumps).

* **rough-bergomi**: lognormal rough variance (:mod:`arbiter_lab.evaluation.rough_bergomi`) with
  ``H ≤ 0.028``. Volatilities are Monte Carlo, stored with their standard errors. There are few
  markets, and each is quoted several times.
* **double-heston**: two Heston variances, the fast one with a reversion of 10 or more, the slow one
  with a positive correlation of 0.3 or more, and 6 or more double-exponential jumps a year, up and
  down. Prices are Fourier integrals; every surface is a market of its own.

Surface i of a bench depends only on the seed and on i.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from arbiter.conventions import INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.models.double_heston import DoubleHeston, ExponentialJumps, HestonVariance
from arbiter.models.exact_prices import draw_log_uniform
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.rough_bergomi import RoughBergomi
from arbiter_lab.evaluation.unseen_surfaces import (
    ExactSmiles,
    T,
    draw_quotes,
    draw_until_accepted,
    imply_smiles,
    is_index_like,
    list_strikes,
    quoted_case,
)

OUTSIDE_BENCHES = ("rough-bergomi", "double-heston")
SURFACE_COUNT = 48
LAW_SEED = 20_261_119
STORED_TRUTH = "rough_bergomi.npz"
TRAINING_MIN_HURST, TRAINING_MAX_REVERSION = 0.03, 6.0
TRAINING_MAX_CORRELATION, TRAINING_MAX_INTENSITY = 0.2, 4.0  # jumps a year
ROUGH_MARKET_COUNT = 12
_MAX_JUMP_VARIANCE = 0.02  # a year
_MODEL_SEED_KEY, _QUOTE_SEED_KEY = 0, 1  # what the children of the seed are for


class RoughTruth(NamedTuple):
    """Stored volatilities of the rough Bergomi markets, N of them.

    Attributes:
        iv: ``(N, L, S)``; NaN where no strike is listed.
        error: ``(N, L, S)`` standard errors.
        paths: ``(N,)`` number of paths.
    """

    iv: Array
    error: Array
    paths: Array


def draw_rough_market(number: int) -> RoughBergomi:
    """Return rough Bergomi market ``number``: always the same."""
    rng = _seeded(OUTSIDE_BENCHES[0], _MODEL_SEED_KEY, number)
    return RoughBergomi(
        v0=draw_log_uniform(rng, 0.012, 0.08),
        reversion=float(rng.uniform(0.5, 3.0)),
        theta=draw_log_uniform(rng, 0.015, 0.08),
        nu=float(rng.uniform(0.8, 1.3)),
        rho=float(rng.uniform(-0.8, -0.5)),
        hurst=float(rng.uniform(0.008, 0.028)),
    )


def draw_two_sided(rng: np.random.Generator) -> DoubleHeston:
    """Draw a double Heston market with two-sided jumps, outside the training prior."""
    fast = HestonVariance(
        v0=draw_log_uniform(rng, 0.004, 0.06),
        reversion=draw_log_uniform(rng, 10.0, 25.0),
        theta=draw_log_uniform(rng, 0.005, 0.03),
        nu=float(rng.uniform(0.6, 1.6)),
        rho=float(rng.uniform(-0.9, -0.5)),
    )
    slow = HestonVariance(
        v0=draw_log_uniform(rng, 0.004, 0.04),
        reversion=draw_log_uniform(rng, 0.2, 1.0),
        theta=draw_log_uniform(rng, 0.008, 0.05),
        nu=float(rng.uniform(0.1, 0.4)),
        rho=float(rng.uniform(0.3, 0.7)),
    )
    while True:
        jumps = ExponentialJumps(
            intensity=draw_log_uniform(rng, 6.0, 15.0),
            upward=float(rng.uniform(0.3, 0.6)),
            up=float(rng.uniform(0.01, 0.03)),
            down=float(rng.uniform(0.02, 0.05)),
        )
        if jumps.variance < _MAX_JUMP_VARIANCE:
            return DoubleHeston(fast, slow, jumps)


def make_outside_case(bench: str, number: int) -> Case:
    """Return surface ``number`` of a bench.

    Example:
        >>> make_outside_case("double-heston", 0).family
        'double-heston'
    """
    if bench == OUTSIDE_BENCHES[0]:
        which = number % ROUGH_MARKET_COUNT
        smiles = _rough_smiles(which)
    else:
        which = number
        rng = _seeded(bench, _MODEL_SEED_KEY, number)
        smiles = draw_until_accepted(_draw_two_sided_smiles, rng)[0]
    mid, quoted = draw_quotes(smiles, _seeded(bench, _QUOTE_SEED_KEY, number))
    return quoted_case((f"{bench} {number}", bench, f"{bench} {which}"), smiles, mid, quoted)


@lru_cache(maxsize=1)
def load_rough_truth() -> RoughTruth:
    """Return the volatilities that ``tools/rough_bergomi_truth.py`` has simulated."""
    with (files("arbiter_lab.evaluation") / STORED_TRUTH).open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        return RoughTruth(*(archive[name] for name in RoughTruth._fields))


def _draw_two_sided_smiles(rng: np.random.Generator) -> list[ExactSmiles] | None:
    market = draw_two_sided(rng)
    total = market.log_variance(T)
    if not is_index_like(total):
        return None
    k = list_strikes(total)
    return [imply_smiles(k, market.otm(k, T[:, None]), total, float(market.vix()))]


def _rough_smiles(which: int) -> ExactSmiles:
    total = draw_rough_market(which).log_variance(T)
    month = float(np.interp(THIRTY_DAYS, T, total)) / THIRTY_DAYS  # a maturity
    k, iv = list_strikes(total), load_rough_truth().iv[which]
    return ExactSmiles(k, iv, np.sqrt(total / T), INDEX_POINTS * float(np.sqrt(month)))


def _seeded(bench: str, key: int, number: int) -> np.random.Generator:
    keys = OUTSIDE_BENCHES.index(bench), key, number
    return np.random.default_rng(np.random.SeedSequence(LAW_SEED, spawn_key=keys))
