"""The prior of the library and its torch version in the lab are one function, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from arbiter.operators import slope_head
from arbiter.operators.prior import (
    bid_ask_likelihood,
    gaussian_process,
    reference_volatility,
    slice_offsets,
    smile_to_slopes,
    star_order_projection,
    transport_prices,
)
from arbiter_lab.differentiable.operators import slope_head as torch_head
from arbiter_lab.differentiable.operators.prior import bid_ask_likelihood as torch_likelihood
from arbiter_lab.differentiable.operators.prior import gaussian_process as torch_process
from arbiter_lab.differentiable.operators.prior import reference_volatility as torch_reference
from arbiter_lab.differentiable.operators.prior import smile_to_slopes as torch_slopes
from arbiter_lab.differentiable.operators.prior import star_order_projection as torch_projection
from arbiter_lab.differentiable.operators.prior import transport_prices as torch_prices
from pairs import Pair, Sides, check_pair, scaled_sides, sparse_chain
from ragged_chains import to_rows

Numbers = NDArray[Any]

PLACE = np.linspace(-3.7, 2.4, 21)


def levels(seed: int, shift: float) -> Sides:
    quotes = sparse_chain(seed)
    theirs = torch_reference.scaled(quotes)
    ours = reference_volatility.scaled(to_rows(quotes._replace(iv=(1.0 + shift) * quotes.iv)))
    places, slices = ("zeta", "u", "noise"), ("total", "gap", "ahead")
    return (
        [getattr(ours, name) for name in (*slices, *places)],
        [getattr(theirs, name) for name in slices]
        + [getattr(theirs, name)[theirs.quoted] for name in places],
    )


def splines(seed: int, shift: float) -> Sides:
    low, high = gaussian_process.ZETA
    x = np.append(np.random.default_rng(seed).uniform(low - 1.0, high + 1.0, 200), [low, high])
    strikes = gaussian_process.STRIKES
    left, basis = gaussian_process.splines(x + shift, gaussian_process.ZETA, strikes)
    dense = np.zeros((x.size, strikes))
    dense[np.arange(x.size)[:, None], left[:, None] + np.arange(4)] = basis
    return [dense], [torch_process.splines(torch.from_numpy(x), gaussian_process.ZETA, strikes)]


def laws(seed: int, shift: float) -> Sides:
    """Also where quotes lie so far from what the others say that only tails tell laws apart."""
    rng = np.random.default_rng(seed)
    half, variance = rng.uniform(0.002, 0.05, 40), rng.uniform(1e-6, 1e-3, 40)
    size = np.sqrt(variance) + rng.choice([0.05, 0.3, 1.0]) * half
    far = rng.choice([0.1, 3.0, 30.0])
    u = rng.normal(0.0, size) + far * half * (rng.uniform(size=40) < 0.1)
    given = (torch.from_numpy(x)[None] for x in (u, variance, half, np.ones(40)))
    ours = bid_ask_likelihood.average_error_laws(u, variance + shift, half)
    return [np.array(ours)], [torch_likelihood.average_error_laws(*given)[0]]


def truncations(seed: int, shift: float) -> Sides:
    rng = np.random.default_rng(seed)
    mean, low = rng.normal(0.0, 3.0, 30), rng.normal(0.0, 3.0, 30)
    variance, high = rng.uniform(1e-4, 2.0, 30), low + rng.uniform(1e-4, 3.0, 30)
    theirs = torch_likelihood.truncated(*map(torch.from_numpy, (mean, variance, low, high)))
    rows = zip(mean, variance, low + shift, high + shift, strict=True)
    ours = np.array([bid_ask_likelihood.truncated(*row) for row in rows])
    return [ours], [torch.stack(theirs, -1)]


def kriging(calm: float) -> Callable[[int, float], Sides]:
    def compute(seed: int, shift: float) -> Sides:
        ours, theirs = scaled_sides(seed, shift, calm)
        return (
            list(gaussian_process.kriged(ours, PLACE)),
            list(torch_process.kriged(theirs, torch.from_numpy(PLACE))),
        )

    return compute


def draw_smiles(seed: int, wild: float) -> transport_prices.Smile:
    """Skewed smiles of three chains; of the first two some slices are not seen."""
    rng = np.random.default_rng(seed)
    tilt = rng.normal(0.0, 0.15 * wild, (3, 6, 1)) * PLACE
    bend = rng.uniform(0.0, 0.08 * wild, (3, 6, 1)) * PLACE**2
    u = tilt + bend + rng.normal(0.0, 0.02 * wild, (3, 6, 1))
    doubt = rng.uniform(-6.0, -3.0, (3, 6, PLACE.size))
    total = np.sort(rng.uniform(-4.0, -0.5, (3, 6)), 1)
    seen = np.ones((3, 6), dtype=bool)
    seen[0, 1] = seen[1, 0] = seen[1, 5] = False
    return transport_prices.Smile(u, doubt, PLACE, total, seen)


def in_torch(smile: transport_prices.Smile) -> torch_prices.Smile:
    return torch_prices.Smile(*(torch.from_numpy(part) for part in smile))


def first_slopes(seed: int, shift: float) -> Sides:
    smile = draw_smiles(seed, 1.0)
    u = np.clip(smile.u, -2.0, 2.0).reshape(18, -1)
    places = smile_to_slopes.build_places(tuple(PLACE.tolist()))
    level = np.exp(smile.total.ravel())
    theirs = in_torch(smile)
    flat, total = torch.from_numpy(u), theirs.total.flatten()
    return (
        [
            smile_to_slopes.coordinates(u + shift, places, level),
            smile_to_slopes.log_slopes(u + shift, places, level),
            smile_to_slopes.integrals(PLACE + shift),
        ],
        [
            torch_slopes.coordinates(flat, theirs.place, total),
            torch_slopes.log_slopes(flat, theirs.place, total),
            torch_slopes.integrals(theirs.place, torch_slopes.knots(flat.device)),
        ],
    )


def priced_smiles(seed: int, shift: float) -> Sides:
    smile = draw_smiles(seed, 1.0)
    ours = transport_prices.price_smile(smile._replace(u=smile.u + shift))
    theirs = torch_prices.price_smile(in_torch(smile))
    slices = (ours.log_price, ours.elasticity, ours.says, 1e-6 * ours.trust)
    priced = [theirs.log_price, theirs.elasticity, theirs.says, 1e-6 * theirs.trust]
    return [part.reshape(18, -1) for part in slices], priced


def transports(wild: float) -> Callable[[int, float], Sides]:
    """Calm smiles need one round, wild ones more, which make more of any rounding.

    A wild smile says next to nothing of its tails: log-slopes count for a hundredth.
    """

    def compute(seed: int, shift: float) -> Sides:
        smile = draw_smiles(seed, wild)
        ours = transport_prices.price_smile(smile._replace(u=smile.u + shift * PLACE))
        g, miss = star_order_projection.transport(ours)
        slopes, short = torch_projection.transport(in_torch(smile))
        return [miss, 0.01 * g], [short, 0.01 * slopes]

    return compute


def isotonic(seed: int, shift: float) -> Sides:
    rng = np.random.default_rng(seed)
    y, weight = rng.normal(size=9), rng.uniform(size=9) * (rng.uniform(size=9) < 0.7)
    given = torch.from_numpy(np.stack([y, weight])[:, None, :, None])
    found = y + shift
    star_order_projection.pool_adjacent(found, weight)
    return [found], [torch_projection.isotonic(*given)[0, :, 0]]


def heads(seed: int, shift: float) -> Sides:
    rng = np.random.default_rng(seed)
    start, proposal, total = (rng.normal(0.0, size, (2, 3, 31)) for size in (1.5, 3.0, 1.0))
    given = torch.from_numpy(proposal), torch.from_numpy(start), torch.from_numpy(total[..., 0])
    moved = proposal + shift
    return (
        [slope_head.bounded(moved, start), slope_head.slopes(moved, total[..., 0])],
        [torch_head.bounded(*given[:2]), torch_head.slopes(given[0], given[2])],
    )


PAIRS = {
    "reference_volatility.scaled": Pair(levels, 1e-10),
    "gaussian_process.splines": Pair(splines, 1e-14),
    "bid_ask_likelihood.average_error_laws": Pair(laws, 1e-8, 1e-2),
    "bid_ask_likelihood.truncated": Pair(truncations, 1e-8, 0.1),
    "gaussian_process.kriged, wild": Pair(kriging(1.0), 1e-6),
    "gaussian_process.kriged": Pair(kriging(0.3), 1e-6),
    "gaussian_process.kriged, calm": Pair(kriging(0.05), 1e-6),
    "gaussian_process.kriged, flat": Pair(kriging(0.01), 1e-6),
    "smile_to_slopes": Pair(first_slopes, 1e-8),
    "transport_prices.price_smile": Pair(priced_smiles, 1e-9),
    "star_order_projection.transport": Pair(transports(0.3), 1e-6, 0.01),
    "star_order_projection.transport, wild": Pair(transports(1.0), 1e-4, 0.1),
    "star_order_projection.isotonic": Pair(isotonic, 1e-12),
    "slope_head": Pair(heads, 1e-12),
}


@pytest.mark.parametrize("name", PAIRS)
def test_both_sides_of_a_pair_are_one_function(name: str) -> None:
    check_pair(PAIRS[name])


def test_chains_are_calm_and_wild() -> None:
    """Those above: values of wildness on either side of the middle, and two steps off, count."""
    chain = torch_reference.scaled(sparse_chain(3))
    wild = {
        float(tau)
        for calm in (1.0, 0.3, 0.05, 0.01)
        for tau in torch_process.known(chain._replace(u=calm * chain.u)).law.prior.wild
    }
    assert min(wild) < slice_offsets.PRIOR_SCALES[1]
    assert max(wild) > slice_offsets.INITIAL_PRIOR_SCALE


def smiles_between(parts: tuple[float, float]) -> Iterator[tuple[transport_prices.Smile, Numbers]]:
    """Wild smiles whose first round leaves some chains between two parts of the way to more."""
    low = star_order_projection.MIN_MISS_FOR_MORE_ROUNDS
    high = star_order_projection.FULL_MISS_FOR_MORE_ROUNDS
    for seed in range(40):
        smile = draw_smiles(seed, 0.5)
        priced = transport_prices.price_smile(smile)
        g = smile_to_slopes.log_slopes(
            priced.u.reshape(18, -1), priced.places, np.exp(smile.total.ravel())
        )
        _, miss = star_order_projection.descend(g.reshape(3, 6, -1), priced, 1)
        trust = priced.trust
        off = np.sqrt((trust * miss**2).sum((1, 2)) / trust.sum((1, 2)))
        part = (off - low) / (high - low)
        here = (part > parts[0]) & (part < parts[1])
        if here.any():
            yield smile, here


def test_transports_on_the_way_to_more_rounds_are_those_of_torch() -> None:
    found = 0
    for smile, here in smiles_between((0.05, 0.95)):
        g, miss = star_order_projection.transport(transport_prices.price_smile(smile))
        wanted, short = torch_projection.transport(in_torch(smile))
        np.testing.assert_allclose(g[here], wanted.numpy()[here], rtol=0.0, atol=1e-2)
        np.testing.assert_allclose(miss, short.numpy(), rtol=0.0, atol=1e-4)
        found += 1
    assert found >= 2


def test_what_is_no_number_stays_none() -> None:
    smile = draw_smiles(1, 1.0)
    smile.total[1, 2] = smile.u[2, 0, 3] = np.nan
    with np.errstate(invalid="ignore"):
        g, _ = star_order_projection.transport(transport_prices.price_smile(smile))
    assert np.isfinite(g[0]).all()
    assert not np.isfinite(g[1]).all()
    assert not np.isfinite(g[2]).all()
    falling = np.array([[1.0, 1.0], [np.nan, 0.5], [0.5, 0.2]])
    ordered = np.empty_like(falling)
    clock, weight = np.zeros((1, 3)), np.ones((1, 3, 2))
    star_order_projection.order_along_maturity(falling[None], clock, weight, ordered[None])
    assert np.isnan(ordered[:, 0]).any()
    assert (np.diff(ordered[:, 1]) >= 0.0).all()
