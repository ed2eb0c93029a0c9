"""Two standard errors hold the truth at every time to expiry, the last half hour included."""

from __future__ import annotations

from functools import cache

import numpy as np
from benchmarks.error_coverage import BUCKETS, measure_known, share_within

from arbiter.conventions import Array, Indices
from clocked_market import draw_day
from counts import count
from listed_days import draw_listed_day


@cache
def measured() -> list[tuple[Array, Indices]]:
    """Errors in standard errors on days of two laws: one to the last minutes, one of events."""
    days = count(full=20, reduced=4)
    clocked = (draw_day(seed) for seed in range(days))
    return [
        *(measure_known(*draw_listed_day(seed)) for seed in range(days)),
        *(measure_known(day.quotes, day.iv) for day in clocked),
    ]


def test_two_errors_hold_the_truth_in_every_bucket() -> None:
    share, points = share_within(measured()).T
    assert (points >= count(300, 50)).all()
    # the longest expiries of the first law have 88 %: its wings are rougher than its middle
    assert (share >= 0.88).all(), dict(zip(BUCKETS, share.tolist(), strict=True))
    assert 0.92 < np.average(share, weights=points) < 0.99


def test_errors_of_half_the_size_would_fall_short() -> None:
    """The control."""
    share, points = share_within(measured(), errors=1.0).T
    assert (share < 0.88).all(), dict(zip(BUCKETS, share.tolist(), strict=True))
    assert np.average(share, weights=points) < 0.8
