"""The law of the VIX from the index alone: markets that have both, and what is stated of it."""

from __future__ import annotations

import io
import logging
from importlib.resources import files

import numpy as np
import pytest

import arbiter as ab
from arbiter.markets import LiftedHeston, preset
from arbiter.models.parameters import PRESETS
from arbiter.operators.pretrained import Operator
from arbiter.vix.prior import (
    DEFAULT_DAYS,
    KNOTS,
    MAX_TRAINED_YEARS,
    MIN_TRAINED_YEARS,
    VixRegression,
    load_regression,
    read,
    vix_prior,
)
from arbiter.vix.prior_features import STRIKE_DEVIATIONS, features

T = np.array([14.0, 45.0, 91.0, 182.0]) / 365.0
GRID = np.array([7, 14, 30, 44, 60, 75, 91, 121, 152, 182, 212, 273, 365]) / 365.0


def surface_of(name: str) -> ab.Surface:
    """A fit to quotes of a preset without noise and hardly a spread."""
    market = LiftedHeston.of(preset(name))
    z = np.linspace(-3.0, 2.0, 17)
    k = z * np.sqrt(market.log_variance(GRID))[:, None]
    iv = market.iv(k.ravel(), np.repeat(GRID, z.size))
    table = {"T": np.repeat(GRID, z.size), "k": k.ravel(), "iv_bid": iv - 2e-4, "iv_ask": iv + 2e-4}
    return ab.fit(ab.Quotes.from_frame(table))


@pytest.fixture(scope="module", params=list(PRESETS))
def both(request: pytest.FixtureRequest) -> tuple[ab.Surface, LiftedHeston]:
    return surface_of(request.param), LiftedHeston.of(preset(request.param))


def test_features_of_a_surface_are_those_of_its_market(
    both: tuple[ab.Surface, LiftedHeston],
) -> None:
    surface, market = both
    found, exact = features(surface, T), features(market, T)
    assert found.shape == (T.size, 8 + 3 * (len(STRIKE_DEVIATIONS) - 1))
    np.testing.assert_allclose(found[:, 0], np.log(T))
    np.testing.assert_allclose(found, exact, atol=0.05)
    assert np.abs(features(surface, 2.0 * T) - exact).max() > 0.05


def test_futures_are_those_of_the_market(both: tuple[ab.Surface, LiftedHeston]) -> None:
    """Within what is stated, which is less than half of what the surface alone leaves open."""
    surface, market = both
    prior = vix_prior(surface, T)
    future, deviation = prior.future(T)
    exact, root = market.vix_future(T), 100.0 * np.sqrt(surface.forward_variance(T))
    assert np.all(future < root)
    assert np.all(np.abs(future - exact) < 3.5 * deviation + 0.03)
    assert np.all(np.abs(future - exact) < 0.5 * (root - exact) + 0.03)


def test_smiles_are_those_of_the_market(both: tuple[ab.Surface, LiftedHeston]) -> None:
    surface, market = both
    prior = vix_prior(surface, T)
    K = np.asarray(market.vix_future(T)) * 1.1
    iv, deviation = prior.iv(K, T)
    assert np.all(np.abs(iv - market.vix_iv(K, T)) < 3.5 * deviation + 0.02)
    vvix, width = prior.vvix(T)
    assert np.all(np.abs(vvix - market.vvix(T)) < 3.5 * width + 2.0)


def test_the_coupling_holds_for_every_draw() -> None:
    surface = surface_of("calm")
    prior = vix_prior(surface, T)
    variance = surface.forward_variance(T)
    for slices in prior.draw_slices()[::16]:
        tied = surface.with_vix(slices)
        np.testing.assert_allclose(tied.vix_second_moment(T), variance, rtol=1e-12)
        assert np.all(tied.vix_future(T) <= 100.0 * np.sqrt(variance))
    assert surface.with_vix(prior.slices).certificate().passed


def test_dates_are_the_usual_ones_as_far_as_the_surface_goes() -> None:
    surface = surface_of("calm")
    prior = vix_prior(surface)
    assert prior.maturities[0] == DEFAULT_DAYS[0] / 365.0
    assert prior.maturities[-1] + 30.0 / 365.0 <= surface.maturities[-1]
    short = ab.Surface.from_slopes(surface.knots, [0.05], surface.slopes[0, :1])
    with pytest.raises(ValueError, match=r"ends at T = 0\.05"):
        vix_prior(short)
    with pytest.raises(ValueError, match="must be a positive"):
        vix_prior(surface, [0.0, 0.1])


def test_beyond_what_was_seen_slopes_grow_with_root_time_and_then_stay() -> None:
    surface = surface_of("calm")
    soon = vix_prior(surface, [0.25 * MIN_TRAINED_YEARS, MIN_TRAINED_YEARS])
    np.testing.assert_allclose(soon.mean[1] - soon.mean[0], np.log(2.0), atol=1e-9)
    late = vix_prior(surface, [MAX_TRAINED_YEARS, 2.0 * MAX_TRAINED_YEARS])
    np.testing.assert_allclose(late.mean[0], late.mean[1], atol=1e-9)


def test_an_operator_surface_answers_with_it_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    surface = Operator.pretrained()(ab.example_chain().quotes())
    with caplog.at_level(logging.WARNING):
        future = surface.vix_future(0.2)
        surface.vvix(0.2)
    said = [r for r in caplog.records if "no quotes on the VIX" in r.message]
    assert len(said) == 1
    assert surface.vix_slices is None  # nothing that was not quoted is saved as if it were
    assert float(future) == pytest.approx(float(surface.vix_prior.future(0.2)[0]), abs=0.05)
    plain = ab.Surface.from_slopes(surface.knots, surface.maturities, surface.slopes[0])
    with pytest.raises(ValueError, match="vix_prior"):
        plain.vix_future(0.2)


def test_answers_have_the_shape_of_the_question() -> None:
    prior = vix_prior(surface_of("calm"), T)
    for found in (prior.future(0.1), prior.vvix(0.1)):
        assert [part.shape for part in found] == [(), ()]
    assert prior.iv([[12.0, 14.0, 18.0], [13.0, 15.0, 20.0]], 0.1)[1].shape == (2, 3)
    with pytest.raises(ValueError, match=r"K\[0\] = -1\.0"):
        prior.iv([-1.0, 15.0], 0.1)
    with pytest.raises(ValueError, match="T is empty"):
        vix_prior(prior.surface, [])


def test_a_window_beyond_the_surface_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    surface = surface_of("calm")
    with caplog.at_level(logging.WARNING):
        vix_prior(surface, [0.1])
        assert not caplog.records
        vix_prior(surface, [0.1, 2.0])
    assert "1 of 2 VIX windows end after the last index expiry" in caplog.text


def test_a_prior_alone_is_no_law_to_audit() -> None:
    surface = Operator.pretrained()(ab.example_chain().quotes())
    with pytest.raises(ValueError, match="no law of the VIX"):
        ab.joint_audit(surface, 0.1)
    short = surface.maturities[0]
    quotes = ab.example_chain().quotes()
    first = Operator.pretrained()(quotes.select(short * 1.01 >= quotes.T))
    with pytest.raises(ValueError, match="vix_quotes="):
        first.vix_future(0.02)


def test_a_damaged_file_is_named_with_the_remedy() -> None:
    whole = (files("arbiter.data") / "vix_prior.npz").read_bytes()
    assert isinstance(read(io.BytesIO(whole)), VixRegression)
    arrays = dict(np.load(io.BytesIO(whole)))
    without, nan = io.BytesIO(), io.BytesIO()
    np.savez(without, **{name: part for name, part in arrays.items() if name != "root"})
    np.savez(nan, **(arrays | {"b0": np.nan * arrays["b0"]}))
    for bad in (b"", whole[:2000], b"x" * 50, without.getvalue(), nan.getvalue()):
        with pytest.raises(ValueError, match="install the package again"):
            read(io.BytesIO(bad))


def test_the_network_is_whole() -> None:
    found = load_regression()
    assert isinstance(found, VixRegression)
    assert all(np.isfinite(part).all() for part in found)
    assert found.root.shape == (len(KNOTS), len(KNOTS))
    mean, root = found(np.full((1, found.centre.size), 1e6))  # held at the edge of training
    assert np.isfinite(mean).all()
    assert np.isfinite(root).all()
