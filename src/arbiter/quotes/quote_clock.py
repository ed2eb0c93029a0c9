"""Quotes on a clock of variance: where it stands, and what the quotes say about its events."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arbiter.conventions import MINUTES_PER_YEAR, Array, Indices
from arbiter.timing.clock import Clock, Event
from arbiter.timing.clock_weights import ClosedTime, imply_weights, weigh_closed_time
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
    listed = measure_log_variances(*smile[1:])
    T = _place_events(clock, as_of)
    count, gap = listed.expiry.size, np.searchsorted(smile.maturities[listed.expiry], T)
    unknown = np.array([event.variance is None for event in clock.events])
    gaps, given = _sort_gaps(clock, gap, count)
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
                    f"{event.name} at {event.when} is after the last expiry with five quotes "
                    "around the forward: no quote tells its variance, and it is left out"
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


def imply_clock(events: tuple[Event, ...], as_of: np.datetime64, smile: QuotedSmile) -> Clock:
    """The clock whose nights and weekends weigh what the quotes imply, with these events.

    Raises:
        ValueError: For an event in the past, or where too few expiries are quoted.
    """
    listed = measure_log_variances(*smile[1:])
    T = smile.maturities[listed.expiry]
    clock = Clock(events=events)
    gap = np.searchsorted(T, _place_events(clock, as_of))
    closed = ClosedTime.until(as_of, T)
    weights = imply_weights(listed, closed, *_sort_gaps(clock, gap, T.size))
    return weigh_closed_time(*weights).with_events(*events)


def _place_events(clock: Clock, as_of: np.datetime64) -> Array:
    """``(e,)`` year fractions of the events of a clock, none in the past."""
    moments = np.array([event.moment for event in clock.events], dtype="datetime64[m]")
    T = (moments - as_of) / np.timedelta64(1, "m") / MINUTES_PER_YEAR
    if np.any(T <= 0.0):
        past = clock.events[int(T.argmin())]
        raise ValueError(f"{past.name} at {past.when} is not after the quotes, {as_of}: drop it")
    return np.asarray(T, dtype=np.float64)


def _sort_gaps(clock: Clock, gap: Indices, count: int) -> tuple[Indices, Array]:
    """Gaps with unknown events, and the known variance ``(count,)`` of each gap."""
    unknown = np.array([event.variance is None for event in clock.events], dtype=bool)
    given = np.zeros(count)
    for place in np.flatnonzero(~unknown & (gap < count)).tolist():
        given[gap[place]] += clock.events[place].variance or 0.0
    return np.unique(gap[unknown & (gap < count)]), given


def _describe_sum(events: list[Event], variance: float, error: float) -> str:
    names = " and ".join(event.name for event in events)
    return (
        f"{names} lie between the same two expiries: the quotes tell the sum of their variances, "
        f"{variance:.3g} with a standard error of {error:.2g}, and each is given an equal share"
    )
