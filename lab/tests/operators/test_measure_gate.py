"""The measure gate is a density, and what is read under it moves no more than stated."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter_lab.differentiable.operators.network.measure_gate import (
    MAX_MEASURE_PULL,
    SLOPE_ROWS,
    VALUE_ROWS,
    Gate,
    Sight,
)
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from counts import count
from ragged_chains import in_units, random_chain, with_values

HEADS = 7
seeds = st.integers(0, 2**31)


def gate(seed: int, spread: float = 0.6, *, learned: bool = True) -> Gate:
    torch.manual_seed(seed)
    made = Gate(HEADS, learned=learned).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    return made.requires_grad_(False)


def with_gaps(seed: int) -> Scaled:
    """A chain with slices of one quote, of three, and of none."""
    quotes = random_chain(seed)
    quoted = quotes.quoted.clone()
    quoted[:, 1], quoted[:, 2] = False, False
    quoted[:, 1, 4] = True
    quoted[0, 3, 3:] = False
    return scaled(quotes._replace(quoted=quoted))


def defect(sight: Sight, chain: Scaled) -> float:
    """How far the measure is from a density on the quoted slices, and from nothing elsewhere."""
    total = (sight.measure * sight.width).sum(-1)
    off = (total - chain.quoted.any(-1).to(total.dtype)).abs().max()
    outside = sight.measure[~chain.quoted].abs().sum()
    return float(off + outside + (-sight.measure).clamp(min=0.0).max())


@settings(max_examples=count(400, 40))
@given(seed=seeds, spread=st.floats(0.0, 20.0))
def test_measure_is_a_density_on_any_ragged_chain(seed: int, spread: float) -> None:
    chain = with_gaps(seed)
    with torch.no_grad():
        sight = gate(seed, spread)(chain)
    assert defect(sight, chain) < 1e-12
    shares = sight.share.sum(-2)
    there = chain.quoted.any(-1)[..., None].expand_as(shares)
    torch.testing.assert_close(shares[there], torch.ones_like(shares[there]), rtol=1e-12, atol=0.0)
    assert float(sight.share.min()) >= 0.0
    assert not bool(sight.share[~chain.quoted].any())


def test_weights_that_are_no_density_are_found() -> None:
    chain = with_gaps(1)
    sight = gate(1)(chain)
    softmax = sight.measure / sight.measure.sum(-1, keepdim=True).clamp(min=1e-12)
    assert defect(sight._replace(measure=softmax), chain) > 0.1  # of sum one over tokens
    assert defect(sight._replace(measure=-sight.measure), chain) > 0.1
    everywhere = sight.measure + 0.1 * ~chain.quoted
    assert defect(sight._replace(measure=everywhere), chain) > 0.1


def flatness(sight: Sight, chain: Scaled) -> float:
    """Largest over smallest density within a slice."""
    high = torch.where(chain.quoted, sight.measure, 0.0).amax(-1)
    low = torch.where(chain.quoted, sight.measure, torch.inf).amin(-1)
    return float(torch.where(chain.quoted.any(-1), high / low, 1.0).max())


def test_gate_off_is_flat() -> None:
    chain = with_gaps(2)
    off = gate(2, learned=False)(chain)
    assert flatness(off, chain) == pytest.approx(1.0, abs=1e-12)
    assert defect(off, chain) < 1e-12
    alike = off.share - off.share[..., :1]
    assert float(alike.abs().max()) == 0.0
    assert flatness(gate(2)(chain), chain) > 1.5


def rows(made: Gate, chain: Scaled) -> Tensor:
    """``(B, L, 2H + 2)`` sums of absolute derivatives of the view by the values."""
    sight = made(chain)

    def view(values: Tensor) -> Tensor:
        return made.look(sight, chain, values)

    found = torch.autograd.functional.jacobian(view, chain.u, vectorize=True)
    return torch.as_tensor(found).abs().sum((-1, -2, -3))


@settings(max_examples=count(200, 15))
@given(seed=seeds, spread=st.floats(0.0, 5.0))
def test_values_move_by_at_most_root_two_and_slopes_by_one(seed: int, spread: float) -> None:
    with torch.no_grad():
        found = rows(gate(seed, spread), with_gaps(seed))
    assert float(found[..., :HEADS].max()) <= VALUE_ROWS * (1.0 + 1e-9)
    assert float(found[..., HEADS : 2 * HEADS].max()) <= SLOPE_ROWS * (1.0 + 1e-9)
    assert float(found[..., 2 * HEADS :].max()) <= 1.0 + 1e-9


def test_the_bound_of_slopes_is_attained_and_a_smaller_one_found_false() -> None:
    """Two quotes, half a width from their middle each: the slope over the width is one."""
    made = gate(0, 0.0, learned=False)
    width = float(torch.exp(made.log_width)[0])
    zeta = torch.tensor([[[-0.5 * width, 0.5 * width]]], dtype=torch.float64)
    base = in_units(0, chains=1, maturities=1, strikes=2)
    even = torch.ones_like(zeta)
    chain = base._replace(zeta=zeta, spacing=even, width=even, quoted=even > 0.0, u=0.0 * even)
    with torch.no_grad():
        found = rows(made, chain)
    assert float(found[..., HEADS : 2 * HEADS].max()) == pytest.approx(1.0, rel=1e-6)
    worst = max(float(rows(gate(s, 1.0), with_gaps(s))[..., :HEADS].max()) for s in range(20))
    assert 1.1 < worst <= VALUE_ROWS  # a bound of one, as of an average, would be false


@settings(max_examples=count(200, 15))
@given(seed=seeds)
def test_means_under_a_leaning_measure_move_as_stated(seed: int) -> None:
    chain = with_gaps(seed)
    made = gate(seed, 3.0)
    g = torch.Generator().manual_seed(seed)
    u = MAX_LOG_VOLATILITY_RATIO * (
        2.0 * torch.rand(chain.u.shape, generator=g, dtype=torch.float64) - 1.0
    )

    def means(values: Tensor) -> Tensor:
        moved = with_values(chain, values)
        return made.look(made(moved), moved, moved.u)[..., 2 * HEADS :]

    found = torch.autograd.functional.jacobian(means, u, vectorize=True)
    worst = float(torch.as_tensor(found).abs().sum((-1, -2, -3)).max())
    assert worst <= 1.0 + MAX_MEASURE_PULL * MAX_LOG_VOLATILITY_RATIO + 1e-9


def test_leaning_is_seen() -> None:
    """Without its own term the bound would be one, and is exceeded: dear calls and cheap puts."""
    chain = with_gaps(3)
    made = gate(3, 0.0)
    with torch.no_grad():  # a measure drawn to what is dear above the money and cheap below it
        made.inner.weight[0] = torch.tensor([50.0, 0.0, 0.0, 0.0, 0.0])
        made.outer.weight[-1, 0], made.outer.bias[-1] = 10.0, -20.0
    u = (MAX_LOG_VOLATILITY_RATIO * torch.sign(chain.zeta)).requires_grad_()
    moved = with_values(chain, u)
    mean = made.look(made(moved), moved, moved.u)[0, 0, -2]
    (slope,) = torch.autograd.grad(mean, u)
    assert 1.1 < float(slope.abs().sum()) <= 1.0 + MAX_MEASURE_PULL * MAX_LOG_VOLATILITY_RATIO


def test_a_head_hears_the_quotes_near_it() -> None:
    """A bump at a strike quoted densely around reports the smile there."""
    k = torch.linspace(-0.4, 0.3, 141, dtype=torch.float64)[None, None]
    iv = 0.2 * torch.exp(-0.5 * k)
    T = torch.full((1, 1), 0.25, dtype=torch.float64)
    chain = scaled(Ragged(T, k, iv, 0.01 * iv, torch.ones_like(k) > 0.0))
    made = Gate(30).double()
    with torch.no_grad():
        view = made.look(made(chain), chain, chain.u)[0, 0]
    inside = (made.place > chain.zeta.min()) & (made.place < chain.zeta.max())
    at = made.place[inside]
    root = float(chain.sigma[0, 0]) * 0.5
    truth = torch.log(0.2 * torch.exp(-0.5 * torch.sinh(at) * root) / chain.sigma[0, 0])
    torch.testing.assert_close(view[:30][inside], truth, rtol=0.0, atol=0.02)
