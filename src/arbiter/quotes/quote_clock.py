"""Quotes on a clock of variance: where it stands, and what the quotes say about its events."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arbiter.conventions import MINUTES_PER_YEAR, Array, Indices
from arbiter.timing.clock import Clock, Event
from arbiter.timing.event_variance import measure_log_variances, regress_on_events
from arbiter.timing.time_change import TimeChange


class QuotedSmile(NamedTuple):
    """What the quotes say about total variance."""

    maturities: Array  # (L,)
    expiry: Indices  # (m,)
    k: Array  # (m,)
    bid: Array  # (m,) total implied variance of the bids
    ask: Array  # (m,)


def resolve_clock(
    clock: Clock, as_of: np.datetime64, smile: QuotedSmile
) -> tuple[Clock, TimeChange, tuple[str, ...]]:
    """A clock of events with a variance for each, where it stands, and what there is to say.

    Raises:
        ValueError: For an event in the past, or where the quotes cannot tell a variance.
    """
    last = float(smile.maturities[-1])
    plain = clock.change_time(as_of, last)
    moments = np.array([event.moment for event in clock.events])
    T = (moments - as_of) / np.timedelta64(1, "m") / MINUTES_PER_YEAR
    if T.min() <= 0.0:
        past = clock.events[int(T.argmin())]
        raise ValueError(f"{past.name} at {past.when} is not after the quotes, {as_of}: drop it")
    listed = measure_log_variances(*smile[1:])
    count, gap = listed.expiry.size, np.searchsorted(smile.maturities[listed.expiry], T)
    unknown = np.array([event.variance is None for event in clock.events])
    gaps = np.unique(gap[unknown & (gap < count)])
    given = np.zeros(count)
    for place in np.flatnonzero(~unknown & (gap < count)).tolist():
        given[gap[place]] += clock.events[place].variance or 0.0
    years = plain.at(smile.maturities[listed.expiry])
    found = regress_on_events(listed, years, gaps, given)
    events: list[Event] = []
    warnings: list[str] = []
    gains = {}
    for place, event in enumerate(clock.events):
        told = event
        if unknown[place]:
            beside = [clock.events[i] for i in np.flatnonzero(unknown & (gap == gap[place]))]
            if gap[place] == count:
                warnings.append(
                    f"{event.name} at {event.when} is after the last expiry: no quote tells its "
                    "variance, and it is left out"
                )
                continue
            at = int(np.searchsorted(gaps, gap[place]))
            variance, error = float(found.events[at]), float(found.errors[at])
            told = replace(event, variance=variance / len(beside), error=error / len(beside))
            if len(beside) > 1 and event is beside[0]:
                warnings.append(_describe_sum(beside, variance, error))
        events.append(told)
        rate = float(found.rates[min(int(gap[place]), count - 1)])
        gains[told.moment] = (told.variance or 0.0) / rate
    full = clock.with_events(*events)
    return full, full.change_time(as_of, last, gains), tuple(warnings)


def _describe_sum(events: list[Event], variance: float, error: float) -> str:
    names = " and ".join(event.name for event in events)
    return (
        f"{names} lie between the same two expiries: the quotes tell the sum of their variances, "
        f"{variance:.3g} with a standard error of {error:.2g}, and each is given an equal share"
    )
