"""The vocabulary of the promises: each is one inequality, usable on any prices.

Prices come with the same strikes for every maturity, ``(…, L, m)``; ``slack`` is the rounding
that a check forgives, in units of the prices involved.
"""

from __future__ import annotations

import numpy as np

from arbiter.conventions import Array

ROUNDING = 4e-14


def assert_convex_in_strike(kappa: Array, price: Array, slack: float = ROUNDING) -> None:
    """The three-point inequality on uneven strikes: a butterfly costs nothing less than zero."""
    left, middle, right = kappa[..., :-2], kappa[..., 1:-1], kappa[..., 2:]
    share = (right - middle) / (right - left)
    wings = share * price[..., :-2] + (1.0 - share) * price[..., 2:]
    worst = (price[..., 1:-1] - wings).max()
    assert worst <= slack, f"butterfly of {-worst:.3g}"


def assert_calls_fall_in_strike(call: Array, slack: float = ROUNDING) -> None:
    worst = np.diff(call, axis=-1).max()
    assert worst <= slack, f"vertical of {-worst:.3g}"


def assert_rises_in_maturity(price: Array, slack: float = ROUNDING) -> None:
    """Calendar spreads at fixed moneyness, the maturity on the second last axis."""
    worst = np.diff(price, axis=-2).min()
    assert worst >= -slack, f"calendar spread of {worst:.3g}"


def assert_within_bounds(kappa: Array, call: Array, slack: float = ROUNDING) -> None:
    intrinsic = np.maximum(1.0 - kappa, 0.0)
    assert (call >= intrinsic - slack).all(), f"below intrinsic by {(intrinsic - call).max():.3g}"
    assert (call <= 1.0 + slack).all(), f"above the forward by {(call - 1.0).max():.3g}"


def assert_parity(kappa: Array, call: Array, put: Array, slack: float = ROUNDING) -> None:
    worst = np.abs((call - put - 1.0 + kappa) / np.maximum(kappa, 1.0)).max()
    assert worst <= slack, f"parity off by {worst:.3g}"


def assert_conjugate(q: Array, dual: Array, kappa: Array, call: Array, slack: float) -> None:
    """``c(κ) = max_q {G(q) − qκ}`` on a grid of q, which can only fall short of the maximum."""
    best = (dual[..., None, :] - q * kappa[..., None]).max(axis=-1)
    assert (best <= call + ROUNDING).all(), f"conjugate exceeds by {(best - call).max():.3g}"
    assert (best >= call - slack).all(), f"conjugate falls short by {(call - best).max():.3g}"
