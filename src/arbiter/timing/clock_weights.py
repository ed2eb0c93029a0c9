"""Weights of nights and weekends that the quotes imply.

A clock is likely on which the variance of the log contract grows at a smooth rate, apart from
events. Daily expiries tell how a weekend compares with a weekday, and expiries at the open, hours
before others at the close, how a night compares with a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.timing.clock import MIN_WEIGHT, Clock
from arbiter.timing.event_variance import LogVariance, measure_misfit

_SESSION, _NIGHT, _WEEKEND = 390.0, 1050.0, 3930.0  # minutes
_WEEK = 5.0 * _SESSION + 4.0 * _NIGHT + _WEEKEND
_PRIOR = Clock.trading()
_PRIOR_DEVIATION = float(np.log(3.0))  # of both logarithms around those of French and Roll
# A search starts from the best of these weights of a night, and variances of a Monday, weekend
# included, over a Tuesday's. Quotes tell the latter far better.
_NIGHTS = (0.04, 0.08, 0.15, 0.3, 0.5, 0.8)
_MONDAYS = (0.85, 0.92, 1.0, 1.06, 1.12, 1.18, 1.25, 1.35)
_SEARCHES = 3
_SIMPLEX = np.array([[0.0, 0.0], [0.2, 0.0], [0.0, 0.03]])  # of both logarithms


class ClosedTime(NamedTuple):
    """Years of sessions, nights and weekends up to each expiry, ``(l,)``."""

    session: Array
    night: Array
    weekend: Array

    @classmethod
    def until(cls, as_of: np.datetime64, T: Array) -> ClosedTime:
        """Those from ``as_of`` to year fractions ``T``."""
        last = float(T.max())
        whole, night, weekend = (
            _average_week(*pair) * weigh_closed_time(*pair).change_time(as_of, last).at(T)
            for pair in ((1.0, 1.0), (0.5, 1.0), (1.0, 0.5))
        )
        night, weekend = 2.0 * (whole - night), 2.0 * (whole - weekend)
        return cls(whole - night - weekend, night, weekend)

    def weigh(self, overnight: float, weekend: float) -> Array:
        """Where the clock of two weights stands."""
        total = self.session + overnight * self.night + weekend * self.weekend
        return np.asarray(total / _average_week(overnight, weekend))


def weigh_closed_time(overnight: float, weekend: float) -> Clock:
    """The clock of two weights; a holiday has a weekend's."""
    return Clock(overnight=overnight, weekend=weekend, holiday=weekend)


def imply_weights(
    listed: LogVariance, closed: ClosedTime, gaps: Indices, given: Array
) -> tuple[float, float]:
    """The likeliest weights of nights and weekends.

    Args:
        listed: Variances of the log contracts.
        closed: Time up to their expiries.
        gaps: ``(g,)`` gaps with unknown events, each the place of the expiry after it.
        given: ``(l,)`` variance of the known events of each gap.
    """
    usual = np.log([_PRIOR.overnight, _PRIOR.weekend])

    def measure(place: Array) -> float:
        weights = _read_weights(place)
        prior = np.sum(((np.log(weights) - usual) / _PRIOR_DEVIATION) ** 2)
        return measure_misfit(listed, closed.weigh(*weights), gaps, given) + float(prior)

    starts = [np.log([night, monday]) for night in _NIGHTS for monday in _MONDAYS]
    starts.sort(key=measure)
    ends = [_descend(measure, start) for start in starts[:_SEARCHES]]
    return _read_weights(min(ends, key=measure))


def _average_week(overnight: float, weekend: float) -> float:
    """The weight of an average minute of an ordinary week."""
    return (5.0 * _SESSION + 4.0 * _NIGHT * overnight + _WEEKEND * weekend) / _WEEK


def _read_weights(place: Array) -> tuple[float, float]:
    """Weights of a night and a weekend, no less than the least and no more than a session's."""
    night, monday = np.exp(place).tolist()
    night = min(max(night, MIN_WEIGHT), 1.0)
    weekend = (monday * (_SESSION + _NIGHT * night) - _SESSION) / _WEEKEND
    return night, min(max(weekend, MIN_WEIGHT), 1.0)


def _descend(measure: Callable[[Array], float], start: Array) -> Array:
    from scipy.optimize import minimize  # an eighth of a second to import, and seldom used

    options = {"xatol": 1e-3, "fatol": 1e-3, "maxiter": 120, "initial_simplex": start + _SIMPLEX}
    return np.asarray(minimize(measure, start, method="Nelder-Mead", options=options).x)
