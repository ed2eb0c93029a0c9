"""Panels of call prices and their violations of static no-arbitrage inequalities.

A panel has D days, L maturities and S strikes. Prices are in forward units on the same moneyness
``κ = K/F_T`` at every maturity, so that calendar comparisons are at fixed κ.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.scoring import TOLERANCE


class Priced(Protocol):
    """A Surface, an oracle, a peer: anything with out-of-the-money prices."""

    def otm(self, k: Array, T: Array, /) -> Array:
        """Out-of-the-money prices in forward units."""
        ...


class Panel(NamedTuple):
    """Call prices of D days on a grid of maturities and strikes.

    Attributes:
        calls: ``(D, L, S)`` in forward units, NaN where there is no finite price.
        kappa: ``(S,)`` strikes over forward, increasing.
        T: ``(L,)`` years, increasing.
    """

    calls: Array
    kappa: Array
    T: Array


def price_calls(model: Priced, kappa: ArrayLike, T: ArrayLike) -> Array:
    """``(L, S)`` calls of a model in forward units, at moneyness ``(S,)`` and maturities ``(L,)``.

    Example:
        >>> from arbiter.examples import example
        >>> price_calls(example(), [0.9, 1.0, 1.1], [0.25, 0.5]).shape
        (2, 3)
    """
    moneyness, times = np.asarray(kappa, dtype=np.float64), np.asarray(T, dtype=np.float64)
    otm = model.otm(np.log(moneyness), times[:, None])
    return np.asarray(otm + np.maximum(1.0 - moneyness, 0.0))


def build_panel(calls: ArrayLike, kappa: ArrayLike, T: ArrayLike) -> Panel:
    """Check the shapes and return a panel; one day, ``(L, S)``, becomes ``(1, L, S)``.

    Prices need not be finite: a day with one that is not has no score.

    Raises:
        ValueError: If shapes disagree, or strikes or maturities do not increase.
    """
    price = np.asarray(calls, dtype=np.float64)
    price = price[None] if price.ndim == 2 else price
    moneyness, times = np.asarray(kappa, dtype=np.float64), np.asarray(T, dtype=np.float64)
    if price.ndim != 3 or (times.shape, moneyness.shape) != (price.shape[1:2], price.shape[2:]):
        raise ValueError(
            f"calls has shape {np.shape(calls)}, T {times.shape} and kappa {moneyness.shape}: give "
            "calls of (days, maturities, strikes) and one row each of maturities and strikes"
        )
    if moneyness.size < 3:
        raise ValueError(f"{moneyness.size} strikes have no curvature: give three or more")
    for name, row in (("kappa", moneyness), ("T", times)):
        if not (np.isfinite(row).all() and row[0] > 0.0 and (np.diff(row) > 0.0).all()):
            raise ValueError(f"{name} must be positive and increasing, got {row}")
    return Panel(np.where(np.isfinite(price), price, np.nan), moneyness, times)


class PanelViolations(NamedTuple):
    """Sizes of violated inequalities: gains of portfolios with long legs of weight one, else 0.

    Entries next to a price that is not a number are NaN.

    Attributes:
        vertical: ``(D, L, S−1)`` how much calls rise to the next strike.
        butterfly: ``(D, L, S−2)`` how far a call lies above its neighbours' chord.
        calendar: ``(D, L−1, S)`` how much calls fall to the next maturity.
    """

    vertical: Array
    butterfly: Array
    calendar: Array


def violations(
    panel: Panel, tolerance: float = TOLERANCE, printed: bool = False
) -> PanelViolations:
    """Return the static inequalities between neighbours that a panel violates.

    Args:
        panel: Call prices.
        tolerance: Up to this, in forward units, a violation is rounding and counts as none.
        printed: Take the calendar as section 5.2 of the paper prints it, which calls a rise with
            maturity the violation (errata 47).
    """
    price, share = panel.calls, _left_wing_weights(panel.kappa)
    wings = share * price[..., :-2] + (1.0 - share) * price[..., 2:]
    later = np.diff(price, axis=1)
    return PanelViolations(
        _zero_within_tolerance(np.diff(price, axis=2), tolerance),
        _zero_within_tolerance(price[..., 1:-1] - wings, tolerance),
        _zero_within_tolerance(later if printed else -later, tolerance),
    )


def negative_mass(butterfly: Array, kappa: Array) -> Array:
    """Return ``(D, L, S−2)`` negative probability mass at inner strikes: the drop of the slope.

    It is the butterfly's violation over the butterfly's price for a unit of mass at the strike.
    """
    low, high = np.diff(kappa)[:-1], np.diff(kappa)[1:]
    return np.asarray(butterfly * (low + high) / (low * high))


def _left_wing_weights(kappa: Array) -> Array:
    """Return ``(S−2,)`` weights of the left wing of each butterfly."""
    return np.asarray((kappa[2:] - kappa[1:-1]) / (kappa[2:] - kappa[:-2]))


def _zero_within_tolerance(size: Array, tolerance: float) -> Array:
    return np.where(size <= tolerance, 0.0, size)
