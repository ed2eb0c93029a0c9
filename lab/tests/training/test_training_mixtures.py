"""A mixture of laws is the mixture of the oracle's prices, and a pool holds some."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import Jumps, Parameters
from arbiter.pricing import black
from arbiter_lab.training import mixtures
from arbiter_lab.training.law_pool import MIN_RELATIVE_VOLATILITY, Laws, solve_laws
from arbiter_lab.training.mixtures import draw_mixtures, mix

CALM = Parameters(v0=0.012, reversion=1.5, theta=0.02, nu=0.25, rho=-0.6, factors=1)
WILD = Parameters(
    v0=0.09, reversion=1.0, theta=0.08, nu=0.7, rho=-0.7, factors=1, jumps=Jumps(0.3, -0.2, 0.15)
)
CHANCE = 0.05


@pytest.fixture(scope="module")
def laws() -> Laws:
    return solve_laws([CALM, WILD], 1, states_per_set=1)


def mixture(laws: Laws, chance: float = CHANCE) -> Laws:
    return mix(laws, torch.tensor([0]), torch.tensor([1]), torch.tensor([chance]))


def exact(T: NDArray[np.float64], k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Volatilities of the mixture, from the oracle, where prices exceed 1e-7."""
    parts = [LiftedHeston.of(p).otm(k, T[:, None], np.zeros(1)) for p in (CALM, WILD)]
    price = (1.0 - CHANCE) * parts[0] + CHANCE * parts[1]
    v = black.implied_total_volatility(np.where(price > 1e-7, price, np.nan), k).volatility
    return np.asarray(v / np.sqrt(T)[:, None])


def rms_bp(found: Laws) -> float:
    rng = np.random.default_rng(1)
    T = np.sort(np.exp(rng.uniform(np.log(1 / 365), np.log(6.0), 12)))
    reference = found.reference_at(torch.tensor([0]), torch.tensor(T[None]).float())[0].numpy()
    k = rng.uniform(-20.0, 5.0, (12, 60)) * (reference * np.sqrt(T))[:, None]
    want = exact(T, k)
    got = found.volatility_at(
        torch.tensor([0]), torch.tensor(T[None]).float(), torch.tensor(k[None])
    )[0]
    miss = (got.numpy() - want)[np.isfinite(want)]
    assert miss.size > 300
    assert np.isfinite(miss).mean() > 0.98
    return float(1e4 * np.sqrt(np.nanmean(miss**2)))


def test_mixture_is_the_mixture_of_the_oracles_prices(laws: Laws) -> None:
    assert rms_bp(mixture(laws)) < 0.1
    assert rms_bp(mixture(laws, 1.001 * CHANCE)) > 0.1


def test_reference_is_that_of_both_log_contracts(laws: Laws) -> None:
    squares = laws.reference.double() ** 2
    want = torch.sqrt((1.0 - CHANCE) * squares[0] + CHANCE * squares[1])
    np.testing.assert_allclose(mixture(laws).reference[0], want, rtol=1e-6)


def test_rare_wild_law_holds_up_the_puts(laws: Laws) -> None:
    T, floor = torch.tensor([[30 / 365]]), torch.tensor([[2e-5]])
    mixed, row = mixture(laws), torch.tensor([0])
    money = torch.zeros(1, 1, 1)
    reach = [
        float(
            x.lower_reach(row, T, floor)
            * x.reference_at(row, T)
            / x.volatility_at(row, T, money)[..., 0]
        )
        for x in (laws, mixed)
    ]
    assert reach[1] < 2.0 * reach[0]


def test_share_of_the_pool_is_mixed_and_the_seed_decides(laws: Laws) -> None:
    twenty = replace(laws, reference=laws.reference.repeat(10, 1), iv=laws.iv.repeat(10, 1, 1))
    one, two, other = (
        draw_mixtures(twenty, 0.5, np.random.default_rng(seed), MIN_RELATIVE_VOLATILITY)
        for seed in (3, 3, 4)
    )
    torch.testing.assert_close(one.iv, two.iv, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(one.reference, other.reference)
    assert (one.reference != twenty.reference).any(1).sum() >= 3
    kept = torch.isclose(one.iv, twenty.iv, rtol=0, atol=0, equal_nan=True).flatten(1).all(1)
    assert int(kept.sum()) == 10
    assert draw_mixtures(twenty, 0.0, np.random.default_rng(3), MIN_RELATIVE_VOLATILITY) is twenty


def test_mixture_that_is_not_resolved_near_the_money_is_not_taken(
    laws: Laws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixtures, "MIN_RESOLVED_PRICE", 0.01)
    left = draw_mixtures(laws, 1.0, np.random.default_rng(1), MIN_RELATIVE_VOLATILITY)
    assert torch.equal(left.reference, laws.reference)
    assert not torch.isnan(replace(left).iv[..., (laws.z > -2.0) & (laws.z < 1.5)]).any()
