"""Shrinkage of the network's change towards the prior, far from the training data.

A network can be wrong by any amount on chains unlike those of its training. Two checks do not
depend on its weights. The quotes: a surface that meets them within their spreads is not
contradicted. The reference has a standard error at every place: a change of the smile by about
that error is plausible. A change that passes neither check is shrunk towards the reference: beyond
:data:`FREE_MOVE_ERRORS` errors it is shortened to fewer, and the more the larger it is.

The shrunk proposal goes through the head like any other, so the star order holds.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.prior.gaussian_process import Kriged
from arbiter.operators.prior.reference_volatility import Scaled
from arbiter.operators.prior.star_order_projection import missed as miss_smiles
from arbiter.operators.prior.transport_prices import PricedSmile

FREE_MOVE_ERRORS = 1.25  # standard errors of the reference, in root mean square over a chain
# half-spreads off: a change that leaves quotes so far is fine, or is not
MET_HALF_SPREADS, MISSED_HALF_SPREADS = 0.7, 1.0
MIN_LOG_IV_TOLERANCE = 5e-3  # of log-volatility: what may be missed however tight the spread
MAX_MISS_HALF_SPREADS = 5.0  # half-spreads: no quote counts for more
MIN_REFERENCE_ERROR = 2e-3  # error of log-volatility that no reference is below
MIN_MOVE = 1e-12
MIN_WEIGHT_SUM = 1e-6  # less than that counts as nothing


class Heads(Protocol):
    """The strikes at which reference and proposal are compared: those of the measure gate."""

    def at_quotes(self, nodes: Array, chain: Scaled) -> Array:
        """``(N,)`` numbers ``(B, L, H)`` at the heads, linear between them, at the quotes."""
        ...


class Trusted(NamedTuple):
    """What is left of a proposal.

    Attributes:
        proposal: ``(B, L, n)`` ``log(slope/σ√T)``, between the start and what was proposed.
        moved: ``(B,)`` by how many standard errors the whole change would have moved the smile.
        missed: ``(B,)`` by how many half-spreads it would have missed the quotes, each in root mean
            square.
        strained: ``(B,)`` by how many of these errors the star order keeps the start away.
    """

    proposal: Array
    moved: Array
    missed: Array
    strained: Array


def share(moved: Array, missed: Array) -> Array:
    """The part of a change that is made, from how far the whole would move, and miss the quotes."""
    little = np.minimum(FREE_MOVE_ERRORS / np.maximum(moved, MIN_MOVE), 1.0) ** 2
    met = (MISSED_HALF_SPREADS - missed) / (MISSED_HALF_SPREADS - MET_HALF_SPREADS)
    return np.asarray(np.maximum(little, np.clip(met, 0.0, 1.0)))


def trusted(
    proposal: Array, guess: Kriged, priced: PricedSmile, chain: Scaled, gate: Heads
) -> Trusted:
    """Draw proposals ``(B, L, n)`` towards the start where neither check supports them.

    Args:
        proposal: What the network says.
        guess: Its reference.
        priced: How the reference is priced.
        chain: The chains in their own units.
        gate: Whose bumps are the heads of both.
    """
    off, says = miss_smiles(proposal, priced)
    short = guess.miss
    error = np.exp(2.0 * guess.doubt) + MIN_REFERENCE_ERROR**2
    moved = _root_mean((off - short) ** 2 / (error + short**2), says)
    strained = _root_mean(short**2 / error, says)
    left = chain.u - gate.at_quotes(guess.smile - off, chain)
    wide = np.exp(2.0 * chain.noise) + MIN_LOG_IV_TOLERANCE**2
    squares = chain.quotes.sum_slices(np.minimum(left**2 / wide, MAX_MISS_HALF_SPREADS**2))
    B, L, _ = proposal.shape
    count = np.maximum(np.diff(chain.quotes.ends[::L]), 1)
    missed = np.sqrt(squares.reshape(B, L).sum(1) / count)
    part = share(moved, missed)[:, None, None]
    return Trusted(guess.start + part * (proposal - guess.start), moved, missed, strained)


def _root_mean(squares: Array, counts: Array) -> Array:
    """``(B,)`` over what counts of ``(B, L, H)``, as far as it does; 0 where nothing does."""
    total = np.where(counts > 0.0, counts * squares, 0.0).sum((1, 2))
    return np.asarray(np.sqrt(total / np.maximum(counts.sum((1, 2)), MIN_WEIGHT_SUM)))
