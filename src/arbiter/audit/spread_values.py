"""Values of vertical spreads and butterflies on a grid of prices, compiled.

Legs are next to each other or a stride apart within one maturity, all on the side, call or put,
for which parity has less to move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.audit.grid import EPS, Grid, Mask, Places
from arbiter.compiled import compiled
from arbiter.conventions import Array


class BothSides(NamedTuple):
    """Calls and puts at every place of a grid, ``(N,)`` each."""

    T: Array
    k: Array
    kappa: Array
    strike_error: Array
    call: Array
    put: Array
    call_error: Array
    put_error: Array
    to_call: Array  # what parity adds for the call
    to_put: Array

    @staticmethod
    def of_grid(grid: Grid) -> BothSides:
        """The prices of a grid."""
        (call, call_error), (put, put_error) = grid.call, grid.put
        to_call = np.where(grid.is_put, 1.0 - grid.kappa, 0.0)
        to_put = np.where(grid.is_put, 0.0, grid.kappa - 1.0)
        given = (grid.T, grid.k, grid.kappa, grid.strike_error)
        return BothSides(*given, call, put, call_error, put_error, to_call, to_put)


class Spreads(NamedTuple):
    """Portfolios of one stride, ``(m,)`` each."""

    first: Places  # leg of the lowest strike
    use_put: Mask
    T: Array
    k: Array  # log-strike of the short leg
    value: Array
    error: Array
    gross: Array

    @staticmethod
    def empty(count: int) -> Spreads:
        """Places for ``count`` portfolios."""
        room = np.empty((5, count))
        first, use_put = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.bool_)
        return Spreads(first, use_put, room[0], room[1], room[2], room[3], room[4])

    def keep_first(self, count: int) -> Spreads:
        """The first ``count`` portfolios."""
        numbers = (self.T, self.k, self.value, self.error, self.gross)
        return Spreads(self.first[:count], self.use_put[:count], *(v[:count] for v in numbers))


def price_verticals(prices: BothSides, stride: int) -> tuple[Spreads, Spreads]:
    """Call spreads and put spreads: calls fall in strike and puts rise."""
    count = max(prices.T.size - stride, 0)
    calls, puts = Spreads.empty(count), Spreads.empty(count)
    count = _fill_verticals(prices, stride, calls, puts)
    return calls.keep_first(count), puts.keep_first(count)


def price_butterflies(prices: BothSides, stride: int) -> Spreads:
    """Butterflies whose middle leg is short; the outer ones have total weight one."""
    found = Spreads.empty(max(prices.T.size - 2 * stride, 0))
    return found.keep_first(_fill_butterflies(prices, stride, found))


@compiled
def _fill_verticals(prices: BothSides, stride: int, calls: Spreads, puts: Spreads) -> int:
    T, kappa, rows = prices.T, prices.kappa, 0
    for i in range(T.size - stride):
        j = i + stride
        if T[i] != T[j]:
            continue
        use_put = prices.to_put[i] + prices.to_put[j] < prices.to_call[i] + prices.to_call[j]
        width = kappa[j] - kappa[i]
        if use_put:
            rise = prices.put[j] - prices.put[i]
            error = prices.put_error[i] + prices.put_error[j]
        else:
            rise = prices.call[i] - prices.call[j]
            error = prices.call_error[i] + prices.call_error[j]
        loose = error + prices.strike_error[i] + prices.strike_error[j] + EPS * width
        for spreads in (calls, puts):
            spreads.first[rows], spreads.use_put[rows], spreads.T[rows] = i, use_put, T[i]
        calls.k[rows], puts.k[rows] = prices.k[j], prices.k[i]
        calls.gross[rows], puts.gross[rows] = prices.call[i], prices.put[j]
        calls.value[rows], puts.value[rows] = rise, width - rise
        calls.error[rows], puts.error[rows] = error, loose
        if use_put:
            calls.value[rows], puts.value[rows] = width - rise, rise
            calls.error[rows], puts.error[rows] = loose, error
        rows += 1
    return rows


@compiled
def _fill_butterflies(prices: BothSides, stride: int, out: Spreads) -> int:
    T, kappa, rows = prices.T, prices.kappa, 0
    for i in range(T.size - 2 * stride):
        j, m = i + stride, i + 2 * stride
        if T[i] != T[m]:
            continue
        to_put = prices.to_put[i] + prices.to_put[j] + prices.to_put[m]
        use_put = to_put < prices.to_call[i] + prices.to_call[j] + prices.to_call[m]
        price = prices.put if use_put else prices.call
        error = prices.put_error if use_put else prices.call_error
        width = kappa[m] - kappa[i]
        low, high = (kappa[m] - kappa[j]) / width, (kappa[j] - kappa[i]) / width
        gross = low * price[i] + high * price[m]
        out.first[rows], out.use_put[rows], out.T[rows], out.k[rows] = i, use_put, T[i], prices.k[j]
        out.value[rows], out.gross[rows] = gross - price[j], gross
        out.error[rows] = low * error[i] + high * error[m] + error[j]
        rows += 1
    return rows
