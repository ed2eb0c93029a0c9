"""The arbitrage portfolio of a joint audit: legs, hedges and payoff."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.joint.instruments import (
    Book,
    Payoff,
    Position,
    decompose_payoff,
    price_out_of_the_money,
)
from arbiter.joint.marginals import Marginal
from arbiter.joint.program import CertifiedPosition

_MIN_LEG_SHARE = 1e-7  # of the gross weight: rounding of the program, not a leg
_MAX_NAMED_GROUPS = 8  # legs that the sentence names
_MIN_NAMED_SHARE = 0.002  # share of the gross weight: smaller legs are counted and not named
_MARKETS = ("SPX near", "VIX", "SPX far")
_SCHEMA: dict[str, type[pl.DataType]] = {
    "market": pl.String,
    "instrument": pl.String,
    "strike": pl.Float64,
    "side": pl.String,
    "weight": pl.Float64,
    "price": pl.Float64,
    "cost": pl.Float64,
    "share": pl.Float64,
}


class Leg(NamedTuple):
    """One holding: signed weight, price, what that costs, and its part of the gross weight."""

    market: str
    instrument: str
    strike: float | None
    weight: float
    price: float
    cost: float
    share: float


@dataclass(frozen=True, eq=False)
class Portfolio:
    """A position with a negative price that never loses inside its box.

    Index strikes and prices are over the forward, those of the VIX in index points. A log contract
    pays ``−(2/Δ) log(S/F)``, the squared VIX ``(VIX/100)²``. Weights are for a gross weight of one;
    ``share`` is a leg's part of it (docs/joint-arbitrage.md).

    Attributes:
        proof: Position and hedges, as they were proved.
        book: The market that it was priced in.
    """

    proof: CertifiedPosition
    book: Book

    @cached_property
    def cost(self) -> float:
        """Price today for gross weights of one; negative, a premium received."""
        return -self.proof.profit

    @cached_property
    def box(self) -> dict[str, tuple[float, float]]:
        """Ranges of ``x1``, ``vix`` and ``x2`` in which it was proved never to lose."""
        x, v, y = ((float(z[0]), float(z[-1])) for z in self.proof.mesh.axes)
        return {"x1": x, "vix": (INDEX_POINTS * v[0], INDEX_POINTS * v[1]), "x2": y}

    @cached_property
    def legs(self) -> pl.DataFrame:
        """The holdings from today on, one row each, largest share of the gross weight first.

        ``weight`` is signed, ``cost`` is weight times price: their sum is :attr:`cost`. Forwards
        and futures are entered at ``price`` and cost nothing. Cash is what is put aside; together
        with the other costs it comes to the premium.
        """
        position, book = self.proof.position, self.book
        gross = book.gross_weight(position)
        legs = [*_variance_legs(position, book)]
        cash = 0.0
        for i, (market, payoff) in enumerate(
            zip(_MARKETS, (position.near, position.volatility, position.far), strict=True)
        ):
            more, found = _option_legs(market, book.laws[i], payoff, book.units.options[i])
            cash += more
            legs += found
        legs.append(Leg("cash", "cash", None, cash, 1.0, cash, 0.0))
        rows = [
            (*leg[:3], "long" if leg.weight > 0.0 else "short", leg.weight / gross, leg.price,
             leg.cost / gross, leg.share / gross)
            for leg in legs
            if max(leg.share, abs(leg.cost)) > _MIN_LEG_SHARE * gross
            or (leg.instrument == "forward" and abs(leg.weight) > _MIN_LEG_SHARE * gross)
        ]  # fmt: skip
        return pl.DataFrame(rows, schema=_SCHEMA, orient="row").sort("share", descending=True)

    def hedge(self, x1: ArrayLike, vix: ArrayLike) -> tuple[Array, Array]:
        """The trades at T in state ``(x1, vix)``: index forwards and log contracts to T+Δ.

        A log contract to T+Δ is bought at T for ``(vix/100)²`` and pays ``−(2/Δ) log(x2/x1)``.
        """
        position, hedges = self.proof.position, self.proof.hedges
        x, v = np.broadcast_arrays(
            np.asarray(x1, dtype=np.float64), np.asarray(vix, dtype=np.float64) / INDEX_POINTS
        )
        points = hedges.moment_points(x, v)
        facet = (points @ hedges.planes.T).argmax(-1)
        plane = hedges.planes[facet]
        shares = -plane[..., 1]
        contracts = 0.5 * position.tenor * plane[..., 2] - position.far_log
        gross = self.book.gross_weight(position)
        return shares / gross, contracts / gross

    def payoff(self, x1: ArrayLike, vix: ArrayLike, x2: ArrayLike) -> Array:
        """Payoff of legs and hedge together, for gross weights of one."""
        position = self.proof.position
        x, v, y = np.broadcast_arrays(
            np.asarray(x1, dtype=np.float64),
            np.asarray(vix, dtype=np.float64) / INDEX_POINTS,
            np.asarray(x2, dtype=np.float64),
        )
        shares, contracts = self.hedge(x, INDEX_POINTS * v)
        log = position.log_contract
        legs = position.near(x) + position.volatility(v) + position.far(y)
        legs += position.near_log * log(x) + position.far_log * log(y) + position.square * v * v
        traded = shares * (y - x) + contracts * (log(y) - log(x) - v * v)
        return np.asarray(legs / self.book.gross_weight(position) + traded)

    def __str__(self) -> str:
        groups = _group_legs(self.legs.filter(pl.col("share") > 0.0))
        shown = [group for group in groups[:_MAX_NAMED_GROUPS] if group[0] > _MIN_NAMED_SHARE]
        rest = 1.0 - sum(share for share, _ in shown)
        text = "; ".join(sentence for _, sentence in shown)
        text += f"; and smaller legs, {rest:.1%} of the whole" if rest > 5e-4 else ""
        return (
            f"{text}. At the near expiry, knowing S and VIX, trade the index and the log contract "
            f"to the far expiry. Premium received {-self.cost:.3g}, payoff never below zero."
        )


def _option_legs(
    market: str, law: Marginal, payoff: Payoff, unit: float
) -> tuple[float, list[Leg]]:
    """Cash, and the forwards and options that make a payoff; the VIX per index point."""
    scale = INDEX_POINTS if market == "VIX" else 1.0
    cash, forward, weights = decompose_payoff(payoff, law.mean)
    name, share = ("future", unit * abs(forward)) if market == "VIX" else ("forward", 0.0)
    legs = [Leg(market, name, None, forward / scale, scale * law.mean, 0.0, share)]
    prices = price_out_of_the_money(law, payoff.strikes)
    for strike, weight, price in zip(payoff.strikes, weights, prices, strict=True):
        side = "call" if strike >= law.mean else "put"
        cost, share = float(weight * price), unit * abs(float(weight))
        place = scale * float(strike)
        legs.append(Leg(market, side, place, weight / scale, scale * float(price), cost, share))
    return cash + forward * law.mean, legs


def _variance_legs(position: Position, book: Book) -> Iterator[Leg]:
    """The log contracts and the contract on the squared index."""
    names = (("SPX near", "log contract"), ("SPX far", "log contract"), ("VIX", "squared VIX"))
    weights = (position.near_log, position.far_log, position.square)
    for (market, name), weight, price, unit in zip(
        names, weights, book.variances, book.contract_units, strict=True
    ):
        share = float(unit * abs(weight))
        yield Leg(market, name, None, weight, float(price), float(weight * price), share)


def _group_legs(legs: pl.DataFrame) -> list[tuple[float, str]]:
    """Share and sentence of each run of neighbouring options on one side, largest first."""
    kind = ["market", "instrument", "side"]
    runs = legs.sort("market", "strike").with_columns(
        run=pl.struct(kind).rle_id(), weight=pl.col("weight").abs()
    )
    groups = runs.group_by("run", *kind).agg(
        pl.col("share").sum(),
        pl.col("weight").sum(),
        low=pl.col("strike").min(),
        high=pl.col("strike").max(),
    )
    rows = groups.sort("share", descending=True).iter_rows(named=True)
    return [(row["share"], _describe_group(row)) for row in rows]


def _describe_group(group: dict[str, Any]) -> str:
    name, low, high = group["instrument"], group["low"], group["high"]
    name = name if name == "squared VIX" else f"{group['market']} {name}"
    if low is not None:
        name += f" at {low:.4g}" if low == high else f"s at {low:.4g} to {high:.4g}"
    return f"{group['side']} {group['weight']:.3g} {name}"
