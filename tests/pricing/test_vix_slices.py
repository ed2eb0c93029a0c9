"""The VIX of a surface: tied to forward variance exactly, priced in closed form, kept in files."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

import arbiter as ab
from arbiter.pricing import black
from arbiter.pricing.vix_slices import VixSlices
from arbiter.storage import SurfaceFileError
from arbiter.surface import Surface
from counts import count
from theorems import (
    assert_calls_fall_in_strike,
    assert_convex_in_strike,
    assert_parity,
    assert_within_bounds,
)

DATES = np.array([7.0, 35.0, 63.0, 154.0]) / 365.0
KNOTS = np.linspace(-4.0, 4.0, 9)


def skewed() -> VixSlices:
    """Smiles that rise to the right, as those of the VIX do."""
    shape = 0.8 + 0.15 * KNOTS + 0.06 * KNOTS**2
    return VixSlices.of(KNOTS, DATES, np.sqrt(DATES)[:, None] * shape / (1.0 + DATES[:, None]))


@pytest.fixture(scope="module")
def surface() -> Surface:
    return ab.example().with_vix(skewed())


slopes = st.floats(-6.0, 1.0).map(lambda e: 10.0**e)


@settings(max_examples=count(400, 60))
@given(arrays(np.float64, (3, 9), elements=slopes), st.floats(0.002, 1.0))
def test_second_moment_is_forward_variance_whatever_the_slopes(a: np.ndarray, T: float) -> None:
    surface = ab.example().with_vix(VixSlices.of(KNOTS, DATES[:3], a))
    at = np.array([*DATES, T])
    assert np.allclose(
        surface.vix_second_moment(at), surface.forward_variance(at), rtol=1e-12, atol=0.0
    )


def test_second_moment_is_measured_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a future that is wrong in its ninth digit is seen."""
    surface = ab.example().with_vix(skewed())
    right = VixSlices.future_ratio
    monkeypatch.setattr(VixSlices, "future_ratio", lambda self, T: right(self, T) * (1.0 + 1e-9))
    gap = surface.vix_second_moment(0.1) / surface.forward_variance(0.1) - 1.0
    assert gap == pytest.approx(2e-9, rel=1e-2)


@settings(max_examples=count(200, 30))
@given(arrays(np.float64, (3, 9), elements=slopes), st.floats(0.002, 1.0))
def test_futures_are_at_most_the_root_of_forward_variance(a: np.ndarray, T: float) -> None:
    surface = ab.example().with_vix(VixSlices.of(KNOTS, DATES[:3], a))
    bound = 100.0 * np.sqrt(surface.forward_variance(T))
    assert surface.vix_future(T) <= bound * (1.0 + 1e-15)


@settings(max_examples=count(100, 20))
@given(arrays(np.float64, (1, 9), elements=st.floats(0.01, 3.5)))  # at 5 the index is next to zero
def test_options_are_free_of_static_arbitrage(a: np.ndarray) -> None:
    surface = ab.example().with_vix(VixSlices.of(KNOTS, [0.1], a))
    future = float(surface.vix_future(0.1))
    kappa = np.exp(np.linspace(-3.0, 3.0, 301) * min(1.0, a.max()))
    unit = float(surface.discount(0.1)) * future
    call, put = (surface.vix_option(future * kappa, 0.1, s) / unit for s in ("call", "put"))
    assert_calls_fall_in_strike(call)
    assert_convex_in_strike(kappa, call)
    assert_within_bounds(kappa, call)
    assert_parity(kappa, call, put)


def test_lognormal_case_has_its_known_formulas() -> None:
    """Constant slopes v: VIX lognormal, future = 100 √FV e^{−v²/2}, Black options, VVIX = v/√T."""
    v, T = 0.35, 0.15
    surface = ab.example().with_vix(VixSlices.of([0.0], [T], [[v]]))
    future = 100.0 * np.sqrt(surface.forward_variance(T)) * np.exp(-0.5 * v * v)
    assert surface.vix_future(T) == pytest.approx(float(future), rel=1e-14)
    assert surface.vvix(T) == pytest.approx(100.0 * v / np.sqrt(T), rel=1e-13)
    K = float(future) * np.array([0.3, 0.8, 1.0, 1.7, 4.0])
    k = np.log(K / future)
    unit = surface.discount(T) * future
    for side, price in (("call", black.call), ("put", black.put)):
        assert np.allclose(surface.vix_option(K, T, side), unit * price(k, v), rtol=1e-12)
    assert np.allclose(surface.vix_iv(K, T), v / np.sqrt(T), rtol=1e-10)
    law = norm(loc=np.log(future) - 0.5 * v * v, scale=v)
    assert np.allclose(surface.vix_density(K, T), law.pdf(np.log(K)) / K, rtol=1e-12)
    u = np.array([1e-6, 0.2, 0.5, 0.999])
    assert np.allclose(surface.vix_quantile(u, T), np.exp(law.ppf(u)), rtol=1e-10)


def test_everything_agrees_with_quadrature_over_the_quantiles(surface: Surface) -> None:
    T = 0.25  # between two dates
    z = np.linspace(-9.0, 9.0, 18_001)
    w = np.gradient(z) * norm.pdf(z)
    u = np.clip(norm.cdf(z), 1e-300, 1.0 - 1e-16)
    V = surface.vix_quantile(u, T)
    future = float(surface.vix_future(T))
    # the right tail beyond Φ's resolution is cut: 1e-10 of the mass of V²
    assert w @ V == pytest.approx(future, rel=1e-8)
    assert w @ (V / 100.0) ** 2 == pytest.approx(float(surface.forward_variance(T)), rel=1e-6)
    assert -2.0 * w @ np.log(V / future) / T == pytest.approx(
        (float(surface.vvix(T)) / 100.0) ** 2, rel=1e-8
    )
    for K in (0.7 * future, 1.6 * future):
        call = float(surface.vix_option(K, T) / surface.discount(T))
        assert call == pytest.approx(w @ np.maximum(V - K, 0.0), rel=1e-4)
    logs = np.linspace(0.0, np.log(1e3), 20_001)
    mass = np.trapezoid(surface.vix_density(np.exp(logs), T) * np.exp(logs), logs)
    assert mass == pytest.approx(1.0, abs=1e-8)


def test_a_simulation_agrees(surface: Surface, rng: np.random.Generator) -> None:
    T, K = 35.0 / 365.0, 24.0
    V = surface.vix_quantile(rng.uniform(size=count(1_000_000, 100_000)), T)
    for sample, exact in (
        (V, surface.vix_future(T)),
        ((V / 100.0) ** 2, surface.forward_variance(T)),
        (np.maximum(V - K, 0.0), surface.vix_option(K, T) / surface.discount(T)),
        (np.maximum(K - V, 0.0), surface.vix_option(K, T, "put") / surface.discount(T)),
    ):
        assert abs(sample.mean() - exact) < 4.0 * sample.std() / np.sqrt(V.size)


def test_far_options_keep_their_digits(surface: Surface) -> None:
    """A put of 1e-20 points is priced by itself and not as a difference."""
    future = float(surface.vix_future(DATES[0]))
    put = float(surface.vix_option(0.2 * future, DATES[0], "put"))
    assert 0.0 < put < 1e-15
    density = [float(surface.vix_density(k * future, DATES[0])) for k in (0.1, 0.2)]
    assert 0.0 < density[0] < density[1]


def test_listed_dates_give_their_own_slopes_back() -> None:
    assert np.array_equal(skewed().slopes_at(DATES), skewed().slopes)


def test_between_dates_everything_is_continuous(surface: Surface) -> None:
    for T in (*DATES, 0.3, 1.5):
        near = np.array([T * (1.0 - 1e-9), T, T * (1.0 + 1e-9)])
        for value in (surface.vix_future(near), surface.vvix(near), surface.vix_iv(30.0, near)):
            assert np.ptp(value) < 1e-6 * value.mean()


def test_before_the_first_date_volatility_is_flat(surface: Surface) -> None:
    T = np.array([0.1, 0.5, 1.0]) * DATES[0]
    assert np.allclose(surface.vvix(T), surface.vvix(DATES[0]), rtol=1e-2)


def test_inputs_broadcast_and_scalars_are_scalars(surface: Surface) -> None:
    assert surface.vix_option([[15.0], [25.0]], [0.1, 0.2, 0.3], "put").shape == (2, 3)
    assert surface.vix_future(0.1).shape == ()
    assert surface.vix_iv(20.0, [0.1, 0.2]).dtype == np.float64


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.vix_future(0.1),
        lambda s: s.vix_option(20.0, 0.1, "call"),
        lambda s: s.vix_iv(20.0, 0.1),
        lambda s: s.vix_density(20.0, 0.1),
        lambda s: s.vix_quantile(0.5, 0.1),
        lambda s: s.vix_second_moment(0.1),
        lambda s: s.vvix(0.1),
    ],
)
def test_a_surface_without_slices_says_what_to_do(ask: object) -> None:
    with pytest.raises(ValueError, match=r"no VIX slices.*vix_quotes.*with_vix"):
        ask(ab.example())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([-1.0, 1.0], [0.1], [[0.3]]), r"shape \(1, 1\).*\(1, 2\)"),
        (([1.0, -1.0], [0.1], [[0.3, 0.3]]), r"knots\[1\] = -1 does not exceed"),
        (([0.0], [0.2, 0.1], [[0.3], [0.3]]), r"maturities\[1\] = 0.1 does not exceed"),
        (([0.0], [-0.1], [[0.3]]), "is not positive"),
        (([0.0], [0.1], [[-0.3]]), "total volatilities of the VIX"),
        (([0.0], [0.1], [[11.0]]), "is 11.0"),
        (([0.0], [0.1], [[np.nan]]), "is nan"),
        (([40.0], [0.1], [[0.3]]), "beyond"),
        (([np.inf], [0.1], [[0.3]]), "finite"),
    ],
)
def test_slices_that_carry_no_promise_are_refused(
    parts: tuple[list[float], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        VixSlices.of(*parts)


def test_bad_questions_are_refused(surface: Surface) -> None:
    with pytest.raises(ValueError, match="side = 'straddle'"):
        surface.vix_option(20.0, 0.1, "straddle")
    with pytest.raises(ValueError, match=r"K\[1\] = -1.0: VIX levels are positive"):
        surface.vix_option([20.0, -1.0], 0.1)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        surface.vix_quantile(1.0, 0.1)


def test_a_window_without_variance_is_named() -> None:
    still = Surface.from_slopes([0.0], [0.1, 0.5], [[0.2], [0.2]])
    still = still.with_vix(VixSlices.of([0.0], [0.2], [[0.3]]))
    assert still.vix_future(0.2) == 0.0
    with pytest.raises(ValueError, match=r"after T = 0.2 have no variance"):
        still.vix_option(20.0, 0.2)


def test_volatility_past_float64_is_nan_with_a_reason(
    surface: Surface, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert np.isnan(surface.vix_iv(1e-60, DATES[0]))
    assert "VIX implied volatility is NaN" in caplog.text


def test_files_keep_the_slices(surface: Surface, tmp_path: Path) -> None:
    path = tmp_path / "joint.npz"
    surface.save(path)
    again = Surface.load(path)
    sent = pickle.loads(pickle.dumps(surface))  # noqa: S301 - our own bytes
    for copied in (again, sent, copy.deepcopy(surface)):
        assert copied.vix_slices is not None
        for name in ("knots", "maturities", "slopes"):
            stored = getattr(copied.vix_slices, name)
            assert np.array_equal(stored, getattr(surface.vix_slices, name))
            assert not stored.flags.writeable
        assert copied.vix_option(25.0, 0.2) == surface.vix_option(25.0, 0.2)
    assert "VIX at 4 dates" in repr(again)


def test_without_slices_the_file_is_that_of_version_1(surface: Surface, tmp_path: Path) -> None:
    for name, each, version in (("a", ab.example(), 1), ("b", surface, 2)):
        each.save(tmp_path / name)
        with np.load(tmp_path / name, allow_pickle=False) as archive:
            assert json.loads(archive["meta"].tobytes())["version"] == version
            assert ("vix_slopes" in archive.files) == (version == 2)
    assert surface.with_vix(None).vix_slices is None


def test_damaged_slices_in_a_file_are_refused(surface: Surface, tmp_path: Path) -> None:
    path = tmp_path / "joint.npz"
    surface.save(path)
    with np.load(path, allow_pickle=False) as archive:
        parts = {name: archive[name] for name in archive.files}
    np.savez(path, **{**parts, "vix_slopes": -parts["vix_slopes"]})
    with pytest.raises(SurfaceFileError, match="VIX slope"):
        Surface.load(path)
    np.savez(path, **{name: part for name, part in parts.items() if name != "vix_knots"})
    with pytest.raises(SurfaceFileError, match="not a readable surface"):
        Surface.load(path)
