"""No-arbitrage scores, in the paper's two definitions (docs/metrics/nas.md).

Section 5.2 integrates the wrong way of three derivatives over the grid; section 2.3 weighs
inequalities one by one, which is what the audit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from arbiter.audit.certificate import Certificate, audit
from arbiter.conventions import Array
from arbiter.scoring import TOLERANCE
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.panels import Panel, build_panel, negative_mass, violations

NOT_A_PRICE = "have a price that is not a number"


class Scored(Protocol):
    """A Certificate, or anything with a score."""

    @property
    def nas(self) -> float:
        """No-arbitrage score."""
        ...


def nas(calls: ArrayLike, kappa: ArrayLike, T: ArrayLike, tolerance: float = TOLERANCE) -> Metric:
    """Section 5.2 with the sign of its calendar term set right: one if and only if none is broken.

        NAS = 1 − ⅓ [ mean over T of ∫(∂_κ c)₊ dκ + mean over T of ∫(−∂_κκ c)₊ dκ
                      + mean over κ of ∫(−∂_T c)₊ dT ]

    In forward units all three are pure numbers: how much calls rise along strikes, the negative
    mass of the density, how much calls fall along maturities. Each is capped at one, at every
    maturity or strike. With one maturity there is no calendar, and the other two are averaged.

    Args:
        calls: ``(D, L, S)``, or ``(L, S)`` of one day, forward units.
        kappa: ``(S,)`` strikes over forward, the same at every maturity.
        T: ``(L,)`` years.
        tolerance: Violations up to this, in forward units, are rounding.

    Example:
        >>> from arbiter.examples import example
        >>> from arbiter_lab.metrics.panels import price_calls
        >>> kappa, T = np.linspace(0.7, 1.3, 13), [0.25, 0.5, 1.0]
        >>> calls = price_calls(example(), kappa, T)
        >>> nas(calls, kappa, T)
        NAS = 1
        >>> nas(calls[::-1], kappa, T).value < 1.0
        True
    """
    panel = build_panel(calls, kappa, T)
    terms = [np.minimum(term, 1.0) for term in _violation_terms(panel, tolerance, printed=False)]
    return Metric.from_days("NAS", _score_days(terms), NOT_A_PRICE)


def nas_as_printed(calls: ArrayLike, kappa: ArrayLike, T: ArrayLike) -> Metric:
    """Section 5.2 to the letter: (∂_T c)₊ is the penalty, and nothing is capped (errata 3, 47).

    Correct prices score below one, by a third of what calls gain along maturities.
    """
    terms = _violation_terms(build_panel(calls, kappa, T), 0.0, printed=True)
    return Metric.from_days("NAS_as_printed", _score_days(terms), NOT_A_PRICE)


def nas_inequalities(found: Sequence[Scored]) -> Metric:
    """Section 2.3: the weighted share of inequalities that hold, from a certificate a day.

    Args:
        found: Certificates of `audit_panel` or of surfaces, or verdicts of the evaluation.
    """
    return Metric.from_days("NAS_inequalities", [day.nas for day in found], "have no score")


def audit_panel(calls: ArrayLike, kappa: ArrayLike, T: ArrayLike) -> list[Certificate]:
    """The audit of each day of a panel, its puts below the forward by parity.

    Raises:
        ValueError: For a day with a price that is not a number: it cannot be audited.
    """
    panel = build_panel(calls, kappa, T)
    bad = np.flatnonzero(~np.isfinite(panel.calls).all(axis=(1, 2)))
    if bad.size:
        raise ValueError(f"day {bad[0]} has a price that is not a number: leave it out")
    shape = panel.calls.shape[1:]
    grid = (panel.T[:, None], np.log(panel.kappa), panel.kappa < 1.0, 1.0 - panel.kappa)
    times, k, below, parity = (np.broadcast_to(row, shape).ravel() for row in grid)
    return [
        audit(
            pl.DataFrame(
                {
                    "T": times,
                    "k": k,
                    "call": np.where(below, np.nan, day),
                    "put": np.where(below, day - parity, np.nan),
                },
                nan_to_null=True,
            )
        )
        for day in panel.calls.reshape(len(panel.calls), -1)
    ]


def _violation_terms(panel: Panel, tolerance: float, printed: bool) -> list[Array]:
    """``(D, L)``, ``(D, L)`` and ``(D, S)``: each wrong way, integrated along its own axis."""
    found = violations(panel, tolerance, printed)
    mass = negative_mass(found.butterfly, panel.kappa)
    terms = [found.vertical.sum(axis=2), mass.sum(axis=2), found.calendar.sum(axis=1)]
    return terms if panel.T.size > 1 else terms[:2]


def _score_days(terms: list[Array]) -> Array:
    """``(D,)`` one less the mean over axioms of each term's mean."""
    lost = np.mean([term.mean(axis=1) for term in terms], axis=0)
    # a loss below the spacing of float64 numbers is a loss
    below = np.minimum(1.0 - lost, np.nextafter(1.0, 0.0))
    return np.where(lost == 0.0, 1.0, np.where(np.isnan(lost), np.nan, below))
