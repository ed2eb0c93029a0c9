"""Weights of nights and weekends: those of a known market are found, and serve between expiries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arbiter.fitting import FitOptions, fit
from arbiter.timing.clock import Clock
from arbiter.timing.clock_weights import ClosedTime, weigh_closed_time
from clocked_market import ClockedDay, draw_day
from counts import count

MARKETS = ((0.3, 0.1), (1.0 / 12.78, 1.0 / 70.4), (0.6, 0.3))


def find_weights(day: ClockedDay) -> tuple[float, float]:
    """What the quotes of a day imply, with the variances of its events unknown."""
    events = (replace(event, variance=None) for event in day.events)
    clock = day.quotes.implied_clock(*events)
    return clock.overnight, clock.weekend


@pytest.mark.parametrize("weights", MARKETS)
def test_the_weights_of_a_market_are_found(weights: tuple[float, float]) -> None:
    market = weigh_closed_time(*weights)
    days = [draw_day(seed, clock=market, opens=True) for seed in range(count(full=40, reduced=4))]
    found = np.log([find_weights(day) for day in days])
    missed = found - np.log(weights)
    print(weights, "RMS of logarithms", np.sqrt(np.mean(missed**2, axis=0)).round(2))
    assert (np.median(np.abs(missed), axis=0) < 0.2).all()
    assert (np.abs(missed.mean(axis=0)) < 0.2).all()
    for other in MARKETS:  # the control: no two of these markets are taken for one another
        if other != weights:
            assert (np.median(np.abs(found - np.log(other)), axis=0) > 0.4).all()


def test_an_expiry_left_out_is_met_better_on_the_implied_clock() -> None:
    market = weigh_closed_time(0.3, 0.1)
    errors: dict[str, list[float]] = {"minutes": [], "trading": [], "implied": []}
    for seed in range(1000, 1000 + count(full=10, reduced=2)):
        day = draw_day(seed, events=0, clock=market, opens=True)
        quotes = day.quotes
        options = FitOptions(roughness=fit(quotes).result.roughness)
        for left in range(1, quotes.maturities.size - 1, 3):
            own = quotes.expiry == left
            near = own & (np.abs(quotes.k) <= 2.0 * quotes.iv_mid * np.sqrt(quotes.T))
            rest = quotes.select(~own)
            clocks = (Clock(), Clock.trading(), rest.implied_clock())
            for name, clock in zip(errors, clocks, strict=True):
                surface = fit(rest, clock=clock, options=options)
                missed = surface.iv(quotes.k[near], quotes.T[near]) - day.iv[near]
                errors[name].append(1e4 * float(np.sqrt(np.mean(missed**2))))
    means = {name: float(np.mean(found)) for name, found in errors.items()}
    print({name: round(value, 1) for name, value in means.items()})
    assert means["implied"] < 0.6 * means["trading"]
    assert means["implied"] < 0.6 * means["minutes"]


@pytest.mark.parametrize(("overnight", "weekend"), [(0.05, 0.02), (0.7, 0.3), (1.0, 1.0)])
def test_closed_time_weighs_as_the_clock_does(overnight: float, weekend: float) -> None:
    as_of = np.datetime64("2023-09-14T16:15:00")
    T = np.array([0.002, 0.01, 0.5, 3.0, 6.0])
    expected = weigh_closed_time(overnight, weekend).change_time(as_of, 6.0).at(T)
    found = ClosedTime.until(as_of, T).weigh(overnight, weekend)
    assert np.allclose(found, expected, rtol=1e-12)
    assert not np.allclose(ClosedTime.until(as_of, T).weigh(overnight, 0.5 * weekend), expected)


def test_quotes_that_cannot_imply_a_clock_are_refused() -> None:
    day = draw_day(0)
    quotes, event = day.quotes, day.events[0]
    with pytest.raises(ValueError, match="as_of"):
        replace(quotes, as_of=None).implied_clock()
    with pytest.raises(ValueError, match="not after the quotes"):
        quotes.implied_clock(replace(event, when="2020-01-02T14:00"))
    with pytest.raises(ValueError, match="weights of the clock"):
        quotes.select(quotes.expiry < 3).implied_clock()
    assert quotes.implied_clock(event).events == (event,)
