"""Exact prices of many boards at once: one Riccati solution for all the days of a block.

Every day lists other maturities. The solution at the union of them costs little more than at
those of one day, and a day is then a matrix product with its state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arbiter.conventions import Array
from arbiter.markets.listing import Board
from arbiter.models.characteristic_function import Transform, solve_index_transforms
from arbiter.models.fourier_pricing import Contour, invert
from arbiter.models.lifted_heston import LiftedHeston


def price_boards(market: LiftedHeston, states: Array, boards: Sequence[Board]) -> list[Array]:
    """Out-of-the-money prices in forward units.

    Args:
        market: The oracle.
        states: ``(D, n)``, one for each board.
        boards: What is listed on each day.

    Returns:
        For each board ``(m,)``, in the order of its strikes.
    """
    times = np.unique(np.concatenate([board.maturities for board in boards]))
    contours = [Contour.from_parameters(market, calls) for calls in (True, False)]
    nodes = np.concatenate([contour.xi for contour in contours])[None]
    both = solve_index_transforms([market], times, nodes)[0]
    split = contours[0].xi.size
    sides = (
        (contours[0], both.nodes(slice(split))),
        (contours[1], both.nodes(slice(split, None))),
    )
    return [
        _price_board(sides, times, state, board)
        for state, board in zip(states, boards, strict=True)
    ]


def _price_board(
    sides: tuple[tuple[Contour, Transform], ...], times: Array, state: Array, board: Board
) -> Array:
    k, U = board.k, state[None]
    rows = np.searchsorted(times, board.maturities)
    borders = np.searchsorted(board.series, np.arange(rows.size + 1))
    price = np.zeros(k.size)
    for contour, transform in sides:
        for i, row in enumerate(rows.tolist()):
            own = slice(borders[i], borders[i + 1])
            side = contour.covers_strikes(k[own], float(times[row]))
            if side.any():
                at = k[own][side]
                found = invert(transform.at(row, U), contour.xi, contour.weight, at)[0]
                price[own][side] = contour.price(found, at)
    return np.maximum(price, 0.0)
