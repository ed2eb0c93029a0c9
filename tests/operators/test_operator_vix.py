"""The operator's VIX side: VIX quotes in, slices out, at the level of its own forward variance."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from benchmarks import joint_fit
from benchmarks.joint_fit import vix_side

import arbiter as ab
from arbiter.fitting.interior_point import Status
from arbiter.fitting.options import FitOptions
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.markets import preset
from arbiter.markets.snapshots import Snapshot
from arbiter.operators import vix_head
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes


def snapshot(name: str) -> Snapshot:
    return joint_fit.snapshot(preset(name), 5)


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@pytest.mark.parametrize("name", ["calm", "stressed", "jumpy"])
def test_vix_quotes_are_followed(name: str, operator: Operator) -> None:
    made = snapshot(name)
    quotes, futures = vix_side(made)
    surface = operator(made.quotes, vix_quotes=quotes, vix_futures=futures)
    T, market = futures.maturities, made.market
    assert surface.result.vix is not None
    assert np.mean(np.abs(surface.result.vix.residuals) <= 1.0) > 0.98
    assert np.abs(surface.result.vix.future_errors).max() < 0.15
    np.testing.assert_allclose(
        surface.result.vix.future_errors, surface.vix_future(T) - futures.mid, atol=1e-9
    )
    np.testing.assert_allclose(surface.vix_second_moment(T), surface.forward_variance(T), 1e-12)
    K = quotes.forwards[quotes.expiry] * np.exp(quotes.k)
    truth = market.vix_iv(K, quotes.T)
    ours, mids = surface.vix_iv(K, quotes.T) - truth, quotes.iv_mid - truth
    assert np.sqrt(np.mean(ours**2)) < 0.7 * np.sqrt(np.mean(mids**2))
    alone = operator(made.quotes).vix_iv(K, quotes.T) - truth
    assert np.sqrt(np.mean(ours**2)) < 0.5 * np.sqrt(np.mean(alone**2))
    # the index side is that of its quotes alone
    np.testing.assert_array_equal(surface.slopes, operator(made.quotes).slopes)
    assert surface.certificate().passed


def test_a_level_that_the_index_does_not_have_bends_no_shape(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VIX quotes 4 % higher than the index allows: the same smiles, and the gap is stated."""
    made = snapshot("calm")
    quotes, _ = vix_side(made)
    higher = Quotes.from_frame(
        {
            "T": quotes.T,
            "k": quotes.k,
            "iv_bid": quotes.iv_bid,
            "iv_ask": quotes.iv_ask,
            "forward": 1.04 * quotes.forwards[quotes.expiry],
        }
    )
    T = quotes.maturities
    fair = operator(made.quotes, vix_quotes=quotes)
    apart = operator(made.quotes, vix_quotes=higher)
    assert apart.result.vix is not None
    gap = apart.result.vix.future_errors / higher.forwards
    np.testing.assert_allclose(gap, -0.04, atol=0.02)
    shift = np.abs(apart.vvix(T) / fair.vvix(T) - 1.0).max()
    assert shift < 0.1
    monkeypatch.setattr(vix_head, "LOG_OFFSET_DEVIATION", 1e-6)
    bent = operator(made.quotes, vix_quotes=higher)
    assert np.abs(bent.vvix(T) / fair.vvix(T) - 1.0).max() > 2.0 * shift


@pytest.mark.parametrize("components", [1, 2])
def test_refined_both_markets_are_fitted_together(components: int, operator: Operator) -> None:
    made = snapshot("calm")
    quotes, futures = vix_side(made)
    refined = operator.refine(
        made.quotes,
        options=FitOptions(components=components),
        vix_quotes=quotes,
        vix_futures=futures,
    )
    assert len(refined.slopes) == components
    assert refined.result.vix is not None
    assert np.mean(np.abs(refined.result.vix.residuals) <= 1.0) > 0.99
    assert np.abs(refined.result.vix.future_errors).max() < 0.05
    assert "operator" in refined.info


def test_what_the_surface_cannot_carry_is_said(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    """No variance in a window; a window beyond the surface; quotes that no law has."""
    made = snapshot("calm")
    quotes, _ = vix_side(made)
    still = ab.Surface.from_slopes([-1.0, 1.0], [0.2, 0.3, 0.5], [[0.1, 0.1]] * 3)
    strikes = np.linspace(-0.2, 0.4, 9)
    smile = {"T": np.full(9, 0.3), "k": strikes, "forward": np.full(9, 20.0)}
    on_vix = Quotes.from_frame({**smile, "iv_bid": np.full(9, 0.8), "iv_ask": np.full(9, 0.9)})
    with pytest.raises(ValueError, match="no variance on this surface"):
        vix_head.fit_vix_slices(still, VixMarket.from_quotes(on_vix, None))
    near = made.quotes.select(made.quotes.T < 0.15)
    with caplog.at_level(logging.WARNING):
        surface = operator(near, vix_quotes=quotes)
    assert "VIX windows end after the last index expiry" in caplog.text
    # a maturity far beyond the last is said of the surface that is asked, not of the answer
    said = {text for text in caplog.messages if "times the last maturity" not in text}
    assert set(surface.result.warnings) == said
    caplog.clear()
    wild = 1.0 + 0.5 * (-1.0) ** np.arange(len(quotes))
    odd = Quotes.from_frame(
        {
            "T": quotes.T,
            "k": quotes.k,
            "iv_bid": 0.99 * wild * quotes.iv_mid,
            "iv_ask": 1.01 * wild * quotes.iv_mid,
            "forward": quotes.forwards[quotes.expiry],
        }
    )
    with caplog.at_level(logging.WARNING):
        surface = operator(made.quotes, vix_quotes=odd)
    assert "missed by more than their half-spread" in caplog.text
    assert set(surface.result.warnings) == set(caplog.messages)
    assert operator(made.quotes, vix_quotes=quotes).result.warnings == ()


def test_one_far_option_is_followed_before_it_is_doubted(operator: Operator) -> None:
    """From the prior alone a search that doubts would stay where it is."""
    made = snapshot("calm")
    one = Quotes.from_frame(
        {"T": [0.1], "k": [0.1], "iv_bid": [1.9], "iv_ask": [2.0], "forward": [13.3]}
    )
    found = operator(made.quotes, vix_quotes=one)
    assert found.result.vix is not None
    assert found.result.vix.status is Status.CONVERGED
    own = float(found.vix_future(0.1))
    assert abs(float(found.vix_iv(own * np.exp(0.1), 0.1)) - 1.95) < 0.1
    assert abs(float(operator(made.quotes).vix_iv(own * np.exp(0.1), 0.1)) - 1.95) > 0.3


def test_futures_alone_and_wrong_quotes(operator: Operator) -> None:
    made = snapshot("calm")
    quotes, futures = vix_side(made)
    surface = operator(made.quotes, vix_futures=futures)
    assert surface.vix_slices is not None
    assert np.abs(surface.vix_future(futures.maturities) - futures.mid).max() < 0.15
    with pytest.raises(ValueError, match="index points"):
        operator(made.quotes, vix_quotes=made.quotes)
    late = ab.Quotes.from_frame(
        {
            "T": quotes.T,
            "k": quotes.k,
            "iv_bid": quotes.iv_bid,
            "iv_ask": quotes.iv_ask,
            "forward": quotes.forwards[quotes.expiry],
        },
        as_of="2024-06-15T16:00",
    )
    with pytest.raises(ValueError, match="one moment"):
        operator(made.quotes, vix_quotes=late)
