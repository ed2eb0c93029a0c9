"""Any positive slopes give a law, and slopes that do not fall in maturity no calendar arbitrage.

These are proposition 2 and theorem 1 of docs/theory.md. Each check has a planted fault.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import theorems
from arbiter.pricing.transport import Transport
from counts import count
from index_slopes import KNOTS, skewed


def extreme_slopes(n: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(-6.0, 1.30103), min_size=n, max_size=n)


@given(n=st.sampled_from([31, 41]), data=st.data())
@settings(max_examples=count(full=1000, reduced=60))
def test_any_positive_slopes_give_a_law(n: int, data: st.DataObject) -> None:
    """No NaN, convex, decreasing, bounded and at parity, for any slopes between 1e-6 and 20."""
    slopes = 10.0 ** np.array(data.draw(extreme_slopes(n)))
    ours = Transport(KNOTS[n], slopes)
    z = np.linspace(-12.0, 12.0, 97)
    k = np.sort(np.concatenate([ours.log_strike(z), np.linspace(-3.0, 3.0, 61)]))
    kappa, call, put = np.exp(k), ours.call(k), ours.put(k)
    for name in ("call", "put", "cdf", "digital", "density", "delta", "z"):
        assert np.isfinite(getattr(ours, name)(k)).all(), name
    theorems.assert_within_bounds(kappa, call)
    theorems.assert_parity(kappa, call, put)
    theorems.assert_calls_fall_in_strike(call)
    near = k < 3.0
    theorems.assert_convex_in_strike(kappa[near], put[near])
    assert ours.log_variance() > 0.0


@given(n=st.sampled_from([31, 41]), data=st.data())
@settings(max_examples=count(full=1000, reduced=60))
def test_star_order_gives_calendar_order(n: int, data: st.DataObject) -> None:
    first = 10.0 ** np.array(data.draw(extreme_slopes(n)))
    rise = 10.0 ** np.array(data.draw(extreme_slopes(n)))
    ours = Transport(KNOTS[n], np.stack([first, np.minimum(first + rise, 20.0)]))
    k = np.linspace(-6.0, 6.0, 241)
    theorems.assert_rises_in_maturity(ours.otm(k))
    assert np.diff(ours.log_variance()) >= -1e-12


def test_falling_slopes_break_the_calendar() -> None:
    """Negative control: without the star order the same check finds an arbitrage."""
    slopes = np.stack([skewed(), 0.999 * skewed()])
    prices = Transport(KNOTS[31], slopes).otm(np.linspace(-1.0, 1.0, 41))
    with pytest.raises(AssertionError, match="calendar"):
        theorems.assert_rises_in_maturity(prices)


def test_each_theorem_sees_its_own_violation() -> None:
    """Negative controls: one planted arbitrage of 1e-10 trips each check, and only planted."""
    ours = Transport(KNOTS[31], skewed())
    kappa = np.linspace(0.6, 1.5, 46)
    call, put = ours.call(np.log(kappa)), ours.put(np.log(kappa))
    theorems.assert_convex_in_strike(kappa, call)
    dented = call.copy()
    dented[20] = 0.5 * (call[19] + call[21]) + 1e-10
    with pytest.raises(AssertionError, match="butterfly"):
        theorems.assert_convex_in_strike(kappa, dented)
    lifted = call.copy()
    lifted[30] = lifted[29] + 1e-10
    with pytest.raises(AssertionError, match="vertical"):
        theorems.assert_calls_fall_in_strike(lifted)
    with pytest.raises(AssertionError, match="intrinsic"):
        theorems.assert_within_bounds(kappa, np.maximum(1.0 - kappa, 0.0) - 1e-10)
    with pytest.raises(AssertionError, match="parity"):
        theorems.assert_parity(kappa, call + 1e-10, put)
