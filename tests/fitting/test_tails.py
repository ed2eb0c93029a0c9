"""Order imposed beyond the quotes of an expiry does not pull what later expiries have quoted."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

import arbiter as ab
from arbiter.conventions import Array
from arbiter.fitting import FitOptions, objective, roughness
from arbiter.fitting.direct_fit import begin_fit
from arbiter.fitting.interior_point import InteriorPoint
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.order_constraints import OrderConstraints
from arbiter.fitting.roughness import Penalty
from arbiter.pricing import black
from arbiter.quotes import Quotes
from counts import count

KNOTS = np.array(FitOptions().knots)
WEEK, QUARTER = 7.0 / 365.0, 91.0 / 365.0
LATER = np.array([182.0, 365.0]) / 365.0
FREE = 30.0  # slack of a constraint that does not bind


class Market(NamedTuple):
    """A crash-shaped weekly before a calm quarterly."""

    truth: ab.Surface  # ordered at every knot: no static arbitrage inside or beyond the quotes
    quotes: Quotes
    iv: Array  # (m,) true volatilities
    reach: Array  # (2,) Gaussian coordinates of the weekly's end strikes


def draw_market(seed: int, side: int, noise: float, ratio: float | None = None) -> Market:
    """Quotes of ordered slopes on the knots of a fit.

    Within 0.5 to 1.4 of a Gaussian coordinate the weekly's slopes rise to 60 to 95 % of the
    quarterly's, and there, at 1.2 to 2.6, its quotes end. The quarterly's are quoted to 3.3, and
    its slopes fall by up to 45 % where the weekly's quotes have ended. There the weekly's slopes
    fall with them.

    Args:
        seed: Of the draw.
        side: −1 for a crash of puts, 1 for one of calls.
        noise: Distance of mids from the truth, at most, in half-spreads.
        ratio: The weekly's slopes at its last quote over the quarterly's, instead of a draw;
            above 1 the quotes contradict each other.
    """
    rng = np.random.default_rng(seed)
    T = np.array([WEEK, QUARTER, *LATER])
    calm = np.log(rng.uniform(0.1, 0.2)) - rng.uniform(0.0, 0.12) * KNOTS
    end, width, drawn = rng.uniform(1.2, 2.6), rng.uniform(0.5, 1.4), rng.uniform(0.6, 0.95)
    out = side * KNOTS
    calm -= rng.uniform(0.0, 0.6) * np.clip(out - end, 0.0, 1.0)
    logs = calm + 0.5 * np.log(T)[:, None]  # (L, n)
    near = np.log(drawn if ratio is None else ratio)
    rise = np.clip((out - end) / width + 1.0, 0.0, 1.0) ** 2
    weekly = logs[0] + (0.5 * np.log(QUARTER / WEEK) + near) * rise
    logs[0] = np.where(out <= end, weekly, logs[1] + min(near, -0.01))
    quoted = np.array([[-end, 2.0] if side < 0 else [-2.6, end], *[[-3.3, 2.8]] * 3])
    rows = []
    for at, t in enumerate(T):
        alone = ab.Surface.from_slopes(KNOTS, [t], np.exp(logs[at : at + 1]))
        low, high = quoted[at]
        z = np.linspace(low, high, 41 if at == 0 else 61)
        k = np.sort(alone.log_strike(z, np.full(z.size, t)))
        iv = alone.iv(k, np.full(k.size, t))
        half = iv * (0.005 + 0.015 * np.abs(z) / 3.5)
        mid = iv + noise * half * rng.uniform(-1.0, 1.0, k.size)
        rows.append([np.full(k.size, t), k, mid - half, mid + half, iv])
    *table, iv = np.concatenate(rows, axis=1)
    quotes = Quotes.from_frame(dict(zip(("T", "k", "iv_bid", "iv_ask"), table, strict=True)))
    ordered = np.maximum.accumulate(np.exp(logs), axis=0)
    return Market(ab.Surface.from_slopes(KNOTS, T, ordered), quotes, iv, quoted[0])


def release_order(model: FitObjective, reach: Array) -> OrderConstraints:
    """The constraints without the order of weekly and quarterly beyond the weekly's quotes."""
    order, (low, high) = model.build_constraints(), reach
    offset, n = order.offset.copy(), KNOTS.size
    offset[:n] += FREE * ((low > KNOTS) | (high < KNOTS))
    return order._replace(offset=offset)


def measure_pull(market: Market) -> float:
    """RMS of what the order beyond the weekly's quotes moves at the quarterly's, basis points."""
    quotes = market.quotes
    stage = begin_fit(quotes, FitOptions())
    model, z = stage.interior.point.objective.while_choosing(False), stage.interior.z
    found = []
    for order in (model.build_constraints(), release_order(model, market.reach)):
        interior = InteriorPoint.start_at(model, order, z, scale=1e-3 * len(quotes))
        ended, _ = interior.run(1e-6, 200)
        price = ended.point.misfit.prices.price
        v = black.implied_total_volatility(price, quotes.k).volatility
        found.append(v / np.sqrt(quotes.T))
    return root_mean_square((found[0] - found[1])[quotes.expiry == 1])


def root_mean_square(difference: Array) -> float:
    return 1e4 * float(np.sqrt(np.mean(difference**2)))


SEEDS = range(400, 400 + count(full=120, reduced=8))


@pytest.mark.parametrize("side", [-1, 1])
def test_order_beyond_the_quotes_of_a_weekly_costs_a_quarterly_nothing(side: int) -> None:
    pulls = [measure_pull(draw_market(seed, side, 0.5)) for seed in SEEDS]
    assert max(pulls) < 0.5
    assert np.median(pulls) < 0.1


@pytest.mark.parametrize("side", [-1, 1])
def test_stiff_slopes_beyond_the_quotes_would_pull(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: ties a thousand times as stiff."""
    monkeypatch.setattr(objective, "Penalty", partial(Penalty, beyond=300.0))
    pulls = [measure_pull(draw_market(seed, side, 0.5)) for seed in SEEDS]
    assert max(pulls) > 0.5


@pytest.mark.parametrize("side", [-1, 1])
def test_curvature_that_counted_beyond_the_quotes_would_pull_more(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of what the penalty leaves out: second differences at every knot."""
    markets = [draw_market(seed, side, 0.5) for seed in SEEDS]
    now = [measure_pull(market) for market in markets]
    monkeypatch.setattr(
        roughness, "find_knots_between", lambda outside: np.ones_like(outside[:, 1:])
    )
    before = [measure_pull(market) for market in markets]
    assert np.mean(before) > 1.5 * np.mean(now)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_crash_shaped_weekly_leaves_a_quarterly_as_near_its_law(side: int) -> None:
    misses = []
    for seed in SEEDS:
        market = draw_market(seed, side, 0.0)
        own, near = market.quotes.expiry == 0, market.quotes.expiry == 1
        k, T = market.quotes.k[near], market.quotes.T[near]
        with_weekly, without = ab.fit(market.quotes), ab.fit(market.quotes.select(~own))
        moved = with_weekly.iv(k, T) - without.iv(k, T)
        assert root_mean_square(moved) < 0.5
        errors = (s.iv(k, T) - market.iv[near] for s in (with_weekly, without))
        misses.append([root_mean_square(error) for error in errors])
    pooled = np.sqrt(np.mean(np.square(misses), axis=0))
    assert pooled[0] < pooled[1] + 0.1


def test_what_contradicts_inside_the_quotes_is_not_mended() -> None:
    market = draw_market(103, -1, 0.0, ratio=2.5)
    surface = ab.fit(market.quotes)
    assert surface.certificate().passed
    assert np.abs(surface.result.residuals).max() > 1.0
    calm = ab.fit(draw_market(103, -1, 0.0, ratio=0.9).quotes)
    assert np.abs(calm.result.residuals).max() < 1.0
