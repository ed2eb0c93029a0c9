"""Static no-arbitrage inequalities on a grid of prices, each with the portfolio behind it.

Every inequality says that a portfolio which can only pay must not cost less than nothing. Its
value is written with long legs of total weight one, in forward units; a value below minus the
rounding of its legs is a violation, and minus the value is its size. The place of an
inequality is its short leg, the price that is too high.

Glossary: ``κ`` strike over forward, ``c`` call, ``p`` put, all in forward units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arbiter.audit.grid import EPS, Grid, Mask, Places
from arbiter.audit.price_envelope import PricePoints, bracket_prices
from arbiter.audit.spread_values import (
    BothSides,
    Spreads,
    price_butterflies,
    price_verticals,
)
from arbiter.conventions import Array

FAMILIES = (
    "vertical",
    "butterfly",
    "calendar",
    "bound",
    "parity",
    "mass",
    "mean",
    "forward_variance",
    "vix_static",
    "vix_future",
    "vix_coupling",
    "vvix",
)

# Roundings allowed per leg: one for the number itself, the rest for whoever computed it.
ROUNDINGS_PER_LEG = 4.0


@dataclass(frozen=True)
class Inequalities:
    """A batch of inequalities of one family.

    Attributes:
        family: One of ``FAMILIES``.
        T: Maturity of the short leg, (m,).
        k: Log-strike of the short leg, NaN where there is none, (m,).
        value: Price of the portfolio, which must not be negative, (m,).
        error: Rounding of ``value``, (m,).
        gross: Cost of the long legs, (m,).
        legs: Text of the portfolio of one row, by its number.
    """

    family: str
    T: Array
    k: Array
    value: Array
    error: Array
    gross: Array
    legs: Callable[[int], str]

    @property
    def tolerance(self) -> Array:
        """``(m,)`` largest violation that rounding of the legs can explain."""
        return ROUNDINGS_PER_LEG * self.error


def static_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """Every static inequality that the prices of a grid are subject to."""
    yield from bound_inequalities(grid)
    yield from parity_inequalities(grid)
    yield from vertical_inequalities(grid)
    yield from butterfly_inequalities(grid)
    yield from mean_inequalities(grid)
    yield from mass_inequalities(grid)
    yield from calendar_inequalities(grid)
    yield from forward_variance_inequalities(grid)


def describe_leg(weight: float, option: str, k: float, T: float) -> str:
    """One leg as text; a positive weight is long."""
    side = "long" if weight > 0.0 else "short"
    return f"{side} {abs(weight):.4g} {option} k={k:.6g} T={T:.10g}"


def bound_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """``0 ≤ p ≤ κ`` and ``0 ≤ c ≤ 1``, on the side out of the money."""
    name = np.where(grid.is_put, "put", "call")
    cap = np.where(grid.is_put, grid.kappa, 1.0)
    cash = np.where(grid.is_put, "cash to pay the strike", "underlying")
    T, k, price = grid.T, grid.k, grid.price
    yield Inequalities(
        "bound", T, k, price, grid.error, np.abs(price),
        lambda i: describe_leg(1.0, str(name[i]), k[i], T[i]) + ", which costs less than nothing",
    )  # fmt: skip
    yield Inequalities(
        "bound", T, k, cap - price, grid.error + grid.strike_error + EPS * cap, cap,
        lambda i: f"long 1 {cash[i]}, " + describe_leg(-1.0, str(name[i]), k[i], T[i]),
    )  # fmt: skip


def parity_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """``c − p = 1 − κ`` where both sides are known; an equality, so both signs count."""
    i = np.flatnonzero(~np.isnan(grid.gap))
    T, k, gap = grid.T[i], grid.k[i], grid.gap[i]

    def words(row: int) -> str:
        sign = -1.0 if gap[row] > 0.0 else 1.0
        call, put = (
            describe_leg(sign, "call", k[row], T[row]),
            describe_leg(-sign, "put", k[row], T[row]),
        )
        return f"{call}, {put}, {'long' if sign < 0.0 else 'short'} 1 forward at this strike"

    yield Inequalities(
        "parity", T, k, -np.abs(gap), grid.gap_error[i], np.maximum(1.0, grid.kappa[i]), words
    )


def _list_strides(grid: Grid, legs: int) -> Iterator[int]:
    """Distances of legs within one maturity: next to each other, and 2, 4, 8, … apart.

    Neighbours are enough in exact arithmetic. The wider ones see what is spread over many
    strikes and below rounding between neighbours.
    """
    longest = max(part.stop - part.start for part in grid.maturity_slices)
    stride = 1
    while (legs - 1) * stride < longest:
        yield stride
        stride *= 2


def vertical_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """Calls fall in strike and puts rise: ``c(κ₁) ≥ c(κ₂)``, ``p(κ₁) ≤ p(κ₂)`` for ``κ₁ < κ₂``."""
    T, k = grid.T, grid.k
    prices = BothSides.of_grid(grid)
    for stride in _list_strides(grid, 2):
        for option, spreads, place in zip(
            ("call", "put"), price_verticals(prices, stride), (0, stride), strict=True
        ):

            def words(
                row: int,
                option: str = option,
                long: Places = spreads.first + place,
                short: Places = spreads.first + stride - place,
            ) -> str:
                return (
                    f"{describe_leg(1, option, k[long[row]], T[long[row]])}, "
                    f"{describe_leg(-1, option, k[short[row]], T[short[row]])}"
                )

            yield _judge_spreads("vertical", spreads, words)


def butterfly_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """``λ c(κ₁) + (1−λ) c(κ₃) ≥ c(κ₂)`` with ``κ₂ = λ κ₁ + (1−λ) κ₃``, for calls and puts."""
    T, k, kappa = grid.T, grid.k, grid.kappa
    prices = BothSides.of_grid(grid)
    for stride in _list_strides(grid, 3):
        spreads = price_butterflies(prices, stride)

        def words(row: int, stride: int = stride, spreads: Spreads = spreads) -> str:
            option = "put" if spreads.use_put[row] else "call"
            i, j, m = (int(spreads.first[row]) + n * stride for n in range(3))
            low = float((kappa[m] - kappa[j]) / (kappa[m] - kappa[i]))
            high = float((kappa[j] - kappa[i]) / (kappa[m] - kappa[i]))
            return ", ".join(
                describe_leg(weight, option, k[at], T[at])
                for weight, at in ((low, i), (high, m), (-1.0, j))
            )

        yield _judge_spreads("butterfly", spreads, words)


def _judge_spreads(family: str, of: Spreads, words: Callable[[int], str]) -> Inequalities:
    return Inequalities(family, of.T, of.k, of.value, of.error, of.gross, words)


def _end_places(grid: Grid) -> tuple[Places, Places, Places, Places]:
    """First, second, last but one and last place of every maturity with two strikes or more."""
    parts = [part for part in grid.maturity_slices if part.stop - part.start > 1]
    first = np.array([part.start for part in parts], dtype=np.int64)
    last = np.array([part.stop - 1 for part in parts], dtype=np.int64)
    return first, first + 1, last - 1, last


def mean_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """Mean at most one: ``p(κ₁)/κ₁ ≤ p(κ₂)/κ₂``, the butterfly whose left leg is the underlying.

    The density to the left of ``κ₁`` has to carry the price of the first put, and the secant of
    the first two prices reaches ``c(0) = 1`` from below.
    """
    put, error = grid.put
    T, k = grid.T, grid.k
    i, j = _end_places(grid)[:2]
    weight = grid.kappa[i] / grid.kappa[j]
    gross = weight * put[j]
    yield Inequalities(
        "mean", T[i], k[i], gross - put[i], weight * error[j] + error[i], gross,
        lambda row: (
            f"{describe_leg(float(weight[row]), 'put', k[j[row]], T[j[row]])}, "
            f"{describe_leg(-1.0, 'put', k[i[row]], T[i[row]])}"
        ),
    )  # fmt: skip


def mass_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """The density between the outer secants has mass at most one.

    ``1 − mass`` is the slope of the first put spread plus that of the last call spread.
    """
    put, put_error = grid.put
    call, call_error = grid.call
    first, second, third, last = _end_places(grid)
    T, k = grid.T[first], grid.k
    low, high = grid.kappa[second] - grid.kappa[first], grid.kappa[last] - grid.kappa[third]
    weight = high / (low + high)  # of the put spread, so that long legs add up to one
    value = weight * (put[second] - put[first]) + (1.0 - weight) * (call[third] - call[last])
    error = weight * (put_error[second] + put_error[first])
    error += (1.0 - weight) * (call_error[third] + call_error[last])

    def words(row: int) -> str:
        w = float(weight[row])
        return ", ".join(
            describe_leg(x, option, k[at[row]], T[row])
            for x, option, at in (
                (w, "put", second),
                (1.0 - w, "call", third),
                (-w, "put", first),
                (w - 1.0, "call", last),
            )
        )

    gross = weight * put[second] + (1.0 - weight) * call[third]
    yield Inequalities("mass", T, np.full(T.shape, np.nan), value, error, gross, words)


def forward_variance_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """The strip ``Σ 2/κ² · price · Δκ`` on shared strikes does not fall to the next maturity."""
    rows = []
    for one, two in pairwise(grid.maturity_slices):
        shared, i, j = np.intersect1d(
            grid.kappa[one], grid.kappa[two], assume_unique=True, return_indices=True
        )
        if shared.size < 3:
            continue
        i, j = i + one.start, j + two.start
        weight = np.gradient(np.log(shared)) / shared
        weight /= weight.sum()
        rows.append(
            (
                grid.T[i[0]],
                float(weight @ (grid.price[j] - grid.price[i])),
                float(weight @ (grid.error[j] + grid.error[i])),
                float(weight @ grid.price[j]),
                f"long the strip 2/κ² of {shared.size} strikes T={grid.T[j[0]]:.6g}, "
                f"short the same strip T={grid.T[i[0]]:.6g}",
            )
        )
    if rows:
        T, value, error, gross = (np.array([row[n] for row in rows], dtype=float) for n in range(4))
        yield Inequalities(
            "forward_variance", T, np.full(T.shape, np.nan), value, error, gross,
            lambda row: rows[row][4],
        )  # fmt: skip


def calendar_inequalities(grid: Grid) -> Iterator[Inequalities]:
    """A price must not exceed the lower convex envelope of later prices at its strike.

    The envelope is the cheapest way to dominate the option with later ones whose weights add
    up to one: at equal strikes a calendar spread, between strikes a calendar butterfly. Free
    legs are the underlying (call of strike zero) and, to the right, the last call itself. A
    price above the envelope of later prices and those of its own maturity is found, too.
    """
    yield _compare_with_envelope(grid, "put", grid.put, grid.is_put)
    yield _compare_with_envelope(grid, "call", grid.call, ~grid.is_put)


def _compare_with_envelope(
    grid: Grid, option: str, prices: tuple[Array, Array], asked: Mask
) -> Inequalities:
    """Prices that are ``asked`` for must not exceed the envelopes of later ones.

    The free leg is the call of strike zero, which is the forward, or no put. Past its last strike
    an envelope goes on as that call, flat; as a put, with slope one.
    """
    price, error = prices
    free, steepest = (0.0, 1.0) if option == "put" else (1.0, 0.0)
    edges = np.array([0, *(part.stop for part in grid.maturity_slices)])
    at, i, j = bracket_prices(
        PricePoints(grid.kappa, price, edges, asked, free, steepest)
    ).T  # (m,) each, FREE_LEG for the free leg
    # so the last place of these, which are one longer, belongs to the free leg
    x, y, e, t = (
        np.append(values, last)
        for values, last in ((grid.kappa, 0.0), (price, free), (error, 0.0), (grid.T, 0.0))
    )
    kappa, past = grid.kappa[at], i == j
    width = np.where(past, 1.0, x[j] - x[i])
    low = np.where(past, 1.0, (x[j] - kappa) / width)
    high = np.where(past, 0.0, (kappa - x[i]) / width)
    gross = low * y[i] + high * y[j] + past * steepest * (kappa - x[i])

    def words(row: int) -> str:
        name = "call" if past[row] and kappa[row] > x[i[row]] else option
        said = [
            describe_leg(float(weight[row]), name, float(np.log(x[to[row]])), t[to[row]])
            if x[to[row]] > 0.0
            else f"long {weight[row]:.4g} underlying"
            for weight, to in ((low, i), (high, j))
            if weight[row] > 0.0 and (x[to[row]] > 0.0 or name == "call")
        ]
        return ", ".join([*said, describe_leg(-1.0, name, grid.k[at[row]], grid.T[at[row]])])

    return Inequalities(
        "calendar", grid.T[at], grid.k[at], gross - price[at],
        low * e[i] + high * e[j] + error[at], gross, words,
    )  # fmt: skip
