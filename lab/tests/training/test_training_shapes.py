"""Shaped laws are transports without arbitrage, with smiles that maturities do not tie together."""

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
from arbiter.pricing.knots import MAX_SLOPE
from arbiter.surface import Surface
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.training import shaped_laws
from arbiter_lab.training.law_pool import (
    MIN_RELATIVE_VOLATILITY,
    REFERENCE_RANGE,
    Laws,
    make_pool_grid,
)
from arbiter_lab.training.shaped_laws import KNOTS, draw_shape, draw_shaped_laws, make_shaped_laws
from counts import count

T = make_pool_grid()[0]
FLAT = (0.04 * T).expand(4, -1)  # 20 % at all maturities


@pytest.fixture(scope="module")
def laws() -> Laws:
    return draw_shaped_laws(
        tiny.laws(),
        count(full=2000, reduced=160),
        np.random.default_rng(5),
        REFERENCE_RANGE,
        MIN_RELATIVE_VOLATILITY,
    )


def test_law_is_the_transport_of_its_slopes() -> None:
    rng = np.random.default_rng(1)
    A = draw_shape(T, 4, rng)
    found = make_shaped_laws(tiny.laws(), FLAT, A)
    variance = np.diff(FLAT[0].numpy(), prepend=0.0)
    slopes = np.sqrt(np.cumsum(variance[:, None] * np.exp(2.0 * A[2].numpy()), 0))
    surface = Surface.from_slopes(KNOTS, T.numpy(), slopes.clip(max=MAX_SLOPE))
    reference = found.reference[2].double().numpy()
    for node in (0, 17, 43):
        t = float(T[node])
        np.testing.assert_allclose(surface.variance_swap(t), reference[node] ** 2, rtol=1e-6)
        k = np.linspace(-6.0, 2.0, 40) * reference[node] * np.sqrt(t)
        want = surface.iv(k, t)
        there = torch.tensor([[t]]).float(), torch.tensor(k[None, None]).float()
        got = found.volatility_at(torch.tensor([2]), *there)[0, 0].numpy()
        known = surface.otm(k, t) > 1e-9
        assert known.sum() > 20
        assert np.abs(got - want)[known].max() < 2e-5
        assert np.abs(1.001 * got - want)[known].max() > 2e-5


def worst(laws: Laws) -> tuple[float, float]:
    """Least calendar difference and least convexity between the nodes, over the price."""
    t = torch.exp(torch.linspace(float(T[0].log()), float(T[-1].log()), 150))
    kappa = torch.linspace(0.6, 1.4, 81, dtype=torch.float64)
    rows = torch.arange(len(laws))
    k = torch.log(kappa).expand(len(laws), t.numel(), -1)
    iv = laws.volatility_at(rows, t.expand(len(laws), -1), k.float()).double()
    price = black.otm(k, iv * t.double().sqrt()[:, None])
    calendar = torch.diff(price, dim=1) / price[:, 1:]
    call = price + (1.0 - kappa).clamp(min=0.0)
    convexity = torch.diff(call, n=2, dim=-1) / price[..., 1:-1]
    sure = price > 1e-5  # where rounding to float32 is small against what neighbours differ by
    found = [x[sure[:, 1:] if x is calendar else sure[..., 1:-1]] for x in (calendar, convexity)]
    return float(found[0].nan_to_num().min()), float(found[1].nan_to_num().min())


def test_there_is_no_arbitrage_between_the_nodes(laws: Laws) -> None:
    calendar, convexity = worst(Laws(laws.T, laws.z, laws.reference[:40], laws.iv[:40]))
    assert calendar > -1e-4
    assert convexity > -1e-4
    # what falls with maturity, or is bent the wrong way, is seen
    fading = torch.exp(-1.5 * torch.log(T / T[0]).clamp(min=0.0))
    calendar, _ = worst(
        Laws(
            laws.T,
            laws.z,
            laws.reference[:4] * fading.float(),
            laws.iv[:4] * fading.float()[:, None],
        )
    )
    assert calendar < -1e-2
    wave = 1.0 + 0.05 * torch.cos(20.0 * laws.z)
    _, convexity = worst(Laws(laws.T, laws.z, laws.reference[:4], laws.iv[:4] * wave))
    assert convexity < -1e-2


@pytest.mark.parametrize("axis", [1, 2])
def test_nodes_are_close_enough_for_a_cubic(laws: Laws, axis: int) -> None:
    """Leaving out every second node makes the error sixteenfold, and then it can be seen."""
    u = torch.log(laws.iv.double() / laws.reference.double()[..., None]).movedim(axis, -1)
    middle = (-u[..., :-6] + 9.0 * u[..., 2:-4] + 9.0 * u[..., 4:-2] - u[..., 6:]) / 16.0
    miss = 1e4 * (middle - u[..., 3:-3]) * laws.iv.double().movedim(axis, -1)[..., 3:-3]
    assert float(miss[torch.isfinite(miss)].square().mean().sqrt()) < 16.0 * 0.1


def smile(laws: Laws, years: float, z: float) -> Tensor:
    """``log(iv/iv at the money)`` at deviations of the volatility at the money."""
    rows, at = torch.arange(len(laws)), torch.full((len(laws), 1), years)
    money = laws.volatility_at(rows, at, torch.zeros(len(laws), 1, 1))
    return torch.log(laws.volatility_at(rows, at, z * money * years**0.5) / money)[:, 0, 0].double()


def stiffness(laws: Laws) -> float:
    """Deviation of a four-year smile from the best linear guess from shorter ones."""
    known = [smile(laws, t, z) for t in (0.1, 0.5, 1.4) for z in (-1.0, 1.0)]
    X = torch.stack([torch.ones(len(laws)).double(), *known], 1)
    y = smile(laws, 4.0, -1.0)
    return float((y - X @ torch.linalg.lstsq(X, y[:, None]).solution[:, 0]).std())


def test_long_smiles_are_not_given_by_short_ones(laws: Laws) -> None:
    assert stiffness(laws) > 0.02
    assert stiffness(tiny.laws(160)) < 0.005


def test_skews_cover_what_indices_show(laws: Laws) -> None:
    """At the money ∂log(iv)/∂z is −0.05 to −0.3 in days and −0.3 to −0.45 in years, on closes."""
    for years, low, high in ((0.01, -0.3, -0.02), (0.1, -0.4, -0.08), (4.0, -0.45, -0.2)):
        skew = (smile(laws, years, 0.25) - smile(laws, years, -0.25)) / 0.5
        assert 0.02 < float((skew < low).double().mean()) < 0.5
        assert 0.02 < float((skew > high).double().mean()) < 0.6
        assert float((skew > 0.0).double().mean()) < 0.25


def test_laws_stay_within_their_limits_and_the_seed_decides(laws: Laws) -> None:
    one, two, other = (
        draw_shaped_laws(
            tiny.laws(), 7, np.random.default_rng(seed), REFERENCE_RANGE, MIN_RELATIVE_VOLATILITY
        )
        for seed in (3, 3, 4)
    )
    assert len(one) == 7
    torch.testing.assert_close(one.iv, two.iv, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(one.reference, other.reference)
    narrow = draw_shaped_laws(tiny.laws(), 7, np.random.default_rng(3), (0.15, 0.6), 0.5)
    middle = (laws.z > -2.0) & (laws.z < 1.5)
    assert float(narrow.reference.min()) > 0.15
    assert float(narrow.reference.max()) < 0.6
    assert float((narrow.iv[..., middle] / narrow.reference[..., None]).min()) > 0.5
    assert not torch.isnan(laws.iv[..., middle]).any()


def test_slopes_stay_below_what_the_decoder_is_tested_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaped_laws, "MAX_SLOPE", 0.3)
    A = torch.zeros(4, T.numel(), len(KNOTS), dtype=torch.float64)
    cut = make_shaped_laws(tiny.laws(), FLAT, A)
    want = np.minimum(0.2, 0.3 / np.sqrt(T.numpy()))
    np.testing.assert_allclose(cut.reference[0], want, rtol=1e-5)
