"""Static arbitrage of a price table by linear programming: does any market have these prices?

A market without static arbitrage is, for every maturity, a call price that is convex and
nonincreasing in the strike with ``c(0) = 1``, ``c ≥ (1 − κ)+`` and ``c(∞) = 0``, and nondecreasing
in maturity. On zero and the strikes of all maturities together these are linear in the prices, and
the broken lines through them are such a market: past the last strike each may fall to zero as
slowly as it must. The program finds the smallest error that has to be allowed on every given price.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linprog

from arbiter.conventions import Array


def find_smallest_error(T: Array, kappa: Array, call: Array) -> float:
    """The least error of the worst price, in forward units, in a market without arbitrage."""
    maturities, row = np.unique(T, return_inverse=True)
    strikes = np.unique(np.append(kappa, 0.0))
    column = np.searchsorted(strikes, kappa)
    L, n = maturities.size, strikes.size
    size = L * n + 1  # prices, and the error
    places = np.arange(L * n).reshape(L, n)
    rows: list[dict[int, float]] = []
    bounds: list[float] = []

    def require(parts: dict[int, float], most: float) -> None:
        rows.append(parts)
        bounds.append(most)

    width = np.diff(strikes)
    for place in places:
        for i in range(n - 1):  # nonincreasing
            require({place[i + 1]: 1.0, place[i]: -1.0}, 0.0)
        for i in range(1, n - 1):  # convex: the price is at most the chord's
            share = width[i - 1] / (width[i - 1] + width[i])
            require({place[i]: 1.0, place[i - 1]: share - 1.0, place[i + 1]: -share}, 0.0)
        for i in range(n):
            require({place[i]: -1.0}, -max(1.0 - strikes[i], 0.0))
    for before, after in itertools.pairwise(places):
        for i in range(n):
            require({before[i]: 1.0, after[i]: -1.0}, 0.0)
    for at, price in zip(places[row, column], call, strict=True):
        require({int(at): 1.0, size - 1: -1.0}, float(price))
        require({int(at): -1.0, size - 1: -1.0}, -float(price))
    matrix = np.zeros((len(rows), size))
    for i, parts in enumerate(rows):
        for j, value in parts.items():
            matrix[i, j] = value
    fixed = [(0.0, 1.0)] * size
    for place in places:
        fixed[place[0]] = (1.0, 1.0)
    cost = np.zeros(size)
    cost[-1] = 1.0
    found = linprog(cost, matrix, bounds, bounds=fixed, method="highs")
    assert found.status == 0, found.message
    return float(found.x[-1])
