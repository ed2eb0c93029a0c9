"""Slices with few quotes are seen as one smile, within the moves that the constant counts on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tiny
from arbiter.operators.monitors import MIN_COVERAGE
from arbiter_lab.differentiable.operators.network.lipschitz import constant
from arbiter_lab.differentiable.operators.network.measure_gate import SLOPE_ROWS, VALUE_ROWS, Gate
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.network.representer import Representer, coverage
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.stability.local_lipschitz import constant_at

GATE = Representer(12)


def chain_of(z: Tensor, iv: Tensor | None = None, quoted: Tensor | None = None) -> Scaled:
    """Two expiries with strikes at the given deviations of 20 %."""
    T = torch.tensor([[0.1, 0.4]])
    k = z * 0.2 * torch.sqrt(T)[..., None]
    k = k.expand(1, 2, -1)
    flat = torch.full_like(k, 0.2) if iv is None else iv.expand_as(k)
    there = torch.ones_like(k, dtype=torch.bool) if quoted is None else quoted.expand_as(k)
    return scaled(Ragged(T, k, flat, torch.full_like(k, 0.002), there))


DENSE = torch.linspace(-3.6, 2.1, 40)


def test_coverage_is_what_quotes_cover() -> None:
    assert (coverage(chain_of(DENSE)) == 1.0).all()
    near = coverage(chain_of(torch.linspace(-0.3, 0.3, 9)))
    assert (near < 0.5).all()
    gap = coverage(chain_of(DENSE, quoted=(DENSE < -1.0) | (DENSE > 0.5)))
    assert ((gap > 0.4) & (gap < MIN_COVERAGE)).all()
    none = coverage(chain_of(DENSE, quoted=torch.zeros(40, dtype=torch.bool)))
    assert (none == 0.0).all()


@given(st.integers(0, 10_000), st.integers(3, 20))
def test_more_quotes_never_cover_less(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = (-5.0 + 8.0 * torch.rand(count, generator=generator)).sort().values
    few = torch.rand(count, generator=generator) < 0.5
    few[0] = True
    # strikes alone: the level must not move with the quotes
    chain = chain_of(z)
    assert (coverage(chain._replace(quoted=chain.quoted & few)) <= coverage(chain)).all()


@given(st.integers(0, 10_000), st.integers(1, 30))
def test_rows_stay_within_what_the_constant_counts_on(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = (-6.0 + 10.0 * torch.rand(count, generator=generator)).sort().values
    chain = chain_of(z)
    noise = chain.noise + 4.0 * torch.randn(chain.noise.shape, generator=generator)
    rows = GATE.ridge(chain._replace(noise=noise))
    size = rows.abs().sum(-1)
    assert (size[..., :12] <= VALUE_ROWS * (1 + 1e-5)).all()
    assert (size[..., 12:] <= SLOPE_ROWS * (1 + 1e-5)).all()
    assert torch.isfinite(rows).all()


def test_without_the_bound_some_rows_would_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the bound binds."""
    chain = chain_of(torch.linspace(-3.4, 1.9, 60))
    bounded = GATE.ridge(chain)
    monkeypatch.setattr("arbiter_lab.differentiable.operators.network.representer.VALUE_ROWS", 1e9)
    monkeypatch.setattr("arbiter_lab.differentiable.operators.network.representer.SLOPE_ROWS", 1e9)
    free = GATE.ridge(chain)
    assert not torch.allclose(free, bounded)


def test_a_smile_of_bumps_is_found_where_quotes_are() -> None:
    """The kernel solution reproduces its own bumps up to its ridge; a local line does not."""
    chain, gate = chain_of(torch.linspace(-3.4, 1.9, 60)), Representer(40)
    smile = 0.1 * torch.cos(1.5 * chain.zeta)
    with torch.no_grad():
        seen = (gate.ridge(chain) @ smile[..., None])[..., 0]
        inside = (gate.place > -1.5) & (gate.place < 1.1)
        values, slopes = seen[..., :40][..., inside], seen[..., 40:] / torch.exp(gate.log_width)
        assert (values - 0.1 * torch.cos(1.5 * gate.place[inside])).abs().max() < 0.005
        exact = -0.15 * torch.sin(1.5 * gate.place[inside])
        assert (slopes[..., inside] - exact).abs().max() < 0.03


def test_quotes_of_wide_spreads_weigh_less() -> None:
    chain = chain_of(torch.tensor([-0.2, 0.0, 0.2]))
    noise = chain.noise.clone()
    noise[..., 1] = -1.2
    even, wide = (GATE.ridge(c) for c in (chain, chain._replace(noise=noise)))
    middle = int((GATE.place - 0.0).abs().argmin())
    assert (wide[..., middle, 1] < 0.5 * even[..., middle, 1]).all()


def test_only_slices_of_low_coverage_change() -> None:
    k = torch.stack([DENSE, torch.linspace(-0.3, 0.3, 40)])
    chain = chain_of(k[None])
    values = 0.1 * torch.tanh(chain.zeta)
    sight = GATE(chain)
    lines, mixed = Gate.look(GATE, sight, chain, values), GATE.look(sight, chain, values)
    assert torch.equal(mixed[:, 0], lines[:, 0])
    assert not torch.allclose(mixed[:, 1, :-2], lines[:, 1, :-2])
    assert torch.equal(mixed[:, 1, -2:], lines[:, 1, -2:])
    by_rows = (GATE.rows(sight, chain) @ values[..., None])[..., 0]
    assert torch.allclose(by_rows, mixed[..., :-2], atol=1e-6)


def test_the_switch_is_off_by_default_and_reaches_the_network() -> None:
    settings = tiny.SETTINGS.apply_ablation("representer")
    assert settings.config.representer
    assert not tiny.CONFIG.representer
    found = []
    for config in (tiny.CONFIG, settings.config):
        torch.manual_seed(0)
        with torch.no_grad():
            found.append(Network(config).decode(chain_of(torch.linspace(-0.3, 0.3, 9))).slopes)
    assert not torch.allclose(found[0], found[1])
    dense = []
    for config in (tiny.CONFIG, settings.config):
        torch.manual_seed(0)
        with torch.no_grad():
            dense.append(Network(config).decode(chain_of(DENSE)).slopes)
    assert torch.equal(dense[0], dense[1])


def test_the_constants_hold_for_it_too() -> None:
    """Random pairs of quotes on a slice of low coverage, against both bounds."""
    config = tiny.SETTINGS.apply_ablation("representer").config
    torch.manual_seed(3)
    network = Network(config).double()
    chain = Scaled(
        *(
            part.double() if part.is_floating_point() else part
            for part in chain_of(torch.linspace(-0.4, 0.4, 7))
        )
    )
    assert (coverage(chain) < MIN_COVERAGE).all()
    every, here = constant(network).value, float(constant_at(network, chain)[0])
    assert here <= every
    largest = 0.0
    for _ in range(50):
        u, move = torch.randn_like(chain.u), torch.randn_like(chain.u)
        size = 10.0 ** -float(4.0 * torch.rand(()))
        pair = [(0.3 * u + side * size * move).clamp(-1.5, 1.5) for side in (0.0, 1.0)]
        with torch.no_grad():
            seen = [network.decode(chain._replace(u=u)).proposal for u in pair]
        ratio = (seen[1] - seen[0]).abs().max() / (pair[1] - pair[0]).abs().max()
        largest = max(largest, float(ratio))
    assert 0.05 < largest <= here
