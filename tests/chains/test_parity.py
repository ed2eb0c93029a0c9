"""Put-call parity: forwards and discount factors are found, with errors that mean something."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import listed
from arbiter.chains import Chain, read_chain
from arbiter.chains.parity import (
    CallPutPairs,
    estimate_discounts,
    estimate_forwards,
    is_discount_known,
)
from arbiter.conventions import Array
from arbiter.pricing import black
from counts import count

TRIALS = count(full=2_000, reduced=200)


def pairs(
    rng: np.random.Generator, F: float, D: float, n: int = 60, noise: float = 0.05, T: float = 0.25
) -> CallPutPairs:
    """Pairs that obey parity, up to ``noise`` in units of their half-spreads."""
    K = np.unique(np.round(F * np.exp(np.linspace(-0.5, 0.4, n)), 1))
    k = np.log(K / F)
    otm = black.otm(k, 0.2 * np.sqrt(T)) * D * F
    h = 0.2 + 0.002 * np.abs(K - F)
    y = D * (F - K) + noise * h * rng.standard_normal(K.size)
    return one_series(K, y, h, 2.0 * otm + np.abs(D * (F - K)))


def one_series(K: Array, y: Array, h: Array, straddle: Array) -> CallPutPairs:
    return CallPutPairs(K[None], y[None], h[None], straddle[None], np.array([K.size]))


def with_prices(clean: CallPutPairs, y: Array, h: Array | None = None) -> CallPutPairs:
    return one_series(clean.K[0], y, clean.h[0] if h is None else h, clean.straddle[0])


def solve(given_pairs: CallPutPairs) -> tuple[float, float, float, float]:
    D, D_error = estimate_discounts(given_pairs)
    F, F_error = estimate_forwards(given_pairs, D)
    return float(F[0]), float(D[0]), float(F_error[0]), float(D_error[0])


def stack(series: list[CallPutPairs]) -> CallPutPairs:
    """Several series, each in a row as long as the longest."""
    n = max(int(one.count[0]) for one in series)

    def pad(rows: list[Array], blank: float) -> Array:
        return np.array([np.pad(r, (0, n - r.size), constant_values=blank) for r in rows])

    return CallPutPairs(
        pad([one.K[0] for one in series], 1.0),
        pad([one.y[0] for one in series], 0.0),
        pad([one.h[0] for one in series], np.inf),
        pad([one.straddle[0] for one in series], 0.0),
        np.array([one.count[0] for one in series]),
    )


@given(sizes=st.lists(st.integers(5, 300), min_size=2, max_size=8), seed=st.integers(0, 10_000))
def test_each_series_is_estimated_alone(sizes: list[int], seed: int) -> None:
    """Neighbours of another length, with wrong pairs of their own, change nothing."""
    rng = np.random.default_rng(seed)
    series = []
    for n in sizes:
        clean = pairs(rng, rng.uniform(100.0, 5_000.0), rng.uniform(0.8, 1.02), n, noise=0.3)
        y = clean.y[0].copy()
        wrong = rng.choice(y.size, y.size // 5, replace=False)
        y[wrong] += rng.choice([-1.0, 1.0], wrong.size) * rng.uniform(20.0, 500.0, wrong.size)
        series.append(with_prices(clean, y))
    together = stack(series)
    D, D_error = estimate_discounts(together)
    F, F_error = estimate_forwards(together, D)
    alone = np.array([solve(one) for one in series])
    assert np.allclose(np.stack([F, D], axis=1), alone[:, :2], rtol=1e-11, atol=0.0)
    assert np.allclose(np.stack([F_error, D_error], axis=1), alone[:, 2:], rtol=1e-6, atol=0.0)
    swapped = estimate_discounts(together.select(np.arange(len(sizes))[::-1]))[0]
    assert np.array_equal(swapped[::-1], D)


@given(
    F=st.floats(10.0, 50_000.0),
    D=st.floats(0.6, 1.03),
    n=st.integers(5, 300),
    seed=st.integers(0, 10_000),
)
def test_exact_parity_is_recovered_exactly(F: float, D: float, n: int, seed: int) -> None:
    exact = pairs(np.random.default_rng(seed), F, D, n, noise=0.0)
    found_F, found_D, _, _ = solve(exact)
    assert found_F == pytest.approx(F, rel=1e-9)
    assert found_D == pytest.approx(D, rel=1e-9)


def test_standard_errors_cover_the_truth(rng: np.random.Generator) -> None:
    """About 95 % of estimates lie within two standard errors if errors are independent."""
    z = []
    for _ in range(TRIALS):
        F, D, F_error, D_error = solve(pairs(rng, 4200.0, 0.99, n=300))
        z.append([(F - 4200.0) / F_error, (D - 0.99) / D_error])
    inside = np.mean(np.abs(z) < 2.0, axis=0)
    assert np.all(inside > 0.85)
    assert np.all(inside < 0.99)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_wrong_pairs_do_not_move_the_estimates(rng: np.random.Generator, share: float) -> None:
    for _ in range(20):
        clean = pairs(rng, 4200.0, 0.99)
        y = clean.y[0].copy()
        wrong = rng.choice(y.size, round(share * y.size), replace=False)
        y[wrong] += rng.choice([-1.0, 1.0], wrong.size) * rng.uniform(20.0, 500.0, wrong.size)
        F, D, F_error, _ = solve(with_prices(clean, y))
        assert abs(F - 4200.0) < 0.2
        assert abs(D - 0.99) < 1e-3
        assert F_error < 0.2


def test_least_squares_would_be_moved(rng: np.random.Generator) -> None:
    """The control: the same wrong pairs spoil an ordinary regression."""
    clean = pairs(rng, 4200.0, 0.99)
    y = clean.y[0].copy()
    y[:6] += 300.0
    b, a = np.polyfit(clean.K[0], y, 1)
    assert abs(-a / b - 4200.0) > 5.0
    assert abs(solve(with_prices(clean, y))[0] - 4200.0) < 0.2


def test_loose_pairs_do_not_outvote_tight_ones(rng: np.random.Generator) -> None:
    """Four fifths of the pairs are quoted 20 points wide and lie 12 points off, inside that."""
    clean = pairs(rng, 470.0, 0.95, n=50, noise=0.02)
    wide = np.abs(clean.K[0] - 470.0) > 60.0
    y, h = clean.y[0] + np.where(wide, 12.0, 0.0), np.where(wide, 20.0, 0.4)
    F, D, _, _ = solve(with_prices(clean, y, h))
    assert np.mean(wide) > 0.6
    assert abs(F - 470.0) < 0.1
    assert abs(D - 0.95) < 0.01


def test_the_forward_is_that_of_the_middle() -> None:
    """Deep pairs on a line of their own move the discount, and the forward not at all."""
    rng = np.random.default_rng(1)
    clean = pairs(rng, 4200.0, 0.99, noise=0.0)
    k = np.log(clean.K[0] / 4200.0)
    bent = clean.y[0] + np.where(np.abs(k) > 0.15, 0.4 * clean.h[0], 0.0)
    F, _, _, _ = solve(with_prices(clean, bent))
    assert abs(F - 4200.0) < 0.01


def test_too_few_pairs_tell_no_slope(rng: np.random.Generator) -> None:
    few = pairs(rng, 4200.0, 0.99, n=4)
    assert np.isnan(estimate_discounts(few)).all()
    F, F_error = estimate_forwards(few, np.array([0.99]))
    assert abs(F[0] - 4200.0) < 4.0 * F_error[0]


@pytest.mark.parametrize(
    ("discount", "error", "T", "verdict"),
    [
        (0.99, 1e-4, 0.25, True),
        (1.0005, 2e-4, 0.01, True),  # a rate of −5 %, which its error explains
        (0.99, 1e-2, 0.25, False),  # not known
        (0.80, 1e-4, 0.25, False),  # a rate of 90 %
        (-0.9, 1e-4, 0.25, False),
        (np.nan, np.nan, 0.25, False),
    ],
)
def test_a_discount_is_known_if_it_means_a_rate(
    discount: float, error: float, T: float, verdict: bool
) -> None:
    assert is_discount_known(discount, error, T) == verdict


def chain_of(market: pl.DataFrame) -> Chain:
    return read_chain(market, as_of=listed.AS_OF)


def without_pairs(market: pl.DataFrame, expiry: dt.date, left: int) -> pl.DataFrame:
    """``market`` with ``left`` pairs near the money of ``expiry``, and other puts without a bid."""
    strikes = market.filter(pl.col("expiry") == expiry)["strike"].unique().sort()
    near = strikes.to_frame().sort((pl.col("strike") - listed.SPOT).abs())["strike"].head(left)
    gone = (
        (pl.col("expiry") == expiry)
        & ((pl.col("side") == "put") == (pl.col("strike") > listed.SPOT))
        & ~pl.col("strike").is_in(near.to_list())
    )
    return market.with_columns(bid=pl.when(gone).then(0.0).otherwise("bid"))


def test_forwards_of_a_market_are_found_within_their_errors() -> None:
    table = chain_of(listed.market()).forwards()
    columns = "label root expiry settlement settles T forward discount forward_error discount_error"
    assert table.columns == [*columns.split(), "pairs"]
    assert table.height == len(listed.SERIES)
    for row in table.iter_rows(named=True):
        truth = listed.curve(row["root"], row["expiry"])
        assert row["T"] == pytest.approx(truth.T, rel=1e-12)
        assert abs(row["forward"] - truth.forward) < 4.0 * row["forward_error"] + 0.02
        assert abs(row["discount"] - truth.discount) < 4.0 * row["discount_error"] + 2e-5


def test_morning_and_evening_series_of_one_day_stay_apart() -> None:
    table = chain_of(listed.market()).forwards()
    day = table.filter(pl.col("expiry") == dt.date(2023, 2, 17))
    assert day["settlement"].to_list() == ["AM", "PM"]
    minutes = np.diff(day["T"].to_numpy())[0] * 525_600
    assert minutes == pytest.approx(390.0)


def test_put_and_call_volatilities_agree_at_the_money() -> None:
    chain = chain_of(listed.market())
    quotes = chain.quotes()
    near = np.abs(quotes.k) < 0.2 * listed.VOLATILITY * np.sqrt(quotes.T)
    puts, calls = near & (quotes.k < 0.0), near & (quotes.k >= 0.0)
    gap = quotes.iv_mid[calls].mean() - quotes.iv_mid[puts].mean()
    assert abs(gap) < 2e-4


def test_a_discount_comes_from_the_neighbours_if_it_must_and_that_is_said() -> None:
    expiry = dt.date(2023, 3, 31)
    chain = chain_of(without_pairs(listed.market(), expiry, left=3))
    row = chain.forwards().filter(pl.col("expiry") == expiry).row(0, named=True)
    truth = listed.curve("SPXW", expiry)
    assert row["pairs"] == 3
    assert row["discount"] == pytest.approx(truth.discount, abs=2e-4)
    assert np.isnan(row["discount_error"])
    assert row["forward"] == pytest.approx(truth.forward, abs=0.3)
    said = [note for note in chain.notes if "2023-03-31 SPXW" in note]
    assert len(said) == 1
    assert "taken from the neighbouring expiries" in said[0]
    assert not any("neighbouring" in note for note in chain_of(listed.market()).notes)


def test_a_series_without_pairs_has_no_forward() -> None:
    expiry = dt.date(2023, 3, 31)
    chain = chain_of(without_pairs(listed.market(), expiry, left=0))
    row = chain.forwards().filter(pl.col("expiry") == expiry).row(0, named=True)
    assert np.isnan([row["forward"], row["discount"]]).all()
    assert any("0 pairs do not imply a forward" in note for note in chain.notes)
    quotes = chain.quotes()
    assert "2023-03-31 SPXW" not in quotes.labels
    lost = quotes.exclusions.filter(pl.col("expiry") == "2023-03-31 SPXW")
    assert set(lost["reason"]) == {"no forward"}


def test_one_expiry_alone_without_a_discount_is_taken_undiscounted() -> None:
    expiry = dt.date(2023, 3, 31)
    alone = listed.market().filter(pl.col("expiry") == expiry)
    chain = chain_of(without_pairs(alone, expiry, left=3))
    assert chain.forwards()["discount"].to_list() == [1.0]
    assert any("taken as 1" in note for note in chain.notes)


def test_smoothing_happens_only_when_asked_and_helps_noisy_series(rng: np.random.Generator) -> None:
    days = [dt.date(2023, 2, 10) + dt.timedelta(days=7 * i) for i in range(12)]
    market = listed.market(tuple(("SPXW", day) for day in days))
    shift = pl.Series(rng.normal(0.0, 0.3, market.height))
    noisy = market.with_columns(
        bid=(pl.col("bid") + shift - 1.0).clip(0.0), ask=pl.col("ask") + shift + 1.0
    )
    chain = chain_of(noisy)
    truth = np.array([listed.curve("SPXW", day).forward for day in days])
    plain, smooth = (chain.forwards(flag)["forward"].to_numpy() for flag in (False, True))
    assert np.std(smooth - truth) < 0.8 * np.std(plain - truth)
    assert np.array_equal(chain.quotes().forwards, plain)
    assert np.array_equal(chain.quotes(smooth_forwards=True).forwards, smooth)


def test_smoothing_leaves_precise_series_alone() -> None:
    chain = chain_of(listed.market())
    plain, smooth = chain.forwards(), chain.forwards(smooth=True)
    moved = np.abs(plain["forward"].to_numpy() - smooth["forward"].to_numpy())
    assert np.all(moved < 3.0 * plain["forward_error"].to_numpy() + 1e-9)


def test_options_on_futures_have_a_forward_each() -> None:
    """VIX: few strikes, and forwards that do not belong to one spot."""
    frames = []
    for day, F in (
        (dt.date(2023, 2, 15), 19.4),
        (dt.date(2023, 3, 22), 20.6),
        (dt.date(2023, 4, 19), 21.3),
    ):
        K = np.arange(12.0, 40.0, 2.0)
        otm = black.otm(np.log(K / F), 0.9 * np.sqrt(30.0 / 365.0)) * F
        for side, intrinsic in (("call", F - K), ("put", K - F)):
            price = otm + np.maximum(intrinsic, 0.0)
            frames.append(
                pl.DataFrame(
                    {"expiry": [day] * K.size, "strike": K, "side": [side] * K.size}
                ).with_columns(root=pl.lit("VIX"), bid=price - 0.05, ask=price + 0.05)
            )
    chain = read_chain(pl.concat(frames), as_of=listed.AS_OF)
    assert chain.underlying == "VIX"
    assert np.allclose(chain.forwards()["forward"], [19.4, 20.6, 21.3], atol=1e-6)
