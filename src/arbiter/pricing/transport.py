"""Transport slices: arbitrage-free option prices from positive slopes on knots.

Glossary (docs/theory.md, sections 2 to 4):

    Z       standard normal;  φ, Φ its density and distribution function
    x       Gaussian coordinate (a percentile, as a quantile of Z); knots x_1 < … < x_n
    b(x)    slope: continuous, linear between knots, constant beyond the ends, > 0
    s(x)    transport, s' = b, s(0) = 0;  M = E e^{s(Z)};  X = e^{s(Z)} / M has mean one
    k, κ    log-moneyness and moneyness, κ = e^k = K/F
    x*      coordinate of a strike: s(x*) = k + log M

Prices are integrals of a *positive* function (theory, proposition 4):

    put  = (1/M) ∫_{−∞}^{x*} e^{s} b Φ(x)  dx
    call = (1/M) ∫_{x*}^{∞}  e^{s} b Φ(−x) dx

so nothing cancels, however deep the wing and however flat the slope. Shapes: slopes are
``(…, n)``, one slice per leading index; points are ``(…, m)`` with the same leading shape, or a
row ``(m,)`` beside the slice ``of`` each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array, Indices
from arbiter.pricing import normal
from arbiter.pricing.black import call_parity, put_parity
from arbiter.pricing.knots import Knots
from arbiter.pricing.slice_integrals import (
    SlicePoint,
    Slices,
    fill_coordinates,
    fill_densities,
    fill_partial_means,
    fill_prices,
    fill_strikes,
    integrate_slices,
)


class Transport:
    """A batch of slices ``X = e^{s(Z)}/M`` with prices at any strike.

    Every query takes points ``(…, m)`` for slices ``(…)``, or points ``(m,)`` and ``of`` ``(m,)``,
    the number of each point's slice.

    Args:
        knots: ``(n,)`` strictly increasing Gaussian coordinates, or prepared :class:`Knots`.
        slopes: ``(…, n)`` positive slopes at the knots.

    Example:
        >>> flat = Transport([-1.0, 1.0], np.array([0.2, 0.2]))
        >>> round(float(flat.call(np.zeros(1))[0]), 12)  # Black at 20 % total volatility
        0.079655674554
    """

    def __init__(self, knots: ArrayLike | Knots, slopes: Array) -> None:
        self.knots = knots if isinstance(knots, Knots) else Knots.from_array(knots)
        self.shape = slopes.shape[:-1]
        rows = normal.to_row(slopes).reshape(-1, slopes.shape[-1])
        self.slices: Slices = integrate_slices(self.knots, rows)

    @property
    def log_mean(self) -> Array:
        """``log M`` of the slices."""
        return self.slices.log_mean.reshape(self.shape)

    def _result_shape(self, points: ArrayLike, of: Indices | None) -> tuple[int, ...]:
        shape = np.shape(points)
        return shape if of is not None else (*self.shape, shape[-1])

    def _lay_out(self, points: ArrayLike, of: Indices | None) -> tuple[Array, SlicePoint]:
        """Points in a row, and places for what belongs to each."""
        row = np.broadcast_to(points, self._result_shape(points, of)).reshape(-1)
        count = len(self.slices.b)
        slice_of = np.repeat(np.arange(count), row.size // count) if of is None else of
        return row, SlicePoint.empty(slice_of, row.size)

    def at_strike(self, k: ArrayLike, of: Indices | None = None) -> SlicePoint:
        """The slice points at log-strikes ``k``, as rows."""
        row, point = self._lay_out(k, of)
        point.k[:] = row
        fill_coordinates(self.knots, self.slices, point)
        return point

    def at_coordinate(self, x: ArrayLike, of: Indices | None = None) -> SlicePoint:
        """The slice points at Gaussian coordinates ``x``, as rows."""
        row, point = self._lay_out(x, of)
        point.x[:] = row
        fill_strikes(self.knots, self.slices, point)
        return point

    def price_at(self, point: SlicePoint, above: NDArray[np.bool_]) -> Array:
        """Calls where ``above`` holds and puts elsewhere, each as a sum of positive terms."""
        out = np.empty(point.x.size)
        fill_prices(self.knots, self.slices, point, above, out)
        return out

    def otm(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Out-of-the-money prices: calls for ``k ≥ 0``, puts below."""
        point = self.at_strike(k, of)
        return self.price_at(point, point.k >= 0.0).reshape(self._result_shape(k, of))

    def call(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Call prices ``E(X − κ)+``, the in-the-money side by parity."""
        return np.asarray(self.otm(k, of) + call_parity(k))

    def put(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Put prices ``E(κ − X)+``, the in-the-money side by parity."""
        return np.asarray(self.otm(k, of) + put_parity(k))

    def z(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Z-coordinate of a strike: the Gaussian quantile of its probability."""
        return self.at_strike(k, of).x.reshape(self._result_shape(k, of))

    def log_strike(self, z: ArrayLike, of: Indices | None = None) -> Array:
        """Log-strike at a Z-coordinate, the inverse of :meth:`z`."""
        return self.at_coordinate(z, of).k.reshape(self._result_shape(z, of))

    def cdf(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """``P(X ≤ κ)``."""
        return normal.cdf_of(self.z(k, of))

    def digital(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """``P(X > κ)``, the maximiser ``q*`` of the conjugacy and minus the strike slope."""
        return normal.cdf_of(-self.z(k, of))

    def density(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Density of X per unit of κ: ``φ(x*) / (κ b(x*))``."""
        return self._density(k, of, -1.0)

    def gamma(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """``κ² f(κ)``, the gamma of a unit of forward, with the exponents joined."""
        return self._density(k, of, 1.0)

    def _density(self, k: ArrayLike, of: Indices | None, power: float) -> Array:
        point = self.at_strike(k, of)
        out = np.empty(point.x.size)
        fill_densities(point, power, out)
        return out.reshape(self._result_shape(k, of))

    def delta(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Forward call delta at sticky moneyness, ``G(q*) = E[X; X > κ] = c + κ q*``."""
        found = self._partial_mean_above(self.at_strike(k, of))
        return found.reshape(self._result_shape(k, of))

    def _partial_mean_above(self, point: SlicePoint) -> Array:
        out = self.price_at(point, point.x >= 0.0)
        fill_partial_means(point, out)
        return out

    def quantile(self, u: ArrayLike, of: Indices | None = None) -> Array:
        """The κ below which X lies with probability ``u``."""
        return np.asarray(np.exp(self.log_strike(normal.quantile_of(u), of)))

    def dual(self, q: ArrayLike, of: Indices | None = None) -> Array:
        """Dual potential ``G(q) = E[X; Z above its (1−q) quantile]``: the upper Lorenz curve."""
        found = self._partial_mean_above(self.at_coordinate(-normal.quantile_of(q), of))
        return found.reshape(self._result_shape(q, of))

    def cvar(self, q: ArrayLike, tail: str = "upper", of: Indices | None = None) -> Array:
        """Mean of X in its upper (``G(q)/q``) or lower tail of probability ``q``."""
        if tail == "upper":
            return np.divide(self.dual(q, of), q)
        if tail == "lower":
            point = self.at_coordinate(normal.quantile_of(q), of)
            put = self.price_at(point, np.zeros(point.x.size, dtype=np.bool_))
            shape = self._result_shape(q, of)
            return np.exp(point.k).reshape(shape) - np.divide(put.reshape(shape), q)
        raise ValueError(f"tail must be 'upper' or 'lower', got {tail!r}")

    def log_variance(self) -> Array:
        """Total log-contract variance ``W = −2 E log X = 2 (log M − E s(Z))``, shape ``(…)``."""
        mean = (self.slices.b @ self.knots.mean).reshape(self.shape)
        return np.asarray(2.0 * (self.log_mean - mean))
