"""A calibrated Heston model as a second prior of a refinement, weighted by held-out likelihood.

Few and wide quotes hardly determine a surface, but they do determine five parameters. The prior
odds are against a Heston model. Each fold of quotes is predicted by the operator and by the Heston
model, both made from all other folds, and the likelihoods of these predictions set the weight. The
prior of the refinement is the weighted mean of both in log-slopes. It is in the star order, since
both are.

Shapes: m quotes on L maturities, P markets, H places of ``asinh z``, n knots.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting import FitOptions
from arbiter.fitting.cross_validation import QuoteFold
from arbiter.fitting.direct_fit import require_prior
from arbiter.fitting.misfit import compute_half_spreads
from arbiter.fitting.prior_mean import log_slopes
from arbiter.forwards import ForwardCurve
from arbiter.inputs import freeze_array
from arbiter.models.fourier_nodes import otm
from arbiter.models.heston import Heston
from arbiter.models.heston_calibration import MAX_QUOTE_DEVIATIONS, atm_total_volatility, calibrate
from arbiter.operators import slope_head
from arbiter.operators.prior.star_order_projection import descend, transport
from arbiter.operators.prior.transport_prices import Smile, price_smile
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter.surface import Surface

logger = logging.getLogger(__name__)

Mask = NDArray[np.bool_]

_LOG_PRIOR_ODDS = -4.0  # logarithm of the odds of Heston's market, beforehand
MIN_WEIGHT = 1e-3  # weight below which it is left out
_MAX_MEAN_SQUARE = (
    0.6  # mean square, in half-spreads, beyond which a market is not true: mids make a third
)
MAX_QUOTES, MAX_EXPIRIES = 600, 16  # quotes that are asked, and of how many expiries
MIN_QUOTES = 25  # with fewer nobody can tell
_SMILE_ZETAS = np.linspace(-2.45, 2.1, 40)  # where smiles are priced: from −5.8 to 4 deviations
_MIN_RESOLVED_PRICE = 1e-6  # of σ√T: what a price may be off by
_MIN_RELATIVE_IV_ERROR = 1e-4  # relative error of a volatility, at least
_MIN_RESOLVED_PLACES = 4  # places of a smile
_GAUSS_NEWTON_ROUNDS = 3  # of Gauss-Newton, after those that a start has


class Guides(NamedTuple):
    """The prior of a refinement, on all quotes and on each fold.

    Attributes:
        guide: A surface of one component.
        held: Folds of the quotes, each with the guide made from all others.
        weight: Weight of the Heston model in the guides.
        heston: That model; None if its weight is zero.
    """

    guide: Surface
    held: Sequence[QuoteFold]
    weight: float = 0.0
    heston: Heston | None = None

    def to_dict(self) -> dict[str, float]:
        """The weight and the parameters, for a surface's information."""
        return {"weight": self.weight, **({} if self.heston is None else vars(self.heston))}


def consulted(
    quotes: Quotes, guide: Surface, held: Sequence[QuoteFold], options: FitOptions
) -> Guides:
    """The guides, with the Heston model in them at the weight that held-out quotes give it.

    Args:
        quotes: What is fitted.
        guide: The operator's surface, of one component.
        held: Folds, each with the operator's surface of all others.
        options: Of the fit.
    """
    require_prior(guide, options)
    alone = Guides(guide, held)
    if not held:
        return alone
    asked = select_asked_quotes(quotes)
    if np.count_nonzero(asked) < MIN_QUOTES:
        return alone
    some = quotes.select(asked)
    unit = compute_half_spreads(some, options)
    found = calibrate(some, unit)
    if found is None:
        return alone
    markets, squares = [found.heston], np.zeros(2)
    for fold in held:
        out = fold.out[asked]
        without, missed = found.refit_without(out)
        told = (fold.guide.otm(some.k[out], some.T[out]) - some.mid[out]) / unit[out]
        squares += [np.sum(off**2) for off in (told, missed)]
        markets.append(without)
    weight = weigh_second_guide(squares, len(some))
    if weight < MIN_WEIGHT:
        return alone
    logs = market_slopes(markets, quotes.maturities)
    if logs is None:
        return alone
    mixed = [
        _mixed(surface, market, weight, quotes.curve)
        for surface, market in zip([guide, *(fold.guide for fold in held)], logs, strict=True)
    ]
    logger.info("Heston's market has %.0f %% of the guide: %s", 100.0 * weight, found.heston)
    folds = [QuoteFold(fold.out, one) for fold, one in zip(held, mixed[1:], strict=True)]
    return Guides(mixed[0], folds, weight, found.heston)


def select_asked_quotes(quotes: Quotes) -> Mask:
    """``(m,)`` some quotes of some expiries, all if they are not many."""
    L = quotes.maturities.size
    listed = np.round(np.linspace(0, L - 1, min(L, MAX_EXPIRIES)))
    near = np.abs(quotes.k) < MAX_QUOTE_DEVIATIONS * atm_total_volatility(quotes)[quotes.expiry]
    near &= np.isin(quotes.expiry, listed)
    stride = -(-max(int(near.sum()), 1) // MAX_QUOTES) | 1  # odd, so that it meets all folds
    return np.asarray(near & (np.cumsum(near) % stride == 0))


def weigh_second_guide(squares: Array, count: int) -> float:
    """Of the second of two guides that miss unseen quotes by so much, in squared half-spreads.

    The better one says how large errors of quotes are, and they are taken for Gaussian. A market
    that is true misses by what mids are off. One that misses by more is not, however much the other
    one does: a wrong quote can spoil both.
    """
    if (
        not np.isfinite(squares).all()
        or squares.min() <= 0.0
        or squares[1] > _MAX_MEAN_SQUARE * count
    ):
        return 0.0
    for_it = 0.5 * count * (squares[0] - squares[1]) / squares.min() + _LOG_PRIOR_ODDS
    return float(1.0 / (1.0 + np.exp(-np.clip(for_it, -500.0, 500.0))))


def _mixed(surface: Surface, market: Array, weight: float, curve: ForwardCurve) -> Surface:
    """A surface whose log-slopes are a mean of another's and a market's ``(L, n)``."""
    logs, _ = log_slopes(surface, surface.knots, curve.maturities)
    there = np.stack([np.interp(surface.knots, slope_head.KNOTS, one) for one in market])
    slopes = np.maximum.accumulate(np.exp((1.0 - weight) * logs[0] + weight * there))
    ones = freeze_array(np.ones((1, len(slopes))))
    return Surface(surface.knots, curve.maturities, freeze_array(slopes[None]), ones, curve)


def market_slopes(markets: Sequence[Heston], T: Array) -> Array | None:
    """``(P, L, n)`` log-slopes of transports that price these markets, in the star order.

    None if a smile has no volatilities at the money that could be told from rounding.
    """
    level = np.array([one.reference_volatility(T) * np.sqrt(T) for one in markets])  # (P, L)
    z = np.sinh(_SMILE_ZETAS)
    price = otm(markets, T, level, z)
    known = _around_the_money(price > _MIN_RESOLVED_PRICE * level[..., None])
    if known.sum(-1).min() < _MIN_RESOLVED_PLACES:
        return None
    v = black.implied_total_volatility(
        np.where(known, price, np.nan), level[..., None] * z
    ).volatility
    doubt = np.log(
        _MIN_RELATIVE_IV_ERROR + np.where(known, _MIN_RESOLVED_PRICE / np.abs(price), 1.0)
    )
    u = _extended(np.log(v / level[..., None]), known)
    seen = np.ones(level.shape, dtype=np.bool_)
    priced = price_smile(Smile(u, doubt, _SMILE_ZETAS, np.log(level), seen))
    g, _ = descend(transport(priced)[0], priced, _GAUSS_NEWTON_ROUNDS)
    logs = np.log(slope_head.slopes(g, priced.total))
    return logs if np.isfinite(logs).all() else None


def _around_the_money(flags: Mask) -> Mask:
    """``(..., H)`` the flags that hold from the money on without a gap."""
    money = int(np.searchsorted(_SMILE_ZETAS, 0.0))
    below = np.logical_and.accumulate(flags[..., money - 1 :: -1], axis=-1)[..., ::-1]
    above = np.logical_and.accumulate(flags[..., money:], axis=-1)
    return np.concatenate([below, above], axis=-1)


def _extended(u: Array, known: Mask) -> Array:
    """Values ``(..., H)`` at the places, lines beyond what is known in each row; in place."""
    rows, flags = u.reshape(-1, u.shape[-1]), known.reshape(-1, u.shape[-1])
    for row, there in zip(rows, flags, strict=True):
        low, high = np.flatnonzero(there)[[0, -1]]
        for end, step, beyond in ((low, 1, np.s_[:low]), (high, -1, np.s_[high + 1 :])):
            lean = (row[end + step] - row[end]) / (_SMILE_ZETAS[end + step] - _SMILE_ZETAS[end])
            row[beyond] = row[end] + lean * (_SMILE_ZETAS[beyond] - _SMILE_ZETAS[end])
    return u
