"""The Surface: arbitrage-free option prices at every strike and maturity.

Conventions: ``T`` is a year fraction, or a maturity in another form (docs/surface.md),
``k = log(K/F_T)``, ``K`` in currency, volatilities annualised and decimal. Inputs broadcast;
results are float64 arrays, 0-d for scalars.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from arbiter import forked, inputs
from arbiter.audit.structural_proof import check_structure
from arbiter.conventions import INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.forwards import ForwardCurve
from arbiter.pricing import black
from arbiter.pricing.decoder import Decoder, Query
from arbiter.pricing.knots import MAX_SLOPE
from arbiter.pricing.mixture import Mixture
from arbiter.pricing.vix_slices import FARTHEST_KNOT, VixQueries, VixSlices, describe_missing_iv
from arbiter.timing.dated_queries import DatedQueries
from arbiter.timing.maturities import DateLike, MaturityLike, as_datetime, to_year_fractions
from arbiter.timing.time_change import TimeChange

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from arbiter.audit.certificate import Certificate

logger = logging.getLogger(__name__)

SLOPE_RANGE = (1e-6, MAX_SLOPE)  # docs/transport.md
_IV_NAME = "implied volatility"
_NO_VOLATILITY = {
    black.Reason.AT_INTRINSIC: "so far out the price is below the smallest float64",
    black.Reason.ABOVE_MAXIMUM: "the price is at its upper bound to rounding",
}
# Local variance is a ratio of two numbers that vanish beyond this many deviations.
_MAX_LOCAL_VARIANCE_DEVIATIONS = 30.0


@dataclass(frozen=True, eq=False, repr=False)
class Surface(DatedQueries, VixQueries):
    """An option price surface free of static arbitrage at every strike and maturity.

    Build one with :meth:`from_slopes` or :meth:`load`; both refuse numbers that would not
    carry the guarantee (docs/theory.md, theorem 1).

    Attributes:
        knots: ``(n,)`` Gaussian coordinates of the slopes.
        maturities: ``(L,)`` listed maturities in years.
        slopes: ``(J, L, n)`` transport slopes.
        weights: ``(J, L)`` mixture weights.
        curve: Forwards and discount factors.
        as_of: The moment of the quotes, or None.
        info: Plain JSON values that are kept and saved with the surface.
        vix_slices: Shapes of the VIX at future dates, or None.
        time: The clock along which slopes are interpolated; None for calendar time.
    """

    knots: Array
    maturities: Array
    slopes: Array
    weights: Array
    curve: ForwardCurve
    as_of: np.datetime64 | None = None
    info: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    vix_slices: VixSlices | None = field(default=None, kw_only=True)
    time: TimeChange | None = field(default=None, kw_only=True)

    @cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self.knots, self.clock_years(self.maturities), self.slopes, self.weights)

    @classmethod
    def from_slopes(  # noqa: PLR0913 - the parts of a surface, each one array
        cls,
        knots: ArrayLike,
        maturities: ArrayLike,
        slopes: ArrayLike,
        forwards: ArrayLike | None = None,
        discounts: ArrayLike | None = None,
        *,
        weights: ArrayLike | None = None,
        as_of: DateLike | None = None,
        info: Mapping[str, Any] | None = None,
        vix_slices: VixSlices | None = None,
        time: TimeChange | None = None,
    ) -> Surface:
        """A surface from transport slopes.

        Args:
            knots: ``(n,)`` strictly increasing Gaussian coordinates.
            maturities: ``(L,)`` positive, strictly increasing year fractions.
            slopes: ``(L, n)``, or ``(J, L, n)`` for a nested mixture: positive, nondecreasing
                in maturity and from one component to the next.
            forwards: ``(L,)`` forwards; 1 when left out.
            discounts: ``(L,)`` discount factors; 1 when left out.
            weights: ``(J, L)`` mixture weights, needed when J > 1.
            as_of: Moment of the quotes: ISO text, a datetime or a date; New York time unless it
                has a zone.
            info: Plain values to keep with the surface.
            vix_slices: Shapes of the VIX at future dates (docs/vix.md).
            time: Clock along which slopes are interpolated (docs/time.md).

        Raises:
            ValueError: Naming the place, the value and the remedy.

        Example:
            >>> flat = Surface.from_slopes([-1.0, 1.0], [0.25, 1.0], [[0.1, 0.1], [0.2, 0.2]])
            >>> round(float(flat.iv(0.1, 0.5)), 12)
            0.2
        """
        b = inputs.freeze_array(slopes)
        b = inputs.freeze_array(b[None]) if b.ndim == 2 else b
        x, T = inputs.freeze_array(knots), inputs.freeze_array(maturities)
        w = None if weights is None else inputs.freeze_array(weights)
        proof = check_structure(x, T, b, w, time=time)
        if not proof.passed:
            raise ValueError("; ".join(check.detail for check in proof.failures))
        low, high = SLOPE_RANGE
        if b.min() < low or b.max() > high:
            worst = b.min() if b.min() < low else b.max()
            raise ValueError(
                f"slope {worst:g} lies outside [{low:g}, {high:g}]: slopes are total "
                "volatilities, σ√T; check the units (decimal, not percent)"
            )
        to_year_fractions(T, None)  # what cannot be asked for cannot be listed
        if np.abs(x).max() > FARTHEST_KNOT:
            raise ValueError(
                f"knot {x[np.abs(x).argmax()]:g} lies beyond ±{FARTHEST_KNOT:g}: knots are "
                "Gaussian quantiles, and ±6 covers all that quotes can see"
            )
        w = inputs.freeze_array(np.ones(b.shape[:2])) if w is None else w
        curve = ForwardCurve(
            T,
            inputs.require_per_maturity("forwards", forwards, T.size),
            inputs.require_per_maturity("discounts", discounts, T.size),
        )
        about = as_datetime(as_of), inputs.freeze_info(info)
        return cls(x, T, b, w, curve, *about, vix_slices=vix_slices, time=time)

    def with_vix(self, slices: VixSlices | None) -> Self:
        """This surface with other shapes of the VIX, or with none."""
        return replace(self, vix_slices=slices)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies are rebuilt from the stored numbers, with the same checks."""
        curve = self.curve.forwards, self.curve.discounts
        parts = (self.knots, self.maturities, self.slopes, *curve)
        rest = (self.weights, self.as_of, dict(self.info), self.vix_slices, self.time)
        return _rebuild_surface, (type(self), parts, *rest)

    def forward(self, T: MaturityLike) -> Array:
        """Forward for maturities ``T``, log-linear between listed ones."""
        return _as_floats(self.curve.forward(self.years(T)))

    def discount(self, T: MaturityLike) -> Array:
        """Discount factor for maturities ``T``, log-linear between listed ones."""
        return _as_floats(self.curve.discount(self.years(T)))

    def log_moneyness(self, K: ArrayLike, T: MaturityLike) -> Array:
        """``k = log(K/F_T)`` of strikes in currency."""
        return _as_floats(np.log(inputs.require_strikes(K) / self.forward(T)))

    def call(self, K: ArrayLike, T: MaturityLike) -> Array:
        """Discounted call prices in currency, ``D·F·c``."""
        return self._price_strikes(Mixture.call, K, T)

    def put(self, K: ArrayLike, T: MaturityLike) -> Array:
        """Discounted put prices in currency, ``D·F·p``."""
        return self._price_strikes(Mixture.put, K, T)

    def _price_strikes(self, query: Query, K: ArrayLike, T: MaturityLike) -> Array:
        """Prices over the forward, times the discounted forward."""
        t = self.years(T)
        forward = self.curve.forward(t)
        k = np.log(inputs.require_strikes(K) / forward)
        unit = self._evaluate_at(query, *np.broadcast_arrays(k, t))
        return _as_floats(self.curve.discount(t) * forward * unit)

    def otm(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Out-of-the-money prices in forward units: calls for ``k ≥ 0``, puts below."""
        return self._evaluate_query(Mixture.otm, k, T)

    def iv(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Implied volatility, annualised. NaN, with a logged reason, where no float64 price is."""
        points, at, implied = self._solve_implied(k, T)
        for warning in describe_missing_iv(_IV_NAME, points, at, implied, _NO_VOLATILITY):
            logger.warning(warning)
        return _as_floats(implied.volatility / np.sqrt(at))

    def explain_missing_iv(self, k: ArrayLike, T: MaturityLike) -> tuple[str, ...]:
        """The sentence that :meth:`iv` logs where it is NaN; nothing where it is a number."""
        return describe_missing_iv(_IV_NAME, *self._solve_implied(k, T), _NO_VOLATILITY)

    def _solve_implied(self, k: ArrayLike, T: MaturityLike) -> tuple[Array, Array, black.Implied]:
        points, at = np.broadcast_arrays(inputs.require_finite("point", k), self.years(T))
        price = self._evaluate_at(Mixture.otm, points, at)
        return points, at, black.implied_total_volatility(price, points)

    def total_variance(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Total implied variance ``σ²T``."""
        return _as_floats(self.iv(k, T) ** 2 * self.years(T))

    def delta(self, K: ArrayLike, T: MaturityLike) -> Array:
        """Forward call delta at sticky moneyness: ``∂C/∂F = D·delta`` (a put's is delta − 1)."""
        return self._evaluate_query(Mixture.delta, self.log_moneyness(K, T), T)

    def gamma(self, K: ArrayLike, T: MaturityLike) -> Array:
        """``∂²C/∂F²`` at sticky moneyness: ``D κ² f(κ) / F``."""
        unit = self._evaluate_query(Mixture.gamma, self.log_moneyness(K, T), T)
        return _as_floats(self.discount(T) / self.forward(T) * unit)

    def vega(self, K: ArrayLike, T: MaturityLike) -> Array:
        """``∂C/∂σ`` of Black's formula at the surface's own volatility, per unit of σ."""
        k, t, implied = self._solve_implied(self.log_moneyness(K, T), T)
        # no volatility is found where the price has none to speak of, and no vega either
        vega = np.nan_to_num(black.vega(k, implied.volatility))
        return _as_floats(self._discounted_forward(t) * np.sqrt(t) * vega)

    def theta(self, K: ArrayLike, T: MaturityLike) -> Array:
        """Decay per year at fixed moneyness, forward and discount: ``−D·F·∂c/∂T``, never > 0."""
        k, t = np.broadcast_arrays(self.log_moneyness(K, T), self.years(T))
        return _as_floats(-self._discounted_forward(t) * self._calendar_rate(k, t))

    def atm_skew(self, T: MaturityLike) -> Array:
        """``∂σ/∂k`` at the money (k = 0)."""
        return self._smile_derivatives(T)[0]

    def atm_curvature(self, T: MaturityLike) -> Array:
        """``∂²σ/∂k²`` at the money (k = 0)."""
        return self._smile_derivatives(T)[1]

    def _smile_derivatives(self, T: MaturityLike) -> tuple[Array, Array]:
        """Differentiate ``c(k) = Black(k, v(k))`` twice at k = 0 (docs/surface.md)."""
        t = self.years(T)
        k = np.zeros_like(t)
        v = self.iv(k, t) * np.sqrt(t)
        digital, density = self._evaluate_query(Mixture.digital, k, t), self.density(k, t)
        first, second = black.differentiate_smile(v, digital, density)
        return _as_floats(first / np.sqrt(t)), _as_floats(second / np.sqrt(t))

    def density(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Risk-neutral density of ``S_T/F_T`` per unit of κ."""
        return self._evaluate_query(Mixture.density, k, T)

    def cdf(self, k: ArrayLike, T: MaturityLike) -> Array:
        """``P(S_T ≤ F_T e^k)``."""
        return self._evaluate_query(Mixture.cdf, k, T)

    def digital(self, k: ArrayLike, T: MaturityLike) -> Array:
        """``P(S_T > F_T e^k)``, the undiscounted digital call."""
        return self._evaluate_query(Mixture.digital, k, T)

    def quantile(self, u: ArrayLike, T: MaturityLike) -> Array:
        """The moneyness κ below which ``S_T/F_T`` lies with probability ``u``."""
        return self._evaluate_query(Mixture.quantile, inputs.require_probabilities("u", u), T)

    def z(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Z-coordinate of a strike: the Gaussian quantile of its probability."""
        return self._evaluate_query(Mixture.z, k, T)

    def log_strike(self, z: ArrayLike, T: MaturityLike) -> Array:
        """Log-moneyness at a Z-coordinate, the inverse of :meth:`z`."""
        return self._evaluate_query(Mixture.log_strike, z, T)

    def dual(self, q: ArrayLike, T: MaturityLike) -> Array:
        """Dual potential ``G(q)``, the upper Lorenz curve: ``c(κ) = max_q {G(q) − qκ}``."""
        return self._evaluate_query(Mixture.dual, inputs.require_probabilities("q", q), T)

    def cvar(self, q: ArrayLike, T: MaturityLike, tail: str = "lower") -> Array:
        """Mean of ``S_T/F_T`` over its ``tail`` ("lower" or "upper") of probability ``q``."""
        points = inputs.require_probabilities("q", q)
        return self._evaluate_query(lambda slices, p, of: slices.cvar(p, tail, of), points, T)

    def local_variance(self, k: ArrayLike, T: MaturityLike) -> Array:
        """Dupire's local variance ``2 ∂c/∂T / (κ² ∂²c/∂κ²)``, at fixed moneyness.

        It exists at every point because the surface is free of arbitrage. Beyond 30 standard
        deviations, where both sides vanish, the value at 30 is given.
        """
        t = self.years(T)
        far = np.reshape([-1.0, 1.0], (2, *[1] * t.ndim)) * _MAX_LOCAL_VARIANCE_DEVIATIONS
        low, high = self.log_strike(far, t)
        points, at = np.broadcast_arrays(np.clip(_as_floats(k), low, high), t)
        rate = self._calendar_rate(points, at)
        return _as_floats(2.0 * rate / self._evaluate_query(Mixture.gamma, points, at))

    def variance_swap(self, T: MaturityLike) -> Array:
        """Fair variance of the log contract, ``W(T)/T``: exact, no strike truncation."""
        t = self.years(T)
        return _as_floats(self._log_variance(t) / t)

    def forward_variance(self, T: MaturityLike, tenor: MaturityLike = THIRTY_DAYS) -> Array:
        """Variance between ``T`` and ``T + tenor``: ``(W(T+tenor) − W(T))/tenor``, never < 0.

        ``T = 0`` is allowed and gives the variance swap of the tenor.
        """
        start, length = self.years(T, zero=True), self.tenor_years(tenor)
        before = self._log_variance(np.where(start > 0.0, start, length))
        before = np.where(start > 0.0, before, 0.0)
        rise = self._log_variance(start + length) - before
        return _as_floats(np.maximum(rise, 0.0) / length)

    def vix(self, tenor: MaturityLike = THIRTY_DAYS) -> Array:
        """Volatility index of the exact log contract, ``100 √(W(tenor)/tenor)``."""
        return _as_floats(INDEX_POINTS * np.sqrt(self.variance_swap(tenor)))

    def certificate(self, *, seed: int = 0) -> Certificate:
        """Prove and audit this surface; findings come back as data."""
        forked.require_polars()
        from arbiter.audit.certificate import certify_surface

        return certify_surface(self, seed=seed)

    def to_frame(self, k: ArrayLike | None = None, T: MaturityLike | None = None) -> pl.DataFrame:
        """One tidy table, a row per (T, k)."""
        from arbiter.frames import surface_frame

        return surface_frame(self, k, T)

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Smiles, 3D and contour views, densities and total variance in one figure."""
        from arbiter.report import plot_surface

        return plot_surface(self, path)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the surface to ``path`` (docs/file-format.md), replacing it in one step."""
        from arbiter.storage import save

        save(self, path)

    def to_stored(self) -> tuple[str, dict[str, Any], dict[str, Array]] | None:
        """What a file keeps besides: a kind, plain values and arrays; None if nothing."""
        return None

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Surface:
        """Read a surface written by :meth:`save`; nothing is unpickled."""
        from arbiter.storage import load

        return load(path)

    def __str__(self) -> str:
        from arbiter.frames import describe_surface

        return describe_surface(self)

    def __repr__(self) -> str:
        from arbiter.frames import format_expiries

        return format_expiries(self)

    def _repr_html_(self) -> str:
        from arbiter.frames import format_expiries_html

        return format_expiries_html(self)

    def _evaluate_at(self, query: Query, points: Array, T: Array) -> Array:
        return self._decoder.evaluate(query, points, self.clock_years(T))

    def _log_variance(self, T: Array) -> Array:
        return self._decoder.log_variance(self.clock_years(T))

    def _calendar_rate(self, k: Array, T: Array) -> Array:
        """``∂c/∂T`` at fixed moneyness, never negative; to the right of an event."""
        rate = np.maximum(self._decoder.calendar_rate(k, self.clock_years(T)), 0.0)
        return rate if self.time is None else rate * self.time.rate_at(T)

    def _discounted_forward(self, T: MaturityLike) -> Array:
        return self.discount(T) * self.forward(T)

    def _evaluate_query(self, query: Query, points: ArrayLike, T: MaturityLike) -> Array:
        at = inputs.require_finite("point", points)
        at, t = np.broadcast_arrays(at, self.years(T))
        return _as_floats(self._evaluate_at(query, at, t))


def _as_floats(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def _rebuild_surface(kind: type[Surface], parts: tuple[Array, ...], *rest: Any) -> Surface:
    named = dict(zip(("weights", "as_of", "info", "vix_slices", "time"), rest, strict=True))
    return kind.from_slopes(*parts, **named)
