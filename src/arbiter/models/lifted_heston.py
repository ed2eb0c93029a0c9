"""The lifted Heston model: exact prices, volatilities, densities and VIX of any state.

No Monte Carlo, no calibration: a Riccati system solved once (:mod:`arbiter.models.riccati`), a
Fourier integral per strike (:mod:`arbiter.models.fourier_pricing`), means in closed form
(:mod:`arbiter.models.expected_variance`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.models.characteristic_function import Transform, solve_index_transforms
from arbiter.models.exact_prices import (
    Complex,
    implied_volatility,
    require_log_strikes,
    require_maturities,
)
from arbiter.models.expected_variance import ExpectedVariance
from arbiter.models.fourier_pricing import CONTOUR_STEP, Contour, invert
from arbiter.models.parameters import Parameters
from arbiter.models.riccati import STEP_GROWTH
from arbiter.models.vix_oracle import IndexLaw, squared_index

ContourTransform = tuple[Contour, Transform]

INDEX_PRICE_RESOLUTION = 1e-9  # of the future: the same for options on the volatility index
_MAX_LOG_STRIKE = 16.0  # log-strikes: rounding of the integral times e^16 is 1e-10 of the forward


@dataclass(frozen=True)
class LiftedHeston(Parameters):
    """A lifted Heston model; every method takes the state of its factors.

    ``state`` is ``(n,)``, the factors U: a point of a path, or the start, all zeros, when left
    out. Forward and discount factor are one, volatilities annualised; arguments broadcast as
    those of :meth:`arbiter.Surface.iv` do. Prices are right to 1e-9 of the forward from 2 days to
    5 years and to 8 standard deviations, log-strikes up to 16 in size; :meth:`error_estimate`
    checks it where you are.

    Example:
        >>> market = LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.04, sigma=0.5, rho=-0.7)
        >>> round(float(market.iv(0.0, 0.5)), 6)
        0.18159
    """

    @classmethod
    def of(cls, parameters: Parameters) -> LiftedHeston:
        """The model with given parameters, for instance those of a preset."""
        return cls(**{name: getattr(parameters, name) for name in cls.__dataclass_fields__})

    @classmethod
    def heston(
        cls, v0: float, kappa: float, theta: float, sigma: float, rho: float
    ) -> LiftedHeston:
        """The one-factor case, the Heston model, from its usual parameters."""
        return cls(v0=v0, reversion=kappa, theta=theta, nu=sigma, rho=rho, factors=1)

    def otm(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Out-of-the-money prices: calls for ``k ≥ 0``, puts below."""
        return self.otm_at_accuracy(k, T, state, CONTOUR_STEP, STEP_GROWTH)

    def call(self, K: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Call prices at strikes over the forward."""
        k = _log_of_strikes(K)
        return np.asarray(self.otm(k, T, state) + np.maximum(-np.expm1(k), 0.0))

    def put(self, K: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Put prices at strikes over the forward."""
        k = _log_of_strikes(K)
        return np.asarray(self.otm(k, T, state) + np.maximum(np.expm1(k), 0.0))

    def iv(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Implied volatility; NaN where the price is below what the integral resolves, 1e-12."""
        points, at = np.broadcast_arrays(np.asarray(k, dtype=np.float64), require_maturities(T))
        return implied_volatility(self.otm(points, at, state), points, at)

    def density(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Density of ``X_T`` at ``κ = e^k``, per unit κ."""
        points = np.asarray(k, dtype=np.float64)
        return np.asarray(self._sum_contours(points, T, state, _density_weight) * np.exp(-points))

    def digital(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Probability ``P(X_T > e^k)``, the undiscounted digital call."""
        return self._sum_contours(k, T, state, _digital_weight)

    def days(self, states: ArrayLike, k: ArrayLike, T: ArrayLike) -> Array:
        """Out-of-the-money prices of many days of one market, from one Riccati solution.

        Args:
            states: ``(D, n)``.
            k: ``(M, m)`` log-strikes per maturity, the same every day, or ``(D, M, m)``.
            T: ``(M,)`` increasing.

        Returns:
            ``(D, M, m)``.

        Raises:
            ValueError: If shapes do not agree, or maturities do not increase.
        """
        U, points, times = (
            self._check_states(states),
            require_log_strikes(k, _MAX_LOG_STRIKE),
            require_maturities(T),
        )
        if times.ndim != 1 or times.size == 0 or (np.diff(times) <= 0.0).any():
            raise ValueError("T must be a row of increasing maturities, at least one")
        shape = (U.shape[0], times.size, points.shape[-1] if points.ndim else 1)
        if points.shape not in (shape, shape[1:]):
            raise ValueError(
                f"k has shape {points.shape}: with {U.shape[0]} states and {times.size} maturities "
                f"it must be {shape[1:]} or {shape}"
            )
        self._integrated_variance(times, U)
        same = points.ndim == 2
        out = np.full(shape, np.nan)
        for contour, transform in solve_contours(
            self, tuple(times.tolist()), CONTOUR_STEP, STEP_GROWTH
        ):
            for m in range(times.size):
                log_cf = transform.at(m, U)
                if same:
                    side = contour.covers_strikes(points[m], times[m])
                    at = points[m, side]
                    integral = invert(log_cf, contour.xi, contour.weight, at)
                    out[:, m, side] = contour.price(integral, at)
                else:
                    side = contour.covers_strikes(points[:, m], times[m])
                    at = np.where(side, points[:, m], contour.drift * times[m])
                    out[:, m] = _price_ragged(contour, log_cf, at, side, out[:, m])
        return np.asarray(np.maximum(out, 0.0))

    def error_estimate(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> float:
        """Largest change of a price when steps in time and nodes on the contour are doubled."""
        fine = self.otm_at_accuracy(k, T, state, 0.5 * CONTOUR_STEP, float(np.sqrt(STEP_GROWTH)))
        return float(np.abs(fine - self.otm(k, T, state)).max(initial=0.0))

    def log_variance(self, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Total log-contract variance ``W(T) = −2 E log X_T``."""
        jumps = 0.0 if self.jumps is None else self.jumps.variance
        at = require_maturities(T)
        return np.asarray(self._integrated_variance(at, self._check_state(state)) + jumps * at)

    def variance_swap(self, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Annualised variance of the log contract, ``W(T)/T``."""
        return np.asarray(self.log_variance(T, state) / require_maturities(T))

    def variance_curve(self, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """``E v_T``, the curve of instantaneous forward variances (without jumps)."""
        return _require_reachable(
            ExpectedVariance.from_parameters(self).variance(
                require_maturities(T), self._check_state(state)
            )
        )

    def forward_variance(self, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """``(W(T + 30 days) − W(T))/30 days``, which is ``E[(VIX_T/100)²]``."""
        at = require_maturities(T)
        ahead = self.log_variance(at + THIRTY_DAYS, state) - self.log_variance(at, state)
        return _require_reachable(ahead / THIRTY_DAYS)

    def vix(self, states: ArrayLike | None = None) -> Array:
        """The volatility index today in index points, of one state or of each row of states."""
        U = np.zeros(self.factors) if states is None else np.asarray(states, dtype=np.float64)
        self._check_states(U.reshape(-1, U.shape[-1]) if U.ndim else U)
        constant, slope = squared_index(self)
        return np.asarray(
            INDEX_POINTS * np.sqrt(np.maximum(_require_reachable(U @ slope + constant), 0.0))
        )

    def vix_future(self, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """``E VIX_T`` in index points."""
        U = self._index_state(T, state)
        return _map_maturities(
            lambda t: float(IndexLaw.from_parameters(self, t).future(U)[0]), require_maturities(T)
        )

    def vvix(self, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """``100 √(−2 E log(VIX_T/F) / T)`` in index points, F the future."""
        U = self._index_state(T, state)

        def points(t: float) -> float:
            law = IndexLaw.from_parameters(self, t)
            log_gap = float(np.log(law.future(U)[0]) - law.log_index(U)[0])
            return INDEX_POINTS * float(np.sqrt(2.0 * log_gap / t))

        return _map_maturities(points, require_maturities(T))

    def vix_call(self, K: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """``E (VIX_T − K)⁺`` in index points, undiscounted."""
        return self._vix_options(K, T, state)[0]

    def vix_put(self, K: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """``E (K − VIX_T)⁺`` in index points, undiscounted."""
        calls, futures, strikes = self._vix_options(K, T, state)
        return np.asarray(np.maximum(calls - futures + strikes, 0.0))

    def vix_iv(self, K: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        """Black volatility on the future; NaN where the option is below 1e-9 of the future."""
        calls, futures, strikes = self._vix_options(K, T, state)
        k = np.log(strikes / futures)
        price = (calls - np.where(k < 0.0, futures - strikes, 0.0)) / futures
        return implied_volatility(price, k, require_maturities(T), INDEX_PRICE_RESOLUTION)

    def _vix_options(
        self, K: ArrayLike, T: ArrayLike, state: ArrayLike | None
    ) -> tuple[Array, Array, Array]:
        strikes, at = np.broadcast_arrays(np.asarray(K, dtype=np.float64), require_maturities(T))
        if not ((strikes > 0.0) & (strikes < np.inf)).all():
            raise ValueError("K must be positive strikes in index points")
        U = self._index_state(at, state)
        calls, futures = np.full(strikes.shape, np.nan), np.full(strikes.shape, np.nan)
        for t in np.unique(at):
            law, here = IndexLaw.from_parameters(self, float(t)), at == t
            calls[here], futures[here] = law.calls(U, strikes[here])[0], law.future(U)[0]
        return calls, futures, strikes

    def otm_at_accuracy(
        self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None, step: float, growth: float
    ) -> Array:
        """Out-of-the-money prices with given contours: their step, and how fast it grows."""
        points = require_log_strikes(k, _MAX_LOG_STRIKE)
        integral = self._sum_contours(points, T, state, lambda c: c.weight, (step, growth))
        return np.asarray(np.maximum(Contour.price(integral, points), 0.0))

    def _sum_contours(
        self,
        k: ArrayLike,
        T: ArrayLike,
        state: ArrayLike | None,
        weight: Callable[[Contour], Complex],
        accuracy: tuple[float, float] = (CONTOUR_STEP, STEP_GROWTH),
    ) -> Array:
        """Fourier sums, each point on the contour of its side; ``weight`` sets the payoff."""
        points, at = np.broadcast_arrays(
            require_log_strikes(k, _MAX_LOG_STRIKE), require_maturities(T)
        )
        U, flat = self._check_state(state)[None], points.ravel()
        times, where = np.unique(at.ravel(), return_inverse=True)
        found = np.full(flat.size, np.nan)
        if flat.size == 0:
            return found.reshape(points.shape)
        self._integrated_variance(times, U)
        for contour, transform in solve_contours(self, tuple(times.tolist()), *accuracy):
            for m, t in enumerate(times):
                here = np.flatnonzero((where == m) & contour.covers_strikes(flat, t))
                if here.size == 0:
                    continue
                log_cf = transform.at(m, U)
                found[here] = invert(log_cf, contour.xi, weight(contour), flat[here])[0]
        return found.reshape(points.shape)

    def _integrated_variance(self, T: Array, states: Array) -> Array:
        """``∫ E v`` from 0 to T; a ``ValueError`` for an unreachable state."""
        return _require_reachable(
            ExpectedVariance.from_parameters(self).integral(T, states),
            float(np.max(T, initial=0.0)),
        )

    def _index_state(self, T: ArrayLike, state: ArrayLike | None) -> Array:
        """``(1, n)`` state, refused if the index has no value now or at one of the maturities."""
        self.vix(state)
        self.forward_variance(T, state)
        return self._check_state(state)[None]

    def _check_state(self, state: ArrayLike | None) -> Array:
        if state is None:
            return np.zeros(self.factors)
        U = np.asarray(state, dtype=np.float64)
        if U.shape != (self.factors,) or not np.isfinite(U).all():
            raise ValueError(
                f"state has shape {U.shape}: it must be {self.factors} finite numbers, the factors"
            )
        return U

    def _check_states(self, states: ArrayLike) -> Array:
        U = np.asarray(states, dtype=np.float64)
        if U.ndim != 2 or U.shape[1] != self.factors or not np.isfinite(U).all():
            raise ValueError(
                f"states has shape {U.shape}: it must be finite rows of {self.factors} factors"
            )
        return U


def _require_reachable(variance: Array, scale: float = 1.0) -> Array:
    """Return expected variances; a ``ValueError`` below zero, where no path leads to the state."""
    if (variance < -1e-9 * scale).any():
        raise ValueError(
            f"the state has negative expected variance ({variance.min():.3g}): no path leads to "
            "it, and it has no prices; give a point of a path, or leave it out"
        )
    return np.asarray(variance)


def _density_weight(contour: Contour) -> Complex:
    """Weights whose Fourier sum is the density of ``log X``."""
    return np.asarray(contour.weight * contour.xi * (contour.xi + 1j))


def _digital_weight(contour: Contour) -> Complex:
    """Weights whose Fourier sum is ``−∂c/∂κ = I + ∂I/∂k``, the digital price."""
    return np.asarray(contour.weight * (1.0 - 1j * contour.xi))


def _map_maturities(f: Callable[[float], float], T: Array) -> Array:
    """``f`` evaluated once per distinct maturity, in the shape of ``T``."""
    times, where = np.unique(T, return_inverse=True)
    return np.array([f(float(t)) for t in times])[where].reshape(T.shape)


def _price_ragged(
    contour: Contour, log_cf: Complex, k: Array, side: NDArray[np.bool_], other: Array
) -> Array:
    """Prices ``(D, m)`` of strikes that differ by day; ``other`` where ``side`` is false."""
    order = np.argsort(~side, axis=1, kind="stable")[:, : int(side.sum(1).max(initial=0))]
    at = np.take_along_axis(k, order, 1)
    mine = np.take_along_axis(side, order, 1)
    found = contour.price(invert(log_cf, contour.xi, contour.weight, at), at)
    kept = np.where(mine, found, np.take_along_axis(other, order, 1))
    out = other.copy()
    np.put_along_axis(out, order, kept, 1)
    return out


def _log_of_strikes(K: ArrayLike) -> Array:
    strikes = np.asarray(K, dtype=np.float64)
    if not (strikes > 0.0).all():
        raise ValueError("K must be positive strikes over the forward")
    return np.asarray(np.log(strikes))


@lru_cache(maxsize=16)
def solve_contours(
    market: LiftedHeston, times: tuple[float, ...], step: float, growth: float
) -> tuple[ContourTransform, ContourTransform]:
    """Contours and transforms for calls and for puts, from one solution."""
    calls, puts = (Contour.from_parameters(market, side, step) for side in (True, False))
    xi = np.concatenate([calls.xi, puts.xi])[None]
    both = solve_index_transforms([market], np.array(times), xi, growth)[0]
    split = calls.xi.size
    return (calls, both.nodes(slice(split))), (puts, both.nodes(slice(split, None)))
