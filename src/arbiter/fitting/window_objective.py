"""The objective of a few expiries between fixed ones, as a function of their log-slopes alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import banded
from arbiter.fitting.fitted_surface import FitInput
from arbiter.fitting.interior_point import Expansion
from arbiter.fitting.misfit import MisfitPoint, QuoteMisfit
from arbiter.fitting.objective import HIGHEST_LOG_SLOPE, LOWEST_LOG_SLOPE
from arbiter.fitting.options import Roughness
from arbiter.fitting.order_constraints import OrderConstraints
from arbiter.fitting.roughness import Penalty, QuadraticPenalty
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.quotes import AskBounds, Quotes

# Log-slopes may pass those of a fixed neighbour, or a bound, by this much, where both are squeezed
# to one value; afterwards they are put in order.
ORDER_SLACK = 1e-9


class Window(NamedTuple):
    """Expiries ``first`` to ``end − 1``, which move."""

    first: int
    end: int

    @property
    def fixed_first(self) -> int:
        """The fixed expiry before the window, or the window's first if there is none."""
        return max(self.first - 1, 0)

    def widen(self, count: int) -> Window:
        """The window with as many expiries again on each side."""
        more = max((self.end - self.first) // 2, 1)
        return Window(max(self.first - more, 0), min(self.end + more, count))


@dataclass(frozen=True, eq=False)
class WindowPoint:
    """The objective of a window at one set of its log-slopes.

    Attributes:
        objective: The function that was evaluated.
        misfit: Its loss of the window's quotes.
        value: The objective.
        roughness_gradient: ``(p,)``.
    """

    objective: WindowObjective
    misfit: MisfitPoint
    value: float
    roughness_gradient: Array

    @cached_property
    def expansion(self) -> Expansion:
        """The objective with gradient and Gauss-Newton matrix over the window's unknowns."""
        return self.misfit.expand(self.value, self.roughness_gradient, self.objective.band)


@dataclass(frozen=True, eq=False)
class WindowObjective:
    """The objective of a fit as a function of the log-slopes of a window.

    Attributes:
        misfit: The loss of the window's quotes.
        quadratic: The roughness of the window and of the fixed expiries beside it.
        before: Log-slopes ``(n,)`` of the fixed expiry before the window; empty if there is none.
        after: Those of the one after it.
        band: ``(p, w)`` the matrix of the roughness over the window's unknowns alone.
    """

    misfit: QuoteMisfit
    quadratic: QuadraticPenalty
    before: Array
    after: Array
    band: Array = field(init=False)

    def __post_init__(self) -> None:
        band = banded.cut_out(self.quadratic.band, self.own)
        object.__setattr__(self, "band", band)

    @classmethod
    def from_quotes(
        cls, quotes: Quotes, source: FitInput, roughness: Roughness, window: Window, logs: Array
    ) -> WindowObjective:
        """The objective of a window.

        Args:
            quotes: All quotes.
            source: What was fitted before.
            roughness: Weights of the roughness.
            window: The expiries that move.
            logs: ``(L, n)`` log-slopes of all expiries.
        """
        misfit = QuoteMisfit.from_quotes(select_expiries(quotes, window), source.options)
        first, end = window.fixed_first, min(window.end + 1, quotes.maturities.size)
        before, after = logs[first : window.first].reshape(-1), logs[window.end : end].reshape(-1)
        layout = UnknownLayout(misfit.layout.knots, end - first, 1)
        reach = np.zeros((end - first, 2))  # where the quotes of fixed expiries end does not matter
        reach[window.first - first :][: window.end - window.first] = misfit.smiles.quoted_range
        penalty = Penalty(layout, quotes.clock_years[first:end], reach)
        centre = np.repeat(penalty.tau, layout.knot_count)  # flat volatility
        quadratic = QuadraticPenalty(centre, penalty.weigh(roughness))
        return cls(misfit, quadratic, before, after)

    @property
    def own(self) -> slice:
        """The unknowns of the window among those of the window and its neighbours."""
        return slice(self.before.size, self.before.size + self.misfit.layout.size)

    def evaluate(self, z: Array) -> WindowPoint:
        """The objective at the unknowns of the window."""
        misfit = self.misfit.evaluate_at(z)
        roughness, gradient = self.quadratic.evaluate_at(self.join_neighbours(z))
        return WindowPoint(self, misfit, misfit.loss + roughness, gradient[self.own])

    def join_neighbours(self, z: Array) -> Array:
        """The unknowns of the window and of the fixed expiries beside it."""
        return np.concatenate([self.before, z, self.after])

    def build_constraints(self) -> OrderConstraints:
        """The star order within the window and with its fixed neighbours, or the bounds."""
        n, own = self.misfit.layout.knot_count, np.arange(self.misfit.layout.size)
        none, zero = np.full(n, -1), np.zeros(n)
        low = zero + (self.before if self.before.size else LOWEST_LOG_SLOPE)
        high = zero + (self.after if self.after.size else HIGHEST_LOG_SLOPE)
        inner = own[n:], own[:-n], np.zeros(own.size - n)
        first, last = (own[:n], none, ORDER_SLACK - low), (none, own[-n:], ORDER_SLACK + high)
        # links between expiries in their order, then bounds
        parts = [first, inner, last]
        if not self.before.size:
            parts = [inner, last, first]
        if not self.after.size:
            parts = [part for part in parts if part is not last] + [last]
        return OrderConstraints(*(np.concatenate(row) for row in zip(*parts, strict=True)))

    @property
    def expiry_count(self) -> int:
        """The expiries of the window and the fixed ones beside it."""
        layout = self.misfit.layout
        return layout.expiry_count + (self.before.size + self.after.size) // layout.knot_count


def select_expiries(quotes: Quotes, window: Window) -> Quotes:
    """The quotes of a window, without all that is not fitted."""
    ends, bounds = list(window), quotes.bounds
    some, own = slice(*ends), slice(*np.searchsorted(quotes.expiry, ends).tolist())
    above = slice(*np.searchsorted(bounds.expiry, ends).tolist())
    return Quotes(
        quotes.maturities[some],
        quotes.forwards[some],
        quotes.discounts[some],
        quotes.expiry[own] - window.first,
        quotes.k[own],
        quotes.bid[own],
        quotes.ask[own],
        quotes.labels[some],
        exclusions=quotes.exclusions,
        clock=quotes.clock,
        time=quotes.time,
        bounds=AskBounds(bounds.expiry[above] - window.first, bounds.k[above], bounds.ask[above]),
    )
