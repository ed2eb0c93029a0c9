"""The VIX at a future date: futures, options, density and VVIX, tied to the SPX surface.

``(VIX_T/100)² = FV(T) · Y_T`` with FV the forward variance of the 30 days after T and Y a mean-one
transport slice of its own, so that ``E[(VIX_T/100)²] = FV(T)`` whatever the slice (docs/vix.md).

Glossary:

    a(x)    slope of log VIX in the Gaussian coordinate x: a total volatility of the VIX
    h(x)    ∫ a, with h(0) = 0;  H = E e^{h(Z)},  M = E e^{2h(Z)};  Y = e^{2h(Z)} / M
    F       future, 100 √FV · H/√M, at most 100 √FV;  VIX_T = F e^{h(Z)} / H

The law of ``VIX_T / F`` is the transport slice of the slopes a, and Y that of 2a: both are the
decoder's, so every price is a sum of its segment integrals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arbiter import inputs
from arbiter.conventions import INDEX_POINTS, Array, Indices
from arbiter.pricing import black, normal
from arbiter.pricing.decoder import evaluate_by_slice
from arbiter.pricing.knots import MAX_SLOPE
from arbiter.pricing.transport import Transport
from arbiter.timing.maturities import MaturityLike

Query = Callable[[Transport, Array, Indices], Array]
logger = logging.getLogger(__name__)

SLOPE_RANGE = (1e-6, 0.5 * MAX_SLOPE)  # the slopes of Y are twice these
FARTHEST_KNOT = 37.0
MIN_FORWARD_VARIANCE = 1e-10  # an index of a thousandth of a point
_SIDES = ("call", "put")


@dataclass(frozen=True, eq=False)
class VixSlices:
    """Transport slices of the VIX at future dates: slopes of its logarithm.

    Slices do not fix the future: it and the second moment follow from the forward variance of the
    surface that holds the slices. Between listed dates slopes are linear in √T, from 0 at
    T = 0; after the last one they stay, as those of a mean-reverting variance do. Any positive
    slopes keep every inequality: VIX laws of two dates are laws of two different 30-day windows,
    and no order between them is implied.

    Attributes:
        knots: ``(n,)`` Gaussian coordinates.
        maturities: ``(L,)`` dates of the VIX in years, increasing.
        slopes: ``(L, n)`` positive: the total volatility of the VIX at a percentile.
    """

    knots: Array
    maturities: Array
    slopes: Array

    @classmethod
    def of(cls, knots: ArrayLike, maturities: ArrayLike, slopes: ArrayLike) -> VixSlices:
        """Slices from arrays, checked.

        Raises:
            ValueError: Naming the place, the value and the remedy.

        Example:
            >>> flat = VixSlices.of([-1.0, 1.0], [0.25], [[0.4, 0.4]])  # VVIX 80 at three months
            >>> round(float(flat.vvix(0.25)), 9)
            80.0
        """
        x, T, a = (
            inputs.freeze_array(knots),
            inputs.freeze_array(maturities),
            inputs.freeze_array(slopes),
        )
        for name, row in (("knots", x), ("maturities", T)):
            if row.ndim != 1 or row.size < 1 or not np.isfinite(row).all():
                raise ValueError(f"VIX {name} must be one row of finite numbers, got {row!r}")
            if np.any(np.diff(row) <= 0.0):
                i = int(np.argmin(np.diff(row)))
                raise ValueError(
                    f"VIX {name}[{i + 1}] = {row[i + 1]:g} does not exceed the one before, "
                    f"{row[i]:g}: sort {name} and drop duplicates"
                )
        if T[0] <= 0.0:
            raise ValueError(f"VIX maturities[0] = {T[0]:g} is not positive: drop expired dates")
        if np.abs(x).max() > FARTHEST_KNOT:
            raise ValueError(
                f"VIX knot {x[np.abs(x).argmax()]:g} lies beyond ±{FARTHEST_KNOT:g}: knots are "
                "Gaussian quantiles, and ±6 covers all that quotes can see"
            )
        if a.shape != (T.size, x.size):
            raise ValueError(
                f"VIX slopes have shape {a.shape}: {T.size} dates and {x.size} knots need "
                f"({T.size}, {x.size})"
            )
        low, high = SLOPE_RANGE
        bad = ~((a >= low) & (a <= high))
        if bad.any():
            at, knot = (int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"the VIX slope at T={T[at]:g}, knot x={x[knot]:g} is {a[at, knot]}; slopes are "
                f"total volatilities of the VIX, from {low:g} to {high:g}"
            )
        return cls(x, T, a)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies are rebuilt with the same checks."""
        return VixSlices.of, (self.knots, self.maturities, self.slopes)

    def slopes_at(self, T: ArrayLike) -> Array:
        """Slopes ``(U, n)`` at dates ``T`` of shape ``(U,)``, in years."""
        u = np.concatenate([[0.0], np.sqrt(self.maturities)])
        values = np.concatenate([np.zeros((1, self.knots.size)), self.slopes])
        at = np.minimum(np.sqrt(np.asarray(T, dtype=np.float64)), u[-1])
        i = np.clip(np.searchsorted(u, at, side="right") - 1, 0, u.size - 2)
        share = ((at - u[i]) / (u[i + 1] - u[i]))[:, None]
        # one blend, so that a listed date gives its own slopes back
        return np.asarray((1.0 - share) * values[i] + share * values[i + 1])

    def transport(self, T: ArrayLike, power: float = 1.0) -> Transport:
        """Laws of ``VIX^power`` over its mean at dates ``T`` of shape ``(U,)``."""
        return Transport(self.knots, power * self.slopes_at(T))

    def future_ratio(self, T: ArrayLike) -> Array:
        """``F / (100 √FV) = E√Y``, at most one by Jensen's inequality."""
        log_ratio = self._evaluate_by_date(
            T, lambda t: self.transport(t).log_mean - 0.5 * self.transport(t, 2.0).log_mean
        )
        return np.asarray(np.exp(np.minimum(log_ratio, 0.0)))

    def square_ratio(self, T: ArrayLike) -> Array:
        """``E[VIX²] / F²``, integrated straight from the law of ``VIX/F``.

        The futures' normaliser M comes from integrals of ``e^{2h} h' Φ``; this one is of
        ``e^{2h} φ``, so that a product of the two measures what it should be equal to.
        """
        return self._evaluate_by_date(T, lambda t: _second_moment(self.transport(t)))

    def vvix(self, T: ArrayLike) -> Array:
        """``100 √(−2 E log(VIX_T/F) / T)``: the log contract of the VIX, in points."""
        total = self._evaluate_by_date(T, lambda t: self.transport(t).log_variance())
        years = np.asarray(T, dtype=np.float64)
        return np.asarray(INDEX_POINTS * np.sqrt(np.maximum(total, 0.0) / years))

    def evaluate(self, query: Query, points: Array, T: Array) -> Array:
        """``query(laws of VIX/F, points)`` elementwise over ``points`` and ``T`` of one shape."""
        return evaluate_by_slice(lambda t, row, of: query(self.transport(t), row, of), points, T)

    @staticmethod
    def _evaluate_by_date(T: ArrayLike, value: Callable[[Array], Array]) -> Array:
        at = np.asarray(T, dtype=np.float64)
        unique, inverse = np.unique(at, return_inverse=True)
        return value(unique)[inverse].reshape(at.shape)


def _second_moment(law: Transport) -> Array:
    """``E X²`` of mean-one slices by quadrature of ``e^{2 log X} φ``: segments and two tails."""
    grid, (b, s) = law.knots, law.slices[:2]  # (U, N)
    t = grid.width * grid.node[:, None]  # (q, N-1)
    x = grid.x[:-1] + t
    bend = np.diff(b) / grid.width
    start = s - law.log_mean[:, None]
    log_x = start[:, None, :-1] + t * (b[:, None, :-1] + 0.5 * bend[:, None] * t)
    exponent = 2.0 * log_x - 0.5 * x * x  # (U, q, N-1)
    shift, ends = exponent.max(axis=(1, 2)), []
    for side, at in ((-1.0, 0), (1.0, -1)):
        steep, end = 2.0 * b[:, at], grid.x[at]
        log_scale = 2.0 * start[:, at] + steep * (0.5 * steep - end)
        ends.append((log_scale, normal.cdf_of(side * (steep - end))))
        shift = np.maximum(shift, log_scale)
    inner = np.exp(exponent - shift[:, None, None]) * (grid.width * grid.weight[:, None])
    total = normal.INV_ROOT_2PI * inner.sum(axis=(1, 2))
    for log_scale, probability in ends:
        total = total + np.exp(log_scale - shift) * probability
    return np.asarray(np.exp(shift) * total)


def require_variance(T: Array, variance: Array) -> None:
    """A ``ValueError`` where forward variance vanishes."""
    none = np.ravel(variance <= MIN_FORWARD_VARIANCE)
    if none.any():
        at = float(np.ravel(np.broadcast_to(T, np.shape(variance)))[none.argmax()])
        raise ValueError(
            f"the 30 days after T = {at:g} have no variance on this surface: VIX is zero there, "
            "and an option on it has no law; check the surface's slopes in between"
        )


def describe_beyond_expiries(ends: Array, last: float, slack: float, there: str) -> tuple[str, ...]:
    """A sentence if windows of the VIX end after the last index expiry; it is logged as well.

    Args:
        ends: ``(U,)`` years at which they end.
        last: The last index expiry.
        slack: Years by which an end may lie beyond it.
        there: What the surface is then, in words.
    """
    beyond = int(np.count_nonzero(ends > last + slack))
    if not beyond:
        return ()
    warning = (
        f"{beyond} of {ends.size} VIX windows end after the last index expiry, T={last:.4g}: "
        f"there {there}"
    )
    logger.warning(warning)
    return (warning,)


def describe_missing_iv(
    name: str,
    k: Array,
    t: Array,
    implied: black.Implied,
    reasons: Mapping[black.Reason, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """A sentence about the first of the points that have no implied volatility, if there are any.

    Args:
        name: What is missing, in words.
        k: Log-moneyness of the points.
        t: Their maturities in years, of the same shape.
        implied: What was found for them.
        reasons: Sentences in the place of those of :class:`~arbiter.pricing.black.Reason`.
    """
    where = np.flatnonzero(np.ravel(implied.reason))
    if not where.size:
        return ()
    reason = black.Reason(int(np.ravel(implied.reason)[where[0]]))
    return (
        f"{name} is NaN at {where.size} of {k.size} points, first at k={k.ravel()[where[0]]:.6g}, "
        f"T={t.ravel()[where[0]]:.6g}: {reasons.get(reason, reason.explain())}",
    )


def require_levels(name: str, levels: ArrayLike) -> Array:
    """VIX levels as an array, or a ``ValueError`` that names the one that is none."""
    points = np.asarray(levels, dtype=np.float64)
    good = np.isfinite(points) & (points > 0.0)
    if not good.all():
        i = int(np.flatnonzero(~np.ravel(good))[0])
        raise ValueError(
            f"{name}[{i}] = {float(np.ravel(points)[i])!r}: VIX levels are positive index "
            "points, 20 and not 0.2"
        )
    return points


class VixQueries:
    """VIX quantities of an object with forward variances and VIX slices.

    Strikes, futures and quantiles are index points, option prices discounted index points,
    ``vix_iv`` is annualised and decimal.
    """

    vix_slices: VixSlices | None

    def years(self, T: MaturityLike, *, zero: bool = False) -> Array:
        """Year fractions of maturities in any form; a date alone is the close."""
        raise NotImplementedError

    def vix_years(self, T: MaturityLike) -> Array:
        """The same for dates of the VIX: a date alone is the open, at which the VIX settles."""
        raise NotImplementedError

    def forward_variance(self, T: MaturityLike) -> Array:
        """Variance of the 30 days after ``T``, annualised."""
        raise NotImplementedError

    def discount(self, T: MaturityLike) -> Array:
        """Discount factor for maturities ``T``."""
        raise NotImplementedError

    def vix_future(self, T: MaturityLike) -> Array:
        """VIX future ``100 √FV(T) · E√Y_T``, in index points: never above ``100 √FV(T)``."""
        t = self.vix_years(T)
        ratio = self.require_vix_slices().future_ratio(t)
        return np.asarray(INDEX_POINTS * np.sqrt(self.forward_variance(t)) * ratio)

    def vix_second_moment(self, T: MaturityLike) -> Array:
        """``E[(VIX_T/100)²]``, integrated from the law of the VIX: equals ``forward_variance(T)``.

        A measurement, with an integral of its own: it sees the future and the slices only.
        """
        t = self.vix_years(T)
        square = self.require_vix_slices().square_ratio(t)
        return np.asarray((self.vix_future(t) / INDEX_POINTS) ** 2 * square)

    def vix_option(self, K: ArrayLike, T: MaturityLike, side: str = "call") -> Array:
        """Discounted price of a VIX ``"call"`` or ``"put"`` at strikes ``K``, in index points."""
        if side not in _SIDES:
            raise ValueError(f"side = {side!r}: give 'call' or 'put'")
        k, t, future = self._moneyness(K, T)
        price = self.require_vix_slices().evaluate(
            Transport.call if side == "call" else Transport.put, k, t
        )
        return np.asarray(self.discount(t) * future * price)

    def vix_iv(self, K: ArrayLike, T: MaturityLike) -> Array:
        """Black volatility of VIX options on the surface's own future, annualised and decimal."""
        k, t, _ = self._moneyness(K, T)
        implied = black.implied_total_volatility(
            self.require_vix_slices().evaluate(Transport.otm, k, t), k
        )
        for warning in describe_missing_iv("VIX implied volatility", k, t, implied):
            logger.warning(warning)
        return np.asarray(implied.volatility / np.sqrt(t))

    def vix_density(self, V: ArrayLike, T: MaturityLike) -> Array:
        """Density of ``VIX_T`` at levels ``V``, per index point."""
        k, t, future = self._moneyness(V, T, "V")
        return np.asarray(self.require_vix_slices().evaluate(Transport.density, k, t) / future)

    def vix_quantile(self, u: ArrayLike, T: MaturityLike) -> Array:
        """The level below which ``VIX_T`` lies with probability ``u``, in index points."""
        probability, t = np.broadcast_arrays(
            inputs.require_probabilities("u", u), self.vix_years(T)
        )
        ratio = self.require_vix_slices().evaluate(Transport.quantile, probability, t)
        return np.asarray(self.vix_future(t) * ratio)

    def vvix(self, T: MaturityLike) -> Array:
        """Volatility index of the VIX, ``100 √(−2 E log(VIX_T/F)/T)``: exact, every strike."""
        return self.require_vix_slices().vvix(self.vix_years(T))

    def require_vix_slices(self) -> VixSlices:
        """The VIX slices that prices are read from.

        Raises:
            ValueError: If there are none; the message says how to get some.
        """
        if self.vix_slices is None:
            raise ValueError(
                "this surface has no VIX slices, so that it knows forward variances and no law of "
                "the VIX: fit with vix_quotes=..., take likely ones with "
                "surface.with_vix(vix_prior(surface).slices), or give your own VixSlices"
            )
        return self.vix_slices

    def _moneyness(
        self, K: ArrayLike, T: MaturityLike, name: str = "K"
    ) -> tuple[Array, Array, Array]:
        """``log(K/F)``, years and futures, of one shape."""
        points = require_levels(name, K)
        self.require_vix_slices()
        t = self.vix_years(T)
        future = self.vix_future(t)
        require_variance(t, (future / INDEX_POINTS) ** 2)
        points, t, future = np.broadcast_arrays(points, t, future)
        return np.log(points / future), t, future
