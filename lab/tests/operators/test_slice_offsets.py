"""Slices with levels of their own: against the augmented problem, and sizes that are found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn.functional import one_hot

from arbiter.operators.prior.slice_offsets import (
    INITIAL_PRIOR_SCALE,
    MIN_LIKELIHOOD_SHARE,
    OFFSET_DEVIATIONS,
    PRIOR_SCALES,
)
from arbiter_lab.differentiable.operators.prior import slice_offsets
from arbiter_lab.differentiable.operators.prior.slice_offsets import (
    Prior,
    Rows,
    Sums,
    believed,
    cut_beyond_unlikely,
    evidence,
    likeliest,
    moments,
    shares,
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


def weighed(values: Sequence[float], score: Sequence[float]) -> float:
    """Their geometric mean, by likelihoods less what counts for nothing."""
    weight = [max(math.exp(each - max(score)) - MIN_LIKELIHOOD_SHARE, 0.0) for each in score]
    logs = (w * math.log(value) for w, value in zip(weight, values, strict=True))
    return math.exp(sum(logs) / sum(weight))


@given(seed=seeds)
def test_priors_are_weighed_by_their_likelihood(seed: int) -> None:
    rows, weight, y = problem(seed, 8e-3)
    there = weight[0] > 0.0
    flat, error = rows[0].flatten(0, 1)[there], weight[0, there] ** -0.5
    own = torch.eye(L, dtype=torch.float64).repeat_interleave(S, 0)[there]

    def likelihood(size: float, wild: float) -> float:
        kernel = wild**2 * flat @ flat.T + size**2 * own @ own.T + torch.diag(error**2)
        return float(MultivariateNormal(torch.zeros_like(error), kernel).log_prob(y[0, there]))

    both = [(size, wild) for size in OFFSET_DEVIATIONS for wild in PRIOR_SCALES]
    sums = known(rows, weight, y)
    found = torch.cat([evidence(sums, assumed(*pair)) for pair in both])
    by_hand = torch.tensor([likelihood(*pair) for pair in both], dtype=torch.float64)
    torch.testing.assert_close(found - found[0], by_hand - by_hand[0], rtol=1e-4, atol=1e-2)
    assert float(by_hand.max() - by_hand.min()) > 1.0
    uneven, wild = (float(x) for x in likeliest(sums))
    sizes = [likelihood(size, INITIAL_PRIOR_SCALE) for size in OFFSET_DEVIATIONS]
    assert uneven == pytest.approx(weighed(OFFSET_DEVIATIONS, sizes), rel=1e-4)
    wilds = [likelihood(uneven, each) for each in PRIOR_SCALES]
    assert wild == pytest.approx(weighed(PRIOR_SCALES, wilds), rel=1e-4)
    assert wild != pytest.approx(
        PRIOR_SCALES[wilds.index(max(wilds))], rel=1e-4
    )  # the likeliest alone
    # a mean of likely values is as likely as they are: no valley lies between them
    assert likelihood(uneven, wild) > float(by_hand.max()) - 1.0


@given(seed=seeds)
def test_shares_move_with_the_likelihoods(seed: int) -> None:
    """By no more than these do, where the likeliest alone goes from nothing to all."""
    g = torch.Generator().manual_seed(seed)
    score = torch.randn(5, 40, generator=g, dtype=torch.float64) * torch.linspace(0.0, 8.0, 40)
    score[1] = score[0]  # equally likely
    move = 1e-6 * (2.0 * torch.rand(score.shape, generator=g, dtype=torch.float64) - 1.0)
    move[:, 0] = torch.tensor([-1e-6, 1e-6, -1e-6, -1e-6, -1e-6])  # where all are equally likely
    old, new = shares(score), shares(score + move)
    torch.testing.assert_close(old.sum(0), torch.ones_like(old[0]))
    assert torch.equal(old[0], old[1])
    assert float((new - old).abs().max()) < 1.1e-6
    assert bool((old[score < score.amax(0) + math.log(MIN_LIKELIHOOD_SHARE)] == 0.0).all())
    single = [one_hot(each.argmax(0), 5) for each in (score, score + move)]
    assert int((single[1] - single[0]).abs().max()) == 1


def test_what_lies_beyond_a_value_that_counts_for_nothing_is_not_looked_at() -> None:
    """Whichever way, so that a quick pass may stop there; the middle itself may count for none."""
    inf = math.inf
    height = torch.tensor(
        [[0.0, -9.0, 0.0, -9.0, 0.0], [6.0, 3.0, 0.0, 3.0, 9.0], [5.0, -1.0, 0.0, -4.0, -5.0]]
    )
    reached = [
        [-inf, -9.0, 0.0, -9.0, -inf],
        [6.0, 3.0, 0.0, 3.0, 9.0],
        [5.0, -1.0, 0.0, -4.0, -inf],
    ]
    assert torch.equal(cut_beyond_unlikely(height.T).T, torch.tensor(reached))


def between(found: Tensor, low: float, high: float) -> float:
    """The share that lies there, ends counted."""
    return float(((found > low - 1e-9) & (found < high + 1e-9)).double().mean())


@pytest.mark.parametrize(
    ("true", "low", "high"),
    [
        (0.0, OFFSET_DEVIATIONS[0], OFFSET_DEVIATIONS[1]),
        (0.02, OFFSET_DEVIATIONS[2], OFFSET_DEVIATIONS[3]),
        (0.3, OFFSET_DEVIATIONS[3], OFFSET_DEVIATIONS[3]),
    ],
)
def test_the_size_of_levels_is_found(true: float, low: float, high: float) -> None:
    """Between the values next to it."""
    found = likeliest(known(*problem(11, true, chains=60))).uneven
    assert between(found, low, high) > 0.9
    other = likeliest(known(*problem(11, 3e-3, chains=60))).uneven
    assert between(other, low, high) < 0.7


@pytest.mark.parametrize(
    ("times", "low", "high"),
    [
        (0.3, PRIOR_SCALES[0], PRIOR_SCALES[1]),
        (1.0, PRIOR_SCALES[0], PRIOR_SCALES[2]),
        (6.0, PRIOR_SCALES[3], PRIOR_SCALES[4]),
    ],
)
def test_wild_surfaces_are_known_for_wild(times: float, low: float, high: float) -> None:
    """Within a value of how wild they are."""
    rows, weight, y = problem(12, 0.0, chains=60)
    assert between(likeliest(known(rows / times, weight, y)).wild, low, high) > 0.85
    other = likeliest(known(rows / 2.5, weight, y)).wild
    assert between(other, low, high) < 0.5


def test_without_levels_an_uneven_clock_is_taken_for_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weight, y = problem(3, 0.05, chains=40)
    g = torch.Generator().manual_seed(3)
    torch.randn(40, L, S, D, generator=g, dtype=torch.float64)
    a = torch.randn(40, 1, D, 1, generator=g, dtype=torch.float64)[:, 0, :, 0]

    def error() -> float:
        sums = known(rows, weight, y)
        return float((believed(sums, likeliest(sums)).mean - a).square().mean().sqrt())

    with_levels = error()
    monkeypatch.setattr(slice_offsets, "OFFSET_DEVIATIONS", (1e-7,))
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
