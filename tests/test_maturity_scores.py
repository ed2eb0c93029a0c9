"""Scores of every expiry by bucket: against a model whose violations are known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.maturity_scores import MaturityScores, find_buckets, score_by_maturity
from arbiter.quotes import AskBounds, Quotes

DAYS = (0.25, 1.0, 7.0, 8.0, 30.0, 31.0, 180.0, 181.0)


class Shifted:
    """A model that lies a known number of half-spreads from every mid."""

    def __init__(self, quotes: Quotes, half_spreads: Array) -> None:
        self.price = dict(
            zip(
                zip(quotes.T.tolist(), quotes.k.tolist(), strict=True),
                (quotes.mid + half_spreads * quotes.half_spread).tolist(),
                strict=True,
            )
        )

    def otm(self, k: Any, T: Any) -> Array:
        found = zip(np.ravel(T).tolist(), np.ravel(k).tolist(), strict=True)
        return np.array([self.price.get(place, 0.01) for place in found])

    def iv(self, k: Any, T: Any) -> Array:
        return np.full(np.broadcast_shapes(np.shape(k), np.shape(T)), 0.2)


def listed(days: tuple[float, ...] = DAYS, as_of: str | None = None, strikes: int = 5) -> Quotes:
    T = np.repeat(np.array(days) / 365.0, strikes)
    k = np.tile(np.linspace(-1.5, 1.5, strikes), len(days)) * 0.2 * np.sqrt(T)
    iv = np.full(T.size, 0.2)
    return Quotes.from_frame(
        {"T": T, "k": k, "iv_bid": iv - 0.01, "iv_ask": iv + 0.01}, as_of=as_of
    )


def scored(quotes: Quotes, half_spreads: Array) -> MaturityScores:
    return score_by_maturity(Shifted(quotes, half_spreads), quotes)


def test_a_model_on_every_mid_has_no_violation() -> None:
    found = scored(listed(), np.zeros(40)).overall
    assert (found.quotes, found.expiries) == (40, 8)
    assert (found.inside_bid_ask, found.worst_half_spreads) == (1.0, 0.0)
    assert found.slices_without_violation == 1.0
    assert found.rms_half_spreads < 1e-9


def test_known_violations_are_counted_and_measured() -> None:
    shift = np.full(40, 0.5)
    shift[[0, 1, 12]] = 1.25, -3.0, 1.5  # two on the first expiry, one on the third
    found = scored(listed(), shift)
    assert found.overall.inside_bid_ask == pytest.approx(37 / 40)
    assert found.overall.worst_half_spreads == pytest.approx(2.0)
    assert found.overall.slices_without_violation == pytest.approx(6 / 8)
    assert found.overall.rms_half_spreads == pytest.approx(np.sqrt(np.mean(shift**2)))
    same_day, week = found.buckets["same_day"], found.buckets["1-7d"]
    assert (same_day.worst_half_spreads, week.worst_half_spreads) == pytest.approx((2.0, 0.5))
    assert (same_day.slices_without_violation, week.slices_without_violation) == (0.0, 0.5)
    assert found.buckets["longer"].inside_bid_ask == 1.0  # the control


def test_a_price_on_a_quote_is_no_violation() -> None:
    found = scored(listed(), np.ones(40)).overall
    assert (found.inside_bid_ask, found.worst_half_spreads) == (1.0, 0.0)
    over = scored(listed(), np.full(40, 1.001)).overall
    assert over.inside_bid_ask == 0.0
    assert over.worst_half_spreads == pytest.approx(0.001)


def test_buckets_end_at_their_last_day() -> None:
    assert find_buckets(listed()).tolist() == [0, 1, 1, 2, 2, 3, 3, 4]
    assert find_buckets(listed((0.99, 7.9, 8.1))).tolist() == [0, 1, 2]


def test_days_are_those_of_the_calendar_where_the_moment_is_known() -> None:
    """From 20:00, four hours later is the next day; from 10:00, half a day later is not."""
    evening = listed((3.0 / 24.0, 5.0 / 24.0, 7.9), "2026-03-04T20:00")
    assert find_buckets(evening).tolist() == [0, 1, 2]
    morning = listed((0.5, 1.0), "2026-03-04T10:00")
    assert find_buckets(morning).tolist() == [0, 1]


def test_buckets_add_up_to_the_whole() -> None:
    found = scored(listed(), np.linspace(-2.0, 2.0, 40))
    parts = found.buckets.values()
    assert sum(part.quotes for part in parts) == found.overall.quotes == 40
    assert sum(part.expiries for part in parts) == found.overall.expiries == 8
    inside = sum(part.quotes * part.inside_bid_ask for part in parts)
    assert inside == pytest.approx(40 * found.overall.inside_bid_ask)


def test_a_bucket_without_quotes_is_null_in_json() -> None:
    found = scored(listed((40.0,)), np.zeros(5))
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["buckets"]["same_day"] == {
        "quotes": 0,
        "expiries": 0,
        "inside_bid_ask": None,
        "worst_half_spreads": None,
        "slices_without_violation": None,
        "rms_half_spreads": None,
    }
    assert plain["buckets"]["31-180d"]["quotes"] == plain["quotes"] == 5
    assert plain["one_sided"] == {"quotes": 0, "violated": 0, "contradictory": []}


def test_locked_quotes_are_inside_or_not_and_have_no_half_spread() -> None:
    quotes = listed((40.0,))
    locked = replace(quotes, bid=quotes.mid, ask=quotes.mid)
    found = score_by_maturity(Shifted(quotes, np.array([0.0, 0.0, 0.5, 0.0, 0.0])), locked).overall
    assert found.inside_bid_ask == pytest.approx(0.8)
    assert np.isnan(found.rms_half_spreads)
    assert found.slices_without_violation == 0.0


def test_a_price_that_is_not_a_number_is_outside_and_null() -> None:
    shift = np.zeros(40)
    shift[3] = np.nan
    found = scored(listed(), shift).overall
    assert found.inside_bid_ask == pytest.approx(39 / 40)
    assert found.to_dict()["worst_half_spreads"] is None


def test_asks_without_a_bid_are_violated_from_above_only() -> None:
    quotes = listed((40.0, 90.0))
    # the model is 0.01 wherever nothing is quoted
    bounds = AskBounds(
        np.array([0, 0, 1]), np.array([0.4, 0.5, 0.5]), np.array([0.02, 0.01, 0.009])
    )
    found = score_by_maturity(Shifted(quotes, np.zeros(10)), replace(quotes, bounds=bounds))
    assert (found.one_sided, found.one_sided_violated) == (3, 1)
    assert found.overall.quotes == 10
