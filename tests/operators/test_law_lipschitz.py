"""No move of misfits moves a log-slope of the law network by more than its constant times it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import arbiter as ab
from arbiter.conventions import Array
from arbiter.operators.law import lipschitz
from arbiter.operators.law.config import MIN_READ_VEGA, LawConfig
from arbiter.operators.law.lipschitz import constant
from arbiter.operators.law.network import LawNetwork, LawTask
from arbiter.operators.law.proposal import decode, integrate_laws, price_law, prior_law
from arbiter.operators.law.reading import law_vega, misfit
from arbiter.operators.law.weights import Weights, describe_weights
from arbiter.operators.prior.gaussian_process import kriged
from arbiter.operators.prior.reference_volatility import scaled
from arbiter.operators.quote_rows import lay_quotes

CONFIG = LawConfig(heads=6, width=8, state=4, rank=2, context=6)
STEP = 1e-3


def random_weights(seed: int, through: str) -> Weights:
    """Random weights of a network, of which one path alone takes misfits to slopes.

    Args:
        seed: Of the weights.
        through: ``"direct"``, ``"across"`` or ``"from_scans"``.
    """
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for name, like in describe_weights(CONFIG).items():
        size = 1.0 / np.sqrt(like.shape[-1])
        made[name] = (size * rng.standard_normal(like.shape)).astype(np.float32)
    made["looks.0.heads.place"] = np.linspace(-2.0, 1.5, CONFIG.heads, dtype=np.float32)
    made["looks.0.heads.log_width"] = np.full(CONFIG.heads, -1.0, np.float32)
    for name, weight in made.items():
        if name.endswith(("gains.weight", "up_bias.weight", "enter_bias.weight", "select.weight")):
            weight[:] = 0.0
        if name.endswith("gains.bias"):  # gains of nearly one
            weight[:] = 3.0
        paths = [f"looks.0.{path}" for path in ("direct.", "across", "from_scans")]
        if name.startswith(tuple(path for path in paths if through not in path)):
            weight[:] = 0.0
    for name in ("looks.0.last.weight", "looks.0.direct.weight"):
        made[name] *= 0.02  # within what a proposal may be
    return made


def largest_gain(weights: Weights, pairs: int) -> float:
    """Over random pairs of misfits of the example chain, at its own prior."""
    network = LawNetwork(weights, CONFIG)
    chain = scaled(lay_quotes([ab.example_chain().quotes().in_clock_time()]))
    rows, prior = chain.quotes, kriged(chain, network.places)
    slices = integrate_laws(prior.start, chain.total)
    seen = price_law(prior_law(prior.start, slices), slices, rows.row, rows.k)
    vega = law_vega(rows.k, seen.x, chain.total.ravel()[rows.row])

    def log_slopes(misfits: Array) -> Array:
        task = LawTask(chain, seen.price + vega * misfits, prior)
        return np.log(decode(network(task).law, chain.total, rows.listed))

    rng, worst = np.random.default_rng(0), 0.0
    for pair in range(pairs):
        first = 0.05 * rng.standard_normal(rows.k.size)
        signs = rng.choice([-1.0, 1.0], CONFIG.heads + 1)
        # signs that change at random percentiles, as a head's neighbours would have it
        edges = np.sort(rng.uniform(-2.5, 2.0, CONFIG.heads))
        move = STEP * (signs[np.searchsorted(edges, seen.x)] if pair else 1.0)
        away = np.abs(log_slopes(first + move) - log_slopes(first))
        worst = max(worst, float(away.max()) / STEP)
    return worst


@pytest.mark.parametrize("through", ["direct", "across", "from_scans"])
def test_no_pair_of_misfits_exceeds_the_constant(through: str) -> None:
    weights = random_weights(3, through)
    bound = constant(weights, CONFIG)
    assert bound is not None
    found = largest_gain(weights, 40)
    assert 0.0 < found <= bound


def test_the_pairs_find_a_constant_that_leaves_the_gain_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: without the residuals' gain the bound of the straight path is too small."""
    weights = random_weights(3, "direct")
    monkeypatch.setattr(lipschitz, "RESIDUAL_GAIN", 1.0)
    short = constant(weights, CONFIG)
    assert short is not None
    assert largest_gain(weights, 40) > short


def test_quotes_whose_vega_vanishes_fade_out() -> None:
    """A threshold there would move slopes by a switch: prices seven deviations out are as small."""
    vega = MIN_READ_VEGA * np.linspace(0.5, 3.0, 100_001)
    found = misfit(0.3 * vega, np.zeros(vega.size), vega, 1.0)
    assert (found[vega < MIN_READ_VEGA] == 0.0).all()
    np.testing.assert_allclose(found[vega > 2.0 * MIN_READ_VEGA], 0.3)
    assert np.abs(np.diff(found)).max() < 1e-4
    stepped = np.where(vega > MIN_READ_VEGA, 0.3, 0.0)  # the control
    assert np.abs(np.diff(stepped)).max() > 0.2


def test_two_looks_have_no_constant() -> None:
    assert constant(random_weights(3, "direct"), replace(CONFIG, looks=2)) is None
