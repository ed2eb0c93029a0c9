"""Compiled parts of the quick pass: each is its counterpart, to rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
import torch
from arbiter.operators.quick import (
    bid_ask_likelihood as compiled_likelihood,
)
from arbiter.operators.quick import (
    dense,
    elementary,
    implied_volatility,
    scalars,
)
from arbiter.operators.quick import reference_volatility as quick_reference
from arbiter.operators.quick import shrinkage as quick_trust
from arbiter.operators.quick.flat import flat
from arbiter.operators.quick.quote_prices import prices
from arbiter.operators.quick.star_order_projection import (
    Polish,
    order_along_maturity,
    pool_adjacent,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators import residuals
from arbiter.operators.network.measure_gate import places
from arbiter.operators.pretrained import Operator
from arbiter.operators.quote_rows import ImpliedVolatilities
from arbiter.operators.residuals import make_compiled_quadrature
from arbiter.pricing import black, normal
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.prior import (
    bid_ask_likelihood,
    reference_volatility,
    shrinkage,
    star_order_projection,
)
from arbiter_lab.differentiable.operators.prior.transport_prices import Smile
from ragged_chains import random_chain

PLACE = places(21, (3.7, 2.4)).double()
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 12, 31])
def test_small_matrices_are_those_of_the_library(size: int, rng: np.random.Generator) -> None:
    A = rng.normal(size=(size, 2 * size + 3))
    whole = A @ A.T
    lower = np.full((size, size), np.nan)
    dense.products(A, A, lower)
    lower = np.tril(lower)
    np.testing.assert_allclose(lower, np.tril(whole), rtol=1e-12, atol=1e-12)
    again = np.full((size, size), np.nan)
    dense.squares(np.ascontiguousarray(A.T), again)
    np.testing.assert_allclose(np.tril(again), lower, rtol=1e-12, atol=1e-12)
    sums, ends = np.empty((size, 3)), np.array([0, 1, 1, 2 * size + 3])
    dense.add_up(A, ends, sums)
    wanted = np.stack([A[:, 0], 0.0 * A[:, 0], A[:, 1:].sum(1)], 1)
    np.testing.assert_allclose(sums, wanted, rtol=0.0, atol=1e-12)

    factor = lower.copy()
    dense.factorise(factor)
    plain, at = factor.copy(), np.arange(size)
    plain[at, at] = 1.0 / factor[at, at]
    np.testing.assert_allclose(plain, np.linalg.cholesky(whole), rtol=1e-9, atol=1e-9)
    b = rng.normal(size=(size, 9))
    half, found = b.copy(), b[:, 0].copy()
    dense.forward_all(factor, half)
    np.testing.assert_allclose(plain @ half, b, rtol=0.0, atol=1e-9)
    dense.solve(factor, found)
    np.testing.assert_allclose(whole @ found, b[:, 0], rtol=0.0, atol=1e-7)
    assert np.abs(plain @ found - b[:, 0]).max() > 1e-4  # the factor alone is another system


def each(f: Callable[..., float], *arguments: Array) -> Array:
    return np.array([f(*row) for row in zip(*arguments, strict=True)])


def test_functions_without_a_branch_are_those_of_the_library() -> None:
    x = np.linspace(-708.0, 709.0, 4001)
    np.testing.assert_allclose(each(elementary.exp, x), np.exp(x), rtol=1e-14)
    assert elementary.exp(-1e9) == elementary.exp(elementary.LOWEST) < 1e-307
    assert elementary.exp(1e9) == elementary.exp(elementary.HIGHEST) < np.inf
    np.testing.assert_allclose(each(elementary.tanh, x), np.tanh(x), rtol=0.0, atol=1e-15)
    np.testing.assert_allclose(each(elementary.asinh, x), np.arcsinh(x), rtol=1e-14, atol=1e-15)
    y = np.concatenate([np.geomspace(1e-300, 1e300, 2001), np.linspace(0.5, 2.0, 2001)])
    np.testing.assert_allclose(each(elementary.log, y), np.log(y), rtol=1e-14, atol=1e-15)
    z = np.concatenate([np.linspace(0.0, 40.0, 2001), np.geomspace(40.0, 1e12, 101)])
    wanted = normal.mills(torch.from_numpy(z)).numpy()
    np.testing.assert_allclose(each(elementary.tail, z), wanted, rtol=3e-14)


def test_hyperbolic_tangents_in_single_precision() -> None:
    x = np.concatenate([np.linspace(-30.0, 30.0, 4001), [0.0, 1e-30, -np.inf, np.inf, np.nan]])
    found = x.astype(np.float32)
    elementary.tanh32(found)
    np.testing.assert_allclose(found, np.tanh(x), rtol=0.0, atol=1.5e-7)
    assert np.abs(found[:-1]).max() <= 1.0
    assert np.abs(x[:-3] - found[:-3]).max() > 1.0


def test_softplus_in_single_precision() -> None:
    x = np.linspace(-80.0, 60.0, 100_001).astype(np.float32)
    wanted = np.logaddexp(0.0, x.astype(np.float64))
    found = np.append(x, np.float32(np.nan))
    elementary.softplus32(found)
    np.testing.assert_allclose(found[:-1], wanted, rtol=4e-7)
    assert np.isnan(found[-1])
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    "f", [elementary.exp, elementary.log, elementary.tail, elementary.tanh, elementary.asinh]
)
def test_no_number_comes_out_where_none_goes_in(f: Callable[[float], float]) -> None:
    assert np.isnan(f(np.nan))


@compiled
def in_a_row(x: Array) -> Array:
    """All of them of every number, as loops take them: many at a time."""
    found = np.empty((6, x.size))
    for i in range(x.size):
        found[0, i] = elementary.exp(x[i])
    for i in range(x.size):
        found[1, i] = elementary.log(x[i])
    for i in range(x.size):
        found[2, i] = elementary.tail(x[i])
    for i in range(x.size):
        found[3, i] = elementary.tanh(x[i])
    for i in range(x.size):
        found[4, i] = elementary.asinh(x[i])
    for i in range(x.size):
        found[5, i] = scalars.cdf(x[i])
    return found


def test_many_at_a_time_are_each_one_and_only_what_is_no_number_is_none() -> None:
    x = np.linspace(0.1, 30.0, 1003)
    x[::7] = np.nan
    found = in_a_row(x)
    assert (np.isnan(found) == np.isnan(x)).all()
    some = ~np.isnan(x)
    x = x[some]
    tail = normal.mills(torch.from_numpy(x)).numpy()
    wanted = np.stack([np.exp(x), np.log(x), tail, np.tanh(x), np.arcsinh(x), special.ndtr(x)])
    np.testing.assert_allclose(found[:, some], wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("x", [0.0, -1.0, np.inf])
def test_only_positive_numbers_have_a_logarithm(x: float) -> None:
    assert np.isnan(elementary.log(x))


def test_the_normal_law_of_one_number() -> None:
    x = np.linspace(-37.0, 9.0, 301)
    np.testing.assert_allclose(each(scalars.cdf, x), special.ndtr(x), rtol=3e-13)
    y = np.linspace(-5.0, 80.0, 301)
    wanted = normal.mills(torch.from_numpy(y)).numpy()
    np.testing.assert_allclose(each(scalars.mills, y), wanted, rtol=1e-13)
    u = np.exp(np.linspace(np.log(1e-300), np.log(0.5), 301))
    found = each(scalars.quantile, u)
    np.testing.assert_allclose(found, special.ndtri(u), rtol=1e-14, atol=1e-14)
    assert np.abs(found - special.ndtri(1.0001 * u)).min() > 1e-7


def test_blacks_formula_of_one_number(rng: np.random.Generator) -> None:
    v = np.exp(rng.uniform(np.log(1e-3), np.log(5.0), 4000))
    k = 3.0 * v * rng.normal(size=v.size)
    np.testing.assert_allclose(each(scalars.otm, k, v), black.otm(k, v), rtol=3e-11)
    assert (np.abs(each(scalars.otm, k, v) / black.otm(k, 1.0001 * v) - 1.0) > 3e-11).all()


@given(seed=seeds)
def test_implied_volatilities_are_those_of_the_library(seed: int) -> None:
    rng = np.random.default_rng(seed)
    v = np.exp(rng.uniform(np.log(2e-3), np.log(6.0), 300))
    k = 3.0 * v * rng.normal(size=v.size)
    price = np.asarray(black.otm(k, v))
    # near the upper bound prices have hardly a digit left to tell volatilities apart
    sure = (price > 1e-290) & (np.exp(np.minimum(k, 0.0)) - price > 1e-3)
    found = each(implied_volatility.implied, price, k)
    np.testing.assert_allclose(found[sure], v[sure], rtol=1e-11)
    np.testing.assert_allclose(
        found, black.implied_total_volatility(price, k).volatility, rtol=1e-9
    )
    assert (
        np.abs(found / each(implied_volatility.implied, 1.001 * price, k) - 1.0)[sure].min() > 1e-6
    )


@pytest.mark.parametrize(
    ("price", "k"), [(0.0, 0.1), (-0.1, 0.1), (1.0, 0.1), (np.exp(-0.5), -0.5), (2.0, -0.5)]
)
def test_prices_at_their_bounds_or_beyond_have_no_volatility(price: float, k: float) -> None:
    assert np.isnan(implied_volatility.implied(price, k))
    assert np.isnan(black.implied_total_volatility(price, k).volatility)


def test_prices_next_to_a_bound_or_to_nothing_have_the_volatility_of_the_library() -> None:
    k = -0.40528951506723365
    T, strikes = np.full(4, 0.5), np.array([k, -0.1, 0.0, 0.1])
    bid = np.array([1e-310, 0.03, 0.05, 1e-305])
    ask = np.array([np.nextafter(np.exp(k), 0.0), 0.04, 0.06, 0.04])
    frame = pl.DataFrame({"T": T, "k": strikes, "bid": bid, "ask": ask})
    quotes = Quotes.from_frame(frame)
    assert len(quotes) == 4
    found, wanted = residuals.implied([quotes])[0], ImpliedVolatilities.from_quotes(quotes)
    for one, other in zip(found, wanted, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-10)
    assert np.isnan(implied_volatility.implied(bid[0], k))  # which is why the library is asked


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_volatility(bad: float) -> None:
    assert np.isnan(implied_volatility.implied(bad, 0.1))
    assert np.isnan(implied_volatility.implied(0.1, bad))


@given(seed=seeds)
def test_prices_of_quotes_are_those_of_the_fit(seed: int) -> None:
    """Also of strikes beyond the end knots, on either side of the money; a slice has no quotes."""
    rng = np.random.default_rng(seed)
    knots = np.linspace(-3.0, 2.5, 12) if seed % 2 else np.array([-4.0, -1.0, 0.5, 3.0])
    line = KnotQuadrature.from_knots(knots)
    slopes = np.exp(rng.normal(-1.5, 0.4, (4, knots.size)))
    expiry = np.sort(rng.choice([0, 2, 3], 60))
    k = rng.normal(0.0, rng.choice([0.1, 1.0, 3.0], 60))
    kernel = OtmPricer(line, expiry, k)
    wanted = kernel.price_quotes(kernel.integrate_slices(slopes)).price
    found = prices(make_compiled_quadrature(line), slopes, expiry, k)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-14)
    moved = prices(make_compiled_quadrature(line), 1.001 * slopes, expiry, k)
    assert np.abs(moved - wanted).max() > 1e-6


@given(seed=seeds)
def test_levels_are_those_of_the_network(seed: int) -> None:
    quotes = random_chain(seed, chains=3)
    quotes.quoted[1, 2:] = False
    quotes.quoted[2, 0] = False
    quotes.quoted[0, 1, 1:] = False  # one quote alone
    wanted, found = reference_volatility.scaled(quotes), quick_reference.scaled(quotes)
    for name, one, other in zip(wanted._fields, found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-10, msg=name)
    moved = quick_reference.scaled(quotes._replace(iv=1.0001 * quotes.iv))
    assert float((moved.sigma - wanted.sigma).abs().min()) > 1e-6


@given(seed=seeds, far=st.sampled_from([0.1, 3.0, 30.0]))
def test_the_law_of_the_quotes_is_that_of_the_network(seed: int, far: float) -> None:
    """Also where quotes lie so far from what the others say that only tails tell laws apart."""
    rng = np.random.default_rng(seed)
    half, variance = rng.uniform(0.002, 0.05, 40), rng.uniform(1e-6, 1e-3, 40)
    size = np.sqrt(variance) + rng.choice([0.05, 0.3, 1.0]) * half
    u = rng.normal(0.0, size) + far * half * (rng.uniform(size=40) < 0.1)
    near = compiled_likelihood.Near(np.zeros(40, np.int64), np.zeros((40, 4)))
    quotes = compiled_likelihood.Quoted(np.array([0, 40]), near, u, half)
    found = compiled_likelihood.average_error_laws(quotes, np.zeros(40), variance, 0.002)
    given = (torch.from_numpy(x)[None] for x in (u, variance + 0.002**2, half, np.ones(40)))
    wanted = bid_ask_likelihood.average_error_laws(*given)[0].tolist()
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    blurred = compiled_likelihood.average_error_laws(
        quotes, np.zeros(40), variance, 0.2
    )  # where all laws are alike
    assert np.abs(np.subtract(blurred, wanted)).max() > 1e-3


@given(seed=seeds)
def test_truncated_moments_are_those_of_the_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean, low = rng.normal(0.0, 3.0, 30), rng.normal(0.0, 3.0, 30)
    variance, high = rng.uniform(1e-4, 2.0, 30), low + rng.uniform(1e-4, 3.0, 30)
    wanted = bid_ask_likelihood.truncated(
        *(torch.from_numpy(x) for x in (mean, variance, low, high))
    )
    found = np.array(
        [
            compiled_likelihood.truncated_moments(*row)
            for row in zip(mean, variance, low, high, strict=True)
        ]
    )
    np.testing.assert_allclose(found, torch.stack(wanted, -1).numpy(), rtol=1e-9, atol=1e-8)
    assert np.abs(found[:, 0] - mean).max() > 0.1


def smiles(seed: int, wild: float) -> Smile:
    """Skewed smiles of three chains; of the first two slices one is not seen, and one nowhere."""
    rng = np.random.default_rng(seed)
    tilt = rng.normal(0.0, 0.15 * wild, (3, 6, 1)) * PLACE.numpy()
    bend = rng.uniform(0.0, 0.08 * wild, (3, 6, 1)) * PLACE.numpy() ** 2
    u = torch.from_numpy(tilt + bend + rng.normal(0.0, 0.02 * wild, (3, 6, 1)))
    doubt = torch.from_numpy(rng.uniform(-6.0, -3.0, (3, 6, len(PLACE))))
    total = torch.from_numpy(np.sort(rng.uniform(-4.0, -0.5, (3, 6)), 1))
    seen = torch.ones(3, 6, dtype=torch.bool)
    seen[0, 1] = seen[1, 0] = seen[1, 5] = False
    return Smile(u, doubt, PLACE, total, seen)


@given(seed=seeds, wild=st.sampled_from([(0.3, 1e-6), (1.0, 1e-4)]))
def test_transports_are_those_of_the_network(seed: int, wild: tuple[float, float]) -> None:
    """Calm smiles need one round, wild ones more, which make more of any rounding."""
    smile, error = smiles(seed, wild[0]), wild[1]
    wanted, short = star_order_projection.transport(smile)
    quick = Polish(smile)
    found, miss = quick.transport()
    torch.testing.assert_close(miss, short, rtol=0.0, atol=error)
    # a wild smile says next to nothing of its tails
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=100.0 * error)
    g = wanted + 0.1
    for one, other in zip(quick.missed(g), star_order_projection.missed(g, smile), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-9)
    moved = Polish(smile._replace(u=smile.u + 0.01 * PLACE)).transport()[0]
    assert float((moved - wanted).abs().max()) > 0.01


def test_transports_on_the_way_to_more_rounds_are_those_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wild smiles whose first round leaves them between the two ends of the ramp."""
    between = []
    for seed in range(40):
        smile = smiles(seed, 0.5)
        with monkeypatch.context() as patch:
            patch.setattr(star_order_projection, "MIN_MISS_FOR_MORE_ROUNDS", 1.0)
            patch.setattr(star_order_projection, "FULL_MISS_FOR_MORE_ROUNDS", 2.0)
            once, miss = star_order_projection.transport(smile)
        trust = star_order_projection.price_smile(smile).trust.view_as(miss)
        off = torch.sqrt((trust * miss**2).flatten(1).sum(1) / trust.flatten(1).sum(1))
        part = (off - star_order_projection.MIN_MISS_FOR_MORE_ROUNDS) / (
            star_order_projection.FULL_MISS_FOR_MORE_ROUNDS
            - star_order_projection.MIN_MISS_FOR_MORE_ROUNDS
        )
        here = (part > 0.05) & (part < 0.95)
        if bool(here.any()):
            wanted, found = star_order_projection.transport(smile)[0], Polish(smile).transport()[0]
            torch.testing.assert_close(found[here], wanted[here], rtol=0.0, atol=1e-2)
            torch.testing.assert_close(
                Polish(smile).transport()[1],
                star_order_projection.transport(smile)[1],
                rtol=0.0,
                atol=1e-4,
            )
            assert float((wanted - once)[here].abs().max()) > 1e-2  # more rounds make a difference
            between.append(seed)
    assert len(between) >= 2


@given(seed=seeds)
def test_isotonic_regression_is_the_min_max_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, weight = rng.normal(size=9), rng.uniform(size=9) * (rng.uniform(size=9) < 0.7)
    given = torch.from_numpy(np.stack([y, weight])[:, None, :, None])
    wanted = star_order_projection.isotonic(*given)[0, :, 0].numpy()
    found = y.copy()
    pool_adjacent(found, weight)
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-12)
    assert (np.diff(found) >= 0.0).all()


def test_what_is_no_number_stays_none() -> None:
    smile = smiles(1, 1.0)
    smile.total[1, 2] = smile.u[2, 0, 3] = torch.nan
    g, _ = Polish(smile).transport()
    assert torch.isfinite(g[0]).all()
    assert not torch.isfinite(g[1]).all()
    assert not torch.isfinite(g[2]).all()
    falling = np.array([[1.0, 1.0], [np.nan, 0.5], [0.5, 0.2]])
    ordered = order_along_maturity(falling, np.zeros(3), np.ones((3, 2)))
    assert np.isnan(ordered[:, 0]).any()
    assert (np.diff(ordered[:, 1]) >= 0.0).all()


def test_what_is_left_of_a_proposal_is_what_the_network_leaves() -> None:
    network = Operator.pretrained().network
    chain = reference_volatility.scaled(random_chain(5, chains=3))
    chain.quoted[1, 2:] = False
    guess = network.guess(chain)
    assert guess is not None
    gate = network.stages()[0].gate
    noise = torch.randn(guess.start.shape, generator=torch.Generator().manual_seed(1))
    proposal = guess.start + 0.5 * noise.double()
    wanted = shrinkage.trusted(proposal, guess, chain, gate)
    smile = Smile(guess.smile, guess.doubt, gate.place.double(), chain.total, chain.quoted.any(-1))
    short = star_order_projection.missed(proposal, smile)
    found = quick_trust.trusted(proposal, guess, flat(chain), gate, short)
    for name, one, other in zip(wanted._fields, found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=name)
    for one in (wanted.moved, wanted.missed, wanted.strained):
        assert float(one.min()) > 1e-3
    assert float((wanted.proposal - proposal).abs().max()) > 1e-3
