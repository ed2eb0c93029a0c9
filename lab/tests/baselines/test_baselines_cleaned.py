"""Fit, then clean: what is planted is removed, at every strike and maturity, at a stated cost."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arbiter as ab
from arbiter.audit.certificate import Certificate, audit
from arbiter_lab.baselines import cleaned_svi as cleaned_module
from arbiter_lab.baselines.cleaned_svi import clean, fit_then_clean
from arbiter_lab.evaluation.arbitrage_check import audit_model
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.peers import SVI, Peer, fit_svi
from counts import count
from svi_slices import EXACT_SVI, RAW, T, quoted

CROSSED = SVI(T, np.concatenate([RAW[:2], RAW[2:] * [0.1, 0.55, 1.0, 1.0, 1.0]]))  # calendar
VOGT = SVI(  # Gatheral and Jacquier (2014), example 3.1: a butterfly at k = 0.8 or so
    np.array([1.0]), np.array([[-0.0410, 0.1331, 0.3060, 0.3586, 0.4153]])
)


def audited(model: Peer, farthest: float = 1.3) -> Certificate:
    """Off the nodes, between maturities, before the first and beyond the last."""
    times = np.linspace(0.3 * model.maturities[0], 1.2 * model.maturities[-1], 11)
    k = np.linspace(-farthest, farthest, 157)
    grid, at = np.meshgrid(times, k, indexing="ij")
    price = model.otm(at, grid).ravel()
    put = at.ravel() < 0.0
    frame = {
        "T": grid.ravel(),
        "k": at.ravel(),
        "call": np.where(put, np.nan, price),
        "put": np.where(put, price, np.nan),
    }
    return audit(pl.DataFrame(frame, nan_to_null=True))


@pytest.mark.parametrize(
    ("raw", "kind"), [(CROSSED, "calendar"), (VOGT, "butterfly")], ids=["calendar", "butterfly"]
)
def test_planted_arbitrage_is_found_and_removed(raw: SVI, kind: str) -> None:
    assert not audited(raw).passed
    cleaned = clean(raw)
    assert getattr(cleaned.found, kind) > 1e-8  # of neighbouring nodes, which are near
    assert cleaned.left.largest < 1e-15
    assert audited(cleaned).passed


def test_clean_slices_stay() -> None:
    """Prices without arbitrage move by no more than the interpolation error."""
    cleaned = clean(EXACT_SVI)
    k = np.linspace(-0.5, 0.4, 91)
    for when in T.tolist():
        apart = cleaned.iv(k, when) - EXACT_SVI.iv(k, when)
        seen = EXACT_SVI.otm(k, when) > 1e-5
        assert np.abs(apart[seen]).max() < 1e-4
    halfway = cleaned.iv(0.0, 0.3) ** 2 * 0.3
    assert halfway == pytest.approx(EXACT_SVI.total_variance(0.0, 0.3), rel=1e-3)


shapes = st.tuples(
    st.floats(0.0, 0.02), st.floats(0.005, 0.3), st.floats(-0.95, 0.6), st.floats(-0.2, 0.3),
    st.floats(0.02, 0.5),
)  # fmt: skip


@settings(max_examples=count(200, 15))
@given(slices=st.lists(shapes, min_size=1, max_size=4))
def test_whatever_the_slices_nothing_is_left(slices: list[tuple[float, ...]]) -> None:
    raw = SVI(np.geomspace(0.1, 1.0, len(slices)), np.array(slices))
    cleaned = clean(raw)
    assert cleaned.left.largest < 1e-14
    assert audited(cleaned).passed


def test_the_cost_is_the_error_after_less_the_error_before() -> None:
    """On noisy quotes of exact volatilities, points without a quote among them."""
    costs, errors = [], []
    for number in range(count(20, 2)):
        case = heston_case(number, hard=True)
        cleaned = fit_then_clean(case.quotes)
        times = np.broadcast_to(case.T[:, None], case.k.shape)
        cost = cleaned.cost(case.k, times, case.iv)
        costs.append(cost)
        listed = case.listed
        raw = fit_svi(case.quotes).iv(case.k[listed], times[listed])
        errors.append(1e4 * float(np.sqrt(np.mean((raw - case.iv[listed]) ** 2))))
        assert audit_model(cleaned, case.quotes).findings == 0
        assert abs(cost.after - cost.before) <= cost.moved + 1e-9  # triangle inequality
    assert [cost.before for cost in costs] == pytest.approx(errors)
    assert max(cost.moved for cost in costs) > 1.0


def test_cost_counts_what_is_planted() -> None:
    cleaned = clean(EXACT_SVI)
    k = np.linspace(-0.2, 0.15, 15)
    exact = cleaned.raw.iv(k, 0.5)
    right, off = cleaned.cost(k, 0.5, exact), cleaned.cost(k, 0.5, exact + 1e-3)
    assert right.before == pytest.approx(0.0, abs=1e-9)
    assert right.after == pytest.approx(right.moved, abs=1e-9)
    assert off.before == pytest.approx(10.0)
    assert np.isnan(exact).sum() == 0
    some = np.where(k < 0.0, exact, np.nan)
    assert cleaned.cost(k, 0.5, some).before == pytest.approx(0.0, abs=1e-9)


def test_real_quotes_are_fitted_and_cleaned() -> None:
    quotes = ab.example_chain().quotes()
    cleaned = fit_then_clean(quotes)
    before, after = (ab.scoring.score(model, quotes) for model in (cleaned.raw, cleaned))
    assert after.inside_bid_ask > before.inside_bid_ask - 0.02
    assert audit_model(cleaned.raw, quotes).findings > 0  # a calendar spread, 2e-7 of the forward
    assert audit_model(cleaned, quotes).findings == 0


def test_far_strikes_and_maturities_have_prices() -> None:
    cleaned = clean(CROSSED)
    assert float(cleaned.otm(-20.0, 0.5)) == pytest.approx(0.0, abs=1e-8)
    assert 0.0 <= float(cleaned.otm(20.0, 0.5)) < 1e-6
    assert float(cleaned.otm(0.0, 9.0)) == float(cleaned.otm(0.0, T[-1]))
    assert float(cleaned.iv(-20.0, 0.5)) >= 0.0
    shape = cleaned.iv(np.zeros((3, 1)), np.array([0.05, 0.5])).shape
    assert shape == (3, 2)
    with pytest.raises(ValueError, match="must be a positive year fraction"):
        cleaned.iv(0.0, 0.0)


@pytest.mark.parametrize("method", ["pava_then_qp", "magic"])
def test_methods_that_do_not_clean_are_refused(method: str) -> None:
    with pytest.raises(ValueError, match=f"method = '{method}'"):
        fit_then_clean(quoted(EXACT_SVI), method)


def test_both_methods_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """On few nodes: Dykstra's alternation is slow."""
    monkeypatch.setattr(cleaned_module, "NODE_STEP", 0.4)
    one, other = (clean(CROSSED, method=method) for method in ("qp", "dykstra"))
    assert one.prices.size < 100
    assert np.abs(one.prices - other.prices).max() < 1e-6
    assert one.found.calendar > 1e-5
