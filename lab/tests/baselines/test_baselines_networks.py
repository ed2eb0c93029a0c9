"""Networks with a plain readout: of the operator's size, equivariant, and free to be arbitraged."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import arbiter as ab
from arbiter.operators.prior.gaussian_process import ZETA
from arbiter.pricing.black import implied_total_volatility
from arbiter.quotes import Quotes
from arbiter_lab.baselines import trained_baseline
from arbiter_lab.baselines.matched_size import (
    BASELINE_NAMES,
    Design,
    count_parameters,
    match_design,
)
from arbiter_lab.baselines.readout import SMILE_COEFFICIENTS, smoothed_smile
from arbiter_lab.baselines.trained_baseline import Baseline, NeuralSmiles
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.measure_gate import places
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.gaussian_process import splines
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.evaluation.arbitrage_check import audit_model
from counts import count
from ragged_chains import SMALL, random_chain

CONFIG = Config(**{**SMALL, "kriging": True, "spans": (0.3,)})

each_model = pytest.mark.parametrize("model", BASELINE_NAMES)


@lru_cache(maxsize=8)
def baseline(model: str, size: float = 0.1) -> Baseline:
    """Return a baseline with random parameters, independent of the initial weights."""
    design = match_design(model, CONFIG)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = design.build()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(size * torch.randn_like(parameter))
    return Baseline(network, design)


def quotes(factor: float = 1.0, clock: float = 1.0, seed: int = 0, maturities: int = 4) -> Quotes:
    """A smile with noise; volatilities times ``factor``, maturities times ``clock``."""
    rng = np.random.default_rng(seed)
    T = np.repeat(np.geomspace(0.03, 1.2, maturities), 11)
    z = np.tile(np.linspace(-2.5, 1.5, 11), maturities) + 0.1 * rng.standard_normal(T.size)
    iv = 0.2 * np.exp(-0.12 * z + 0.02 * z * z + 0.01 * rng.standard_normal(T.size))
    half = iv * rng.uniform(0.005, 0.03, T.size)
    k = z * 0.2 * np.sqrt(T)
    table = {"T": clock * T, "k": k, "iv_bid": factor * (iv - half), "iv_ask": factor * (iv + half)}
    return Quotes.from_frame(table)


@each_model
def test_a_baseline_has_as_many_parameters_as_the_operator(model: str) -> None:
    wanted = count_parameters(Network(Config()))
    assert count_parameters(match_design(model).build()) == pytest.approx(wanted, rel=0.05)
    if model != "ssm":  # whose width is the operator's
        design = match_design(model)
        narrow = Design(model, design.width // 8 * 4, design.config)
        assert count_parameters(narrow.build()) < 0.5 * wanted


@pytest.mark.parametrize("heads", [8, 20])
def test_the_nearest_width_is_taken(heads: int) -> None:
    config = Config(**{**SMALL, "heads": heads})
    wanted = count_parameters(Network(config))
    design = match_design("gru", config)
    off = [
        abs(count_parameters(Design("gru", design.width + by, config).build()) - wanted)
        for by in (0, -1, 1)
    ]
    assert off[0] == min(off)


def test_the_selective_scan_is_the_operator_without_its_constraints() -> None:
    design = match_design("ssm", CONFIG)
    network = design.build()
    assert count_parameters(network) == count_parameters(Network(CONFIG))
    scans = [part for part in network.modules() if isinstance(part, GreenScan)]
    assert scans
    assert not any(scan.guarded for scan in scans)
    assert any(scan.guarded for scan in Network(CONFIG).modules() if isinstance(scan, GreenScan))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "lstm"}, "model = 'lstm': give one of ssm, gru, transformer"),
        ({"width": 0}, "width = 0: give a multiple of 1"),
        ({"model": "transformer", "width": 10}, "width = 10: give a multiple of 4"),
        ({"model": "ssm", "width": 3}, "that of the selective scan is the configuration's, 16"),
        ({"config": Config(decoder="icnn")}, "decoder = 'icnn': a plain readout has none"),
    ],
)
def test_designs_that_make_no_sense_are_named(changes: dict[str, object], told: str) -> None:
    values = {"model": "gru", "width": 12, "config": CONFIG, **changes}
    with pytest.raises(ValueError, match=re.escape(told)):
        Design(**values)  # type: ignore[arg-type]


@each_model
@settings(max_examples=count(100, 6))
@given(log_factor=st.floats(-1.5, 1.5))
def test_a_crash_is_a_rescaled_calm_day(model: str, log_factor: float) -> None:
    """Volatilities times λ and maturities over λ²: volatilities times λ at the same strikes."""
    factor = float(np.exp(log_factor))
    found = baseline(model)
    calm, crash = found(quotes()), found(quotes(factor, factor**-2))
    k, T = np.linspace(-0.3, 0.2, 7), np.array([[0.02], [0.1], [0.5], [2.0]])
    assert crash.iv(k, T / factor**2) == pytest.approx(factor * calm.iv(k, T), rel=1e-9)


@each_model
def test_a_level_without_its_clock_is_another_chain(model: str) -> None:
    """Negative control: only both together are a change of units."""
    found = baseline(model)
    k = np.linspace(-0.3, 0.2, 7)
    one, other = found(quotes()).iv(k, 0.5), found(quotes(2.0)).iv(k, 0.5)
    assert np.abs(other / (2.0 * one) - 1.0).max() > 1e-3


@each_model
def test_padding_changes_nothing(model: str) -> None:
    chain = random_chain(3, chains=1)
    wide = [torch.nn.functional.pad(x, (0, 3)) for x in chain[1:]]
    wide[1:3] = [torch.where(x > 0.0, x, 0.1) for x in wide[1:3]]
    deep = [torch.cat([x, x[:, -1:]], 1) for x in wide]
    deep[-1][:, -1] = False
    T = torch.cat([chain.T, 1.3 * chain.T[:, -1:]], 1)
    zeta = torch.linspace(-2.0, 1.0, 6, dtype=torch.float64).expand(1, 5, 6)
    network = baseline(model).network
    alone = network(scaled(chain), zeta)
    padded = network(scaled(Ragged(T, *deep)), torch.cat([zeta, zeta[:, :1]], 1))[:, :5]
    assert torch.allclose(alone, padded, rtol=0.0, atol=1e-10)
    moved = chain._replace(iv=1.05 * chain.iv * (chain.k > 0.0) + chain.iv * (chain.k <= 0.0))
    assert not torch.allclose(alone, network(scaled(moved), zeta), rtol=0.0, atol=1e-4)


@each_model
def test_far_maturities_matter(model: str) -> None:
    """Each network connects maturities: a change of the last moves the first."""
    network = baseline(model).network
    chain = scaled(random_chain(5, chains=1))
    zeta = torch.zeros(1, 5, 1, dtype=torch.float64)
    u = chain.u.clone()
    u[:, -1] += 0.3 * chain.quoted[:, -1]
    moved = network(chain._replace(u=u), zeta) - network(chain, zeta)
    assert abs(float(moved[0, 0, 0])) > 1e-6


@each_model
def test_it_can_be_asked_anywhere_in_any_order(
    model: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    found = baseline(model)(quotes())
    k, T = rng.uniform(-0.4, 0.3, (5, 8)), rng.uniform(0.01, 2.0, (5, 8))
    table = found.iv(k, T)
    assert table.shape == (5, 8)
    assert np.isfinite(table).all()
    one_by_one = [float(found.iv(a, t)) for a, t in zip(k.ravel(), T.ravel(), strict=True)]
    assert table.ravel() == pytest.approx(one_by_one, rel=1e-12)
    monkeypatch.setattr(trained_baseline, "MAX_QUERIES", 7)
    assert found.iv(k, T) == pytest.approx(table, rel=1e-12)
    price = found.otm(0.0, 0.5)
    assert float(implied_total_volatility(price, 0.0).volatility) == pytest.approx(
        float(found.iv(0.0, 0.5)) * np.sqrt(0.5)
    )


@each_model
def test_volatility_is_continuous_in_maturity(model: str) -> None:
    found = baseline(model)(quotes())
    k = np.linspace(-0.2, 0.1, 5)
    for T in found.maturities.tolist():
        before, at, after = (found.iv(k, T * (1.0 + by)) for by in (-1e-9, 0.0, 1e-9))
        assert before == pytest.approx(at, rel=1e-6)
        assert after == pytest.approx(at, rel=1e-6)
    between = found.iv(0.0, np.sqrt(found.maturities[1] * found.maturities[2]))
    ends = np.sort([found.iv(0.0, t) for t in found.maturities[1:3]])
    assert ends[0] <= float(between) <= ends[1]


@each_model
def test_unconstrained_readouts_can_be_arbitraged(model: str) -> None:
    """Negative control of every promise of the operator, which has none of these findings."""
    chains = [quotes(seed=seed) for seed in range(count(20, 4))]
    found = [audit_model(answer, chain).findings for answer, chain in pairs(model, chains)]
    assert max(found) > 0
    operator = ab.Operator.pretrained()
    assert all(audit_model(operator(chain), chain).findings == 0 for chain in chains)


def pairs(model: str, chains: list[Quotes]) -> list[tuple[NeuralSmiles, Quotes]]:
    return list(zip(baseline(model).many(chains), chains, strict=True))


def test_training_starts_from_the_smile_that_the_heads_see() -> None:
    place = places(24, (3.7, 2.4)).double()
    smile = 0.1 * place**2 - 0.2 * place
    coefficients = smoothed_smile(place) @ torch.cat([smile, torch.zeros_like(smile)])
    zeta = torch.linspace(-3.0, 2.0, 41, dtype=torch.float64)
    found = splines(zeta, ZETA, SMILE_COEFFICIENTS) @ coefficients
    assert torch.allclose(found, 0.1 * zeta**2 - 0.2 * zeta, rtol=0.0, atol=5e-3)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("a chain", "str is not Quotes"),
        (quotes().select(np.arange(44) < 2), "a baseline needs at least"),
    ],
)
def test_what_is_no_chain_is_refused(given: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        baseline("gru")(given)  # type: ignore[arg-type]
