"""Three raw SVI slices of an index, and quotes around any peer's model."""

from __future__ import annotations

import numpy as np

from arbiter.quotes import Quotes
from arbiter_lab.peers import SVI, Peer

T = np.array([0.1, 0.5, 1.0])
# a, b, rho, m, sigma: an index smile of a month, half a year, a year
RAW = np.array(
    [
        [0.0008, 0.020, -0.55, 0.010, 0.060],
        [0.0060, 0.060, -0.60, 0.030, 0.150],
        [0.0150, 0.100, -0.65, 0.050, 0.250],
    ]
)
EXACT_SVI = SVI(T, RAW)
DEVIATIONS = np.linspace(-3.0, 2.0, 25)


def quoted(model: Peer, half: float = 0.001) -> Quotes:
    """Quotes around a model, 25 strikes on each of its maturities."""
    at = np.repeat(model.maturities, DEVIATIONS.size)
    k = (DEVIATIONS * np.sqrt(model.total_variance(0.0, model.maturities))[:, None]).ravel()
    iv = model.iv(k, at)
    return Quotes.from_frame({"T": at, "k": k, "iv_bid": iv - half, "iv_ask": iv + half})
