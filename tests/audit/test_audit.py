"""`audit` finds each planted arbitrage, with its place and size, and nothing in clean tables."""

import datetime as dt
import itertools
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arbiter as ab
from arbiter.audit.durrleman import evaluate_durrleman
from arbiter.audit.inequalities import calendar_inequalities
from arbiter.audit.price_tables import read
from arbiter.conventions import Array
from arbiter.pricing import black
from counts import count

MATURITIES = (0.25, 0.5, 1.0)
STRIKES = np.linspace(-0.3, 0.3, 13)  # log-strikes; 6 is at the money
EPSILONS = (1e-4, 1e-6, 1e-8, 1e-10)
VOLATILITY = 0.2

# Gatheral and Jacquier (2014), example 3.1 (Axel Vogt): raw SVI, no calendar problem, T = 1.
SVI = {"a": -0.0410, "b": 0.1331, "m": 0.3586, "rho": 0.3060, "sigma": 0.4153}


def table(columns: tuple[str, ...] = ("call",)) -> pl.DataFrame:
    """Black prices of one volatility: T-major, so that row = 13 · maturity + strike."""
    T, k = (a.ravel() for a in np.meshgrid(MATURITIES, STRIKES, indexing="ij"))
    v = VOLATILITY * np.sqrt(T)
    prices = {"call": black.call(k, v), "put": black.put(k, v), "iv": np.full(T.shape, VOLATILITY)}
    return pl.DataFrame({"T": T, "k": k} | {name: prices[name] for name in columns})


def svi_variance(k: Array) -> tuple[Array, Array, Array]:
    """Raw SVI total variance and its two derivatives."""
    a, b, m, rho, sigma = SVI.values()
    root = np.sqrt((k - m) ** 2 + sigma**2)
    w = a + b * (rho * (k - m) + root)
    return w, b * (rho + (k - m) / root), b * sigma**2 / root**3


def svi_g(k: Array) -> Array:
    w, w1, w2 = svi_variance(k)
    return (1 - k * w1 / (2 * w)) ** 2 - w1**2 / 4 * (1 / w + 0.25) + w2 / 2


Planted = tuple[pl.DataFrame, str, float, float | None]  # table, family, T and k of the short leg


def change(frame: pl.DataFrame, column: str, at: int, value: float) -> pl.DataFrame:
    values = frame[column].to_numpy().copy()
    values[at] = value
    return frame.with_columns(pl.Series(column, values).fill_nan(None))


def place(frame: pl.DataFrame, family: str, at: int) -> Planted:
    return frame, family, frame["T"][at], frame["k"][at]


def rising_call(epsilon: float) -> Planted:
    frame = table()
    return place(change(frame, "call", 13 + 9, frame["call"][13 + 8] + epsilon), "vertical", 13 + 9)


def falling_put(epsilon: float) -> Planted:
    frame = table(("put",))
    return place(change(frame, "put", 13 + 2, frame["put"][13 + 3] + epsilon), "vertical", 13 + 2)


def call_too_steep(epsilon: float) -> Planted:
    """A call spread worth more than its strikes are apart, with calls given on both sides."""
    frame = table()
    kappa = np.exp(STRIKES)
    value = frame["call"][13 + 3] + kappa[3] - kappa[2] + epsilon
    return place(change(frame, "call", 13 + 2, value), "vertical", 13 + 2)


def butterfly(epsilon: float, column: str, strike: int) -> Planted:
    frame = table((column,))
    kappa, at = np.exp(STRIKES), 13 + strike
    share = (kappa[strike + 1] - kappa[strike]) / (kappa[strike + 1] - kappa[strike - 1])
    chord = share * frame[column][at - 1] + (1 - share) * frame[column][at + 1]
    return place(change(frame, column, at, chord + epsilon), "butterfly", at)


def calendar(epsilon: float) -> Planted:
    frame = table(("iv", "put"))
    at = 2  # T = 0.25 above T = 0.5
    frame = change(frame, "put", at, frame["put"][13 + at] + epsilon)
    return place(frame.drop("iv"), "calendar", at)


def calendar_between_strikes(epsilon: float) -> Planted:
    """A short option whose strike the later maturity does not list."""
    later = table().filter(pl.col("T") == 1.0)
    kappa = np.exp(STRIKES)
    at = 0.3 * kappa[8] + 0.7 * kappa[9]
    chord = 0.3 * later["call"][8] + 0.7 * later["call"][9]
    row = pl.DataFrame({"T": [0.5], "k": [math.log(at)], "call": [chord + epsilon]})
    return pl.concat([later, row]), "calendar", 0.5, math.log(at)


def calendar_past_last_strike(epsilon: float) -> Planted:
    """To the right of all later strikes the last later call still dominates."""
    later = table().filter(pl.col("T") == 1.0)
    row = pl.DataFrame({"T": [0.5], "k": [0.4], "call": [later["call"][12] + epsilon]})
    return pl.concat([later, row]), "calendar", 0.5, 0.4


def below_zero(epsilon: float) -> Planted:
    return place(change(table(("put",)), "put", 0, -epsilon), "bound", 0)


def below_intrinsic(epsilon: float) -> Planted:
    intrinsic = 1.0 - math.exp(STRIKES[1])
    return place(change(table(), "call", 1, intrinsic - epsilon), "bound", 1)


def above_forward(epsilon: float) -> Planted:
    return place(change(table(), "call", 38, 1.0 + epsilon), "bound", 38)


def above_strike(epsilon: float) -> Planted:
    return place(change(table(("put",)), "put", 26, math.exp(STRIKES[0]) + epsilon), "bound", 26)


def parity(epsilon: float) -> Planted:
    frame = table(("call", "put"))
    return place(change(frame, "call", 16, frame["call"][16] - epsilon), "parity", 16)


def mean_above_one(epsilon: float) -> Planted:
    """The first two puts point below zero at strike zero: the law has lost some of its mean."""
    frame = table(("put",))
    value = math.exp(STRIKES[0] - STRIKES[1]) * frame["put"][13 + 1] + epsilon
    return place(change(frame, "put", 13, value), "mean", 13)


def mass_above_one(epsilon: float) -> Planted:
    """The first put spread sells for so little that more than all the mass is left."""
    frame = table(("call", "put")).with_columns(
        pl.when(pl.col("k") < 0.0).then("put").alias("put"),
        pl.when(pl.col("k") >= 0.0).then("call").alias("call"),
    )
    kappa = np.exp(STRIKES)
    low, high = kappa[1] - kappa[0], kappa[12] - kappa[11]
    weight = high / (low + high)
    last = frame["call"][13 + 11] - frame["call"][13 + 12]
    value = frame["put"][13 + 1] + (epsilon + (1 - weight) * last) / weight
    return change(frame, "put", 13, value), "mass", 0.5, None


def falling_strip(epsilon: float) -> Planted:
    frame = table(("put", "call"))
    otm = pl.when(pl.col("k") < 0.0).then("put").otherwise("call")
    frame = frame.select("T", "k", price=otm)
    later = frame["price"].to_numpy()[26:].copy()
    lower = np.append(frame["price"].to_numpy()[:13], frame["price"].to_numpy()[13:26])
    lower = np.append(lower, lower[13:] - epsilon)
    assert later.shape == (13,)
    frame = frame.with_columns(pl.Series("price", lower)).select(
        "T",
        "k",
        put=pl.when(pl.col("k") < 0.0).then("price"),
        call=pl.when(pl.col("k") >= 0.0).then("price"),
    )
    return frame, "forward_variance", 0.5, None


PLANTS: dict[str, Callable[[float], Planted]] = {
    "rising call": rising_call,
    "falling put": falling_put,
    "call too steep": call_too_steep,
    "butterfly of calls": lambda e: butterfly(e, "call", 9),
    "butterfly of calls in the money": lambda e: butterfly(e, "call", 2),
    "butterfly of puts": lambda e: butterfly(e, "put", 2),
    "butterfly across the money": lambda e: butterfly(e, "put", 6),
    "calendar": calendar,
    "calendar between strikes": calendar_between_strikes,
    "calendar past the last strike": calendar_past_last_strike,
    "below zero": below_zero,
    "below intrinsic": below_intrinsic,
    "above the forward": above_forward,
    "above the strike": above_strike,
    "parity": parity,
    "mean": mean_above_one,
    "mass": mass_above_one,
    "forward variance": falling_strip,
}


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_planted_arbitrage_is_found(plant: Callable[[float], Planted], epsilon: float) -> None:
    frame, family, T, k = plant(epsilon)
    certificate = ab.audit(frame)
    assert not certificate.passed
    assert 0.0 <= certificate.nas < 1.0
    at = pl.col("k").is_null() if k is None else (pl.col("k") - k).abs() < 1e-12
    found = certificate.findings.filter((pl.col("family") == family) & (pl.col("T") == T) & at)
    assert len(found) == 1, certificate.findings
    assert found["size"][0] == pytest.approx(epsilon, rel=1e-9, abs=4e-15)
    assert found["material"][0] == (epsilon >= 1e-5)


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_without_epsilon_it_is_not_found(plant: Callable[[float], Planted]) -> None:
    """The same tables at the border: what is planted is epsilon and nothing else."""
    frame, family, T, k = plant(0.0)
    at = pl.lit(True) if k is None else (pl.col("k") - k).abs() < 1e-12
    same = (pl.col("family") == family) & (pl.col("T") == T) & at
    assert ab.audit(frame).findings.filter(same).is_empty()


@pytest.mark.parametrize("columns", [("call",), ("put",), ("iv",), ("call", "put"), ("iv", "call")])
def test_clean_table_passes(columns: tuple[str, ...]) -> None:
    certificate = ab.audit(table(columns))
    assert certificate.passed, certificate.findings
    assert certificate.nas == 1.0
    assert certificate.structural is None
    families = {name for name, n in certificate.checked.items() if n}
    assert families >= {"vertical", "butterfly", "calendar", "bound", "mass", "mean"}
    assert ("parity" in families) == (len(columns) > 1)  # two statements about one option
    assert set(certificate.margins) == families


def random_table(seed: int) -> pl.DataFrame:
    """A smile that is free of arbitrage by theory: time-changed Black, ragged strikes."""
    rng = np.random.default_rng(seed)
    variance = np.cumsum(rng.exponential(size=rng.integers(1, 8))) * rng.choice([1e-5, 1e-2, 0.5])
    T = np.cumsum(rng.uniform(1e-3, 1.0, variance.size))
    rows = []
    for t, w in zip(T, variance, strict=True):
        spread = math.sqrt(w) * rng.choice([0.3, 1.0, 4.0])
        k = np.unique(np.round(spread * rng.normal(size=rng.integers(1, 40)), 12))
        iv = np.full(k.shape, math.sqrt(w / t))
        v = iv * math.sqrt(t)
        rows.append(
            {"T": np.full(k.shape, t), "k": k, "iv": iv, "call": black.call(k, v)}
            | {"put": black.put(k, v)}
        )
    frame = pl.concat([pl.DataFrame(row) for row in rows])
    return frame.sample(fraction=1.0, shuffle=True, seed=int(rng.integers(2**31)))


@settings(max_examples=count(full=1000, reduced=60))
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.sampled_from([("iv",), ("call",), ("put",), ("call", "put")]),
    dtype=st.sampled_from([pl.Float64, pl.Float32]),
)
def test_valid_tables_raise_no_alarm(seed: int, columns: tuple[str, ...], dtype: Any) -> None:
    frame = random_table(seed).select("T", "k", *columns)
    if dtype == pl.Float32:  # rounded strikes must stay apart
        frame = frame.cast(pl.Float32).unique(["T", "k"])
    certificate = ab.audit(frame)
    assert certificate.passed, certificate.findings


def test_prices_by_parity_raise_no_alarm() -> None:
    """Deep prices taken from the other side are noise of either sign; that is no arbitrage."""
    k = np.linspace(-1.0, 1.0, 81)
    put = black.call(k, 0.05) - 1.0 + np.exp(k)
    call = black.put(k, 0.05) + 1.0 - np.exp(k)
    for name, noisy in (("put", put), ("call", call)):
        assert noisy.min() < 0.0
        assert ab.audit({"T": np.ones(81), "k": k, name: noisy}).passed


def cheapest(points: list[tuple[float, float]], at: float) -> float:
    """What it costs to dominate a call at ``at``: any one or two of the points, by brute force."""
    best = min((c for x, c in points if x <= at), default=math.inf)
    for (x1, c1), (x2, c2) in itertools.permutations(points, 2):
        if x1 < at < x2:
            best = min(best, ((x2 - at) * c1 + (at - x1) * c2) / (x2 - x1))
    return best


@settings(max_examples=count(full=400, reduced=60))
@given(seed=st.integers(0, 2**32 - 1), noise=st.sampled_from([0.0, 1e-4, 0.03, 1.0]))
def test_calendar_envelope_is_the_cheapest_dominating_portfolio(seed: int, noise: float) -> None:
    """Against all pairs of options, the underlying and the right end included (theory, 9)."""
    rng = np.random.default_rng(seed)
    T, k = np.repeat([1.0, 2.0, 3.0], 4), rng.normal(0.0, 0.3, 12)
    call = np.clip(black.call(k, 0.2 * np.sqrt(T)) + noise * rng.uniform(-1, 1, 12), 0.0, 1.0)
    frame = pl.DataFrame({"T": T, "k": k, "call": call})
    grid = read(frame)
    calls, kappa = grid.call[0], grid.kappa
    found = dict.fromkeys(zip(grid.T, grid.k, strict=True), np.inf)
    for batch in calendar_inequalities(grid):
        for T, k, value in zip(batch.T, batch.k, batch.value, strict=True):
            found[T, k] = min(found[T, k], value)
    arbitrage = False
    for i, (T, k) in enumerate(found):
        free = [(0.0, 1.0)]
        later = free + [(kappa[j], calls[j]) for j in range(12) if grid.T[j] > T]
        no_earlier = later + [(kappa[j], calls[j]) for j in range(12) if grid.T[j] == T and j != i]
        arbitrage |= cheapest(no_earlier, kappa[i]) < calls[i] - 1e-12
        if len(later) > 1:
            assert found[T, k] <= cheapest(later, kappa[i]) - calls[i] + 1e-12
            assert found[T, k] >= cheapest(no_earlier, kappa[i]) - calls[i] - 1e-12
    if arbitrage or noise == 0.0:
        assert ab.audit(frame).passed == (noise == 0.0)


def test_calendar_with_one_leg_of_the_same_maturity() -> None:
    """Neither the later prices nor those of its own maturity dominate it; together they do."""
    frame = pl.DataFrame(
        {
            "T": [1.0, 1.0, 2.0],
            "k": np.log([0.9, 1.0, 1.1]),
            "call": [0.12, 0.0, 0.05],
        }
    )
    between = change(frame, "call", 1, 0.5 * (0.12 + 0.05))
    assert ab.audit(between).passed
    certificate = ab.audit(change(frame, "call", 1, 0.5 * (0.12 + 0.05) + 1e-6))
    assert certificate.findings["family"].to_list() == ["calendar"]
    assert certificate.findings["size"][0] == pytest.approx(1e-6, rel=1e-6)


def test_portfolio_in_words_has_long_legs_of_weight_one() -> None:
    for plant in ("butterfly of calls", "calendar between strikes", "rising call"):
        frame, family, _, _ = PLANTS[plant](1e-4)
        findings = ab.audit(frame).findings.filter(pl.col("family") == family)
        weights = [float(w) for w in re.findall(r"long ([\d.e-]+)", findings["legs"][0])]
        assert sum(weights) == pytest.approx(1.0, abs=1e-3)
        assert "short 1 " in findings["legs"][0]


def test_size_in_volatility_is_size_over_vega() -> None:
    frame, _, T, k = PLANTS["butterfly of calls"](1e-6)
    finding = ab.audit(frame).findings.filter(pl.col("family") == "butterfly").row(0, named=True)
    assert k is not None
    price = frame.filter((pl.col("T") == T) & (pl.col("k") == k))["call"][0]
    v = float(black.implied_total_volatility(price, k, "call").volatility)
    expected = 1e-6 / (float(black.vega(k, v)) * math.sqrt(T))
    assert finding["size_iv"] == pytest.approx(expected, rel=1e-6)


def test_a_loss_below_rounding_still_shows_in_the_score() -> None:
    frame, *_ = PLANTS["parity"](1e-14)
    certificate = ab.audit(frame)
    assert certificate.findings["size"][0] / sum(certificate.checked.values()) < 1e-16
    assert certificate.nas == math.nextafter(1.0, 0.0)


@pytest.mark.parametrize("strikes", [401, 101, 41])
def test_known_bad_slice_is_flagged(strikes: int) -> None:
    k = np.linspace(-2.0, 2.0, strikes)
    certificate = ab.audit({"T": np.ones(strikes), "k": k, "iv": np.sqrt(svi_variance(k)[0])})
    assert not certificate.passed
    assert "butterfly" in certificate.findings["family"]
    assert round(certificate.slices["min_g"][0], 4) == -0.0329
    dense = np.linspace(-2.0, 2.0, 40001)
    assert certificate.slices["min_g"][0] == pytest.approx(svi_g(dense).min(), abs=1e-5)
    assert certificate.slices["k_at_min"][0] == pytest.approx(
        dense[svi_g(dense).argmin()], abs=0.01
    )


def test_durrleman_against_exact_derivatives() -> None:
    k = np.sort(np.random.default_rng(0).uniform(-2.0, 2.0, 200))
    at, g = evaluate_durrleman(k, svi_variance(k)[0])
    np.testing.assert_allclose(g, svi_g(at), atol=2e-4)
    even = np.linspace(-2.0, 2.0, 201)
    at, g = evaluate_durrleman(even, svi_variance(even)[0])
    np.testing.assert_allclose(g, svi_g(at), atol=1e-6)


@pytest.mark.parametrize(
    ("k", "w", "message"),
    [
        (np.arange(6.0), np.ones(6), "7 strikes"),
        (np.arange(8.0), np.ones(7), "same length"),
        (np.zeros(8), np.ones(8), "increase"),
    ],
)
def test_durrleman_refuses(k: Array, w: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_durrleman(k, w)


def test_tolerance_lets_rounded_prices_pass() -> None:
    k = np.linspace(-0.3, 0.3, 601)
    frame = pl.DataFrame({"T": np.ones(601), "k": k, "call": black.call(k, 0.2).round(6)})
    assert not ab.audit(frame).passed
    assert ab.audit(frame, tolerance=1e-6).passed
    planted, *_ = PLANTS["butterfly of calls"](1e-4)
    assert not ab.audit(planted, tolerance=1e-6).passed
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="tolerance"):
            ab.audit(frame, tolerance=bad)


def test_pandas_mapping_and_currency_give_the_same_certificate() -> None:
    frame, *_ = PLANTS["butterfly of calls"](1e-6)
    reference = ab.audit(frame)
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    assert ab.audit(columns).findings.equals(reference.findings)
    assert ab.audit(pd.DataFrame(columns)).findings.equals(reference.findings)
    forward, discount = 5000.0 * np.exp(0.03 * columns["T"]), np.exp(-0.04 * columns["T"])
    currency = {
        "T": columns["T"],
        "strike": forward * np.exp(columns["k"]),
        "forward": forward,
        "call": columns["call"] * forward,
    }
    discounted = currency | {"discount": discount, "call": currency["call"] * discount}
    for other in (currency, discounted, discounted | {"k": columns["k"]}):
        findings = ab.audit(pl.DataFrame(other)).findings
        assert findings["family"].to_list() == reference.findings["family"].to_list()
        np.testing.assert_allclose(findings["size"], reference.findings["size"], rtol=1e-6)


def test_out_of_the_money_halves_and_missing_prices() -> None:
    frame = table(("call", "put"))
    half = frame.with_columns(
        call=pl.when(pl.col("k") >= 0.0).then("call"), put=pl.when(pl.col("k") < 0.0).then("put")
    )
    assert ab.audit(half).passed
    with pytest.raises(ValueError, match="row 6, column put: nan is not finite"):
        ab.audit(half.with_columns(pl.col("put").fill_null(math.nan)))
    with pytest.raises(ValueError, match="row 6 has no price"):
        ab.audit(half.drop("call"))
    missing = pd.DataFrame({name: half[name].to_numpy() for name in half.columns})
    assert missing["call"].isna().any()
    assert ab.audit(missing).passed


@pytest.mark.parametrize("rows", [[0], [0, 1], [0, 13, 26]])
def test_small_tables(rows: list[int]) -> None:
    frame = table(("iv",))[rows]
    assert ab.audit(frame).passed
    assert ab.audit(frame).slices.is_empty()


GOOD = {"T": [0.5, 0.5, 1.0], "k": [-0.1, 0.1, 0.0], "iv": [0.2, 0.2, 0.2]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (GOOD | {"T": [0.5, 0.0, 1.0]}, "row 1, column T: 0.0 is not positive"),
        (GOOD | {"T": [30.0, 60.0, 365.0]}, "row 1, column T: 60.0 is in days, it seems"),
        (GOOD | {"T": ["2026-12-18"] * 3}, "column T holds string, not numbers"),
        (GOOD | {"T": [0.5, math.nan, 1.0]}, "row 1, column T: nan is not finite"),
        (GOOD | {"k": [0.1, None, 0.0]}, "row 1, column k: nan is missing"),
        (GOOD | {"k": [0.1, 0.2, 900.0]}, "row 2, column k: 900.0 is out of range"),
        (GOOD | {"iv": [0.2, -0.2, 0.2]}, "row 1, column iv: -0.2 is negative"),
        (GOOD | {"iv": [0.2, 0.2, math.inf]}, "row 2, column iv: inf is not finite"),
        (GOOD | {"iv": [None, 0.2, 0.2]}, "row 0 has no price"),
        (GOOD | {"iv": ["a", "b", "c"]}, "column iv holds"),
        (GOOD | {"k": [0.1, 0.1, 0.0], "iv": [0.2, 0.3, 0.2]}, "rows 0 and 1, column iv: 0.2 and"),
        ({"T": [1.0], "k": [0.0]}, "at least one of iv, call, put"),
        ({"k": [1.0], "iv": [0.2]}, "give T and k"),
        ({"T": [1.0], "strike": [1.0], "iv": [0.2]}, "T, strike and forward"),
        ({"T": [1.0], "strike": [-1.0], "forward": [1.0], "iv": [0.2]}, "column strike: -1.0"),
        ({"T": [1.0], "strike": [1.0], "forward": [0.0], "iv": [0.2]}, "column forward: 0.0"),
        (
            {"T": [1.0], "k": [0.5], "strike": [1.0], "forward": [1.0], "iv": [0.2]},
            "column k: 0.5 is not log",
        ),
        ({"T": [], "k": [], "iv": []}, "no rows"),
    ],
)
def test_bad_tables_are_refused_by_name(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ab.audit(pl.DataFrame(columns, strict=False))


def test_repeated_rows_are_merged() -> None:
    frame = table(("call", "put"))
    both = pl.concat([frame.drop("put"), frame.drop("call")], how="diagonal")
    certificate = ab.audit(both)
    assert certificate.passed
    assert certificate.checked == ab.audit(frame).checked


def test_json_is_strict() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for frame in (table(), PLANTS["mass"](1e-4)[0], PLANTS["below zero"](1e-4)[0]):
        certificate = ab.audit(frame)
        content = json.loads(certificate.to_json(), parse_constant=refuse)
        assert content["passed"] == certificate.passed
        assert content["nas"] == certificate.nas
        assert len(content["findings"]) == len(certificate.findings)
        assert content["structural"] is None


def test_certificate_reads_as_a_sentence() -> None:
    text = str(ab.audit(table()))
    assert text.startswith("Passed: ")
    assert "none violated" in text
    certificate = ab.audit(PLANTS["butterfly of calls"](1e-4)[0])
    assert str(certificate).startswith("Failed: ")
    assert "short 1 call" in str(certificate)
    assert repr(certificate).startswith(f"Certificate(passed=False, nas={certificate.nas!r}")
    sizes = certificate.findings["size"].to_list()
    assert sizes == sorted(sizes, reverse=True)


def test_a_volatility_that_contradicts_its_price_is_a_finding() -> None:
    table = {"T": [1.0] * 3, "k": [-0.1, 0.0, 0.1], "iv": [0.2, 0.2, 0.2]}
    prices = black.call(np.array(table["k"]), 0.2).tolist()
    assert ab.audit({**table, "call": prices}).passed
    rounded = ab.audit({**table, "iv": [0.2003, 0.1998, 0.2], "call": prices})
    assert rounded.passed
    certificate = ab.audit({**table, "iv": [0.2, 0.21, 0.2], "call": prices})
    assert certificate.findings["family"].to_list() == ["parity"]
    expected = float(black.otm(0.0, 0.21) - black.otm(0.0, 0.2))
    assert certificate.findings["size"][0] == pytest.approx(expected, rel=1e-9)
    assert certificate.findings["k"][0] == 0.0


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"T": pl.Series([dt.date(2026, 1, 1)]), "k": [0.0], "iv": [0.2]}, "column T holds date"),
        ({"T": np.array([True]), "k": [0.0], "iv": [0.2]}, "column T holds bool"),
        ({"T": [1.0, 1.0], "k": [0.0], "iv": [0.2]}, "column iv has 1 rows and T has 2"),
        ({"T": [[1.0]], "k": [[0.0]], "iv": [[0.2]]}, "one value per row"),
        ({"T": [1.0], "strike": [1e300], "forward": [1e-300], "iv": [0.2]}, "out of range"),
        (None, "NoneType is not a table"),
    ],
)
def test_what_is_no_table_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ab.audit(frame)


CURRENCY = {
    "T": [1.0] * 3,
    "strike": [90.0, 100.0, 110.0],
    "forward": [100.0] * 3,
    "discount": [0.9] * 3,
    "k": np.log([0.9, 1.0, 1.1]).tolist(),
    "iv": [0.2] * 3,
}


@pytest.mark.parametrize("name", ["strike", "forward", "discount", "k", "iv"])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_columns_of_another_length_are_refused_and_not_broadcast(name: str, rows: int) -> None:
    assert ab.audit(CURRENCY).passed
    wrong = (CURRENCY[name] * 2)[:rows]
    message = f"column {name} has {rows} rows and T has 3: give one value per row"
    with pytest.raises(ValueError, match=re.escape(message)):
        ab.audit({**CURRENCY, name: wrong})


def test_a_surface_is_sent_to_its_certificate_and_lazy_frames_are_read() -> None:
    with pytest.raises(ValueError, match=r"certificate\(\)"):
        ab.audit(ab.example())
    assert ab.audit(ab.example().to_frame().lazy()).passed


PERCENT_SMILE = {"T": [1.0] * 3, "k": [-0.1, 0.0, 0.1], "iv": [20.0, 50.0, 20.0]}


def test_volatilities_in_percent_are_refused_and_not_judged_as_decimals() -> None:
    words = r"row 0, column iv: 20 would be 2000%.*Divide percentages by 100 or say percent=True"
    with pytest.raises(ValueError, match=words):
        ab.audit(PERCENT_SMILE)
    told = ab.audit(PERCENT_SMILE, percent=True)
    assert told.findings["family"].to_list() == ["butterfly", "vertical"]
    assert told.findings["size"][0] == pytest.approx(0.108, abs=5e-4)
    # one odd row in twenty does not hide the unit
    k = np.linspace(-0.2, 0.2, 40)
    iv = np.where(np.arange(40) % 20 == 0, 0.0, 15.0 + 20.0 * k * k)
    with pytest.raises(ValueError, match=r"column iv: 15\.\d+ would be 15\d\d%"):
        ab.audit({"T": np.full(40, 0.5), "k": k, "iv": iv})


def test_decimals_are_taken_as_they_are_in_a_crash_too() -> None:
    """Negative control: 300 % flat, and an hour before the close with far puts above 1,000 %."""
    flat = {"T": [1.0] * 3, "k": [-0.1, 0.0, 0.1], "iv": [3.0] * 3}
    assert ab.audit(flat).passed
    k = np.linspace(-0.1, 0.1, 21)
    hour = np.full(21, 1.0 / 8760.0)
    wild = {"T": hour, "k": k, "iv": np.sqrt(2.0 + (100.0 * k) ** 2)}
    assert max(wild["iv"]) > 10.0
    assert ab.audit(wild).checked["butterfly"] > 0
    assert ab.audit(PERCENT_SMILE, percent=False).passed
