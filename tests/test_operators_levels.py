"""Slices with levels of their own: against the augmented problem, and sizes that are found."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from arbiter.operators import levels
from arbiter.operators.levels import (
    SIZES,
    WILD,
    Prior,
    Rows,
    Sums,
    believed,
    evidence,
    likeliest,
    moments,
)

L, S, D = 5, 9, 4
seeds = st.integers(0, 2**31)


def problem(seed: int, size: float, chains: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Rows ``(B, L, S, d)``, weights and values ``(B, L·S)`` of levels of a size."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(chains, *shape, generator=g, dtype=torch.float64)

    rows = draw(L, S, D)
    f = (rows @ draw(1, D, 1))[..., 0] + size * draw(L, 1)
    error = 1e-3 * (1.0 + draw(L, S).abs())
    weight = error**-2.0
    weight[:, 2] = 0.0  # a slice that nobody quotes
    return rows, weight.flatten(1), (f + error * draw(L, S)).flatten(1)


def assumed(uneven: float, wild: float = 1.0) -> Prior:
    return Prior(*(torch.tensor([x], dtype=torch.float64) for x in (uneven, wild)))


def known(rows: Tensor, weight: Tensor, y: Tensor) -> Sums:
    return Rows(rows).sums(weight, y)


@given(seed=seeds, size=st.sampled_from([1e-3, 0.03, 1.0]), wild=st.sampled_from([0.5, 4.0]))
def test_levels_are_coefficients_like_others(seed: int, size: float, wild: float) -> None:
    """Against a regression whose columns are the basis and one for each slice."""
    rows, weight, y = problem(seed, size)
    belief = believed(known(rows, weight, y), assumed(size, wild))
    own = torch.eye(L, dtype=torch.float64).repeat_interleave(S, 0)
    wide = torch.cat([wild * rows[0].flatten(0, 1), size * own], 1)
    P = wide.T @ (weight[0, :, None] * wide) + torch.eye(D + L, dtype=torch.float64)
    V = torch.linalg.inv(P)
    mean = V @ (wide.T @ (weight[0] * y[0]))
    torch.testing.assert_close(belief.mean[0], wild * mean[:D], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(belief.level[0], size * mean[D:], rtol=1e-5, atol=1e-7)
    value, variance = Rows(rows).at(belief)
    torch.testing.assert_close(value[0], wide @ mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(variance[0], ((wide @ V) * wide).sum(1), rtol=1e-4, atol=1e-9)
    # where nothing is quoted a level is zero, give or take its size
    assert float(belief.level[0, 2]) == 0.0
    assert float(belief.loose[0, 2]) == pytest.approx(size**2)
    none = believed(known(rows, weight, y), assumed(1e-9, wild))
    assert float((none.mean - belief.mean).abs().max()) > 1e-6 * size


@given(seed=seeds)
def test_priors_are_compared_by_their_likelihood(seed: int) -> None:
    rows, weight, y = problem(seed, 8e-3)
    there = weight[0] > 0.0
    flat, error = rows[0].flatten(0, 1)[there], weight[0, there] ** -0.5
    own = torch.eye(L, dtype=torch.float64).repeat_interleave(S, 0)[there]

    def likelihood(size: float, wild: float) -> float:
        kernel = wild**2 * flat @ flat.T + size**2 * own @ own.T + torch.diag(error**2)
        law = stats.multivariate_normal(None, kernel.numpy(), allow_singular=True)
        return float(law.logpdf(y[0, there].numpy()))

    both = [(size, wild) for size in SIZES for wild in WILD]
    sums = known(rows, weight, y)
    found = torch.cat([evidence(sums, assumed(*pair)) for pair in both])
    by_hand = torch.tensor([likelihood(*pair) for pair in both], dtype=torch.float64)
    torch.testing.assert_close(found - found[0], by_hand - by_hand[0], rtol=1e-4, atol=1e-2)
    assert float(by_hand.max() - by_hand.min()) > 1.0
    taken = likeliest(sums)
    at = both.index((float(taken.uneven), float(taken.wild)))
    assert float(by_hand[at]) > float(by_hand.max()) - 2.0  # one after the other, not both at once


@pytest.mark.parametrize(
    ("true", "wanted"), [(0.0, SIZES[:2]), (0.02, SIZES[2:]), (0.3, SIZES[3:])]
)
def test_the_size_of_levels_is_found(true: float, wanted: tuple[float, ...]) -> None:
    found = likeliest(known(*problem(11, true, chains=60))).uneven
    share = torch.isin(found, torch.tensor(wanted, dtype=found.dtype)).double().mean()
    assert float(share) > 0.9


@pytest.mark.parametrize(("times", "wanted"), [(0.3, WILD[:2]), (1.0, WILD[:3]), (6.0, WILD[3:])])
def test_wild_surfaces_are_known_for_wild(times: float, wanted: tuple[float, ...]) -> None:
    rows, weight, y = problem(12, 0.0, chains=60)
    found = likeliest(known(rows / times, weight, y)).wild
    share = torch.isin(found, torch.tensor(wanted, dtype=found.dtype)).double().mean()
    assert float(share) > 0.85


def test_without_levels_an_uneven_clock_is_taken_for_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weight, y = problem(3, 0.05, chains=40)
    g = torch.Generator().manual_seed(3)
    torch.randn(40, L, S, D, generator=g, dtype=torch.float64)
    a = torch.randn(40, 1, D, 1, generator=g, dtype=torch.float64)[:, 0, :, 0]

    def error() -> float:
        sums = known(rows, weight, y)
        return float((believed(sums, likeliest(sums)).mean - a).square().mean().sqrt())

    with_levels = error()
    monkeypatch.setattr(levels, "SIZES", (1e-7,))
    assert with_levels < 0.2 * error()


def test_moments_between_the_quotes_are_those_of_the_augmented_problem() -> None:
    rows, weight, y = problem(5, 0.03)
    belief = believed(known(rows, weight, y), assumed(0.03))
    g = torch.Generator().manual_seed(6)
    others = torch.randn(1, L, 3, D, generator=g, dtype=torch.float64)
    mean, variance = moments(others, belief)
    own = torch.eye(L, dtype=torch.float64)
    wide = torch.cat([rows[0].flatten(0, 1), 0.03 * own.repeat_interleave(S, 0)], 1)
    there = torch.cat([others[0].flatten(0, 1), 0.03 * own.repeat_interleave(3, 0)], 1)
    V = torch.linalg.inv(wide.T @ (weight[0, :, None] * wide) + torch.eye(D + L))
    wanted = there @ V @ (wide.T @ (weight[0] * y[0]))
    torch.testing.assert_close(mean.flatten(), wanted, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(variance.flatten(), ((there @ V) * there).sum(1), rtol=1e-4, atol=0)
