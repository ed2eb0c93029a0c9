"""Any ragged set of quotes ends in a certified surface and a truthful status."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FittedSurface, Status, fit
from arbiter.fitting.misfit import compute_half_spreads
from arbiter.quotes import Quotes
from arbiter.scoring import inside_bid_ask
from counts import FULL, count

DAY = 1.0 / 365.0


def smile(T: ArrayLike, k: ArrayLike, level: float = 0.2, skew: float = -0.1) -> Array:
    """An index-like smile: a skew per standard deviation, free of arbitrage where it is used."""
    T, k = np.asarray(T), np.asarray(k)
    z = k / (level * np.sqrt(T))
    return np.asarray(level * (1.0 + skew * np.tanh(z / 4.0) * 4.0 + 0.01 * np.minimum(z * z, 9.0)))


def quoted(T: ArrayLike, k: ArrayLike, iv: ArrayLike, share: float = 0.01) -> Quotes:
    T, k, iv = (np.ravel(a) for a in np.broadcast_arrays(T, k, iv))
    return Quotes.from_frame(
        {"T": T, "k": k, "iv_bid": (1.0 - share) * iv, "iv_ask": (1.0 + share) * iv}
    )


def check(surface: FittedSurface, quotes: Quotes, certify: bool = True) -> float:
    """Certified, with a truthful report; returns the share of quotes inside bid-ask."""
    if certify:
        assert surface.certificate().passed
    assert surface.result is not None
    assert surface.result.status in (Status.CONVERGED, Status.MAX_ITERATIONS, Status.STALLED)
    assert np.all(np.isfinite(surface.result.residuals))
    assert np.array_equal(surface.maturities, quotes.maturities)
    price = surface.otm(quotes.k, quotes.T)
    unit = compute_half_spreads(
        quotes, FitOptions()
    )  # a half-spread, or the least that counts as one
    # slopes near 20 on wide segments: the quadrature of a fit is coarser than the surface's
    assert surface.result.residuals * unit == pytest.approx(price - quotes.mid, abs=1e-7)
    return inside_bid_ask(price, quotes)


def one(T: float, count: int, width: float = 2.0, level: float = 0.2) -> tuple[Array, Array, Array]:
    """An expiry with ``count`` strikes within ``width`` standard deviations."""
    k = np.linspace(-width, 0.7 * width, count) * level * np.sqrt(T)
    return np.full(count, T), k, smile(T, k, level)


def together(*expiries: tuple[Array, Array, Array]) -> Quotes:
    T, k, iv = (np.concatenate(part) for part in zip(*expiries, strict=True))
    return quoted(T, k, iv)


GOOD = {
    "three quotes on one expiry": together(one(0.5, 3)),
    "one quote on each of three": together(*(one(t, 1) for t in (0.1, 0.5, 1.0))),
    "3 and 400 strikes": together(one(0.1, 3), one(0.6, 400)),
    "morning and afternoon": together(one(30 * DAY - 6.5 / 24 * DAY, 21), one(30 * DAY, 25)),
    "150 % volatility": together(*(one(t, 15, level=1.5) for t in (0.1, 0.5, 2.0))),
    "5 % volatility": together(*(one(t, 15, level=0.05) for t in (0.1, 0.5, 2.0))),
    "one day to go": together(one(DAY, 25, 4.0), one(2 * DAY, 25, 4.0)),
    "half an hour to go": together(one(DAY / 48, 30)),
    "calls only, far out": quoted(0.5, np.linspace(0.3, 0.6, 5), 0.25),
    "thirty years": together(one(10.0, 9), one(30.0, 9)),
}


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("name", list(GOOD))
def test_quotes_without_arbitrage_are_met(name: str, components: int) -> None:
    quotes = GOOD[name]
    surface = fit(quotes, options=FitOptions(components=components))
    assert check(surface, quotes, certify=FULL or components == 1) == 1.0
    assert surface.result is not None
    assert surface.result.status is Status.CONVERGED
    moved = Quotes.from_frame(
        {"T": quotes.T, "k": quotes.k, "iv_bid": 1.1 * quotes.iv_bid, "iv_ask": 1.1 * quotes.iv_ask}
    )
    assert inside_bid_ask(surface.otm(moved.k, moved.T), moved) < 0.1


def test_sixty_expiries_of_four_hundred_strikes() -> None:
    expiries, strikes = count(full=60, reduced=30), count(full=400, reduced=60)
    quotes = together(*(one(t, strikes, 3.0) for t in np.geomspace(2 * DAY, 5.0, expiries)))
    surface = fit(quotes)
    assert check(surface, quotes) > 0.999
    assert surface.result is not None
    assert surface.result.status is Status.CONVERGED
    assert surface.result.iterations < 60


def calendar() -> Quotes:
    k = np.linspace(-0.2, 0.15, 15)
    return quoted([[0.25], [0.5]], k, [[0.3], [0.15]])


def butterfly() -> Quotes:
    iv = np.full(15, 0.2)
    iv[[7, 9]] = 0.26, 0.15
    return quoted(0.25, np.linspace(-0.2, 0.15, 15), iv)


def scattered() -> Quotes:
    rng = np.random.default_rng(3)
    T = np.arange(1, 6)[:, None] / 10.0
    return quoted(T, np.linspace(-0.3, 0.2, 20), 0.2 * np.exp(0.4 * rng.normal(size=(5, 20))))


@pytest.mark.parametrize("make", [calendar, butterfly, scattered])
def test_quotes_with_arbitrage_end_in_a_surface_without(make: object) -> None:
    assert callable(make)
    quotes = make()
    surface = fit(quotes)
    assert check(surface, quotes) < 1.0  # no surface can have them all
    assert surface.result is not None
    assert np.abs(surface.result.residuals).max() > 3.0


def test_quotes_without_a_spread_count_as_ten_basis_points() -> None:
    T, k, iv = one(0.5, 15)
    locked = fit(quoted(T, k, iv, share=0.0))
    assert np.abs(locked.iv(k, T) - iv).max() < 10e-4
    assert locked.result is not None
    unsure = FitOptions(unsure=200e-4)
    loose = fit(quoted(T, k, iv * (1.0 + 0.02 * (-1.0) ** np.arange(15)), 0.0), options=unsure)
    assert loose.result is not None
    assert np.abs(loose.result.residuals).max() < 1.0


@st.composite
def ragged(draw: st.DrawFn) -> Quotes:
    """1 to 8 expiries with 1 to 30 strikes, noise and spreads of all sizes, some arbitrage."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    expiries = draw(st.integers(1, 8))
    first, span = draw(st.floats(np.log(0.5 * DAY), 0.0)), draw(st.floats(0.1, 6.0))
    T = np.unique(np.exp(first + span * np.sort(rng.uniform(size=expiries))))
    T = T[T <= 50.0] if T[0] <= 50.0 else T[:1] / T[0]  # more are days, and refused
    level = draw(st.floats(0.05, 1.5))
    noise, share = draw(st.floats(0.0, 0.3)), draw(st.sampled_from([0.0, 1e-4, 0.01, 0.3]))
    width = draw(st.floats(0.5, 4.0))
    parts = []
    for t in T:
        size = int(rng.integers(1, 31)) + 2 * (T.size == 1)
        k = np.unique(rng.uniform(-width, width, size)) * level * np.sqrt(t)
        iv = smile(t, k, level) * np.exp(noise * rng.normal(size=k.size))
        parts.append((np.full(k.size, t), k, iv))
    T, k, iv = (np.concatenate(part) for part in zip(*parts, strict=True))
    return quoted(T, k, iv, share)


@settings(max_examples=count(full=300, reduced=12))
@given(ragged(), st.sampled_from([1, 1, 2]))
def test_every_fit_is_certified(quotes: Quotes, components: int) -> None:
    if len(quotes) < 3:
        with pytest.raises(ValueError, match="usable quotes"):
            fit(quotes)
        return
    surface = fit(quotes, options=FitOptions(components=components))
    check(surface, quotes)
    error = surface.iv_error(quotes.k, quotes.T)
    known = np.isfinite(surface.iv(quotes.k, quotes.T))
    assert np.all(error[known] >= 0.0)


def test_the_certificate_would_see_a_planted_fault() -> None:
    surface = fit(GOOD["one day to go"])
    prices = surface.to_frame()
    assert surface.certificate().passed
    from arbiter.audit.certificate import audit

    iv = prices["iv"].to_numpy().copy()
    iv[len(iv) // 2] *= 1.5
    assert not audit({"T": prices["T"], "k": prices["k"], "iv": iv}).passed
