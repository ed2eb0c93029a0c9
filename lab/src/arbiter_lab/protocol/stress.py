"""Stress to failure: six axes, each a transformation with a severity; zero is no stress.

Four axes change the quotes of a case and leave its exact volatilities:

* ``noise``: Gaussian noise of ``severity`` half-spreads moves each quote; its bid-ask spread stays.
* ``coverage``: a random share ``severity`` of the quotes is dropped; a larger share contains a
  smaller one.
* ``numeraire``: forwards and discount factors use a rate that is wrong by ``severity`` per cent a
  year. The forward is then wrong by ``severity·T`` per cent, and puts and calls disagree.
* ``stale``: a quarter of the quotes is from before a move of the index by ``severity`` daily
  standard deviations.

Two axes change the parameters of the market, and the exact volatilities with them:

* ``roughness``: each unit halves the Hurst index and doubles the volatility of variance. Halving
  alone changes little: smiles of H = 0.06 are near those of the limit H = 0.
* ``jumps``: one jump a year of mean −5 % times ``severity`` and half of that as deviation.

A model has failed if its no-arbitrage score is below 0.9, the paper's criterion (section 5.4). By
our own criterion it has failed if its volatility error exceeds the bid-ask spread of the unstressed
quotes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.models.exact_prices import implied_volatility
from arbiter.models.lifted_heston import LiftedHeston
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
_MEAN_JUMP_SIZE = 0.05  # mean size of a jump at a severity of one


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
    """One axis of stress.

    Attributes:
        name: Name in tables.
        unit: Unit of the severity.
        severities: Severities of the protocol, increasing from zero.
        on_quotes: Maps case, severity and seed to a case; None on an axis of the market.
        on_market: Maps parameters and severity to parameters; None on an axis of the quotes.
    """

    name: str
    unit: str
    severities: tuple[float, ...]
    on_quotes: Callable[[Case, float, int], Case] | None = None
    on_market: Callable[[Parameters, float], Parameters] | None = None


class StressedCase(NamedTuple):
    """A case under stress, and the spread with which errors on it are compared.

    Attributes:
        case: The stressed case.
        spread: Root mean square bid-ask spread of volatility of the unstressed quotes, in basis
            points.
    """

    case: Case
    spread: float


def make_stressed_case(
    axis: str, severity: float, parameters: Parameters, seed: int
) -> StressedCase:
    """Return a market under stress; noise and quoted strikes are the same at every severity.

    Args:
        axis: One of :data:`AXES`.
        severity: At least zero; zero gives :func:`market_case`.
        parameters: Parameters of the market without stress.
        seed: Seed of all random numbers.
    """
    if axis not in AXES:
        raise ValueError(f"axis {axis!r} is not one of {', '.join(AXES)}")
    chosen = AXES[axis]
    if chosen.on_market is not None:
        parameters = chosen.on_market(parameters, severity)
    plain = market_case(parameters, seed, f"{axis} {severity:g}")
    case = plain if chosen.on_quotes is None else chosen.on_quotes(plain, severity, seed)
    return StressedCase(case, spread_bp(plain))


def market_case(parameters: Parameters, seed: int, name: str = "market") -> Case:
    """Return quotes of a market with maturities, spreads and noise of the unseen surfaces.

    Strikes are evenly spaced in deviations of the log contract, and not rounded.
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


def add_noise(case: Case, severity: float, seed: int) -> Case:
    """Move volatilities by ``severity`` half-spreads times a standard normal, on a log scale."""
    _check_stress(severity)
    q = case.quotes
    relative = (q.iv_ask - q.iv_bid) / (q.iv_ask + q.iv_bid)
    factor = np.exp(severity * relative * np.random.default_rng((seed, 1)).standard_normal(len(q)))
    root = np.sqrt(q.T)
    bid, ask = (black.otm(q.k, iv * factor * root) for iv in (q.iv_bid, q.iv_ask))
    return _replace_prices(case, case.k, q.k, bid, ask)


def drop_quotes(case: Case, severity: float, seed: int) -> Case:
    """Leave a share ``severity`` of the quotes out; at least three stay."""
    _check_stress(severity)
    if severity >= 1.0:
        raise ValueError(f"severity = {severity!r} is a share of the quotes: give less than one")
    chance = np.random.default_rng((seed, 2)).uniform(size=len(case.quotes))
    keep = chance >= min(severity, float(np.sort(chance)[-MIN_QUOTES]))
    return replace(
        case, quotes=case.quotes.select(keep), quoted=_mask_kept_quotes(case.quoted, keep)
    )


def shift_numeraire(case: Case, severity: float, seed: int = 0) -> Case:
    """Return the quotes under a rate that is ``severity`` per cent a year too high.

    With ``F' = F e^{δT}`` and ``D' = D e^{−δT}`` prices over ``D'F'`` are unchanged and the
    log-strikes are ``k − δT``. Between the two forwards the out-of-the-money side changes; its
    price follows from parity at the right forward. Exact volatilities stay with their strikes.
    """
    _check_stress(severity)
    q, delta = case.quotes, 0.01 * severity
    new = q.k - delta * q.T
    gap = np.expm1(q.k)  # put less call, at the right forward
    turned = np.where((q.k >= 0.0) & (new < 0.0), gap, 0.0)
    return _replace_prices(
        case, case.k - delta * case.T[:, None], new, q.bid + turned, q.ask + turned
    )


def leave_stale(case: Case, severity: float, seed: int) -> Case:
    """Replace a quarter of the quotes by those before a move of ``severity`` daily deviations.

    The seed decides the direction. The smile is sticky in moneyness: an old quote is the price of
    the option at the old forward, with its spread and noise, over today's forward.
    """
    _check_stress(severity)
    q = case.quotes
    rng = np.random.default_rng((seed, 3))
    move = severity * (1.0 if rng.random() < 0.5 else -1.0) * _daily_deviation(case)
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


def roughen(parameters: Parameters, severity: float) -> Parameters:
    """Halve the Hurst index and double the volatility of variance, ``severity`` times."""
    _check_stress(severity)
    nu = parameters.nu * 2.0**severity
    return replace(parameters, hurst=parameters.hurst * 2.0**-severity, nu=nu)


def add_jumps(parameters: Parameters, severity: float) -> Parameters:
    """Return the market with one jump a year of mean −5 % times ``severity`` as its only jumps."""
    _check_stress(severity)
    if severity == 0.0:
        return parameters
    return replace(
        parameters, jumps=Jumps(1.0, -_MEAN_JUMP_SIZE * severity, 0.5 * _MEAN_JUMP_SIZE * severity)
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
    """Return the root mean square bid-ask spread of volatility, in basis points."""
    wide = case.quotes.iv_ask - case.quotes.iv_bid
    return math.sqrt(float(np.mean(wide**2))) / BASIS_POINT


def check_failure(answer: CaseScore, spread: float) -> Failure:
    """Return whether a model has failed, by either criterion.

    Args:
        answer: Score of the model on a case under stress.
        spread: Spread of the unstressed quotes (:class:`StressedCase`), in basis points.
    """
    error = answer.error[~np.isnan(answer.error)]
    missed = not float(np.sqrt(np.mean(error**2))) <= spread  # true for NaN and infinity too
    return Failure(answer.refusal is not None or answer.verdict.nas < LEAST_SCORE, missed)


def _replace_prices(case: Case, listed: Array, k: Array, bid: Array, ask: Array) -> Case:
    """Return the case with other prices; quotes outside the no-arbitrage bounds are dropped."""
    usable = (bid > 0.0) & (ask >= bid) & (ask < np.exp(np.minimum(k, 0.0)))
    table = {"T": case.quotes.T, "k": k, "bid": bid, "ask": ask}
    quotes = Quotes.from_frame({name: column[usable] for name, column in table.items()})
    return replace(case, quotes=quotes, k=listed, quoted=_mask_kept_quotes(case.quoted, usable))


def _mask_kept_quotes(quoted: Mask, keep: Mask) -> Mask:
    """Return the mask ``(L, S)`` of the kept quotes; quotes are in the order of the points."""
    out = np.zeros_like(quoted)
    out[quoted] = keep
    return out


def _daily_deviation(case: Case) -> float:
    """Daily deviation of the index: the first expiry's volatility at the money."""
    near = np.where(case.listed[0], np.abs(case.k[0]), np.inf).argmin()
    return float(case.iv[0, near]) / math.sqrt(SESSIONS_PER_YEAR)


def _interpolate_smile(case: Case, k: Array) -> Array:
    """Interpolate exact volatilities at log-strikes ``k`` of each quote's expiry, flat outside."""
    row = np.nonzero(case.quoted)[0]
    found = np.empty_like(k)
    for i in np.unique(row).tolist():
        here, there = row == i, case.listed[i]
        found[here] = np.interp(k[here], case.k[i, there], case.iv[i, there])
    return found


def _check_stress(severity: float) -> None:
    if not 0.0 <= severity < math.inf:
        raise ValueError(
            f"severity = {severity!r}: stress is a number from zero, no stress, upwards"
        )
