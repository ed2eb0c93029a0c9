"""From quotes to slopes: prior, network, what is left of its change far from training, decoder.

A change is shrunk where it is larger, in standard errors of the prior, than on all but a few chains
of the training universe, and where the prior misses the quotes by more than there: nothing was
learned for such chains. The share falls in a line, from one at the limit to none at twice the
limit, so that the surface is continuous in the quotes.

Shapes: B chains of L slices, n knots, P places at which the prior is told.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.domain import VOLATILITY_SOFTENING
from arbiter.operators.law.config import HALF_SETTLED_ERROR, ORDER_WIDTH
from arbiter.operators.law.network import LawNetwork, LawTask, Proposal
from arbiter.operators.law.proposal import Law, decode
from arbiter.operators.prior.gaussian_process import kriged
from arbiter.operators.prior.reference_volatility import scaled
from arbiter.operators.quote_rows import QuoteRows
from arbiter.operators.slope_head import KNOTS


class Limits(NamedTuple):
    """How far the change, and the prior's misses, went in training; any number without limits."""

    moved: float = math.inf
    missed: float = math.inf


class Answer(NamedTuple):
    """What the operator says of B chains.

    Attributes:
        slopes: ``(B, L, n)`` nondecreasing along L.
        total: ``(B, L)`` logarithm of the reference total volatility ``σ√T``.
        moved: ``(B,)`` the whole change of log-slopes over the prior's standard errors of
            log-volatility, in root mean square.
        missed: ``(B,)`` median miss of the mids by the prior alone, in half-spreads.
        share: ``(B,)`` of the change that is made.
        doubt: ``(B, L, P)`` logarithm of the prior's standard error of log-volatility.
        law: The proposal that was decoded.
    """

    slopes: Array
    total: Array
    moved: Array
    missed: Array
    share: Array
    doubt: Array
    law: Law


def answer(network: LawNetwork, quotes: QuoteRows, limits: Limits | None = None) -> Answer:
    """The surfaces of chains.

    Args:
        network: The network.
        quotes: Of the chains.
        limits: Beyond which a change is shrunk; none if left out.
    """
    limits = Limits() if limits is None else limits
    with np.errstate(all="ignore"):  # a chain without a level has no numbers, and is found
        chain = scaled(quotes)
        prior = kriged(chain, network.places)
        task = LawTask.from_chain(chain, prior)
        found = network(task)
        moved = measure_move(found, task)
        missed = measure_misses(found, task)
        farthest = np.maximum(_over(moved, limits.moved), _over(missed, limits.missed))
        share = np.clip(2.0 - farthest, 0.0, 1.0)
        first, last = found.laws[0], found.law
        part = share[:, None, None]
        law = Law(
            first.log_ratio + part * (last.log_ratio - first.log_ratio),
            first.shift + part[..., 0] * (last.shift - first.shift),
        )
        slopes = decode(law, chain.total, quotes.listed)
    return Answer(slopes, chain.total, moved, missed, share, prior.doubt, law)


def measure_move(found: Proposal, task: LawTask) -> Array:
    """``(B,)`` root mean square of changes over the prior's errors, near the money."""
    change = found.law.log_ratio - found.laws[0].log_ratio
    seen = task.chain.quotes.listed
    weight = seen[..., None] * np.exp(-0.5 * (np.array(KNOTS) / ORDER_WIDTH) ** 2)
    square = weight * change**2 / (found.error**2 + HALF_SETTLED_ERROR**2)
    return np.asarray(np.sqrt(square.sum((1, 2)) / weight.sum((1, 2))))


def measure_misses(found: Proposal, task: LawTask) -> Array:
    """``(B,)`` median misses of the mids by the prior alone, in half-spreads."""
    chain = task.chain
    size = np.abs(found.missed) / np.sqrt(np.exp(2.0 * chain.noise) + VOLATILITY_SOFTENING**2)
    begins = chain.quotes.ends[:: chain.total.shape[1]]
    return np.array([_median(part) for part in np.split(size, begins[1:-1])])


def _median(values: Array) -> float:
    ordered, count = np.sort(values), values.size  # at a fifth of what np.median takes
    return float(0.5 * (ordered[(count - 1) // 2] + ordered[count // 2]))


def _over(size: Array, limit: float) -> Array:
    """Sizes over a limit; what is nothing is within any limit, one of zero included."""
    return size / max(limit, np.finfo(np.float64).tiny)
