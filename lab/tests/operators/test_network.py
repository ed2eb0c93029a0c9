"""The operator: star-ordered slopes from any chain, and a certificate without a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arbiter.quotes import Quotes
from arbiter.surface import SLOPE_RANGE, Surface
from arbiter_lab.differentiable.operators import slope_head
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.maturity_pooling import (
    POOLED_ROWS,
    pool,
    precision,
)
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from counts import count
from ragged_chains import SMALL, network, random_chain

seeds = st.integers(0, 2**31)
ABLATIONS: list[dict[str, Any]] = [
    {},
    {"gate": False},
    {"rank": 1},
    {"guard": False},
    {"adjoint": False},
    {"align": False},
    {"alignment": "scaling"},
    {"scan": "exponential"},
    {"decoder": "icnn"},
    {"looks": 1},
    {"spans": (0.3, 1.0)},
    {"kriging": True},
]


def proposals(seed: int, size: float) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    knots = len(slope_head.KNOTS)
    proposal = size * torch.randn(2, 6, knots, generator=g, dtype=torch.float64)
    total = 3.0 * torch.randn(2, 6, generator=g, dtype=torch.float64) - 2.0  # in any order
    return proposal, total


@given(seed=seeds, size=st.floats(0.0, 1e6))
def test_slopes_are_positive_bounded_and_star_ordered(seed: int, size: float) -> None:
    slopes = slope_head.slopes(*proposals(seed, size))
    assert bool((slopes.diff(dim=1) >= 0.0).all())
    assert SLOPE_RANGE[0] <= float(slopes.min()) <= float(slopes.max()) <= SLOPE_RANGE[1]
    surface = Surface.from_slopes(slope_head.KNOTS, 0.1 * np.arange(1, 7), slopes[0].numpy())
    assert surface.slopes.shape == (1, 6, len(slope_head.KNOTS))


def test_slopes_without_the_running_maximum_are_refused() -> None:
    proposal, total = proposals(1, 0.3)
    plain = torch.exp(proposal + total[..., None])
    with pytest.raises(ValueError, match="slope"):
        Surface.from_slopes(slope_head.KNOTS, 0.1 * np.arange(1, 7), plain[0].numpy())


def expansion(seed: int, size: float, far: float, steepness: float = 1.0) -> float:
    """Largest move of log-slopes over the largest move of the proposal, over all knots."""
    proposal, total = proposals(seed, size)
    other = proposal + far * (2.0 * torch.rand_like(proposal) - 1.0)
    made = [slope_head.slopes(steepness * g, total).log() for g in (proposal, other)]
    gap, given_gap = ((a - b).abs().amax((0, 1)) for a, b in (made, (proposal, other)))
    return float(((gap - 1e-13) / given_gap).max())


@given(seed=seeds, size=st.floats(0.0, 10.0), far=st.floats(1e-6, 10.0))
def test_running_maximum_is_nonexpansive_in_logarithms(seed: int, size: float, far: float) -> None:
    assert expansion(seed, size, far) <= 1.0 + 1e-6


def test_a_head_that_expands_is_found() -> None:
    assert expansion(1, 0.1, 0.1, steepness=1.3) > 1.05


@given(seed=seeds, span=st.floats(0.02, 3.0), causal=st.booleans())
def test_pooled_numbers_move_by_at_most_root_two(seed: int, span: float, causal: bool) -> None:
    quotes = random_chain(seed)
    quotes.quoted[:, 2] = False
    chain = scaled(quotes)
    made = network(seed, 1.0).stages()[0].gate.requires_grad_(False)
    weight = precision(made(chain))

    def pooled(lines: Tensor) -> Tensor:
        return pool(lines, weight, chain, [span], causal)

    start = torch.zeros(2, 5, 2 * made.heads, dtype=torch.float64)
    found = torch.as_tensor(torch.autograd.functional.jacobian(pooled, start, vectorize=True))
    assert 0.5 < float(found.abs().sum((-1, -2, -3)).max()) <= POOLED_ROWS * (1.0 + 1e-9)


def surface_of(made: Network, quotes: Quotes) -> Surface:
    with torch.no_grad():
        slopes = made(pad_chains([quotes])).slopes[0]
    return Surface.from_slopes(slope_head.KNOTS, quotes.maturities, slopes.double().numpy())


def table(rng: np.random.Generator, expiries: int, strikes: int, low: float, high: float) -> Quotes:
    """Noisy quotes at random strikes between two deviations, levels from 5 % to 150 %."""
    T = np.cumsum(rng.uniform(0.004, 0.4, expiries))
    level = rng.uniform(0.05, 1.5) / np.sqrt(max(1.0, T[-1]))
    z = np.sort(rng.uniform(low, high, (expiries, strikes)), axis=1)
    iv = level * np.exp(-0.1 * z + 0.15 * rng.normal(size=z.shape))
    k = z * level * np.sqrt(T)[:, None]
    half = iv * rng.uniform(0.002, 0.2)
    frame = {"T": np.repeat(T, strikes), "k": k.ravel()}
    return Quotes.from_frame(frame | {"iv_bid": (iv - half).ravel(), "iv_ask": (iv + half).ravel()})


SHAPES = {
    "three quotes": (1, 3, -1.5, 1.0),
    "one quote a slice": (5, 1, -1.0, 1.0),
    "one expiry": (1, 30, -3.0, 2.0),
    "lower wing": (4, 6, -4.0, -1.5),
    "upper wing": (4, 6, 1.2, 2.5),
    "a listed chain": (9, 25, -3.5, 2.0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_any_chain_gets_a_surface_without_a_finding(shape: str) -> None:
    for seed in range(count(40, 2)):
        rng = np.random.default_rng(seed)
        made = network(seed, spread=[0.05, 0.3, 1.0][seed % 3])
        quotes = table(rng, *SHAPES[shape])
        certificate = surface_of(made, quotes).certificate()
        assert certificate.passed
        assert certificate.nas == 1.0
        assert certificate.findings.height == 0


def test_slopes_out_of_order_have_findings(rng: np.random.Generator) -> None:
    """The certificate is not blind: the proposal itself, slice by slice, is arbitraged."""
    from arbiter import audit

    quotes = table(rng, 6, 12, -2.0, 1.5)
    with torch.no_grad():
        output = network(3, 0.5)(pad_chains([quotes]))
    plain = torch.exp(output.proposal + output.chain.total[..., None])[0].clamp(1e-5, 15.0)
    z = np.linspace(-1.0, 1.0, 9)
    rows = []
    for T, slope in zip(quotes.maturities, plain, strict=True):
        alone = Surface.from_slopes(slope_head.KNOTS, [T], slope[None].numpy())
        k = 0.3 * z
        rows.append((np.full(9, T), k, alone.iv(k, T)))
    frame = {
        name: np.concatenate(part)
        for name, part in zip(("T", "k", "iv"), zip(*rows, strict=True), strict=True)
    }
    assert not audit(frame, percent=False).passed  # an untrained network may say 500 %


@pytest.mark.parametrize("switches", ABLATIONS, ids=str)
def test_every_ablation_is_one_flag(switches: dict[str, Any]) -> None:
    """It runs, learns and aligns, and its surface is of the same kind."""
    quotes = random_chain(4)
    made = network(4, **switches)
    output = made(quotes)
    output.slopes.log().square().mean().backward()
    silent = [name for name, p in made.named_parameters() if p.grad is None]
    unused = ("gate.inner", "gate.outer", "icnn.")  # by a flat gate, and by transport slopes
    assert all(any(part in name for part in unused) for name in silent)
    made.align()
    with torch.no_grad():
        after = made(quotes).slopes
    assert bool((after.diff(dim=1) >= 0.0).all())
    assert bool(torch.isfinite(after).all())


def test_flags_change_the_answer() -> None:
    quotes = random_chain(4)
    with torch.no_grad():
        plain = network(4)(quotes).slopes
        flags: list[dict[str, Any]] = [{"gate": False}, {"scan": "exponential"}, {"guard": False}]
        for switches in flags:
            other = network(4, **switches)(quotes).slopes
            assert float((other / plain - 1.0).abs().max()) > 1e-6, switches


def test_causal_network_does_not_look_ahead() -> None:
    """But for the reference level: with it held, slices beyond a maturity do not matter to it."""
    quotes = random_chain(4, maturities=6)
    chain = scaled(quotes)
    other = chain._replace(u=torch.cat([chain.u[:, :4], -chain.u[:, 4:]], 1))
    with torch.no_grad():
        causal, both = network(4, adjoint=False), network(4)
        first = [made.decode(chain).proposal[:, :4] for made in (causal, both)]
        second = [made.decode(other).proposal[:, :4] for made in (causal, both)]
    torch.testing.assert_close(first[0], second[0], rtol=0.0, atol=1e-12)
    assert float((first[1] - second[1]).abs().max()) > 1e-4


def test_maps_are_numbered_alike_in_every_version() -> None:
    """Checkpoints are lists of tensors in this order: names and shapes of the default network."""
    made = Network(Config(**SMALL))
    names = [name for name, _ in made.named_parameters()]
    assert names[:4] == [
        "looks.0.gate.log_width",
        "looks.0.gate.inner.weight",
        "looks.0.gate.inner.bias",
        "looks.0.gate.outer.weight",
    ]
    assert names[-5:] == [
        "base.bias",
        "last.weight",
        "direct.weight",
        "direct_gains.weight",
        "direct_gains.bias",
    ]
    assert len(names) == 77
    assert not set(made.state_dict()) - set(names)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"heads": 1}, "heads = 1 must be a whole number from 2"),
        ({"looks": 0}, "looks = 0 must be a whole number from 1"),
        ({"budget": 0.0}, "budget = 0.0 must be a positive number"),
        ({"budget": float("nan")}, "must be a positive number"),
        ({"scan": "fourier"}, "scan = 'fourier': give one of"),
        ({"decoder": "spline"}, "decoder = 'spline': give one of"),
    ],
)
def test_configurations_that_make_no_network_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Config(**wrong)


def test_configuration_goes_to_plain_values_and_back() -> None:
    config = replace(Config(), heads=12, alignment="scaling")
    assert Config(**config.to_dict()) == config


def test_first_look_has_no_smile_to_read() -> None:
    made = network(1)
    chain = scaled(random_chain(1))
    with pytest.raises(ValueError, match="no state"):
        made.stages()[0].smile(chain, torch.zeros(2, 5, 16, dtype=torch.float64))


def called(function: Callable[[], object]) -> set[str]:
    """Names of the operations that a function calls."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
        function()
    return {str(event.key) for event in record.key_averages()}


def test_a_recorded_pass_may_not_wait_for_the_device() -> None:
    """Nothing in a pass turns a tensor into a Python number: training records it on a GPU."""
    made, chain = network(1), scaled(random_chain(1))
    waiting = {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}
    assert not waiting & called(lambda: made.decode(chain))
    assert not waiting & called(made.align)
    assert waiting & called(lambda: float(torch.zeros(())))
