"""Pooling along maturities: precision-weighted local lines, linear and bounded."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arbiter_lab.differentiable.operators.network.lipschitz import constant
from arbiter_lab.differentiable.operators.network.maturity_pooling import (
    POOLED_ROWS,
    pool,
    precision,
)
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from ragged_chains import in_units, network, random_chain, ratio, with_values

SPANS = (0.15, 0.5, 1.6)
seeds = st.integers(0, 2**31)


def weights(seed: int, chain: Scaled, heads: int = 3) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    size = 6.0 * torch.randn(*chain.total.shape, heads, generator=g, dtype=torch.float64)
    return torch.exp(size.clamp(-12.0, 12.0))


def matrix(weight: Tensor, chain: Scaled, span: float, causal: bool = False) -> Tensor:
    """``(L, L)`` what pooling does to the first head of the first chain."""
    count = chain.total.shape[1]
    lines = torch.zeros(count, count, 2 * weight.shape[-1], dtype=torch.float64)
    lines[torch.arange(count), torch.arange(count), 0] = 1.0
    several = Scaled(*(part[:1].expand(count, *part.shape[1:]) for part in chain))
    wide = weight[:1].expand(count, -1, -1)
    return pool(lines, wide, several, (span,), causal)[..., 0].T


@given(seed=seeds, span=st.sampled_from([0.01, *SPANS, 20.0]))
def test_rows_stay_within_root_two(seed: int, span: float) -> None:
    chain = in_units(seed % 97, chains=1, maturities=7)
    rows = matrix(weights(seed, chain), chain, span).abs().sum(-1)
    assert float(rows.max()) <= POOLED_ROWS * (1.0 + 1e-9)


def test_rows_of_a_mean_would_be_one_and_lines_are_more() -> None:
    worst = max(
        float(matrix(weights(seed, chain), chain, 0.5).abs().sum(-1).max())
        for seed in range(30)
        for chain in [in_units(seed, chains=1, maturities=7)]
    )
    assert worst > 1.1  # a bound of one would be false


def test_a_constant_is_kept_and_a_line_is_followed() -> None:
    chain = in_units(3, chains=2, maturities=6)
    log_T = 2.0 * (chain.total - torch.log(chain.sigma))
    weight = torch.ones(*chain.total.shape, 1, dtype=torch.float64)

    def error(values: Tensor, span: float) -> float:
        lines = torch.stack([values, values], -1)
        return float((pool(lines, weight, chain, (span,))[..., 0] - values).abs().max())

    assert error(torch.ones_like(log_T), 3.0) < 1e-12
    mean = float((log_T - log_T.mean(1, keepdim=True)).abs().max())
    assert error(log_T, 3.0) < 0.5 * mean  # the ridge keeps lines from being followed all the way
    assert error(log_T, 0.15) < 0.1 * mean


def test_noisy_slices_borrow_and_precise_ones_do_not() -> None:
    chain = in_units(5, chains=1, maturities=5)
    weight = torch.ones(1, 5, 1, dtype=torch.float64)
    weight[:, 2] = 1e-6
    rows = matrix(weight, chain, 1.6)
    assert abs(float(rows[2, 2])) < 1e-4
    weight[:, 2] = 1e6
    assert float(matrix(weight, chain, 1.6)[2, 2]) > 0.999


def test_precision_falls_with_the_spread_and_away_from_quotes() -> None:
    gate, quotes = network(2).stages()[0].gate, random_chain(4)
    listed = quotes.quoted.any(-1)
    with torch.no_grad():
        tight, wide = (
            precision(gate(scaled(quotes._replace(half=f * quotes.half))))[listed].log()
            for f in (1.0, 4.0)
        )
    assert float((tight - wide).mean()) > 1.0
    assert float((tight.amax(-1) - tight.amin(-1)).min()) > 1.0  # some heads are far from quotes


@pytest.mark.parametrize("causal", [False, True])
def test_causal_pooling_sees_no_longer_maturity(causal: bool) -> None:
    chain = in_units(6, chains=1, maturities=6)
    later = matrix(weights(6, chain), chain, 1.6, causal).triu(1).abs().max()
    assert (float(later) == 0.0) is causal


def test_a_chain_in_a_batch_is_the_chain_alone() -> None:
    quotes = random_chain(5, chains=3)
    quotes.quoted[1, 3:] = False  # padding at the end, of one chain alone
    made = network(3, spans=SPANS)
    with torch.no_grad():
        together = made(quotes).slopes
        short = Ragged._make(x[1:2, :3] for x in quotes)
        torch.testing.assert_close(together[1:2, :3], made(short).slopes, rtol=1e-11, atol=0.0)


def test_neighbours_are_heard() -> None:
    """What one slice says reaches the others at once: with pooling alone, the scans silent."""
    made = network(3, spans=SPANS)
    with torch.no_grad():
        for look in made.stages():
            look.across.weight.zero_()
            look.from_forth.weight.zero_()
            look.from_back.weight.zero_()  # type: ignore[union-attr]
            look.down.weight.zero_()
    chain = in_units(7, chains=1)
    bumped = chain.u.clone()
    bumped[:, 2] += 0.1
    assert _far(made, chain, bumped) > 1e-6
    alone = network(3)
    with torch.no_grad():
        alone.last.weight.zero_()
    assert _far(alone, chain, bumped) == 0.0


def _far(made: Network, chain: Scaled, u: Tensor) -> float:
    with torch.no_grad():
        gap = made.decode(with_values(chain, u)).proposal - made.decode(chain).proposal
    return float(gap[:, [0, 1, 3, 4]].abs().max())


@given(seed=seeds)
def test_no_pair_of_quotes_exceeds_the_constant(seed: int) -> None:
    made, chain = network(seed % 11, spans=SPANS).requires_grad_(False), in_units(seed, chains=1)
    assert 0.0 < ratio(made, chain, seed) <= constant(made).value


def test_spans_are_positive() -> None:
    with pytest.raises(ValueError, match="spans"):
        network(0, spans=(0.5, -1.0))
