"""A prior of the VIX's law from an SPX surface alone: a regression with Gaussian errors.

A surface fixes the mean square of the VIX at every date and nothing else of its law. In models of
both markets the index smiles are related to the volatility of volatility. A small network, trained
on such models (tools/vix_prior.py), maps features of the surface
(:mod:`arbiter.vix.prior_features`) to a Gaussian law of the log-slopes of a VIX slice. Any slopes
are free of arbitrage, so every draw is a law, and ``E[(VIX/100)²] = FV`` holds for each.

Shapes: U dates, n knots, f features.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import IO, TYPE_CHECKING, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from arbiter import inputs
from arbiter.conventions import DAYS_PER_YEAR, INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.pricing import black
from arbiter.pricing.transport import Transport
from arbiter.pricing.vix_slices import (
    VixSlices,
    describe_beyond_expiries,
    require_levels,
    require_variance,
)
from arbiter.surface import Surface
from arbiter.vix.prior_features import features

if TYPE_CHECKING:
    from arbiter.timing.maturities import MaturityLike


KNOTS = (-3.0, -2.25, -1.5, -0.75, 0.0, 0.75, 1.5, 2.25, 3.0)
DEFAULT_DAYS = (7, 14, 21, 30, 45, 60, 91, 121, 152, 182, 273, 365)
"""Dates at which a prior is given if none are asked for, as far as the surface goes."""
MIN_TRAINED_YEARS, MAX_TRAINED_YEARS = 4.0 / DAYS_PER_YEAR, 1.2  # years that the network has seen
PRIOR_SLOPE_RANGE = (1e-4, 3.5)  # of slopes
DRAW_COUNT = 128
MAX_FEATURE_DEVIATIONS = 4.0  # deviations from training at which a feature is held
_SEED = 0


class VixRegression(NamedTuple):
    """A three-layer network from surface features to the log-slopes of a VIX slice.

    Attributes:
        centre: ``(f,)`` means of the features.
        scale: ``(f,)`` standard deviations of the features.
        w0, b0, w1, b1, w2, b2: Weights and biases of three layers with ``tanh`` between them. The
            last one gives n means and the logarithm of the size of their errors.
        root: ``(n, n)`` root of the covariance of errors of that size.
    """

    centre: Array
    scale: Array
    w0: Array
    b0: Array
    w1: Array
    b1: Array
    w2: Array
    b2: Array
    root: Array

    def __call__(self, seen: Array) -> tuple[Array, Array]:
        """Means ``(U, n)`` of log-slopes over √T, and roots ``(U, n, n)`` of their covariance."""
        x = np.clip(
            (seen - self.centre) / self.scale, -MAX_FEATURE_DEVIATIONS, MAX_FEATURE_DEVIATIONS
        )
        x = np.tanh(x @ self.w0 + self.b0)
        x = np.tanh(x @ self.w1 + self.b1)
        found = x @ self.w2 + self.b2
        return found[:, :-1], np.exp(found[:, -1])[:, None, None] * self.root


@lru_cache(maxsize=1)
def load_regression() -> VixRegression:
    """The trained regression that is part of the package."""
    with (files("arbiter.data") / "vix_prior.npz").open("rb") as file:
        return read(file)


def read(file: IO[bytes]) -> VixRegression:
    """Read a regression from an ``.npz`` file; nothing is unpickled.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            found = VixRegression(
                *(arrays[name].astype(np.float64) for name in VixRegression._fields)
            )
        whole = all(np.isfinite(part).all() for part in found)
        mean, root = found(np.zeros((1, found.centre.size)))
        if not (whole and mean.shape == (1, len(KNOTS)) and root.shape == (1, *2 * mean.shape[1:])):
            raise ValueError("its arrays are not those of a regression")
    except (ValueError, KeyError, OSError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(
            f"vix_prior.npz of this installation is damaged ({error}): install the package again"
        ) from error
    return found


@dataclass(frozen=True, eq=False)
class VixPrior:
    """Prior laws of the VIX, given a surface of the index.

    Attributes:
        surface: The surface whose forward variances are the mean squares of the VIX.
        maturities: ``(U,)`` dates in years.
        mean: ``(U, n)`` means of log-slopes at :data:`KNOTS`.
        root: ``(U, n, n)`` roots R of their covariances ``RRᵀ``.
        warnings: Dates whose 30 days the surface does not reach, as sentences.
    """

    surface: Surface
    maturities: Array
    mean: Array
    root: Array
    warnings: tuple[str, ...] = ()

    @property
    def slices(self) -> VixSlices:
        """Slices with the mean log-slopes, for :meth:`Surface.with_vix`."""
        return self._slices_from_logs(self.mean)

    def future(self, T: MaturityLike) -> tuple[Array, Array]:
        """VIX futures of the mean slices and their standard deviations, in index points."""
        t = self.surface.vix_years(T)
        root_forward_variance = INDEX_POINTS * np.sqrt(self.surface.forward_variance(t))
        return self._with_deviation(lambda slices: root_forward_variance * slices.future_ratio(t))

    def vvix(self, T: MaturityLike) -> tuple[Array, Array]:
        """VVIX of the mean slices and its standard deviation, in index points."""
        t = self.surface.vix_years(T)
        return self._with_deviation(lambda slices: slices.vvix(t))

    def iv(self, K: ArrayLike, T: MaturityLike) -> tuple[Array, Array]:
        """Volatilities of VIX options at strikes ``K`` in index points, and their deviations.

        Each draw has its own future, on which its option volatilities are computed.
        """
        points, t = np.broadcast_arrays(require_levels("K", K), self.surface.vix_years(T))
        variance = self.surface.forward_variance(t)
        require_variance(t, variance)
        root_forward_variance = INDEX_POINTS * np.sqrt(variance)

        def volatility(slices: VixSlices) -> Array:
            k = np.log(points / (root_forward_variance * slices.future_ratio(t)))
            implied = black.implied_total_volatility(
                slices.evaluate(Transport.otm, k, t), k
            ).volatility
            return np.asarray(implied / np.sqrt(t))

        return self._with_deviation(volatility)

    def _with_deviation(self, of: Callable[[VixSlices], Array]) -> tuple[Array, Array]:
        """A quantity of the mean slices, and its standard deviation over the draws that have it."""
        drawn = np.stack([of(slices) for slices in self.draw_slices()])
        return np.asarray(of(self.slices)), np.asarray(np.nanstd(drawn, 0))

    def draw_slices(self) -> list[VixSlices]:
        """Seeded draws of the slices; the dates of one draw share their errors."""
        noise = np.random.default_rng(_SEED).standard_normal((DRAW_COUNT // 2, len(KNOTS)))
        noise = np.concatenate([noise, -noise])
        moves = np.einsum("unm,dm->dun", self.root, noise)
        return [self._slices_from_logs(self.mean + move) for move in moves]

    def _slices_from_logs(self, logs: Array) -> VixSlices:
        return VixSlices.of(KNOTS, self.maturities, np.clip(np.exp(logs), *PRIOR_SLOPE_RANGE))


def vix_prior(surface: Surface, T: MaturityLike | None = None) -> VixPrior:
    """Prior laws of the VIX at dates ``T``, from the surface of the index alone.

    Args:
        surface: A surface of the index.
        T: Dates. The default is the usual dates up to a year whose 30-day windows end before the
            last maturity. The training data cover 4 days to 1.2 years: before, slopes scale with
            the root of time; after, slopes and deviations are constant.

    Returns:
        Means and covariances of the log-slopes of VIX slices.

    Raises:
        ValueError: If a date is not positive, there is none, or the surface is too short for any.

    Example:
        >>> import arbiter as ab
        >>> surface = ab.example()
        >>> prior = ab.vix_prior(surface)
        >>> with_vix = surface.with_vix(prior.slices)
        >>> bool(with_vix.vix_future(0.1) < 100 * with_vix.forward_variance(0.1) ** 0.5)
        True
    """
    warnings: tuple[str, ...] = ()
    if T is None:
        dates = np.array(DEFAULT_DAYS) / DAYS_PER_YEAR
        dates = dates[dates + THIRTY_DAYS <= surface.maturities[-1] * (1.0 + 1e-9)]
        if not dates.size:
            raise ValueError(
                f"the surface ends at T = {surface.maturities[-1]:g}: a VIX date needs the 30 days "
                "after it; give T, or a surface with longer maturities"
            )
    else:
        dates = np.unique(np.atleast_1d(surface.vix_years(T)))
        if not dates.size:
            raise ValueError("T is empty: give the dates of the VIX, or leave it out")
        last = surface.maturities[-1]
        there = "forward variance is an extrapolation of the surface"
        warnings = describe_beyond_expiries(dates + THIRTY_DAYS, last, 1e-3 * last, there)
    seen = features(surface, np.clip(dates, MIN_TRAINED_YEARS, MAX_TRAINED_YEARS))
    bad = ~np.isfinite(seen).all(1)
    if bad.any():
        raise ValueError(
            f"the surface has no implied volatility within two deviations around T = "
            f"{dates[bad][0]:g}: check its slopes there"
        )
    mean, root = load_regression()(seen)
    logs = mean + 0.5 * np.log(np.clip(dates, MIN_TRAINED_YEARS, MAX_TRAINED_YEARS))[:, None]
    # sooner than the network has seen, slopes grow with the root of time; later, they stay
    logs += 0.5 * np.log(np.minimum(dates / MIN_TRAINED_YEARS, 1.0))[:, None]
    return VixPrior(
        surface,
        inputs.freeze_array(dates),
        inputs.freeze_array(logs),
        inputs.freeze_array(root),
        warnings,
    )
