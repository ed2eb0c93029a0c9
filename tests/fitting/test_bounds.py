"""Asks without a bid in a fit: a wall before the ask, and no part in the statistics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
from arbiter.fitting.loss import Loss
from arbiter.fitting.objective import FitObjective
from arbiter.maturity_scores import score_by_maturity
from arbiter.quotes import AskBounds, Quotes

ROUGH = ab.Roughness(0.1, 1.0, 0.1)


def market(bounds: tuple[tuple[int, float, float], ...] = ()) -> Quotes:
    """Two smiles, and bounds as (expiry, k, ask)."""
    T = np.repeat([0.1, 0.4], 9)
    k = np.tile(np.linspace(-0.12, 0.08, 9), 2)
    iv = 0.2 - 0.3 * k
    plain = Quotes.from_frame({"T": T, "k": k, "iv_bid": iv - 0.004, "iv_ask": iv + 0.004})
    expiry, far, ask = (
        (np.array(part) for part in zip(*bounds, strict=True)) if bounds else [[]] * 3
    )
    return replace(
        plain,
        bounds=AskBounds(
            np.array(expiry, dtype=np.int64), np.array(far, float), np.array(ask, float)
        ),
    )


def price_of(surface: ab.Surface, k: float, T: float) -> float:
    return float(surface.otm(np.array([k]), np.array([T]))[0])


def test_a_bound_below_the_fit_pulls_the_wing_under_it() -> None:
    options = ab.FitOptions(roughness=ROUGH)
    free = ab.fit(market(), options=options)
    before = price_of(free, -0.25, 0.1)
    ask = 0.7 * before
    held = ab.fit(market(((0, -0.25, ask),)), options=options)
    assert price_of(held, -0.25, 0.1) <= ask < before
    inside = np.abs(held.result.residuals) <= 1.0
    assert inside.all()
    assert held.result.residuals.size == free.result.residuals.size == 18
    assert held.certificate().passed


def test_a_bound_that_is_far_above_changes_no_bit() -> None:
    options = ab.FitOptions(roughness=ROUGH)
    free = ab.fit(market(), options=options)
    loose = ab.fit(market(((0, -0.25, 0.2), (1, 0.3, 0.2))), options=options)
    assert (loose.slopes == free.slopes).all()
    assert loose.result.objective == free.result.objective
    assert loose.result.dispersion == free.result.dispersion


def test_one_bad_bound_does_not_move_the_quotes_out() -> None:
    """An ask at a tenth of its price contradicts its neighbours, and its pull is limited."""
    options = ab.FitOptions(roughness=ROUGH)
    quotes = market(((0, -0.1201, 0.001),))
    surface = ab.fit(quotes, options=options)
    score = score_by_maturity(surface, quotes)
    assert (len(score.contradictory), score.one_sided_violated) == (1, 0)
    assert score.contradictory[0].against[0].endswith("put (bid)")
    assert np.mean(np.abs(surface.result.residuals) <= 1.0) > 0.8


@pytest.mark.parametrize("components", [1, 2])
def test_gradient_of_the_loss_is_its_slope(components: int) -> None:
    quotes = market(((0, -0.25, 2e-5), (0, 0.2, 1e-6), (1, -0.5, 1e-5)))
    options = ab.FitOptions(components=components)
    misfit = FitObjective.from_quotes(quotes, options).misfit
    rng = np.random.default_rng(0)
    n = misfit.layout.knot_count
    logs = np.log([[0.2 * np.sqrt(0.1)], [0.2 * np.sqrt(0.4)]]) + np.zeros((2, n))
    both = np.stack([logs + 0.1 * j for j in range(components)])
    shares = np.full((components - 1, 2), 0.2)
    z = misfit.layout.pack(both, shares) + 0.01 * rng.standard_normal(misfit.layout.size)
    point = misfit.evaluate_at(z)
    assert point.bounds is not None
    assert (point.bounds.cost.value > 0.0).any()
    step = rng.standard_normal(z.size)
    size = 1e-6
    up, down = (misfit.evaluate_at(z + sign * size * step).loss for sign in (1.0, -1.0))
    expected = (up - down) / (2.0 * size)
    assert point.linearisation.gradient @ step == pytest.approx(expected, rel=1e-5)
    alone = replace(misfit, bounds=None).evaluate_at(z)
    assert abs(alone.linearisation.gradient @ step - expected) > 1e-3 * abs(expected)  # the control


def test_the_wall_is_flat_then_square_then_linear() -> None:
    r = np.array([-1.0, 0.6, 0.9, 1.2, 2.2])  # half asks from half of the ask: the ask is at 1
    cost = Loss(rim=0.0).above(r)
    np.testing.assert_allclose(cost.value, [0.0, 0.0, 0.9, 3.6, 15.6], atol=1e-12)
    np.testing.assert_allclose(cost.slope, [0.0, 0.0, 6.0, 12.0, 12.0], atol=1e-12)
    np.testing.assert_allclose(cost.weight[[0, 1, 2]], [0.0, 0.0, 20.0])
    assert cost.weight[4] * r[4] == pytest.approx(cost.slope[4])
    places = np.array([0.9, 0.975, 1.0, 1.5, 2.2])
    rim = Loss().above(places).slope - Loss(rim=0.0).above(places).slope
    np.testing.assert_allclose(rim, [0.0, 25.0, 50.0, 25.0, 0.0])  # as for a quote


@pytest.mark.parametrize("loss", [Loss(), Loss(edge=0.1, far=0.5), Loss(rim=0.0, wall=5.0)])
def test_the_slope_of_the_wall_is_the_derivative_of_its_value(loss: Loss) -> None:
    r, step = np.linspace(-3.0, 4.0, 1501), 1e-6
    slope = loss.above(r).slope
    found = (loss.above(r + step).value - loss.above(r - step).value) / (2.0 * step)
    assert np.abs(slope - found).max() < 1e-2
    assert (slope[r <= 0.0] == 0.0).all()  # a price far below an ask feels nothing
    assert np.abs(loss(r).slope - found).max() > 1.0  # the control: the loss of both sides


def test_an_update_follows_a_bound_that_changes() -> None:
    options = ab.FitOptions(roughness=ROUGH)
    free = ab.fit(market(), options=options)
    ask = 0.7 * price_of(free, -0.25, 0.1)
    quotes = market(((0, -0.25, ask),))
    updated, whole = free.update(quotes), ab.fit(quotes, options=options)
    assert price_of(updated, -0.25, 0.1) <= ask
    objective = FitObjective.from_quotes(quotes, options).with_roughness(ROUGH)
    value = objective.evaluate(np.log(updated.slopes[0]).reshape(-1)).value
    assert updated.result.objective == pytest.approx(value, rel=1e-9)
    back = updated.update(market())
    value = (
        FitObjective.from_quotes(market(), options)
        .with_roughness(ROUGH)
        .evaluate(np.log(back.slopes[0]).reshape(-1))
        .value
    )
    assert back.result.objective == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(updated.result.residuals, whole.result.residuals, atol=0.05)
    assert free.update(market()) is free  # the control


@pytest.mark.parametrize(
    ("name", "most"), [("spx_2023-02-07_close.csv", 0), ("spx_2023-12-08_close.csv", 4)]
)
def test_few_asks_of_real_chains_are_violated(data_dir: Path, name: str, most: int) -> None:
    quotes = ab.read_chain(data_dir / "chains" / name).quotes()
    without = replace(quotes, bounds=AskBounds())
    found, loose = (score_by_maturity(ab.fit(part), quotes) for part in (quotes, without))
    assert found.one_sided_violated <= most < loose.one_sided_violated
    assert abs(found.overall.inside_bid_ask - loose.overall.inside_bid_ask) < 4e-3
