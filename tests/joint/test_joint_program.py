"""The parts of the joint program: payoffs and prices, envelope, floor, and the whole grid."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.joint_program import column_program, grid_program, heston, too_wide
from hypothesis import given
from hypothesis import strategies as st

from arbiter.conventions import THIRTY_DAYS, Array
from arbiter.joint.envelope import Envelope
from arbiter.joint.instruments import Book, Columns, decompose_payoff
from arbiter.joint.marginals import Marginal
from arbiter.joint.payoff_floor import find_payoff_floor, hedged_payoffs
from arbiter.joint.program import build_starting_columns
from arbiter.joint.strike_mesh import StateMesh, place_first_strikes
from arbiter.pricing import black
from counts import count

LAWS = (Marginal.lognormal(0.08), Marginal.lognormal(0.4, 0.19), Marginal.lognormal(0.11))
BOOK = Book(LAWS, place_first_strikes(LAWS, 12))
MESH = StateMesh.from_laws(LAWS, THIRTY_DAYS, (12, 8, 24)).with_strikes(BOOK.strikes)
seeds = st.integers(0, 2**32 - 1)


def drawn(seed: int) -> tuple[np.random.Generator, Array]:
    """Weights on the rows of the book, of no particular meaning."""
    rng = np.random.default_rng(seed)
    return rng, rng.normal(0.0, 1.0, BOOK.prices.size)


@pytest.mark.parametrize("size", [(4, 3, 10), (6, 4, 14)][: count(full=2, reduced=1)])
@pytest.mark.parametrize("wide", [False, True])
def test_columns_reach_the_optimum_of_the_whole_grid(
    size: tuple[int, int, int], wide: bool
) -> None:
    laws = too_wide(heston()) if wide else heston()
    book = Book(laws, place_first_strikes(laws, 8))
    mesh = StateMesh.from_laws(laws, THIRTY_DAYS, size).with_strikes(book.strikes)
    whole, found = grid_program(book, mesh), column_program(book, mesh)
    assert whole > 1e-4  # on so coarse a grid even exact laws need a relaxation
    assert found == pytest.approx(whole, rel=0.02)


def test_fewer_nodes_need_more_relaxation() -> None:
    """Negative control: the comparison with the whole grid is not blind to the grid."""
    laws = heston()
    book = Book(laws, place_first_strikes(laws, 8))
    coarse, fine = (
        StateMesh.from_laws(laws, THIRTY_DAYS, size) for size in ((3, 3, 8), (12, 8, 30))
    )
    assert column_program(book, coarse) > 1.5 * column_program(book, fine)


@given(seeds)
def test_rows_are_payoffs_and_their_prices_costs(seed: int) -> None:
    rng, weights = drawn(seed)
    position = BOOK.position(weights)
    assert BOOK.cost(position) == pytest.approx(weights @ BOOK.prices, abs=1e-9)
    # a column with one later level, at its own mean log: rows are what the position pays there
    x, v = rng.uniform(0.5, 1.8, 20), np.zeros(20)
    paid = BOOK.expected_payoffs(Columns(x, v, x[:, None], np.ones((20, 1)))).T @ weights
    own = position.near(x) + position.volatility(v) + position.far(x)
    own += (position.near_log + position.far_log) * position.log_contract(x)
    assert paid == pytest.approx(own, abs=1e-9)


@given(seeds)
def test_gross_weight_is_dual_to_the_moves_of_prices(seed: int) -> None:
    _, weights = drawn(seed)
    moved = np.abs(BOOK.price_shifts.T @ weights).sum()
    assert BOOK.gross_weight(BOOK.position(weights)) == pytest.approx(moved, rel=1e-9)


@given(seeds)
def test_options_held_make_the_payoff(seed: int) -> None:
    rng, weights = drawn(seed)
    position = BOOK.position(weights)
    parts = position.near, position.volatility, position.far
    for law, payoff in zip(LAWS, parts, strict=True):
        cash, forward, options = decompose_payoff(payoff, law.mean)
        z = rng.uniform(0.3, 2.0, 50) * law.mean
        K = payoff.strikes
        each = np.where(law.mean <= K, z[:, None] - K, K - z[:, None])
        whole = cash + forward * z + np.maximum(each, 0.0) @ options
        assert whole == pytest.approx(payoff(z), abs=1e-8)


@given(seeds)
def test_hedges_lie_below_the_payoff_everywhere(seed: int) -> None:
    rng, weights = drawn(seed)
    far = BOOK.position(weights).far
    hedges = Envelope.from_values(MESH.y, far(MESH.y), THIRTY_DAYS).lower_below(far)
    y = rng.uniform(MESH.y[0], MESH.y[-1], 2000)
    planes = hedges.planes @ np.stack([np.ones_like(y), y, np.log(y)])
    assert (planes - far(y)).max() <= 1e-9
    # negative control: they are not just low
    assert (planes + 1e-3 - far(y)).max() > 0.0


@given(seeds)
def test_worst_laws_meet_both_conditions_and_attain_the_floor(seed: int) -> None:
    rng, weights = drawn(seed)
    far = BOOK.position(weights).far
    hedges = Envelope.from_values(MESH.y, far(MESH.y), THIRTY_DAYS)
    x, v = rng.uniform(0.7, 1.4, 40), rng.uniform(0.15, 0.8, 40)
    columns = hedges.columns(x, v)
    assert columns.x.size == 40
    assert (columns.p >= 0.0).all()
    assert (columns.p * columns.y).sum(1) == pytest.approx(columns.x, abs=1e-12)
    log = (columns.p * np.log(columns.y)).sum(1)
    assert log == pytest.approx(np.log(columns.x) - 0.5 * THIRTY_DAYS * columns.v**2, abs=1e-12)
    size = np.abs(far(MESH.y)).max()
    attained = (columns.p * far(columns.y)).sum(1)
    assert attained == pytest.approx(hedges.floor(columns.x, columns.v)[0], abs=1e-6 * size)


@given(seeds)
def test_no_payoff_in_the_box_undercuts_the_floor(seed: int) -> None:
    rng, weights = drawn(seed)
    position = BOOK.position(weights)
    hedges = Envelope.from_values(MESH.y, position.far(MESH.y), THIRTY_DAYS).lower_below(
        position.far
    )
    least = find_payoff_floor(position, hedges, MESH, tolerance=1e-3).least
    x = rng.uniform(MESH.x[0], MESH.x[-1], 3000)
    v = rng.uniform(MESH.v[0], MESH.v[-1], 3000)
    worst = float(hedged_payoffs(position, hedges, x, v)[0].min())
    assert worst >= least - 1e-9
    # and it is a floor of this position, not a number far below
    nodes = [z.ravel() for z in np.meshgrid(MESH.x, MESH.v)]
    assert least >= hedged_payoffs(position, hedges, *nodes)[0].min() - 0.3 * np.abs(weights).sum()


def test_starting_columns_can_meet_the_forwards() -> None:
    columns = build_starting_columns(BOOK, MESH)
    assert columns.x.min() < 0.8
    assert columns.x.max() > 1.2
    assert columns.v.min() < 0.1
    assert columns.v.max() > 0.5


def test_marginals_price_what_they_say() -> None:
    K = np.array([0.7, 0.95, 1.0, 1.3])
    own = LAWS[0].call(K)
    k = np.log(K)
    assert own == pytest.approx(black.otm(k, 0.08) + np.maximum(-np.expm1(k), 0.0), abs=1e-15)
    assert LAWS[0].log_mean == pytest.approx(-0.5 * 0.08**2)
    atoms = Marginal.discrete([3.0, 1.0, 2.0], [0.25, 0.25, 0.5])
    assert atoms.mean == pytest.approx(2.0)
    assert atoms.second_moment == pytest.approx(4.5)
    assert atoms.call(np.array([0.5, 2.0, 3.0])) == pytest.approx([1.5, 0.25, 0.0])
    assert atoms.quantile(np.array([0.1, 0.5, 0.9])) == pytest.approx([1.0, 2.0, 3.0])
    read = Marginal.of_calls(LAWS[2].call, 1.0, (0.4, 2.0))
    u = np.linspace(0.01, 0.99, 9)
    assert read.quantile(u) == pytest.approx(LAWS[2].quantile(u), abs=1e-3)
