"""Standard errors of the operator's volatilities: the prior's own, times a calibrated factor.

The Gaussian process has a standard error of log-volatility at every head, which follows from where
quotes are and how wide. How many of these errors the answer is off by depends most on how far the
network would move the prior's smile: a market that the prior does not expect moves it more. The
factor is estimated on laws of the training universe that training has not seen, in bands of that
move, and interpolated between them (tools/operator_error.py). So it is continuous in the quotes.

Shapes: L maturities, H heads, N points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.inputs import freeze_array
from arbiter.values import is_number, require_known_keys, shorten_repr

INFO_KEY = "iv_error"  # of a checkpoint's description
_BANDS = 8
_ONE_ERROR, _TWO_ERRORS = 0.6827, 0.9545  # shares of a normal law within one and two errors
_PROVENANCE = ("chains", "laws", "seed")


class ErrorCalibration(NamedTuple):
    """Multiples of the prior's standard errors.

    Attributes:
        moved: ``(N,)`` by how many of these errors the network would move the smile, increasing.
        log_factor: ``(N,)`` logarithms of the multiples.
    """

    moved: Array
    log_factor: Array

    def apply(self, log_doubt: Array, moved: float) -> Array:
        """Logarithms of standard errors, from those of the prior and the move of a chain."""
        return log_doubt + float(np.interp(moved, self.moved, self.log_factor))


@dataclass(frozen=True, eq=False)
class HeadErrors:
    """Standard errors of log-volatility at the heads of a surface's maturities.

    Attributes:
        place: ``(H,)`` asinh of deviations, increasing.
        log_error: ``(L, H)`` their logarithms.
    """

    place: Array
    log_error: Array

    def relative(self, k: Array, years: Array, maturities: Array, total: Array) -> Array:
        """Standard errors of log-volatility at points.

        Linear in log-maturity and between heads; beyond the outermost it is what it is there.

        Args:
            k: ``(N,)`` log-moneyness.
            years: ``(N,)`` maturities of the points, in the clock of ``maturities``.
            maturities: ``(L,)``.
            total: ``(L,)`` logarithm of the reference total volatility.
        """
        nodes, at = np.log(maturities), np.log(years)
        beyond = at - np.clip(at, nodes[0], nodes[-1])  # volatility stays, variance grows
        zeta = np.arcsinh(k * np.exp(-np.interp(at, nodes, total) - 0.5 * beyond))
        L, H = self.log_error.shape
        after = np.clip(np.searchsorted(nodes, at), 1, max(L - 1, 1))
        before = np.minimum(after - 1, L - 1)
        after = np.minimum(after, L - 1)
        gap = nodes[after] - nodes[before]
        late = np.clip((at - nodes[before]) / np.where(gap > 0.0, gap, 1.0), 0.0, 1.0)
        right = np.clip(np.searchsorted(self.place, zeta), 1, H - 1)
        width = self.place[right] - self.place[right - 1]
        high = np.clip((zeta - self.place[right - 1]) / width, 0.0, 1.0)
        rows = [
            (1.0 - high) * self.log_error[row, right - 1] + high * self.log_error[row, right]
            for row in (before, after)
        ]
        return np.asarray(np.exp((1.0 - late) * rows[0] + late * rows[1]))

    @classmethod
    def from_stored(cls, arrays: Mapping[str, Array], count: int) -> HeadErrors | None:
        """The errors from the arrays of a file; None where it keeps none.

        Args:
            arrays: Of the file.
            count: Maturities of the surface.
        """
        if "error_place" not in arrays:
            return None
        place, log_error = arrays["error_place"], arrays["log_error"]
        if place.ndim != 1 or place.size < 2 or log_error.shape != (count, place.size):
            raise ValueError(
                f"log_error has shape {log_error.shape}, error_place {place.shape}: "
                f"({count}, H) and (H,) are due"
            )
        if (np.diff(place) <= 0.0).any():
            raise ValueError("error_place does not increase: save the surface again")
        return cls(freeze_array(place), freeze_array(log_error))

    def to_arrays(self) -> dict[str, Array]:
        """What a file keeps."""
        return {"error_place": self.place, "log_error": self.log_error}


def calibrate_errors(moved: Array, ratio: Array) -> dict[str, list[float]]:
    """The factors of bands with about equally many points, as plain values for a checkpoint.

    Args:
        moved: ``(N,)`` the move of the chain that each point is of.
        ratio: ``(N,)`` how far its log-volatility is from the truth, in errors of the prior.

    Returns:
        In each band the least factor with 68 % of the points within one error and 95 % within two.
    """
    if moved.size < 100 * _BANDS:
        raise ValueError(f"{moved.size} points: give some thousands, of many chains")
    edges = np.quantile(moved, np.linspace(0.0, 1.0, _BANDS + 1))
    label = np.searchsorted(edges[1:-1], moved, side="right")
    centres, factors = [], []
    for band in np.unique(label):
        own = label == band
        one, two = np.quantile(np.abs(ratio[own]), [_ONE_ERROR, _TWO_ERRORS])
        centres.append(float(np.median(moved[own])))
        factors.append(float(np.log(max(one, 0.5 * two))))
    return {"moved": centres, "log_factor": factors}


def parse_errors(given: object) -> ErrorCalibration | None:
    """The calibration of a checkpoint; None where it has none.

    Raises:
        ValueError: If it is there and is no calibration.
    """
    if given is None:
        return None
    known: Mapping[str, Any] = require_known_keys(
        INFO_KEY, given, ("moved", "log_factor", *_PROVENANCE)
    )
    parts = []
    for name in ("moved", "log_factor"):
        row = known.get(name)
        if not isinstance(row, list | tuple) or not row or not all(map(is_number, row)):
            raise ValueError(f"{INFO_KEY}: {name} = {shorten_repr(row)} must be a list of numbers")
        parts.append(freeze_array(np.array(row, dtype=np.float64)))
    found = ErrorCalibration(*parts)
    if found.moved.shape != found.log_factor.shape or (np.diff(found.moved) <= 0.0).any():
        raise ValueError(
            f"{INFO_KEY}: moved must increase, with one log_factor each; got "
            f"{found.moved.size} and {found.log_factor.size} numbers"
        )
    return found
