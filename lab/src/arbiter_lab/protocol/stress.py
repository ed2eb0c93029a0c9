"""Stress to failure: six axes, each a pure transformation with a level, zero being no stress.

On quotes, a case becomes another case whose truth is the same:

* ``noise``: each quote moves by ``level`` of its own half-spreads, Gaussian, and its spread does
  not say so.
* ``coverage``: a share ``level`` of the quotes is gone, at random; more stress takes more away from
  the same quotes.
* ``numeraire``: forwards and discount factors are made with a rate that is off by ``level`` per
  cent a year, so that the money is misplaced by ``level·T`` per cent and puts and calls disagree.
* ``stale``: a quarter of the quotes is from before the index moved, by ``level`` daily deviations.

On the market, parameters become other parameters and the truth moves with them:

* ``roughness``: the Hurst index halves and the volatility of variance doubles with each unit.
  Halving alone changes little: smiles of H = 0.06 are near those of the limit H = 0.
* ``jumps``: one jump a year of mean −5 % times ``level``, with half of that for its deviation.

A model has failed where its no-arbitrage score is below 0.9, the paper's criterion (section 5.4),
or, which is ours, where its volatility error exceeds the bid-ask spread of untouched quotes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.models.lifted_heston import LiftedHeston, implied_volatility
from arbiter.models.parameters import Jumps, Parameters
from arbiter.pricing import black
from arbiter.quotes import MIN_QUOTES, Quotes
from arbiter.scoring import BASIS_POINT
from arbiter_lab.evaluation import unseen_surfaces
from arbiter_lab.evaluation.known_surface import Case, quotes_from_volatilities
from arbiter_lab.evaluation.scores import CaseScore

Mask = NDArray[np.bool_]

LEAST_SCORE = 0.9  # section 5.4
STALE_SHARE = 0.25
SESSIONS_PER_YEAR = 252.0  # a year: daily deviations are of the index, which moves in sessions
_MEAN_JUMP_SIZE = 0.05  # mean size of a jump at level one


class Failure(NamedTuple):
    """Whether a model has failed, by either criterion.

    Attributes:
        score: The no-arbitrage score is below 0.9, or there is no model.
        error: The root mean square error of volatility is above the spread, or not finite.
    """

    score: bool
    error: bool


@dataclass(frozen=True)
class StressAxis:
    """One way to make it harder.

    Attributes:
        name: What tables call it.
        unit: What a level of one is.
        levels: From none to where methods fail, increasing.
        on_quotes: Case, level and seed to a case; None on an axis of the market.
        on_market: Parameters and level to parameters; None on an axis of the quotes.
    """

    name: str
    unit: str
    levels: tuple[float, ...]
    on_quotes: Callable[[Case, float, int], Case] | None = None
    on_market: Callable[[Parameters, float], Parameters] | None = None


class StressedCase(NamedTuple):
    """A case under stress, and the yardstick of errors on it.

    Attributes:
        case: What methods are given.
        spread: Root mean square bid-ask spread of volatility, in basis points, of the same market's
            quotes before anything was done to them.
    """

    case: Case
    spread: float


def make_stressed_case(axis: str, level: float, parameters: Parameters, seed: int) -> StressedCase:
    """A market under stress; every level has the same noise, and the same strikes are quoted.

    Args:
        axis: One of :data:`AXES`.
        level: At least zero; zero is :func:`market_case` itself.
        parameters: The market without stress.
        seed: Of everything random.
    """
    if axis not in AXES:
        raise ValueError(f"axis {axis!r} is not one of {', '.join(AXES)}")
    chosen = AXES[axis]
    if chosen.on_market is not None:
        parameters = chosen.on_market(parameters, level)
    plain = market_case(parameters, seed, f"{axis} {level:g}")
    case = plain if chosen.on_quotes is None else chosen.on_quotes(plain, level, seed)
    return StressedCase(case, spread_bp(plain))


def market_case(parameters: Parameters, seed: int, name: str = "market") -> Case:
    """Quotes of a market at its start, with maturities, spreads and noise of the unseen surfaces.

    Strikes are even in deviations of the log contract, and not rounded.
    """
    market, T = LiftedHeston.of(parameters), unseen_surfaces.T
    z = np.broadcast_to(
        np.linspace(*unseen_surfaces.DEVIATION_RANGE, unseen_surfaces.STRIKES_PER_SLICE),
        (T.size, unseen_surfaces.STRIKES_PER_SLICE),
    )
    k = z * np.sqrt(market.log_variance(T))[:, None]  # (L, S)
    price = market.otm(k, T[:, None])
    iv = implied_volatility(
        np.where(price > unseen_surfaces.MIN_LISTED_PRICE, price, np.nan), k, T[:, None]
    )
    half = unseen_surfaces.half_spread(z, iv)
    rng = np.random.default_rng(seed)
    mid = iv + half * rng.uniform(-1.0, 1.0, k.shape)
    quoted = np.isfinite(iv) & (rng.uniform(size=k.shape) < unseen_surfaces.KEPT_SHARE)
    quotes = quotes_from_volatilities(T, k, mid, half, quoted)
    return Case(name, "market", quotes, T, k, z, iv, quoted, float(market.vix()))


def add_noise(case: Case, level: float, seed: int) -> Case:
    """Move volatilities by ``level`` half-spreads times a standard normal, on a log scale."""
    _check_stress(level)
    q = case.quotes
    relative = (q.iv_ask - q.iv_bid) / (q.iv_ask + q.iv_bid)
    factor = np.exp(level * relative * np.random.default_rng((seed, 1)).standard_normal(len(q)))
    root = np.sqrt(q.T)
    bid, ask = (black.otm(q.k, iv * factor * root) for iv in (q.iv_bid, q.iv_ask))
    return _replace_prices(case, case.k, q.k, bid, ask)


def drop_quotes(case: Case, level: float, seed: int) -> Case:
    """Leave a share ``level`` of the quotes out; at least three stay."""
    _check_stress(level)
    if level >= 1.0:
        raise ValueError(f"level = {level!r} is a share of the quotes: give less than one")
    chance = np.random.default_rng((seed, 2)).uniform(size=len(case.quotes))
    keep = chance >= min(level, float(np.sort(chance)[-MIN_QUOTES]))
    return replace(
        case, quotes=case.quotes.select(keep), quoted=_mask_kept_quotes(case.quoted, keep)
    )


def shift_numeraire(case: Case, level: float, seed: int = 0) -> Case:
    """Give the quotes of a rate that is ``level`` per cent a year too high.

    With ``F' = F e^{δT}`` and ``D' = D e^{−δT}`` prices over ``D'F'`` are unchanged and the
    log-strikes are ``k − δT``. Between the two forwards the side out of the money changes, and the
    market's own parity, at the right forward, gives the price of the other. Volatilities of the
    truth stay with their strikes.
    """
    _check_stress(level)
    q, delta = case.quotes, 0.01 * level
    new = q.k - delta * q.T
    gap = np.expm1(q.k)  # put less call, at the right forward
    turned = np.where((q.k >= 0.0) & (new < 0.0), gap, 0.0)
    return _replace_prices(
        case, case.k - delta * case.T[:, None], new, q.bid + turned, q.ask + turned
    )


def leave_stale(case: Case, level: float, seed: int) -> Case:
    """A quarter of the quotes as they were before the index moved by ``level`` daily deviations.

    Up or down by the seed. The smile moves with moneyness: an old quote is what the option was
    worth at the old forward, with its spread and its noise, over today's.
    """
    _check_stress(level)
    q = case.quotes
    rng = np.random.default_rng((seed, 3))
    move = level * (1.0 if rng.random() < 0.5 else -1.0) * _daily_deviation(case)
    old = rng.uniform(size=len(q)) < STALE_SHARE
    then = q.k + move  # F = F_old e^move
    truth = case.iv[case.quoted]
    factor = np.where(old, _interpolate_smile(case, then) / truth, 1.0)
    k, root = np.where(old, then, q.k), np.sqrt(q.T)
    scale = np.where(old, np.exp(-move), 1.0)
    gap = np.expm1(k)  # put less call, at the forward of the quote
    turned = np.where((q.k < 0.0) & (k >= 0.0), gap, np.where((q.k >= 0.0) & (k < 0.0), -gap, 0.0))
    bid, ask = (scale * (black.otm(k, iv * factor * root) + turned) for iv in (q.iv_bid, q.iv_ask))
    return _replace_prices(case, case.k, q.k, bid, ask)


def roughen(parameters: Parameters, level: float) -> Parameters:
    """Halve the Hurst index and double the volatility of variance, ``level`` times."""
    _check_stress(level)
    nu = parameters.nu * 2.0**level
    return replace(parameters, hurst=parameters.hurst * 2.0**-level, nu=nu)


def add_jumps(parameters: Parameters, level: float) -> Parameters:
    """One jump a year of mean −5 % times ``level``; a market with jumps of its own loses them."""
    _check_stress(level)
    if level == 0.0:
        return parameters
    return replace(
        parameters, jumps=Jumps(1.0, -_MEAN_JUMP_SIZE * level, 0.5 * _MEAN_JUMP_SIZE * level)
    )


AXES = {
    axis.name: axis
    for axis in (
        StressAxis("noise", "half-spreads", (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), add_noise),
        StressAxis("coverage", "share gone", (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98), drop_quotes),
        StressAxis("numeraire", "% a year", (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6), shift_numeraire),
        StressAxis("stale", "daily deviations", (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0), leave_stale),
        StressAxis("roughness", "halvings", (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0), on_market=roughen),
        StressAxis(
            "jumps", "−5 % a year", (0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 16.0), on_market=add_jumps
        ),
    )
}


def spread_bp(case: Case) -> float:
    """Root mean square bid-ask spread of volatility, in basis points: the yardstick of an error."""
    wide = case.quotes.iv_ask - case.quotes.iv_bid
    return math.sqrt(float(np.mean(wide**2))) / BASIS_POINT


def check_failure(answer: CaseScore, spread: float) -> Failure:
    """Whether a model has failed.

    Args:
        answer: Its scores on a case under stress.
        spread: In basis points, of :func:`stressed`: quotes that were tampered with are no
            yardstick of their own.
    """
    error = answer.error[~np.isnan(answer.error)]
    missed = not float(np.sqrt(np.mean(error**2))) <= spread  # true for NaN and infinity too
    return Failure(answer.refusal is not None or answer.verdict.nas < LEAST_SCORE, missed)


def _replace_prices(case: Case, listed: Array, k: Array, bid: Array, ask: Array) -> Case:
    """The case with other prices; quotes that nobody could make, outside the bounds, are gone."""
    usable = (bid > 0.0) & (ask >= bid) & (ask < np.exp(np.minimum(k, 0.0)))
    table = {"T": case.quotes.T, "k": k, "bid": bid, "ask": ask}
    quotes = Quotes.from_frame({name: column[usable] for name, column in table.items()})
    return replace(case, quotes=quotes, k=listed, quoted=_mask_kept_quotes(case.quoted, usable))


def _mask_kept_quotes(quoted: Mask, keep: Mask) -> Mask:
    """Quotes of a case are in the order of its points, row by row."""
    out = np.zeros_like(quoted)
    out[quoted] = keep
    return out


def _daily_deviation(case: Case) -> float:
    """Daily deviation of the index: the first expiry's volatility at the money."""
    near = np.where(case.listed[0], np.abs(case.k[0]), np.inf).argmin()
    return float(case.iv[0, near]) / math.sqrt(SESSIONS_PER_YEAR)


def _interpolate_smile(case: Case, k: Array) -> Array:
    """True volatilities at other log-strikes of each quote's expiry; flat beyond the listed."""
    row = np.nonzero(case.quoted)[0]
    found = np.empty_like(k)
    for i in np.unique(row).tolist():
        here, there = row == i, case.listed[i]
        found[here] = np.interp(k[here], case.k[i, there], case.iv[i, there])
    return found


def _check_stress(level: float) -> None:
    if not 0.0 <= level < math.inf:
        raise ValueError(f"level = {level!r}: stress is a number from zero, no stress, upwards")
