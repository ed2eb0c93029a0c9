"""The Lipschitz constant is never exceeded: not by random pairs, not by a search for the worst."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter_lab.differentiable.operators.network import lipschitz
from arbiter_lab.differentiable.operators.network.lipschitz import (
    MAX_ACTIVATION_SLOPE,
    MIN_ACTIVATION_SLOPE,
    constant,
)
from arbiter_lab.differentiable.operators.network.network import Look, Network, activation
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.stability.local_lipschitz import constant_at, reach
from counts import count
from ragged_chains import in_units, network, with_values

PAIRS = count(10_000, 400)
seeds = st.integers(0, 2**31)


def trained() -> Network:
    """The operator of the first design."""
    return FirstDesign.load().network


def untrained() -> Network:
    return network(1).requires_grad_(False)


def silent(seed: int, **switches: Any) -> Network:
    """Return a network that ignores the measure: only linear maps and activations."""
    made = network(seed, **switches).requires_grad_(False)
    for look in made.stages():
        look.enter.weight[:, -2:] = 0.0
    made.direct.weight[:, -2:] = 0.0
    return made


NETWORKS: list[Callable[[], Network]] = [untrained, trained]


def log_slopes(made: Network, chain: Scaled, u: Tensor) -> Tensor:
    """Return log-slopes of other quotes with the reference of the chain's own quotes."""
    return torch.log(made.decode(with_values(chain, u), made.guess(chain)).slopes)


def moved(first: Tensor, second: Tensor) -> Tensor:
    """``(B,)`` largest difference of each chain."""
    return (first - second).abs().flatten(1).amax(1)


def copies(chain: Scaled, many: int) -> Scaled:
    return Scaled(*(part[:1].expand(many, *part.shape[1:]) for part in chain))


def ratios(made: Network, chain: Scaled, pairs: int, seed: int = 0) -> float:
    """The largest ratio over random pairs of quotes of all distances, near and far."""
    g = torch.Generator().manual_seed(seed)
    worst, many = 0.0, 100
    several = copies(chain, many)
    for _ in range(math.ceil(pairs / many)):
        noise = torch.rand(3, *several.u.shape, generator=g, dtype=torch.float64)
        u = MAX_LOG_VOLATILITY_RATIO * (2.0 * noise[0] - 1.0)
        far = 10.0 ** (-6.0 * torch.rand(many, 1, 1, generator=g, dtype=torch.float64))
        alike = torch.where(noise[2] < 0.3, noise[1].mean((1, 2), keepdim=True), noise[1])
        v = (u + far * (2.0 * alike - 1.0)).clamp(
            -MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO
        )
        with torch.no_grad():
            gaps = moved(log_slopes(made, several, u), log_slopes(made, several, v))
        worst = max(worst, float((gaps / moved(u * several.quoted, v * several.quoted)).max()))
    return worst


def ascended(made: Network, chain: Scaled, steps: int) -> float:
    """The largest sum of absolute derivatives that gradient ascent over the quotes finds."""
    alone = copies(chain, 1)
    guess = made.guess(alone)
    u, worst = alone.u.clone(), 0.0
    signs = torch.sign(torch.randn(u.shape, dtype=torch.float64))
    for _ in range(steps):
        u = u.detach().requires_grad_()
        with torch.enable_grad():
            proposal = made.decode(with_values(alone, u), guess).proposal
            # the output that moves most with the present signs, then the signs that move it most
            along = torch.func.jvp(
                lambda x: made.decode(with_values(alone, x), guess).proposal,
                (u.detach(),),
                (signs,),
            )[1]
            place = int(along.abs().argmax())
            (slope,) = torch.autograd.grad(proposal.flatten()[place], u, create_graph=True)
            size = slope.abs().sum()
            worst = max(worst, float(size.detach()))
            (uphill,) = torch.autograd.grad(size, u)
        signs = torch.sign(slope.detach())
        u = (u + 0.1 * torch.sign(uphill)).clamp(
            -MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO
        )
    return worst


@pytest.mark.parametrize("made", NETWORKS, ids=lambda f: f.__name__)
def test_no_pair_of_quotes_exceeds_the_constant(made: Callable[[], Network]) -> None:
    one, chain = made(), in_units(1, chains=1)
    here = float(constant_at(one, chain)[0])
    assert 0.0 < ratios(one, chain, PAIRS) <= here <= constant(one).value


@pytest.mark.parametrize("made", NETWORKS, ids=lambda f: f.__name__)
def test_no_search_exceeds_the_constant(made: Callable[[], Network]) -> None:
    one, chain = made(), in_units(1, chains=1)
    found = ascended(one, chain, count(200, 8))
    assert ratios(one, chain, 100) < found <= float(constant_at(one, chain)[0])


@settings(max_examples=count(100, 8))
@given(seed=seeds, size=st.floats(0.0, 1.0), radius=st.sampled_from([1e-3, 1e-2, 0.1]))
def test_constant_near_given_quotes_holds_near_them(seed: int, size: float, radius: float) -> None:
    made = network(seed, size).requires_grad_(False)
    chain = in_units(seed, chains=1, maturities=3, strikes=6)
    bound = float(constant_at(made, chain, radius)[0])
    several = copies(chain, 50)
    ends = [
        several.u + radius * (2.0 * torch.rand_like(several.u) - 1.0).sign() * part
        for part in (torch.rand(50, 1, 1, dtype=torch.float64), 1.0)
    ]
    ends = [u.clamp(-MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO) for u in ends]
    gaps = moved(*(log_slopes(made, several, u) for u in ends))
    assert float((gaps / moved(*(u * several.quoted for u in ends))).max()) <= bound
    assert bound <= float(constant_at(made, chain)[0]) * (1.0 + 1e-9)


@pytest.mark.parametrize(
    "switches",
    [{}, {"spans": (0.3, 1.0)}, {"kriging": True, "spans": (0.5,)}, {"representer": True}],
    ids=str,
)
def test_constant_at_a_point_is_the_derivative_where_the_measure_does_not_speak(
    switches: dict[str, Any],
) -> None:
    made, chain = silent(2, **switches), in_units(2, chains=1)

    guess = made.guess(chain)

    def proposal(u: Tensor) -> Tensor:
        return made.decode(with_values(chain, u), guess).proposal

    slopes = torch.as_tensor(torch.autograd.functional.jacobian(proposal, chain.u, vectorize=True))
    exact = float(slopes.abs().sum((-1, -2, -3)).max())
    assert float(constant_at(made, chain, 0.0)[0]) == pytest.approx(exact, rel=1e-6)
    assert float(constant_at(made, chain, 1e-3)[0]) > exact


@pytest.mark.parametrize(
    "switches",
    [
        {"adjoint": False},
        {"looks": 1},
        {"looks": 3},
        {"scan": "exponential"},
        {"representer": True},
        {"kriging": True},
        {"kriging": True, "looks": 3, "spans": (0.5,)},
    ],
)
def test_constants_know_every_switch(switches: dict[str, Any]) -> None:
    made = network(3, **switches).requires_grad_(False)
    chain = in_units(3, chains=1)
    here = float(constant_at(made, chain)[0])
    assert ratios(made, chain, 200) <= here <= constant(made).value


def test_the_reference_follows_the_quotes_by_itself() -> None:
    """The fixed reference matters: without any weights slopes still move with it."""
    made = network(3, kriging=True).requires_grad_(False)
    for parameter in made.parameters():
        parameter.mul_(1e-9)
    chain = in_units(3, chains=1)
    other = with_values(chain, chain.u + 0.01 * torch.randn_like(chain.u))
    here, there = (made.decode(one).proposal for one in (chain, other))
    held = made.decode(other, made.guess(chain)).proposal
    assert float((held - here).abs().max()) < 1e-6 < float((there - here).abs().max())


def test_a_map_left_out_of_the_product_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One map is not counted: nothing seems to reach the state, and quotes do."""
    made, chain = untrained(), in_units(1, chains=1)
    made.last.weight.mul_(30.0)
    made.direct.weight.mul_(0.01)
    assert ratios(made, chain, 200) <= constant(made).value

    def forgetful(look: Look, heads: int, before: float) -> float:
        return before

    monkeypatch.setattr(lipschitz, "bound_through_look", forgetful)
    assert ratios(made, chain, 200) > constant(made).value


def test_constant_of_a_point_is_exceeded_away_from_it() -> None:
    """A bound at the chain's own quotes does not hold for others: a search exceeds it."""
    made, chain = silent(6), in_units(6, chains=1)
    found = ascended(made, chain, 12)
    assert float(constant_at(made, chain, 0.0)[0]) < found <= float(constant_at(made, chain)[0])


def test_steeper_activations_than_stated_would_be_found() -> None:
    y = torch.linspace(-30.0, 30.0, 600_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(activation(y).sum(), y)
    assert MIN_ACTIVATION_SLOPE <= float(slope.min()) < MIN_ACTIVATION_SLOPE + 1e-5
    assert MAX_ACTIVATION_SLOPE - 1e-5 < float(slope.max()) <= MAX_ACTIVATION_SLOPE


@given(seed=seeds)
def test_reach_is_between_a_search_and_the_rows(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(2, 4, 7, generator=g, dtype=torch.float64)
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 7)
    exact = (A @ corners.T).norm(dim=1).amax(-1)
    rows = A.abs().sum(-1).norm(dim=-1)
    assert bool((exact <= reach(A) * (1.0 + 1e-12)).all())
    assert bool((reach(A) <= rows * (1.0 + 1e-12)).all())


def test_constant_falls_with_alignment() -> None:
    made = network(4, 0.8).requires_grad_(False)
    before = constant(made)
    assert float(made.align()) > 0.0
    after = constant(made)
    assert after.value < before.value
    budgets = {name: part.budget for name, part in made.named_modules() if name in after.norms}
    assert all(after.norms[name] <= budget * (1.0 + 1e-5) for name, budget in budgets.items())
    assert any(before.norms[name] > 1.1 * budget for name, budget in budgets.items())
    assert len(after.by_look) == made.config.looks


def test_constant_is_one_number_for_every_chain() -> None:
    """The constant depends on no chain: more maturities and strikes do not exceed it."""
    made = untrained()
    bound = constant(made).value
    for maturities, strikes in ((1, 3), (12, 30)):
        chain = in_units(7, chains=1, maturities=maturities, strikes=strikes)
        assert float(constant_at(made, chain)[0]) <= bound
