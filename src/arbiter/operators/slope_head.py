"""The operator's knots, and within what its slopes lie.

``g`` is the logarithm of slope over ``σ√T``, one number per knot and maturity. While the prior
looks for the transport of its smile, slopes are the running maximum of ``σ√T e^g`` along maturities
(:func:`slopes`); what the operator proposes is ordered by :func:`.law.proposal.decode`.
"""

from __future__ import annotations

import numpy as np

from arbiter.conventions import Array

KNOTS = tuple(n / 3 for n in range(-16, 15))  # those that the network was trained with
MIN_LOG_RATIO, MAX_LOG_RATIO = -5.0, 5.0  # of g
MAX_PROPOSED_LOG_RATIO = (
    3.0  # size of g that a network proposes at most: only a start reaches farther
)
MIN_SLOPE, MAX_SLOPE = 2e-6, 19.0  # slopes that a surface accepts, with room


def bounded(g: Array, start: Array) -> Array:
    """Proposals within what is usual, or where a start is beyond that, within the start."""
    low, high = -MAX_PROPOSED_LOG_RATIO, MAX_PROPOSED_LOG_RATIO
    return np.clip(g, np.minimum(start, low), np.maximum(start, high))


def slopes(g: Array, total: Array) -> Array:
    """Slopes ``(B, L, n)``, nondecreasing along L, from proposals and ``log(σ√T)`` ``(B, L)``."""
    proposed = np.exp(np.clip(g, MIN_LOG_RATIO, MAX_LOG_RATIO) + total[..., None])
    return np.clip(np.maximum.accumulate(proposed, 1), MIN_SLOPE, MAX_SLOPE)


def is_star_ordered(slopes: Array) -> bool:
    """Whether slopes ``(B, L, n)`` are positive, and do not fall along maturities."""
    return bool((slopes > 0.0).all() and (slopes[:, 1:] >= slopes[:, :-1]).all())
