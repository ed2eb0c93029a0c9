"""Black's formula and its inverse, against mpmath with 60 digits.

The promise on the inverse: relative error at most max(1e-12, 2ε·price/(v·vega)), where ε is the
spacing of float64 at one and the second term is what rounding the price does to the answer.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.pricing.black import Reason
from counts import count

EPS = float(np.finfo(np.float64).eps)
PRICERS = {"otm": black.otm, "call": black.call, "put": black.put}


class Points(NamedTuple):
    k: Array
    v: Array
    price: Array
    volatility: list[Any]  # of the rounded price, in mpmath


def exact_otm(k: Any, v: Any) -> Any:
    """Price the out-of-the-money side in mpmath."""
    a, v = abs(mp.mpf(k)), mp.mpf(v)
    high, low = (mp.erfc((a / v + sign * v / 2) / mp.sqrt(2)) / 2 for sign in (-1, 1))
    return (high - mp.exp(a) * low) * mp.exp(min(mp.mpf(k), 0))


def exact_price(k: Any, v: Any, side: str) -> Any:
    k = mp.mpf(k)
    if side == "call":
        return exact_otm(k, v) + max(1 - mp.exp(k), 0)
    if side == "put":
        return exact_otm(k, v) + max(mp.exp(k) - 1, 0)
    return exact_otm(k, v)


def exact_volatility(price: float, k: float, side: str, start: float) -> Any:
    """Invert in mpmath by Newton's method on the logarithm of the nearer bound's distance."""
    k, v = mp.mpf(k), mp.mpf(start)
    intrinsic = exact_price(k, mp.mpf("1e-9"), side) - exact_otm(k, mp.mpf("1e-9"))
    wanted, most = mp.mpf(price) - intrinsic, mp.exp(min(k, 0))
    for _ in range(60):
        value, slope = exact_otm(k, v), mp.npdf(v / 2 - k / v)
        if wanted > most / 2:
            step = mp.log((most - value) / (most - wanted)) * (most - value) / slope
        else:
            step = -mp.log(value / wanted) * value / slope
        v += step
        if abs(step) < v * mp.mpf(10) ** -25:
            return v
    raise AssertionError(f"mpmath did not converge at price={price}, k={k}")


def points(n: int, seed: int, side: str = "otm") -> Points:
    """Draw from the whole stated domain, with more at the money, deep and at high volatility."""
    rng = np.random.default_rng(seed)
    v = 10 ** rng.uniform(-4, 1, n)
    h = rng.uniform(0, 15, n)
    kind = rng.integers(0, 10, n)
    h[kind == 0] = 10 ** rng.uniform(-10, 0, (kind == 0).sum())
    h[kind == 1] = 0.0
    h[kind == 2] = rng.uniform(15, 37, (kind == 2).sum())
    v[kind == 3] = rng.uniform(1, 10, (kind == 3).sum())
    v[kind == 4] = 0.1 * (1 + 1e-3 * rng.normal(size=(kind == 4).sum()))  # the series' end
    k = h * v * rng.choice([-1.0, 1.0], n)
    if side != "otm":  # in the money, as far as the price still shows it
        h = np.where(kind == 1, 0.0, rng.uniform(0, 4, n))
        k = h * v * (-1.0 if side == "call" else 1.0)
    with mp.workdps(60):
        price = np.array([float(exact_price(*x, side)) for x in zip(k, v, strict=True)])
        keep = (price > 1e-300) & (
            black.implied_total_volatility(price, k, side).reason == Reason.OK
        )
        assert keep.mean() > 0.95
        k, v, price = k[keep], v[keep], price[keep]
        exact = [exact_volatility(*x[:2], side, x[2]) for x in zip(price, k, v, strict=True)]
    return Points(k, v, price, exact)


def relative_error(values: Any, exact: list[Any]) -> Array:
    with mp.workdps(60):
        pairs = zip(values, exact, strict=True)
        return np.array([float(abs(mp.mpf(float(x)) / y - 1)) for x, y in pairs])


def promised(p: Points) -> Array:
    v = np.array([float(x) for x in p.volatility])
    limit: Array = np.maximum(1e-12, 2 * EPS * p.price / (v * black.vega(p.k, v)))
    return limit


@pytest.fixture(scope="module")
def golden() -> Points:
    return points(count(20_000, 1_500), seed=1)


def test_prices_match_mpmath(golden: Points) -> None:
    with mp.workdps(60):
        exact = [exact_otm(*x) for x in zip(golden.k, golden.v, strict=True)]
    error = relative_error(black.otm(golden.k, golden.v), exact)
    assert error.max() < 1e-12
    near = np.abs(golden.k) < 3 * golden.v
    assert error[near].max() < 3e-14


def test_implied_volatility_matches_mpmath(golden: Points) -> None:
    result = black.implied_total_volatility(golden.price, golden.k)
    assert (result.reason == Reason.OK).all()
    error = relative_error(result.volatility, golden.volatility)
    assert (error <= promised(golden)).all()
    well_conditioned = promised(golden) == 1e-12
    assert error[well_conditioned].max() < 3e-13


def test_the_comparison_can_fail(golden: Points) -> None:
    perturbed = black.implied_total_volatility(golden.price * (1 - 1e-6), golden.k).volatility
    wrong = relative_error(perturbed, golden.volatility) > promised(golden)
    assert wrong.mean() > 0.99
    shifted = black.implied_total_volatility(golden.price, golden.k * (1 + 1e-9)).volatility
    far = np.abs(golden.k) > golden.v
    assert (relative_error(shifted, golden.volatility) > promised(golden))[far].mean() > 0.99


@pytest.mark.parametrize("side", ["call", "put"])
def test_in_the_money_prices_are_inverted_to_their_conditioning(side: str) -> None:
    p = points(count(5_000, 300), seed=2, side=side)
    error = relative_error(
        black.implied_total_volatility(p.price, p.k, side).volatility, p.volatility
    )
    assert (error <= promised(p)).all()


@pytest.mark.parametrize("k", [0.0, 1e-6, 0.3, 5.0, -0.3, -5.0])
def test_prices_next_to_the_upper_bound(k: float) -> None:
    most = float(np.exp(min(k, 0.0)))
    price = most - np.spacing(most) * np.array([1, 2, 7, 100, 1e4, 1e8])
    result = black.implied_total_volatility(price, k)
    assert (result.reason == Reason.OK).all()
    with mp.workdps(60):
        pairs = zip(price, result.volatility, strict=True)
        exact = [exact_volatility(p, k, "otm", v) for p, v in pairs]
    p = Points(np.full(6, k), result.volatility, price, exact)
    assert (relative_error(result.volatility, exact) <= promised(p)).all()


def test_tiny_volatility_at_the_money() -> None:
    v = 10 ** np.linspace(-12, -1, 200)
    np.testing.assert_allclose(
        black.implied_total_volatility(black.call(0.0, v), 0.0).volatility, v, rtol=3e-14
    )
    # c = v/√2π (1 − v²/24 + …)
    np.testing.assert_allclose(black.call(0.0, v[:50]), v[:50] / np.sqrt(2 * np.pi), rtol=1e-15)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_round_trip_well_beyond_the_stated_domain(sign: float) -> None:
    v, h = np.meshgrid(np.geomspace(1e-14, 40, 300), np.linspace(0, 37, 300))
    k = sign * h * v
    price = black.otm(k, v)
    volatility = black.implied_total_volatility(price, k).volatility
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = 4 * EPS * price / (v * black.vega(k, v))
    live = (price > 1e-300) & (limit < 1e-3)
    assert live.sum() > 60_000
    assert (np.abs(volatility / v - 1) <= np.maximum(1e-12, limit))[live].all()


@given(
    v=st.floats(1e-4, 10.0),
    h=st.floats(-15.0, 15.0),
    side=st.sampled_from(["otm", "call", "put"]),
)
def test_round_trip(v: float, h: float, side: str) -> None:
    k = h * v
    price = float(PRICERS[side](k, v))
    result = black.implied_total_volatility(price, k, side)
    with np.errstate(divide="ignore"):
        limit = 4 * EPS * max(price, 1e-300) / (v * float(black.vega(k, v)))
    if result.reason != Reason.OK:  # the price no longer shows its volatility
        assert limit > 0.1
        return
    # far out the price itself carries k/v·ε·h, which the inverse sees divided by h²
    assert limit > 0.01 or abs(float(result.volatility) / v - 1) < max(1e-12, 2 * limit)


@given(k=st.floats(-20.0, 20.0), v=st.floats(0.0, 10.0))
def test_parity_and_bounds(k: float, v: float) -> None:
    call, put, otm = (float(f(k, v)) for f in (black.call, black.put, black.otm))
    assert call - put == pytest.approx(-np.expm1(k), rel=1e-15, abs=4 * EPS * max(call, put))
    assert otm == (call if k >= 0 else put)
    assert max(0.0, -np.expm1(k)) <= call <= 1.0
    assert max(0.0, np.expm1(k)) <= put <= np.exp(k) * (1 + EPS)


@pytest.mark.parametrize("k", [-5.0, -0.4, -1e-3, 0.0, 1e-3, 0.4, 5.0])
def test_prices_rise_with_volatility(k: float) -> None:
    v = np.geomspace(1e-4, 10, 20_000)
    price = black.otm(k, v)
    rise = np.diff(price)
    assert (rise >= 0).all()
    live = (price[:-1] > 1e-300) & (black.vega(k, v[1:]) * np.diff(v) > 1e-12 * price[1:])
    assert live.sum() > 1_000
    assert (rise[live] > 0).all()
    planted = price.copy()
    planted[15_000] = planted[15_001] * (1 + 1e-9)
    assert not (np.diff(planted) >= 0).all()


def test_vega_is_the_derivative_of_the_price() -> None:
    k, v = np.meshgrid(np.linspace(-2, 2, 21), [0.05, 0.3, 1.0, 4.0])
    step = 1e-6 * v
    slope = (black.otm(k, v + step) - black.otm(k, v - step)) / (2 * step)
    np.testing.assert_allclose(black.vega(k, v), slope, rtol=1e-6, atol=1e-12)


def test_limits_of_the_price() -> None:
    k = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(black.call(k, 0.0), [-np.expm1(-1.0), 0.0, 0.0])
    np.testing.assert_array_equal(black.put(k, 0.0), [0.0, 0.0, np.expm1(1.0)])
    np.testing.assert_array_equal(black.otm(k, np.inf), [np.exp(-1.0), 1.0, 1.0])
    np.testing.assert_array_equal(black.call([-np.inf, np.inf], 0.2), [1.0, 0.0])
    np.testing.assert_allclose(black.vega(k, 0.0), [0.0, 1 / np.sqrt(2 * np.pi), 0.0])
    for price in (*PRICERS.values(), black.vega):
        assert np.isnan(price(k, -0.1)).all()
        assert np.isnan(price(k, np.nan)).all()
        assert np.isnan(price(np.nan, 0.2))


@pytest.mark.parametrize(
    ("price", "k", "side", "reason"),
    [
        (0.1, 0.1, "otm", Reason.OK),
        (-1e-9, 0.1, "otm", Reason.BELOW_INTRINSIC),
        (0.39, -0.5, "call", Reason.BELOW_INTRINSIC),
        (0.64, 0.5, "put", Reason.BELOW_INTRINSIC),
        (0.0, 0.1, "otm", Reason.AT_INTRINSIC),
        (0.0, 0.0, "call", Reason.AT_INTRINSIC),
        (-np.expm1(-0.5), -0.5, "call", Reason.AT_INTRINSIC),
        (1 - np.exp(-0.5), -0.5, "call", Reason.AT_INTRINSIC),
        (np.expm1(0.5), 0.5, "put", Reason.AT_INTRINSIC),
        (1.0, -60.0, "call", Reason.AT_INTRINSIC),  # both bounds round to one
        (1.0, 0.0, "call", Reason.ABOVE_MAXIMUM),
        (1.1, 0.1, "call", Reason.ABOVE_MAXIMUM),
        (np.exp(-0.1), -0.1, "otm", Reason.ABOVE_MAXIMUM),
        (np.exp(0.1), 0.1, "put", Reason.ABOVE_MAXIMUM),
        (np.nan, 0.1, "otm", Reason.NOT_FINITE),
        (np.inf, 0.1, "call", Reason.NOT_FINITE),
        (-np.inf, 0.1, "call", Reason.NOT_FINITE),
        (0.1, np.nan, "put", Reason.NOT_FINITE),
        (0.1, -np.inf, "otm", Reason.NOT_FINITE),
        (0.1, np.inf, "call", Reason.NOT_FINITE),
    ],
)
def test_every_reason(price: float, k: float, side: str, reason: Reason) -> None:
    result = black.implied_total_volatility(price, k, side)
    assert Reason(int(result.reason)) is reason
    assert result.reason.dtype == np.int8
    assert np.isfinite(result.volatility) == (reason is Reason.OK)
    assert reason.explain().endswith(".")


def test_unknown_side_is_named() -> None:
    with pytest.raises(
        ValueError, match="side='straddle' is unknown: choose one of otm, call, put"
    ):
        black.implied_total_volatility(0.1, 0.0, side="straddle")


def test_floats_and_arrays_agree() -> None:
    expected = float(black.call(0.1, 0.2))
    array = black.call(np.array([0.1, 0.1]), [0.2, 0.2])
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float64
    assert array.tolist() == [expected, expected]
    assert black.call(0, 1).dtype == np.float64
    single = black.call(np.float32(0.1), np.float32(0.2))
    assert single.dtype == np.float64
    assert float(single) == float(black.call(float(np.float32(0.1)), float(np.float32(0.2))))


def test_arrays_broadcast_whatever_their_layout() -> None:
    k = np.linspace(-1, 1, 7)[::-1]  # negative strides
    v = np.broadcast_to(np.array([[0.1], [0.4]]), (2, 1))  # read-only
    price = black.otm(k, v)
    assert price.shape == (2, 7)
    volatility = black.implied_total_volatility(price, k).volatility
    np.testing.assert_allclose(volatility, np.broadcast_to(v, (2, 7)), rtol=1e-13)
    transposed = black.implied_total_volatility(np.asfortranarray(price), k).volatility
    np.testing.assert_array_equal(transposed, volatility)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_empty_input(shape: tuple[int, ...]) -> None:
    result = black.implied_total_volatility(np.empty(shape), 0.0)
    assert result.volatility.shape == result.reason.shape == shape
    assert black.otm(np.empty(shape), 0.2).shape == shape
    assert black.vega(np.empty(shape), 0.2).shape == shape


def test_result_depends_neither_on_batch_nor_on_threads() -> None:
    rng = np.random.default_rng(4)
    v = 10 ** rng.uniform(-3, 0.7, 150_001)
    k = v * rng.normal(0, 3, v.size)
    price = black.otm(k, v)
    whole = black.implied_total_volatility(price, k).volatility
    some = rng.integers(0, v.size, 200)
    alone = [float(black.implied_total_volatility(price[i], k[i]).volatility) for i in some]
    np.testing.assert_allclose(whole[some], alone, rtol=2 * EPS)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: black.implied_total_volatility(price, k), range(4)):
            np.testing.assert_array_equal(found.volatility, whole)
