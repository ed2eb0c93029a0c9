"""The joint law that the program found, and its price differences from the market.

Its conditions hold by construction, and its prices meet the market's at the strikes of the program.
This module measures the differences at every other strike: they bound the discretisation error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.joint.instruments import Book, Columns
from arbiter.joint.strike_mesh import TAIL_PROBABILITY, Strikes

_COMPARISON_STRIKES = 1_000  # strikes at which a law is compared, beside its atoms
_MIN_STRIKE_DISTANCE_SHARE = (
    2e-5  # of their range: strikes nearer to each other are one to the solver
)


class PriceGaps(NamedTuple):
    """Differences of one law's prices from the market's, in units of the relaxation."""

    strikes: Array
    gaps: Array


@dataclass(frozen=True, eq=False)
class JointLaw:
    """A law of ``(S_T/F_T, VIX_T/100, S_{T+Δ}/F_{T+Δ})`` on finitely many atoms.

    Attributes:
        x1: ``(a,)`` levels of the index at T, over its forward.
        vix: ``(a,)`` levels of the VIX at T, in index points.
        x2: ``(a,)`` levels of the index at T+Δ, over its forward.
        mass: ``(a,)`` probabilities.
        state: ``(a,)`` atoms of one number share ``x1`` and ``vix``, and within them the mean of
            ``x2`` is ``x1`` and that of ``−(2/Δ) log(x2/x1)`` is ``(vix/100)²``.
    """

    x1: Array
    vix: Array
    x2: Array
    mass: Array
    state: NDArray[np.int64]

    @staticmethod
    def from_columns(columns: Columns, mass: Array) -> JointLaw:
        """The joint law with probabilities ``mass`` on the columns."""
        used = mass > 0.0
        x, v, y, p = columns.select_columns(used)
        share = mass[used] / mass[used].sum()
        # a common factor changes neither condition, and makes the mean one to rounding
        mean = float(share @ x)
        rows, atoms = np.nonzero(p)
        return JointLaw(
            x[rows] / mean,
            100.0 * v[rows],
            y[rows, atoms] / mean,
            share[rows] * p[rows, atoms],
            rows,
        )

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The law as a table, one row per atom."""
        return pl.DataFrame(
            {"state": self.state, "x1": self.x1, "vix": self.vix, "x2": self.x2, "mass": self.mass}
        )


def option_price_gaps(law: JointLaw, book: Book) -> list[PriceGaps]:
    """Differences of option prices from the market's, strike by strike, for the three laws."""
    found = []
    for i, (levels, market) in enumerate(
        zip((law.x1, law.vix / 100.0, law.x2), book.laws, strict=True)
    ):
        ends = market.quantile(np.array([TAIL_PROBABILITY, 1.0 - TAIL_PROBABILITY]))
        grid = np.linspace(
            min(ends[0], levels.min()), max(ends[1], levels.max()), _COMPARISON_STRIKES
        )
        K = np.unique(np.concatenate([grid, levels[levels > 0.0]]))
        K = K[K > 0.0]
        # calls of atoms, by cumulative sums from the right
        order = np.argsort(levels)
        z, p = levels[order], law.mass[order]
        above = np.append(np.cumsum(p[::-1])[::-1], 0.0)
        worth = np.append(np.cumsum((p * z)[::-1])[::-1], 0.0)
        at = np.searchsorted(z, K, side="right")
        calls = worth[at] - K * above[at]
        future = float(p @ z) - market.mean if i == 1 else 0.0
        gaps = calls - market.call(K) - future * (market.mean > K)
        strikes, gaps = np.append(K, market.mean), np.append(gaps, future)
        found.append(PriceGaps(strikes, gaps / book.units.options[i]))
    return found


def variance_price_gaps(law: JointLaw, book: Book) -> Array:
    """Differences of the log contracts and of the squared volatility from the market's prices."""
    scale = -2.0 / book.tenor
    v = law.vix / 100.0
    own = np.array([scale * np.log(law.x1), scale * np.log(law.x2), v * v]) @ law.mass
    return np.asarray((own - book.variances) / book.contract_units)


def refine_strikes(strikes: Strikes, found: list[PriceGaps], allowed: float, most: int) -> Strikes:
    """The strikes plus the worst strike of each interval whose price gap exceeds ``allowed``."""
    new = []
    for K, (at, gaps) in zip(strikes, found, strict=True):
        size = np.abs(gaps)
        interval = np.searchsorted(K, at)
        order = np.argsort(-size)
        _, first = np.unique(interval[order], return_index=True)
        worst = order[first]
        worst = worst[size[worst] > allowed]
        worst = worst[np.argsort(-size[worst])][: max(most - K.size, 0)]
        near = np.abs(at[worst, None] - K).min(1, initial=np.inf)
        worst = worst[near > _MIN_STRIKE_DISTANCE_SHARE * (K[-1] - K[0])]
        new.append(np.union1d(K, at[worst]))
    near_strikes, volatility, far = new
    return near_strikes, volatility, far
