"""Quotes as intervals: expectation propagation against exact answers, and against mids alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from arbiter.operators.prior.bid_ask_likelihood import MIN_ERROR
from arbiter_lab.differentiable.operators.prior import bid_ask_likelihood, slice_offsets
from arbiter_lab.differentiable.operators.prior.bid_ask_likelihood import posterior, truncated
from arbiter_lab.differentiable.operators.prior.slice_offsets import Rows
from counts import count

seeds = st.integers(0, 2**31)
D = 6


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices have no level of their own here, and none is wild: these have tests of theirs."""
    monkeypatch.setattr(slice_offsets, "OFFSET_DEVIATIONS", (1e-7,))
    monkeypatch.setattr(slice_offsets, "PRIOR_SCALES", (1.0,))


def problem(seed: int, quotes: int, half: float, chains: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Rows ``(B, N, d)``, middles of intervals that hold the truth, and the coefficients."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(chains, quotes, D, generator=g, dtype=torch.float64)
    a = torch.randn(chains, D, generator=g, dtype=torch.float64)
    noise = half * (2.0 * torch.rand(chains, quotes, generator=g, dtype=torch.float64) - 1.0)
    return rows, (rows @ a[..., None])[..., 0] + noise, a


def told(rows: Tensor, u: Tensor, half: float) -> bid_ask_likelihood.Posterior:
    full = torch.full_like(u, half)
    return posterior(Rows(rows[:, None]), u, full, torch.ones_like(u, dtype=torch.bool))


@given(
    mean=st.floats(-3.0, 3.0),
    deviation=st.floats(0.01, 3.0),
    low=st.floats(-4.0, 4.0),
    width=st.floats(0.01, 4.0),
)
def test_moments_between_two_ends(mean: float, deviation: float, low: float, width: float) -> None:
    ends = ((low - mean) / deviation, (low + width - mean) / deviation)
    if min(abs(end) for end in ends) > 8.0 and ends[0] * ends[1] > 0.0:
        return  # scipy's own answer is noise there; far ends have a test of their own
    law = stats.truncnorm(*ends, loc=mean, scale=deviation)
    parts = (torch.tensor([x], dtype=torch.float64) for x in (mean, deviation**2, low, low + width))
    middle, variance = truncated(*parts)
    assert float(middle) == pytest.approx(law.mean(), abs=1e-6 * (1.0 + abs(law.mean())))
    assert float(variance) == pytest.approx(law.var(), rel=1e-4, abs=1e-9)


def test_far_out_the_interval_is_all_that_is_known() -> None:
    """A guess hundreds of deviations away: finite, inside, near the end that is nearer."""
    one = torch.ones(2, dtype=torch.float64)
    middle, variance = truncated(
        0.0 * one, 1e-4 * one, torch.tensor([5.0, -7.0]), torch.tensor([6.0, -6.0])
    )
    assert torch.isfinite(middle).all()
    assert torch.isfinite(variance).all()
    assert bool(
        (middle >= torch.tensor([5.0, -7.0])).all() & (middle <= torch.tensor([6.0, -6.0])).all()
    )
    assert float(middle[0]) < 5.01
    assert float(middle[1]) > -6.01
    assert bool((variance > 0.0).all() & (variance <= 1.0 / 12.0).all())


@pytest.mark.parametrize("seed", range(count(60, 15)))
def test_the_mean_is_that_of_the_exact_posterior(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One coefficient, so that the posterior is an integral; mids alone are farther from it."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.ones(1, 12, 1, dtype=torch.float64)
    truth = torch.randn(1, generator=g, dtype=torch.float64)
    half = 0.3
    u = truth + half * (2.0 * torch.rand(1, 12, generator=g, dtype=torch.float64) - 1.0)
    grid = np.linspace(-6.0, 6.0, 200_001)
    monkeypatch.setattr(bid_ask_likelihood, "MID_ERROR_LAWS", ((1.0, 0.05),))
    blur = np.hypot(0.05 * half, float(told(rows, u, half).error))
    log = -0.5 * grid**2
    for value in u[0].numpy():
        inside = stats.norm.cdf((value + half - grid) / blur) - stats.norm.cdf(
            (value - half - grid) / blur
        )
        log += np.log(np.maximum(inside, 1e-300))
    weight = np.exp(log - log.max())
    wanted = float((weight * grid).sum() / weight.sum())
    found = float(told(rows, u, half).belief.mean[0, 0])
    deviation = np.sqrt((weight * (grid - wanted) ** 2).sum() / weight.sum())
    assert abs(found - wanted) < 0.5 * deviation + 1e-3


def test_intervals_say_more_than_mids() -> None:
    """Against the best linear guess from mids, over many problems."""
    half = 0.2
    rows, u, a = problem(1, 60, half, chains=200)
    found = told(rows, u, half).belief.mean
    precision = 3.0 / half**2 * rows.mT @ rows + torch.eye(D, dtype=torch.float64)
    linear = torch.linalg.solve(precision, 3.0 / half**2 * rows.mT @ u[..., None])[..., 0]
    ours, theirs = (float((x - a).square().mean().sqrt()) for x in (found, linear))
    assert ours < 0.75 * theirs


def drawn(kind: str, seed: int, size: float) -> tuple[Tensor, Tensor, Tensor]:
    """A problem whose errors are uniform or normal, of a deviation that is a share of 0.577."""
    rows, u, a = problem(seed, 120, 0.0, chains=100)
    g = torch.Generator().manual_seed(seed + 1)
    uniform = 2.0 * torch.rand(u.shape, generator=g, dtype=torch.float64) - 1.0
    normal = torch.randn(u.shape, generator=g, dtype=torch.float64) / 3.0**0.5
    return rows, u + 0.2 * size * (uniform if kind == "uniform" else normal), a


@pytest.mark.parametrize(
    ("kind", "size", "worse"),
    [("uniform", 1.0, 1.15), ("normal", 1.0, 1.15), ("uniform", 0.2, 1.7)],
)
def test_the_law_of_the_errors_is_found(
    kind: str, size: float, worse: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not much worse than if it were known, and better than with the law of another.

    Of small errors the size is found and the shape is not: the first guess is too wide to tell.
    """
    rows, u, a = drawn(kind, 7, size)
    mine = (size, 0.05 * size) if kind == "uniform" else (0.02, 0.577 * size)
    other = (0.02, 0.577) if kind == "uniform" and size == 1.0 else (1.0, 0.05)

    def error() -> float:
        return float((told(rows, u, 0.2).belief.mean - a).square().mean().sqrt())

    found = error()
    monkeypatch.setattr(bid_ask_likelihood, "MID_ERROR_LAWS", (mine,))
    known = error()
    monkeypatch.setattr(bid_ask_likelihood, "MID_ERROR_LAWS", (other,))
    assert found < worse * known
    assert found < 0.95 * error()


def test_more_rounds_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, u, a = problem(2, 60, 0.2, chains=50)
    one = told(rows, u, 0.2).belief.mean
    monkeypatch.setattr(bid_ask_likelihood, "ROUNDS", 12)
    many = told(rows, u, 0.2).belief.mean
    monkeypatch.setattr(bid_ask_likelihood, "ROUNDS", 0)
    none = told(rows, u, 0.2).belief.mean
    off, far = (float((x - many).square().mean().sqrt()) for x in (one, none))
    assert off < 0.2 * far
    assert float((one - a).square().mean()) < float((none - a).square().mean())


def test_stated_deviations_are_those_of_the_error() -> None:
    rows, u, a = problem(3, 40, 0.3, chains=400)
    known = told(rows, u, 0.3)
    deviation = known.belief.root.square().sum(-2).sqrt()  # of RᵀR's diagonal
    share = float(((known.belief.mean - a).abs() < 2.0 * deviation).double().mean())
    assert 0.9 < share <= 1.0
    assert float(deviation.mean()) < 0.2


def test_what_lies_outside_all_intervals_is_called_an_error() -> None:
    rows, u, _ = problem(4, 80, 0.01)
    calm = told(rows, u, 0.01)
    g = torch.Generator().manual_seed(4)
    rough = u + 0.2 * torch.randn(u.shape, generator=g, dtype=torch.float64)
    wild = told(rows, rough, 0.01)
    assert float(calm.error) < 2.0 * MIN_ERROR
    assert 0.1 < float(wild.error) < 0.3
    assert torch.isfinite(wild.belief.mean).all()
    # and its tight intervals are not believed: deviations follow
    assert float(wild.belief.root.square().sum()) > 10.0 * float(calm.belief.root.square().sum())


def test_padding_says_nothing() -> None:
    rows, u, _ = problem(5, 30, 0.1)
    half, quoted = torch.full_like(u, 0.1), torch.ones_like(u, dtype=torch.bool)
    alone = posterior(Rows(rows[:, None]), u, half, quoted)
    pairs = ((rows, 7.0 * rows), (u, 7.0 * u), (half, half))
    wide, middles, twice = (torch.cat(pair, 1) for pair in pairs)
    beside = torch.cat([quoted, ~quoted], 1)
    padded = posterior(Rows(wide[:, None]), middles, twice, beside)
    torch.testing.assert_close(padded.belief.mean, alone.belief.mean, rtol=1e-12, atol=1e-12)
    shown = posterior(Rows(wide[:, None]), middles, twice, torch.ones_like(beside))
    assert float((shown.belief.mean - alone.belief.mean).abs().max()) > 1e-3
