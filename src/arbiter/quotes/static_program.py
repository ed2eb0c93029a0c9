"""The linear program of static arbitrage: which prices a market without it can have.

Without static arbitrage the call prices of an expiry are convex and nonincreasing in the strike,
from one at strike zero, and those of two expiries are ordered at every strike. At a finite set of
strikes these are linear inequalities, and prices that meet them extend to all strikes as broken
lines. So the program is exact for one expiry. Between expiries it compares prices at their quoted
strikes alone, which a market must meet.

Unknowns are out-of-the-money prices in half-spreads from the mids, and every row is scaled by its
largest coefficient: the solver's tolerance is then 1e-7 half-spreads, whatever the price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array, Indices
from arbiter.quotes.quote_set import Quotes

Mask = NDArray[np.bool_]

NEGLIGIBLE = 1e-6  # half-spreads: ten times the solver's tolerance
SOLVER_METHODS = ("highs-ds", "highs-ipm")  # the second where the first gives up
_LOCKED_UNIT = 1e-3  # of the price: the unit of a quote without a spread


class Multipliers(NamedTuple):
    """What a bound on a price rests on, as places among the quotes of a program.

    Attributes:
        bids: Quotes that may be no lower.
        asks: Quotes that may be no higher.
        bounds: Asks without a bid.
    """

    bids: Indices
    asks: Indices
    bounds: Indices


class LowestPrice(NamedTuple):
    """The least price that the other quotes leave possible, forward units, and why."""

    price: float
    because: Multipliers


@dataclass(frozen=True, eq=False)
class StaticProgram:
    """The prices of some expiries that are free of static arbitrage, as linear inequalities.

    Attributes:
        matrix: ``(rows, n)`` sparse; ``matrix @ r ≤ limit`` is freedom from static arbitrage.
        limit: ``(rows,)``.
        base: ``(n,)`` the price at ``r = 0``; the mid where there is a quote.
        unit: ``(n,)`` what one of ``r`` is worth; the half-spread where there is a quote.
        quotes: ``(m,)`` which of the quotes are in the program.
        at: ``(m,)`` the unknown of each.
        reach: ``(m,)`` half its spread in its unit: 1, or 0 for a quote without a spread.
        bounds: ``(u,)`` which of the asks without a bid are in it.
        bound_at: ``(u,)`` the unknown of each.
        bound_limit: ``(u,)`` the ask, in ``r``.
    """

    matrix: Any
    limit: Array
    base: Array
    unit: Array
    quotes: Indices
    at: Indices
    reach: Array
    bounds: Indices
    bound_at: Indices
    bound_limit: Array

    @classmethod
    def from_quotes(cls, quotes: Quotes, first: int, last: int) -> StaticProgram:
        """The program of neighbouring expiries.

        Args:
            quotes: All quotes of the moment.
            first: The first expiry, by index.
            last: The last one, included.
        """
        from scipy import sparse

        bounds = quotes.bounds
        own = np.flatnonzero((quotes.expiry >= first) & (quotes.expiry <= last))
        asks = np.flatnonzero((bounds.expiry >= first) & (bounds.expiry <= last))
        k = np.unique(np.concatenate([quotes.k[own], bounds.k[asks]]))
        at = k.size * (quotes.expiry[own] - first) + np.searchsorted(k, quotes.k[own])
        bound_at = k.size * (bounds.expiry[asks] - first) + np.searchsorted(k, bounds.k[asks])
        half = quotes.half_spread[own]
        scale = np.where(half > 0.0, half, _LOCKED_UNIT * quotes.mid[own])
        base, unit = np.empty((2, last - first + 1, k.size))
        for row in range(last - first + 1):
            of = quotes.expiry[own] == first + row
            known = (quotes.k[own[of]], quotes.mid[own[of]], scale[of])
            if not of.any():  # asks alone: such a price lies between nothing and its ask
                lone = asks[bounds.expiry[asks] == first + row]
                known = (bounds.k[lone], 0.5 * bounds.ask[lone], 0.5 * bounds.ask[lone])
            if not known[0].size:
                raise ArithmeticError(f"{quotes.labels[first + row]} has no quote")
            base[row], unit[row] = (
                np.exp(np.interp(k, known[0], np.log(part))) for part in known[1:]
            )
        base.ravel()[at], unit.ravel()[at] = quotes.mid[own], scale
        parts = [_order_strikes(k, *row) for row in zip(base, unit, strict=True)]
        matrix, limit = sparse.block_diag([part[0] for part in parts]), [p[1] for p in parts]
        later, slack = _order_maturities(base, unit)
        flat, units = base.ravel(), unit.ravel()
        return cls(
            sparse.vstack([matrix, later], format="csc"),
            np.concatenate([*limit, slack]),
            flat,
            units,
            own,
            at,
            half / scale,
            asks,
            bound_at,
            (bounds.ask[asks] - flat[bound_at]) / units[bound_at],
        )

    def find_least_violation(self, kept: Mask) -> float:
        """The least possible largest distance of a quote outside its spread, half-spreads.

        Args:
            kept: ``(u,)`` which of the asks without a bid are met.
        """
        from scipy import sparse

        rows = sparse.eye(self.base.size, format="csc")[self.at]
        one = np.ones((self.at.size, 1))
        found = _solve(
            np.append(np.zeros(self.base.size), 1.0),
            sparse.bmat([[self.matrix, None], [rows, -one], [-rows, -one]], format="csc"),
            np.concatenate([self.limit, self.reach, self.reach]),
            np.append(-self.base / self.unit, 0.0),
            np.append(self._highest(kept), np.inf),
        )
        return float(found.fun)

    def repair(self, kept: Mask) -> Array:
        """``(m,)`` distances outside the spreads, of least sum, half-spreads.

        Args:
            kept: ``(u,)`` which of the asks without a bid are met.
        """
        from scipy import sparse

        size, count = self.base.size, self.at.size
        rows = sparse.eye(size, format="csc")[self.at]
        over = -sparse.eye(count)
        matrix = [[self.matrix, None, None], [rows, over, None], [-rows, None, over]]
        found = _solve(
            np.concatenate([np.zeros(size), np.ones(2 * count)]),
            sparse.bmat(matrix, format="csc"),
            np.concatenate([self.limit, self.reach, self.reach]),
            np.concatenate([-self.base / self.unit, np.zeros(2 * count)]),
            np.concatenate([self._highest(kept), np.full(2 * count, np.inf)]),
        )
        return np.asarray(found.x[size : size + count] + found.x[size + count :])

    def find_lowest_price(self, bound: int, kept: Mask, slack: float) -> LowestPrice:
        """The least price of an option that quotes leave possible.

        Args:
            bound: Which of the asks without a bid, among those of the program; not itself met.
            kept: ``(u,)`` which of the others are met.
            slack: How far outside their spreads quotes may be, half-spreads.
        """
        place = self.bound_at[bound]
        cost = np.zeros(self.base.size)
        cost[place] = 1.0
        low, high = -self.base / self.unit, self._highest(kept)
        low[self.at] = np.maximum(low[self.at], -self.reach - slack)
        high[self.at] = np.minimum(high[self.at], self.reach + slack)
        found = _solve(cost, self.matrix, self.limit, low, high)
        price = float(self.base[place] + self.unit[place] * found.fun)
        below, above = found.lower.marginals > NEGLIGIBLE, found.upper.marginals < -NEGLIGIBLE
        quoted = np.zeros(self.base.size, dtype=np.bool_)
        quoted[self.at] = True
        because = Multipliers(
            self.quotes[below[self.at]],
            self.quotes[above[self.at]],
            self.bounds[kept & above[self.bound_at] & ~quoted[self.bound_at]],
        )
        return LowestPrice(price, because)

    def _highest(self, kept: Mask) -> Array:
        """``(n,)`` the highest ``r`` that asks without a bid allow."""
        high = np.full(self.base.size, np.inf)
        np.minimum.at(high, self.bound_at[kept], self.bound_limit[kept])
        return high


def _order_strikes(k: Array, base: Array, unit: Array) -> tuple[Any, Array]:
    """Rows of one expiry: prices are convex and calls nonincreasing in the strike."""
    from scipy import sparse

    n, kappa, put = k.size, np.append(0.0, np.exp(k)), np.append(True, k < 0.0)
    parity = put * (1.0 - kappa)  # what turns a put into a call
    price, scale = np.append(0.0, base) + parity, np.append(0.0, unit)  # at zero the call is 1
    width = np.diff(kappa)
    share = width[:-1] / (width[:-1] + width[1:])  # weight of the right neighbour in the chord
    # on the middle's own side, so that a small put is no difference of two calls near one
    shift = np.where(put[1:-1, None], 1.0 - np.stack([kappa[:-2], kappa[1:-1], kappa[2:]], 1), 0.0)
    left, middle, right = (
        np.append(0.0, base)[part] + (parity[part] - shift[:, j])
        for j, part in enumerate((slice(0, n - 1), slice(1, n), slice(2, n + 1)))
    )
    rows, columns = np.arange(n - 1), np.arange(n - 1)
    chord = sparse.coo_matrix(
        (
            np.concatenate([scale[1:-1], -(1.0 - share) * scale[:-2], -share * scale[2:]]),
            (np.tile(rows, 3), np.concatenate([columns + 1, columns, columns + 2])),
        ),
        shape=(n - 1, n + 1),
    )
    last = sparse.coo_matrix((scale[[-1, -2]] * [1.0, -1.0], ([0, 0], [n, n - 1])), (1, n + 1))
    matrix = sparse.vstack([chord, last]).tocsc()[:, 1:]  # the price at zero is known
    limit = np.append((1.0 - share) * left + share * right - middle, price[-2] - price[-1])
    return _scale_rows(matrix, limit)


def _order_maturities(base: Array, unit: Array) -> tuple[Any, Array]:
    """Rows of neighbouring expiries: no price is above the later one at its strike."""
    from scipy import sparse

    count, n = base.shape
    size = (count - 1) * n
    ahead = sparse.diags([unit.ravel()[:size]], [0], shape=(size, count * n))
    behind = sparse.diags([unit.ravel()[n:]], [n], shape=(size, count * n))
    return _scale_rows(ahead - behind, (base[1:] - base[:-1]).ravel())


def _scale_rows(matrix: Any, limit: Array) -> tuple[Any, Array]:
    from scipy import sparse

    if not limit.size:
        return matrix, limit
    largest = abs(matrix.tocsr()).max(axis=1).toarray().ravel()
    return sparse.diags(1.0 / largest) @ matrix, limit / largest


def _solve(cost: Array, matrix: Any, limit: Array, low: Array, high: Array) -> Any:
    from scipy.optimize import linprog  # a quarter of a second to import

    bounds = np.column_stack([low, high])
    messages = []
    for method in SOLVER_METHODS:
        found = linprog(cost, matrix, limit, bounds=bounds, method=method)
        if found.status == 0:
            return found
        messages.append(f"{method}: {found.message}")
    raise ArithmeticError(f"no solution of the linear program, {'; '.join(messages)}")
