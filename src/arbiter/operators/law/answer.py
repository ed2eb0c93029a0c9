"""From quotes to slopes: prior, network, what is left of its change far from training, decoder.

A change is shrunk where it is larger than on all but a few chains of the training universe, in
standard errors of the prior: that needs no opinion about the network, and is continuous.

Shapes: B chains of L slices, n knots, P places at which the prior is told.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.law.config import HALF_SETTLED_ERROR, ORDER_WIDTH
from arbiter.operators.law.network import LawNetwork, LawTask, Proposal
from arbiter.operators.law.proposal import Law, decode
from arbiter.operators.prior.gaussian_process import kriged
from arbiter.operators.prior.reference_volatility import scaled
from arbiter.operators.quote_rows import QuoteRows
from arbiter.operators.slope_head import KNOTS

_MIN_MOVE = 1e-12


class Answer(NamedTuple):
    """What the operator says of B chains.

    Attributes:
        slopes: ``(B, L, n)`` nondecreasing along L.
        total: ``(B, L)`` logarithm of the reference total volatility ``σ√T``.
        moved: ``(B,)`` by how many standard errors of the prior the whole change would have moved
            the log-slopes, in root mean square.
        share: ``(B,)`` of the change that is made.
        doubt: ``(B, L, P)`` logarithm of the prior's standard error of log-volatility.
        law: The proposal that was decoded.
    """

    slopes: Array
    total: Array
    moved: Array
    share: Array
    doubt: Array
    law: Law


def answer(network: LawNetwork, quotes: QuoteRows, free_move: float = math.inf) -> Answer:
    """The surfaces of chains.

    Args:
        network: The network.
        quotes: Of the chains.
        free_move: Standard errors of the prior beyond which a change is shrunk.
    """
    with np.errstate(all="ignore"):  # a chain without a level has no numbers, and is found
        chain = scaled(quotes)
        prior, _ = kriged(chain, network.places)
        task = LawTask.from_chain(chain, prior)
        found = network(task)
        moved = measure_move(found, task, network)
        share = np.minimum(free_move / np.maximum(moved, _MIN_MOVE), 1.0) ** 2
        first, last = found.laws[0], found.law
        part = share[:, None, None]
        law = Law(
            first.log_ratio + part * (last.log_ratio - first.log_ratio),
            first.shift + part[..., 0] * (last.shift - first.shift),
        )
        slopes = decode(law, chain.total, quotes.listed)
    return Answer(slopes, chain.total, moved, share, prior.doubt, law)


def measure_move(found: Proposal, task: LawTask, network: LawNetwork) -> Array:
    """``(B,)`` root mean square of changes over the prior's errors, near the money."""
    change = found.law.log_ratio - found.laws[0].log_ratio
    error = network.errors(task.prior)
    seen = task.chain.quotes.listed
    weight = seen[..., None] * np.exp(-0.5 * (np.array(KNOTS) / ORDER_WIDTH) ** 2)
    square = weight * change**2 / (error**2 + HALF_SETTLED_ERROR**2)
    return np.asarray(np.sqrt(square.sum((1, 2)) / weight.sum((1, 2))))
