"""What a user holds: conventions, Greeks against differences, dates, errors, immutability."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import logging
import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import arbiter as ab
from arbiter.pricing import black
from arbiter.surface import Surface

X = np.linspace(-5.5, 4.5, 31)
T = np.array([7, 30, 91, 182, 365, 730]) / 365.0


@pytest.fixture(scope="module")
def surface() -> Surface:
    return ab.example()


@pytest.fixture(scope="module")
def mixture() -> Surface:
    calm = np.sqrt(T)[:, None] * 0.12 * np.exp(-0.05 * X)
    slopes = np.stack([calm, calm + 0.1 / (1.0 + np.exp(2.0 * X + 1.0))])
    second = 1.0 - np.exp(-0.5 * T)
    return Surface.from_slopes(X, T, slopes, weights=np.stack([1.0 - second, second]))


def flat(volatility: float) -> Surface:
    slopes = volatility * np.sqrt(T)[:, None] * np.ones_like(X)
    return Surface.from_slopes(X, T, slopes, 100.0 * np.exp(0.03 * T), np.exp(-0.05 * T))


def test_flat_surface_is_black_everywhere() -> None:
    ours = flat(0.25)
    t = np.array([0.005, 0.02, 0.4, 1.7, 3.0])[:, None]
    k = 0.25 * np.sqrt(t) * np.linspace(-8.0, 8.0, 21)
    np.testing.assert_allclose(ours.iv(k, t), 0.25, rtol=1e-11)
    np.testing.assert_allclose(ours.variance_swap(t), 0.0625, rtol=1e-12)
    np.testing.assert_allclose(ours.forward_variance([0.0, 0.5, 2.0]), 0.0625, rtol=1e-11)
    np.testing.assert_allclose(ours.local_variance(k, t), 0.0625, rtol=1e-8)
    np.testing.assert_allclose(ours.vix(), 25.0, rtol=1e-12)


def test_prices_are_discounted_currency() -> None:
    ours = flat(0.25)
    K, t = np.array([80.0, 100.0, 130.0]), 0.5
    F, D = float(ours.forward(t)), float(ours.discount(t))
    assert pytest.approx(100.0 * np.exp(0.03 * 0.5), rel=1e-12) == F
    assert pytest.approx(np.exp(-0.05 * 0.5), rel=1e-12) == D
    expected = D * F * black.call(np.log(K / F), 0.25 * np.sqrt(t))
    np.testing.assert_allclose(ours.call(K, t), expected, rtol=1e-11)
    np.testing.assert_allclose(ours.call(K, t) - ours.put(K, t), D * (F - K), rtol=1e-12)


def test_without_forwards_everything_is_in_forward_units(mixture: Surface) -> None:
    kappa = np.array([0.7, 1.0, 1.2])
    np.testing.assert_allclose(
        np.where(kappa < 1, mixture.put(kappa, 0.5), mixture.call(kappa, 0.5)),
        mixture.otm(np.log(kappa), 0.5),
        rtol=1e-14,
    )


def test_shapes_broadcast_and_scalars_stay_scalars(surface: Surface) -> None:
    assert surface.iv(0.0, 0.5).shape == ()
    assert isinstance(float(surface.call(6000.0, 0.5)), float)
    assert surface.iv(np.zeros((3, 1)), np.ones((1, 4))).shape == (3, 4)
    assert surface.density([], 0.5).shape == (0,)
    for scalar in (
        surface.call(6000.0, 0.5),
        surface.gamma(6000.0, 0.5),
        surface.forward(0.5),
        surface.vix(),
    ):
        assert isinstance(scalar, np.ndarray)
        assert scalar.dtype == np.float64
        assert scalar.shape == ()


def test_layout_of_the_request_does_not_matter(surface: Surface, rng: np.random.Generator) -> None:
    """The same points asked for as a grid, shuffled, and one by one."""
    k, t = np.meshgrid(np.linspace(-0.4, 0.2, 13), np.geomspace(0.02, 2.5, 17))
    grid = surface.otm(k, t)
    order = rng.permutation(k.size)
    shuffled = surface.otm(k.ravel()[order], t.ravel()[order])
    np.testing.assert_allclose(shuffled, grid.ravel()[order], rtol=1e-14)
    single = [float(surface.otm(a, b)) for a, b in zip(k[5], t[5], strict=True)]
    np.testing.assert_allclose(single, grid[5], rtol=1e-14)


def test_large_requests_are_chunked_without_a_seam(surface: Surface) -> None:
    k = np.linspace(-0.5, 0.3, 150_000)
    prices = surface.otm(k, 0.5)
    np.testing.assert_allclose(prices[::10_007], surface.otm(k[::10_007], 0.5), rtol=1e-14)


def test_dates_count_minutes_from_as_of(surface: Surface) -> None:
    expiry = np.datetime64("2026-03-20T09:30")
    minutes = (expiry - np.datetime64("2026-01-02T16:15")) / np.timedelta64(1, "m")
    assert float(surface.iv(0.0, expiry)) == float(surface.iv(0.0, minutes / 525_600))
    assert float(surface.iv(0.0, dt.datetime(2026, 3, 20, 9, 30))) == float(surface.iv(0.0, expiry))
    assert float(surface.iv(0.0, "2026-03-20T09:30")) == float(surface.iv(0.0, expiry))
    month = float(surface.iv(0.0, 30 / 365))
    assert float(surface.iv(0.0, np.timedelta64(30, "D"))) == pytest.approx(month, rel=1e-12)
    assert float(surface.iv(0.0, dt.timedelta(days=30))) == pytest.approx(month, rel=1e-12)
    with pytest.raises(ValueError, match="no as_of"):
        flat(0.2).iv(0.0, expiry)
    zoned = dt.datetime(2026, 3, 20, 13, 30, tzinfo=dt.UTC)
    assert float(surface.iv(0.0, zoned)) == float(surface.iv(0.0, expiry))
    with pytest.raises(ValueError, match="next Friday"):
        surface.iv(0.0, "next Friday")
    with pytest.raises(ValueError, match="expired"):
        surface.iv(0.0, np.datetime64("2025-12-31"))


@pytest.mark.parametrize("which", ["surface", "mixture"])
def test_greeks_are_the_derivatives_they_claim(which: str, request: pytest.FixtureRequest) -> None:
    s: Surface = request.getfixturevalue(which)
    t = 0.37
    F, D = float(s.forward(t)), float(s.discount(t))
    K = F * np.exp(np.linspace(-0.35, 0.2, 12))
    h = 1e-4

    def call_at(forward: float) -> np.ndarray:
        """Sticky moneyness: the same normalised smile with another forward."""
        k = np.log(K / forward)
        otm = s.otm(k, t) + np.where(k < 0, 1.0 - np.exp(k), 0.0)
        return D * forward * otm

    up, mid, down = call_at(F * (1 + h)), call_at(F), call_at(F * (1 - h))
    np.testing.assert_allclose(D * s.delta(K, t), (up - down) / (2 * F * h), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(s.gamma(K, t), (up - 2 * mid + down) / (F * h) ** 2, rtol=2e-5)
    k = np.log(K / F)
    later, earlier = s.otm(k, t + 1e-6), s.otm(k, t - 1e-6)
    np.testing.assert_allclose(
        s.theta(K, t), -D * F * (later - earlier) / 2e-6, rtol=1e-6, atol=1e-9 * F
    )
    v = s.iv(k, t) * np.sqrt(t)
    bumped = (black.otm(k, v + 1e-6) - black.otm(k, v - 1e-6)) / 2e-6 * D * F * np.sqrt(t)
    np.testing.assert_allclose(s.vega(K, t), bumped, rtol=1e-7, atol=1e-8 * F)
    e = 1e-3
    low, here, high = s.iv(-e, t), s.iv(0.0, t), s.iv(e, t)
    assert float(s.atm_skew(t)) == pytest.approx(float(high - low) / (2 * e), rel=1e-3)
    assert float(s.atm_curvature(t)) == pytest.approx(float(high - 2 * here + low) / e**2, rel=2e-2)


@pytest.mark.parametrize("which", ["surface", "mixture"])
def test_local_variance_is_dupire(which: str, request: pytest.FixtureRequest) -> None:
    s: Surface = request.getfixturevalue(which)
    t, h = 0.37, 1e-4
    kappa = np.exp(np.linspace(-0.3, 0.2, 11))
    calendar = (s.otm(np.log(kappa), t + h) - s.otm(np.log(kappa), t - h)) / (2 * h)
    put = [np.asarray(s.put(s.forward(t) * x, t)) for x in (kappa - h, kappa, kappa + h)]
    scale = float(s.forward(t) * s.discount(t))
    bend = (put[2] - 2 * put[1] + put[0]) / scale / h**2
    np.testing.assert_allclose(
        s.local_variance(np.log(kappa), t), 2 * calendar / (kappa**2 * bend), rtol=1e-3
    )


def test_rates_at_strikes_on_the_knots(surface: Surface) -> None:
    """Levels that fall exactly on a knot, as the table's own do."""
    t = surface.maturities[3:9]
    k = surface.log_strike(surface.knots[3:-3], t[:, None])
    K = surface.forward(t)[:, None] * np.exp(k)
    h = 1e-6
    money = (surface.forward(t) * surface.discount(t))[:, None]
    later, earlier = surface.otm(k, t[:, None] + h), surface.otm(k, t[:, None] - h)
    expected = -money * (later - earlier) / (2 * h)
    np.testing.assert_allclose(surface.theta(K, t[:, None]), expected, rtol=1e-4, atol=1e-4)
    near = surface.local_variance(k + 1e-7, t[:, None])
    np.testing.assert_allclose(surface.local_variance(k, t[:, None]), near, rtol=1e-4)


@pytest.mark.parametrize("total", [1.0, 16.0, 17.0, 19.0])
def test_local_variance_of_steep_black(total: float) -> None:
    steep = Surface.from_slopes([-5.5, 4.5], [1.0], [[total, total]])
    assert float(steep.local_variance(0.0, 1.0)) == pytest.approx(total**2, rel=1e-6)


def test_nothing_is_nan_far_out(surface: Surface) -> None:
    K = np.array([1e-300, 1e-5, 1e6, 1e160, 1e300])
    for name in ("call", "put", "delta", "gamma", "vega", "theta"):
        assert np.all(np.isfinite(getattr(surface, name)(K, 0.02))), name


def test_local_variance_is_positive_far_out(surface: Surface) -> None:
    k, t = np.linspace(-40.0, 40.0, 81), np.array([0.01, 0.5, 3.0])[:, None]
    local = surface.local_variance(k, t)
    assert np.all(np.isfinite(local))
    assert np.all(local >= 0.0)


def test_rates_and_variances_do_not_jump_at_listed_maturities(surface: Surface) -> None:
    listed = surface.maturities[2:-1]
    before, after = listed * (1 - 1e-8), listed * (1 + 1e-8)
    K = surface.forward(listed)
    np.testing.assert_allclose(surface.theta(K, before), surface.theta(K, after), rtol=1e-5)
    for quantity in (lambda t: surface.local_variance(0.0, t), surface.forward_variance):
        np.testing.assert_allclose(quantity(before), quantity(after), rtol=1e-5)


@pytest.mark.parametrize("which", ["surface", "mixture"])
def test_density_integrates_to_the_digital(which: str, request: pytest.FixtureRequest) -> None:
    s: Surface = request.getfixturevalue(which)
    k = np.asarray(s.log_strike(np.linspace(-7.0, 7.0, 20_001), 0.5))
    mass = np.trapezoid(s.density(k, 0.5) * np.exp(k), k)
    mean = np.trapezoid(s.density(k, 0.5) * np.exp(2 * k), k)
    assert mass == pytest.approx(1.0, abs=1e-6)
    assert mean == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(s.cdf(k, 0.5) + s.digital(k, 0.5), 1.0, atol=1e-14)
    u = np.array([0.01, 0.5, 0.99])
    np.testing.assert_allclose(s.cdf(np.log(s.quantile(u, 0.5)), 0.5), u, rtol=1e-10)
    np.testing.assert_allclose(s.z(s.log_strike([-3.0, 1.0], 0.5), 0.5), [-3.0, 1.0], rtol=1e-10)


def test_conjugacy_and_cvar(surface: Surface) -> None:
    kappa = 0.9
    q = float(surface.digital(np.log(kappa), 0.5))
    call = float(surface.call(kappa * surface.forward(0.5), 0.5))
    scale = float(surface.forward(0.5) * surface.discount(0.5))
    assert float(surface.dual(q, 0.5)) - q * kappa == pytest.approx(call / scale, rel=1e-12)
    assert float(surface.cvar(0.05, 0.5)) < float(surface.quantile(0.05, 0.5))
    assert float(surface.cvar(0.05, 0.5, "upper")) > float(surface.quantile(0.95, 0.5))


def test_variance_rises(surface: Surface, mixture: Surface) -> None:
    t = np.geomspace(1e-4, 6.0, 300)
    for s in (surface, mixture):
        assert np.all(np.diff(s.variance_swap(t) * t) > 0.0)
        assert np.all(s.forward_variance(t) >= 0.0)


def test_forward_variance_is_never_below_zero() -> None:
    constant = np.tile([0.3, 0.2, 0.1, 0.15, 0.2], (4, 1))
    s = Surface.from_slopes([-5.5, -1.0, 0.0, 1.0, 4.5], [0.1, 0.5, 0.5001, 1.0], constant)
    for tenor in (30 / 365, 1e-5):
        assert np.all(s.forward_variance(np.linspace(0.1, 1.0, 500), tenor) >= 0.0)
    with pytest.raises(ValueError, match="tenor"):
        s.forward_variance(0.5, 0.0)


def test_log_contract_is_the_strip_of_options(surface: Surface) -> None:
    """W = 2 ∫ OTM/κ² dκ, the replication identity, on a fine strip."""
    k = np.linspace(-4.0, 2.0, 40_001)
    strip = 2.0 * np.trapezoid(surface.otm(k, 0.5) * np.exp(-k), k)
    assert strip == pytest.approx(float(surface.variance_swap(0.5)) * 0.5, rel=1e-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.__setitem__((2, 4), -0.1), "-0.1"),
        (lambda b: b.__setitem__((2, 4), np.nan), "nan"),
        (lambda b: b.__setitem__((3, 5), 1e-4), "0.0001"),
        (lambda b: b.__setitem__(slice(None), b * 100), "percent"),
    ],
)
def test_slopes_that_carry_no_guarantee_are_refused(change: object, message: str) -> None:
    slopes = 0.2 * np.sqrt(T)[:, None] * np.ones_like(X)
    change(slopes)  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        Surface.from_slopes(X, T, slopes)


@pytest.mark.parametrize("bad", [0.0, -0.1, np.nan, np.inf])
def test_bad_maturities_are_named(surface: Surface, bad: float) -> None:
    with pytest.raises(ValueError, match=r"T\[1\] = "):
        surface.iv(0.0, [0.5, bad])


def test_bad_strikes_and_points_are_named(surface: Surface) -> None:
    with pytest.raises(ValueError, match=r"K\[2\] = "):
        surface.call([5000.0, 6000.0, -1.0], 0.5)
    with pytest.raises(ValueError, match=r"\[1\] = .*nan"):
        surface.iv([0.0, np.nan], 0.5)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        surface.quantile(1.0, 0.5)
    with pytest.raises(ValueError, match=r"forwards\[0\]"):
        Surface.from_slopes([-1.0, 1.0], [1.0], [[0.2, 0.2]], forwards=[-5.0])
    with pytest.raises(ValueError, match="one value per maturity"):
        Surface.from_slopes([-1.0, 1.0], [1.0], [[0.2, 0.2]], discounts=[0.9, 0.8])


def test_volatility_without_a_price_is_announced(
    surface: Surface, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        iv = surface.iv([0.0, 40.0], 0.02)
    assert np.isfinite(iv[0])
    assert np.isnan(iv[1])
    assert "1 of 2 points" in caplog.text
    assert "k=40" in caplog.text


def test_surfaces_cannot_be_changed(surface: Surface) -> None:
    with pytest.raises(ValueError, match="read-only"):
        surface.slopes[0, 0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        surface.slopes = surface.slopes  # type: ignore[misc]
    with pytest.raises(ValueError, match="WRITEABLE"):
        surface.slopes.setflags(write=True)
    mine = np.array(surface.slopes)
    twin = Surface.from_slopes(surface.knots, surface.maturities, mine)
    mine[:] = 5.0
    assert twin.slopes.max() < 5.0
    notes = {"source": ["a"]}
    noted = Surface.from_slopes(surface.knots, surface.maturities, surface.slopes, info=notes)
    notes["source"].append("b")
    assert dict(noted.info) == {"source": ["a"]}
    with pytest.raises(ValueError, match="plain JSON"):
        Surface.from_slopes(surface.knots, surface.maturities, mine / 50.0, info={"x": np.nan})


def test_surfaces_travel_to_workers(surface: Surface) -> None:
    thawed = pickle.loads(pickle.dumps(surface))  # noqa: S301 - our own bytes
    for twin in (thawed, copy.deepcopy(surface)):
        assert np.array_equal(twin.slopes, surface.slopes)
        assert twin.as_of == surface.as_of
        assert float(twin.iv(0.1, 0.5)) == float(surface.iv(0.1, 0.5))


def test_frame_is_tidy_and_agrees_with_the_methods(surface: Surface) -> None:
    frame = surface.to_frame(k=[-0.2, 0.0, 0.1], T=[0.25, 1.0])
    assert frame.shape == (6, 15)
    row = frame.row(1, named=True)
    assert row["iv"] == float(surface.iv(0.0, 0.25))
    assert row["call"] == pytest.approx(float(surface.call(row["strike"], 0.25)), rel=1e-12)
    backwards = surface.to_frame(k=[0.1, 0.0, -0.2], T=[1.0, 0.25])
    assert backwards["T"].is_sorted()
    assert backwards["k"].to_list() == [-0.2, 0.0, 0.1] * 2
    dated = surface.to_frame(k=[0.0], T=np.array(["2026-03-20T09:30"], dtype="datetime64[s]"))
    assert dated["T"][0] == float(surface.years("2026-03-20T09:30"))
    default = surface.to_frame()
    assert default.height == 14 * 25
    assert default.select(pl.all().is_finite().all()).row(0) == (True,) * 15


def test_repr_says_what_it_is(surface: Surface, mixture: Surface) -> None:
    assert "14 maturities from 7 to 730 days" in repr(surface)
    assert "2 components" in repr(mixture)


def test_plot_draws_six_panels(surface: Surface, mixture: Surface, tmp_path: Path) -> None:
    path = tmp_path / "surface.png"
    figure = surface.plot(path)
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == [
        "Smiles",
        "Implied volatility, %",
        "Contours",
        "Risk-neutral densities",
        "Total variance σ²T",
        "Term structure",
    ]
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 50_000
    mixture.plot(path)
    Surface.from_slopes([-1.0, 1.0], [0.5], [[0.1, 0.1]]).plot(path)  # warnings are errors here


def test_knots_beyond_the_normal_law_are_refused() -> None:
    with pytest.raises(ValueError, match=r"knot -50 lies beyond ±37"):
        Surface.from_slopes([-50.0, 10.0], [1.0], [[0.2, 0.2]])
