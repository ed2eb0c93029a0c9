"""Ragged quotes: an integral over strikes, whatever their number, order, padding and company."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.network.measure_gate import Gate
from arbiter_lab.differentiable.operators.network.network import Output
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import (
    Ragged,
    pad_chains,
    sort_quotes,
    trapezoid,
)
from counts import count
from ragged_chains import network, random_chain

seeds = st.integers(0, 2**31)


def orders(values: list[Tensor]) -> list[float]:
    """Observed orders of convergence of a sequence whose spacing halves each time."""
    gaps = [float((b - a).abs().max()) for a, b in pairwise(values)]
    return [math.log2(a / b) for a, b in pairwise(gaps)]


def uneven(strikes: int) -> Tensor:
    """Points on [−2.5, 2.1] that get denser smoothly, as listed strikes do around the money."""
    t = torch.linspace(-1.0, 1.0, strikes, dtype=torch.float64)
    return 2.0 * t + 0.3 * t**3 - 0.2


def smile(strikes: int) -> Scaled:
    """One slice of a smooth smile at ever more strikes."""
    zeta = uneven(strikes)[None, None]
    quoted = torch.ones_like(zeta, dtype=torch.bool)
    total = torch.full((1, 1), -2.0, dtype=torch.float64)
    moneyness = torch.exp(torch.sinh(zeta) * torch.exp(total)[..., None])
    return Scaled(
        sigma=torch.full_like(total, 0.2),
        total=total,
        zeta=zeta,
        u=0.3 * torch.tanh(-zeta) + 0.1 * torch.cos(2.0 * zeta),
        noise=torch.full_like(zeta, -4.0),
        moneyness=moneyness,
        spacing=trapezoid(zeta, quoted),
        width=trapezoid(moneyness, quoted),
        quoted=quoted,
        gap=torch.ones_like(total),
        ahead=torch.ones_like(total),
    )


def bent_gate(*, reads_spacing: bool) -> Gate:
    gate = Gate(12).double()
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        if not reads_spacing:
            gate.inner.weight[:, 3] = 0.0
    return gate


def integrals(function: str) -> list[Tensor]:
    found = []
    for strikes in (17, 33, 65, 129, 257):
        x = uneven(strikes)
        values = (
            (x - x[0]) * (x[-1] - x) * torch.exp(0.3 * x) if function == "bulk" else torch.exp(x)
        )
        found.append((trapezoid(x, torch.ones_like(x, dtype=torch.bool)) * values).sum())
    return found


def test_quadrature_is_of_second_order_in_the_bulk_and_of_first_at_the_ends() -> None:
    assert orders(integrals("bulk")) == pytest.approx([2.0] * 3, abs=0.05)
    assert orders(integrals("ends")) == pytest.approx([1.0] * 3, abs=0.1)


def test_ends_weigh_half_a_gap_more_than_the_trapezoidal_rule() -> None:
    x = uneven(9)
    weights = trapezoid(x, torch.ones(9, dtype=torch.bool))
    gaps = torch.diff(x)
    plain = float(torch.trapezoid(torch.exp(x), x))
    ends = 0.5 * (gaps[0] * torch.exp(x[0]) + gaps[-1] * torch.exp(x[-1]))
    assert float((weights * torch.exp(x)).sum()) == pytest.approx(plain + float(ends), rel=1e-14)


def test_counting_quotes_instead_of_integrating_is_seen() -> None:
    """A mean over tokens converges too, but to another number: it knows where quotes are dense."""
    x = uneven(4097)
    values = torch.cos(2.0 * x)
    weights = trapezoid(x, torch.ones_like(x, dtype=torch.bool))
    exact = float(torch.sin(2.0 * x[-1]) - torch.sin(2.0 * x[0])) / (2.0 * float(x[-1] - x[0]))
    assert float((weights * values).sum() / weights.sum()) == pytest.approx(exact, abs=2e-3)
    assert abs(float(values.mean()) - exact) > 0.01


def test_a_single_quote_weighs_one_and_unquoted_points_nothing() -> None:
    at = torch.tensor([0.3, 0.7, 0.9])
    weights = trapezoid(at, torch.tensor([False, True, False]))
    assert weights.tolist() == [0.0, 1.0, 0.0]


def refined(gate: Gate) -> list[Tensor]:
    with torch.no_grad():
        chains = [smile(2**i + 1) for i in range(5, 11)]
        return [gate.look(gate(chain), chain, chain.u)[0, 0] for chain in chains]


def test_refining_the_strikes_converges() -> None:
    """At order 2 under the measure, most of which is in the bulk; at order 1 under end bumps."""
    views = refined(bent_gate(reads_spacing=False))
    assert min(orders([view[-2:] for view in views])[:2]) > 1.8
    assert min(orders([view[:-2] for view in views])) > 0.8
    inner = [view[4:8] for view in views]  # values of bumps in the middle
    assert float((inner[0] - inner[-1]).abs().max()) < 2e-3


def test_densities_that_read_the_spacing_follow_it() -> None:
    """What the limits above leave out: a gate may trust dense quotes more, and shifts with them."""
    fixed, reading = (refined(bent_gate(reads_spacing=reads)) for reads in (False, True))
    moved = [float((views[-1] - views[-2])[-2:].abs().max()) for views in (fixed, reading)]
    assert moved[1] > 100.0 * moved[0]


def run(quotes: Ragged, **switches: Any) -> Output:
    with torch.no_grad():
        output: Output = network(3, **switches)(quotes)
    return output


@settings(max_examples=count(200, 12))
@given(seed=seeds)
def test_order_of_strikes_and_maturities_does_not_matter(seed: int) -> None:
    quotes = random_chain(seed)
    g = torch.Generator().manual_seed(seed)
    strikes, slices = torch.randperm(9, generator=g), torch.randperm(5, generator=g)
    shuffled = Ragged._make(
        [quotes.T[:, slices], *(x[:, slices][..., strikes] for x in quotes[1:])]
    )
    again = run(sort_quotes(shuffled)).slopes
    torch.testing.assert_close(again, run(quotes).slopes, rtol=1e-11, atol=0.0)


def test_strikes_out_of_order_would_matter() -> None:
    quotes = random_chain(1)
    shuffled = Ragged._make([quotes.T, *(x.flip(-1) for x in quotes[1:])])
    assert float((run(shuffled).slopes / run(quotes).slopes - 1.0).abs().max()) > 1e-4


@settings(max_examples=count(200, 12))
@given(seed=seeds)
def test_repeated_quotes_do_not_matter(seed: int) -> None:
    quotes = random_chain(seed)
    doubled = Ragged._make([quotes.T, *(x.repeat_interleave(2, -1) for x in quotes[1:])])
    again = run(sort_quotes(doubled)).slopes
    torch.testing.assert_close(again, run(quotes).slopes, rtol=1e-11, atol=0.0)


@settings(max_examples=count(200, 12))
@given(seed=seeds)
def test_padding_does_not_matter(seed: int) -> None:
    """Wherever it stands among the strikes, whatever it holds, and after the last maturity."""
    quotes = random_chain(seed)
    g = torch.Generator().manual_seed(seed)
    junk = 0.1 + torch.rand(2, 5, 9, 3, generator=g, dtype=torch.float64)

    def between(x: Tensor, fill: Tensor) -> Tensor:
        return torch.stack([x, fill], -1).flatten(-2)

    padded = Ragged(
        quotes.T,
        between(quotes.k, junk[..., 0] - 0.6),
        between(quotes.iv, junk[..., 1]),
        between(quotes.half, 0.1 * junk[..., 2]),
        between(quotes.quoted, torch.zeros_like(quotes.quoted)),
    )
    beyond = [torch.cat([x, x[:, -2:]], 1) for x in padded[1:]]
    beyond[-1][:, -2:] = False
    longer = torch.cat([padded.T, padded.T[:, -1:] * torch.tensor([1.3, 1.9])], 1)
    padded = Ragged._make([longer, *beyond])
    for spans in ((), (0.3, 1.0)):
        slopes = run(padded, spans=spans).slopes[:, :5]
        torch.testing.assert_close(slopes, run(quotes, spans=spans).slopes, rtol=1e-11, atol=0.0)


def test_padding_that_is_marked_quoted_matters() -> None:
    quotes = random_chain(1)
    wrong = quotes._replace(quoted=torch.ones_like(quotes.quoted))
    assert float((run(wrong).slopes / run(quotes).slopes - 1.0).abs().max()) > 1e-4


@pytest.mark.parametrize(
    "switches", [{}, {"guard": False}, {"scan": "exponential"}, {"spans": (0.3, 1.0)}]
)
def test_a_chain_in_a_batch_is_the_chain_alone(switches: dict[str, Any]) -> None:
    quotes = random_chain(5, chains=4)
    long = quotes._replace(T=quotes.T * torch.tensor([[1.0], [30.0], [1.0], [0.1]]))
    made = network(3, **switches)
    with torch.no_grad():
        together = made(long).slopes
        alone = [made(Ragged._make([x[i : i + 1] for x in long])).slopes for i in range(4)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-11, atol=0.0)


def frame(rng: np.random.Generator, expiries: int) -> dict[str, np.ndarray]:
    T = np.repeat(0.1 * np.arange(1.0, expiries + 1.0), 7)
    k = np.tile(np.linspace(-0.2, 0.15, 7), expiries)
    iv = 0.2 - 0.3 * k + 0.005 * rng.normal(size=k.size)
    return {"T": T, "k": k, "iv_bid": iv - 0.003, "iv_ask": iv + 0.003}


def test_tables_in_any_order_give_one_answer(rng: np.random.Generator) -> None:
    table = frame(rng, 4)
    order = rng.permutation(28)
    plain = Quotes.from_frame(table)
    doubled = {name: np.concatenate([x[order], x[:5]]) for name, x in table.items()}
    first, second = run(pad_chains([plain])), run(pad_chains([Quotes.from_frame(doubled)]))
    torch.testing.assert_close(first.slopes, second.slopes, rtol=0.0, atol=0.0)


def test_chains_of_different_sizes_stand_side_by_side(rng: np.random.Generator) -> None:
    chains = [Quotes.from_frame(frame(rng, n)) for n in (4, 2)]
    together = run(pad_chains(chains)).slopes
    for i, quotes in enumerate(chains):
        alone = run(pad_chains([quotes])).slopes[0]
        torch.testing.assert_close(together[i, : len(alone)], alone, rtol=1e-11, atol=0.0)


def test_nothing_to_look_at_is_said() -> None:
    with pytest.raises(ValueError, match="at least one chain"):
        pad_chains([])


@pytest.mark.parametrize("factor", [0.5, 2.0, 3.7])
def test_volatilities_doubled_and_maturities_quartered_is_the_same_surface(factor: float) -> None:
    quotes = random_chain(11, chains=3)
    faster = quotes._replace(
        T=quotes.T / factor**2, iv=quotes.iv * factor, half=quotes.half * factor
    )
    for spans in ((), (0.3, 1.0)):
        first, second = run(quotes, spans=spans), run(faster, spans=spans)
        torch.testing.assert_close(first.slopes, second.slopes, rtol=1e-10, atol=0.0)
    single = [
        Ragged._make([x.float() if x.is_floating_point() else x for x in q])
        for q in (quotes, faster)
    ]
    with torch.no_grad():
        made = network(3).float()
        first, second = (made(q) for q in single)
    torch.testing.assert_close(first.slopes, second.slopes, rtol=1e-4, atol=0.0)


def test_volatilities_doubled_alone_is_another_surface() -> None:
    quotes = random_chain(11)
    dearer = quotes._replace(iv=quotes.iv * 2.0, half=quotes.half * 2.0)
    assert float((run(dearer).slopes / run(quotes).slopes - 1.0).abs().max()) > 0.1


def test_wings_alone_have_a_level() -> None:
    """All that a chain may have is quotes ten deviations from the money, with wide spreads."""
    k = torch.tensor([[[-0.52, -0.5, -0.48]]], dtype=torch.float64)
    iv = torch.full_like(k, 0.3)
    quotes = Ragged(
        torch.full((1, 1), 0.02, dtype=torch.float64), k, iv, 0.1 * iv, torch.ones_like(k) > 0.0
    )
    chain = scaled(quotes)
    assert 0.1 < float(chain.sigma[0, 0]) < 0.6
    assert bool(torch.isfinite(run(quotes).slopes).all())
