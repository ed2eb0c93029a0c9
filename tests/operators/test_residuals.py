"""Volatilities that the operator sees are those of the library, next to every bound too."""

from __future__ import annotations

import numpy as np
import polars as pl

from arbiter.operators import residuals
from arbiter.operators.quote_rows import ImpliedVolatilities
from arbiter.quotes import Quotes


def test_prices_next_to_a_bound_or_to_nothing_have_the_volatility_of_the_library() -> None:
    k = -0.40528951506723365
    T, strikes = np.full(4, 0.5), np.array([k, -0.1, 0.0, 0.1])
    bid = np.array([1e-310, 0.03, 0.05, 1e-305])
    ask = np.array([np.nextafter(np.exp(k), 0.0), 0.04, 0.06, 0.04])
    quotes = Quotes.from_frame(pl.DataFrame({"T": T, "k": strikes, "bid": bid, "ask": ask}))
    assert len(quotes) == 4
    found, wanted = residuals.implied([quotes])[0], ImpliedVolatilities.from_quotes(quotes)
    for one, other in zip(found, wanted, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-10)
    assert np.abs(found.bid / found.ask - 1.0).min() > 1e-3
