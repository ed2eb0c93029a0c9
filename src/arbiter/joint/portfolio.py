"""A joint arbitrage as a trader reads it: legs, hedges, payoff."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from arbiter.joint.book import Book, Payoff, held, out_of_the_money
from arbiter.joint.marginals import POINTS, Marginal
from arbiter.joint.program import Certified

Array = NDArray[np.float64]

_DUST = 1e-7  # of the gross weight: rounding of the program, not a leg
_SHOWN = 6  # legs that the sentence names
_SCHEMA: dict[str, Any] = {
    "market": pl.String,
    "instrument": pl.String,
    "strike": pl.Float64,
    "side": pl.String,
    "weight": pl.Float64,
    "price": pl.Float64,
    "cost": pl.Float64,
}


@dataclass(frozen=True, eq=False)
class Portfolio:
    """A position that is paid for being taken and never loses in the box that was looked at.

    Index strikes and prices are over the forward, those of the VIX in index points; log contracts
    pay ``−(2/Δ) log(S/F)`` and the squared index ``(VIX/100)²``.

    Attributes:
        proof: Position and hedges, as they were proved.
        book: The market that it was priced in.
    """

    proof: Certified
    book: Book

    @cached_property
    def cost(self) -> float:
        """What it costs today, negative: premium received, for gross weights of one."""
        return -self.proof.profit

    @cached_property
    def box(self) -> dict[str, tuple[float, float]]:
        """Where it was proved never to lose: ``x1``, ``vix``, ``x2``."""
        x, v, y = ((float(z[0]), float(z[-1])) for z in self.proof.mesh.axes)
        return {"x1": x, "vix": (POINTS * v[0], POINTS * v[1]), "x2": y}

    @cached_property
    def legs(self) -> pl.DataFrame:
        """What is held from today on, dearest first; weights are signed."""
        position, rows = self.proof.position, []
        gross = self.book.gross(position)
        cash = 0.0
        near, volatility, far = self.book.laws
        for market, law, payoff, scale in (
            ("SPX near", near, position.near, 1.0),
            ("VIX", volatility, position.volatility, POINTS),
            ("SPX far", far, position.far, 1.0),
        ):
            more, found = _options(market, law, payoff, scale)
            cash += more
            rows += found
        contracts = (position.near_log, position.far_log, position.square)
        names = (("SPX near", "log contract"), ("SPX far", "log contract"), ("VIX", "square"))
        for (market, name), weight, price in zip(
            names, contracts, self.book.variances, strict=True
        ):
            rows.append((market, name, None, weight, float(price)))
        rows.append(("cash", "cash", None, cash, 1.0))
        table = [
            (
                market,
                name,
                strike,
                "long" if w > 0 else "short",
                w / gross,
                price,
                w * price / gross,
            )
            for market, name, strike, w, price in rows
            if abs(w) > _DUST * gross
        ]
        frame = pl.DataFrame(table, schema=_SCHEMA, orient="row")
        return frame.sort(pl.col("weight").abs() * pl.col("price").abs(), descending=True)

    def hedge(self, x1: ArrayLike, vix: ArrayLike) -> tuple[Array, Array]:
        """What is traded at T in state ``(x1, vix)``: index forwards and log contracts to T+Δ.

        A log contract to T+Δ is bought at T for ``(vix/100)²`` and pays ``−(2/Δ) log(x2/x1)``.
        """
        position, hedges = self.proof.position, self.proof.hedges
        x, v = np.broadcast_arrays(
            np.asarray(x1, dtype=np.float64), np.asarray(vix, dtype=np.float64) / POINTS
        )
        points = hedges.points(x, v)
        facet = (points @ hedges.planes.T).argmax(-1)
        plane = hedges.planes[facet]
        shares = -plane[..., 1]
        contracts = 0.5 * position.tenor * plane[..., 2] - position.far_log
        gross = self.book.gross(position)
        return shares / gross, contracts / gross

    def payoff(self, x1: ArrayLike, vix: ArrayLike, x2: ArrayLike) -> Array:
        """What legs and hedge together pay, for gross weights of one."""
        position = self.proof.position
        x, v, y = np.broadcast_arrays(
            np.asarray(x1, dtype=np.float64),
            np.asarray(vix, dtype=np.float64) / POINTS,
            np.asarray(x2, dtype=np.float64),
        )
        shares, contracts = self.hedge(x, POINTS * v)
        log = position.log_contract
        legs = position.near(x) + position.volatility(v) + position.far(y)
        legs += position.near_log * log(x) + position.far_log * log(y) + position.square * v * v
        traded = shares * (y - x) + contracts * (log(y) - log(x) - v * v)
        return np.asarray(legs / self.book.gross(position) + traded)

    def __str__(self) -> str:
        legs = self.legs.filter(~pl.col("instrument").is_in(["cash", "forward"]))
        parts = [_sentence(leg) for leg in legs.head(_SHOWN).iter_rows(named=True)]
        more = len(legs) - len(parts)
        text = "; ".join(parts) + (f"; and {more} smaller legs" if more > 0 else "")
        return (
            f"{text}. At the near expiry, knowing S and VIX, trade the index and the log contract "
            f"to the far expiry. Premium received {-self.cost:.3g}, payoff never below zero."
        )


def _options(
    market: str, law: Marginal, payoff: Payoff, scale: float
) -> tuple[float, list[tuple[str, str, float | None, float, float]]]:
    """Cash, and rows of forwards and options; weights and prices per index point for the VIX."""
    cash, forward, weights = held(payoff, law.mean)
    K, prices = payoff.strikes, out_of_the_money(law, payoff.strikes)
    rows: list[tuple[str, str, float | None, float, float]] = [
        (market, "forward" if scale == 1.0 else "future", None, forward / scale, scale * law.mean)
    ]
    for strike, weight, price in zip(K, weights, prices, strict=True):
        name = "call" if strike >= law.mean else "put"
        rows.append((market, name, scale * strike, weight / scale, scale * float(price)))
    return cash, rows


def _sentence(leg: dict[str, Any]) -> str:
    strike = "" if leg["strike"] is None else f" at {leg['strike']:.4g}"
    return f"{leg['side']} {abs(leg['weight']):.3g} {leg['market']} {leg['instrument']}{strike}"
