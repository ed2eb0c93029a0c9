"""Pooling: what neighbouring maturities say of the same strikes.

In units of the reference volatility smiles change slowly with maturity. So each head's value and
slope are also read off a local line along log-maturity, through the same head of all slices, each
weighed by its nearness ``e^{−|Δ log T|/span}`` and by its precision: the inverse variance of the
head's mean, from the half-spreads, and less where the head is far from any quote. A slice with few
or noisy quotes so borrows from the others, as much as the quotes' places and spreads call for and
never for what they say: for given strikes pooling is linear, with rows of absolute sum √2 at most
(docs/operator-architecture.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.matrix_products import Rough, multiply
from arbiter.operators.network.measure_gate import Sight

POOLED_ROWS = 2.0**0.5  # how far a pooled number moves when all that it pools move by one
RIDGE = 0.25  # of the squared span: where maturities are no further apart, the line is flat
MIN_LOG_ERROR = -6.0  # log standard error: heads that claim to know more count alike
MIN_LOG_PRESENCE = -12.0  # log-mass against the best head's, doubled: less counts alike
MIN_WEIGHT_SUM = 1e-12


def precision(sight: Sight) -> Rough:
    """``(M, H)`` weights of the heads of each slice: inverse variances, less off the quotes."""
    known = -2.0 * np.maximum(sight.doubt, MIN_LOG_ERROR)
    present = 2.0 * (sight.mass - sight.mass.max(-1, keepdims=True))
    return np.asarray(np.exp(known + np.maximum(present, MIN_LOG_PRESENCE)))


def nearness(log_T: Array, spans: Sequence[float], causal: bool = False) -> Array:
    """``(B, K, 3, L, L)`` weights of each slice for each: times 1, the distance and its square.

    Args:
        log_T: ``(B, L)`` logarithms of maturities.
        spans: Of log-maturity, the unit of distances.
        causal: Whether longer maturities are left out.
    """
    apart = log_T[:, None, :] - log_T[:, :, None]  # (B, L, L): from here to there
    scaled = np.stack([apart / span for span in spans], 1)  # (B, K, L, L)
    near = np.exp(-np.abs(scaled))
    near = np.tril(near) if causal else near
    first = near * scaled
    return np.stack([near, first, first * scaled], 2)


def pooled(lines: Rough, weight: Rough, near: Rough) -> Rough:
    """Local lines along log-maturity, one per span.

    Args:
        lines: ``(B, L, 2H)`` values and slopes of the heads.
        weight: ``(B, L, H)`` from :func:`precision`, zero where nothing is quoted.
        near: From :func:`nearness`.

    Returns:
        ``(B, L, K·2H)``, K the number of spans.
    """
    (B, K, _, L, _), H = near.shape, weight.shape[-1]
    both = lines.reshape(B, L, 2, H) * weight[:, :, None]
    given = np.concatenate([both, weight[:, :, None]], 2).reshape(B, L, 3 * H)
    flat = near.reshape(B, 3 * K * L, L)
    chains = [multiply(one, values) for one, values in zip(flat, given, strict=True)]
    sums = np.stack(chains).reshape(B, K, 3, L, 3, H)
    sums /= sums[:, :, :1, :, 2:] + MIN_WEIGHT_SUM
    mean, cross = sums[:, :, 0, :, :2], sums[:, :, 1, :, :2]  # (B, K, L, 2, H)
    centre, second = sums[:, :, 1, :, 2:], sums[:, :, 2, :, 2:]  # (B, K, L, 1, H)
    spread = np.maximum(second - centre * centre, 0.0) + RIDGE
    found = mean - np.clip(centre, -1.0, 1.0) * ((cross - mean * centre) / spread)
    return np.swapaxes(found, 1, 2).reshape(B, L, 2 * K * H)
