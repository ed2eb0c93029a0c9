"""VIX futures, options and VVIX of the lifted Heston model, by Fourier inversion.

The squared index is affine in the factors, ``y = (VIX/100)² = a + β·U``, so that ``E e^{w y_T}`` is
the Riccati system again, started at ``w β``. Payoffs are inverted from their transforms in y:

    √y          √π / (2 w^{3/2})                  (futures)
    (√y − K)⁺   √π erfc(K √w) / (2 w^{3/2})       (calls)
    log y       −(γ + log w) / w                  (VVIX)

on contours ``w = w₁ + i b sinh(t + iω)`` that cross the real axis between 0 and the first exploding
moment. For futures they bend left, where ``E e^{wy}`` decays since y is bounded away from zero; for
calls right, where ``e^{−w(K² − min y)}`` does. Index points are ``100 √y``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import wofz

from arbiter.conventions import INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.models.characteristic_function import Transform, solve_state_transform
from arbiter.models.exact_prices import Complex
from arbiter.models.expected_variance import ExpectedVariance
from arbiter.models.fourier_sums import sum_waves
from arbiter.models.parameters import Parameters
from arbiter.models.riccati import STEP_GROWTH, mesh

_LEFT_ANGLE, _LEFT_STEP = (
    0.4,
    0.07,
)  # angles below π/4 from the vertical: narrow laws decay there too
_RIGHT_ANGLE, _RIGHT_STEP = -0.25, 0.04
_MIN_SQUARED_INDEX = 1e-5  # y: an index of 0.3 points
_MOMENT_SAFETY_SHARE = 0.97  # of the largest moment that is known to be finite
_LEFT_CONTOUR_REACH = (
    1200.0  # for futures |w| goes to this over the lowest y: e^{wy} is e^−41 long before
)
_RIGHT_CONTOUR_REACH = 1e8  # for calls: the integrand falls to 1e-16 at the slowest, on low strikes
_COARSE_STEP_GROWTH = 1.6  # growth of steps where only a scale is wanted
_ASYMPTOTIC_ARGUMENT = 1e6  # a w so large that log E e^{−wy} is −w times the lowest y
_NEGLIGIBLE_LOG_SIZE, _MAX_LOG_LAST_NODE = -41.0, -30.0
# Where a call's integrand grows above e³, the put of the strike is worth nothing: for a normal law
# that is 9.3 standard deviations below the mean.
_MAX_LOG_INTEGRAND = 3.0
_MOMENT_SEARCH_GRID = (1e-4, 1e8, 160)  # w: from heavy tails at 5 years to light ones at a day
_SEARCH_GROWTH, _SEARCH_FIRST_STEP_YEARS = 1.06, 1e-10
_NEAR_ZERO_MESSAGE = (
    "reversion·theta = {:.3g}: the index can come too near zero, and its laws are not computed; "
    "give a larger reversion or theta"
)
_MAX_COMPLEX_PER_BLOCK = 1 << 21  # complex numbers at once where strikes differ by day


def squared_index(p: Parameters) -> tuple[float, Array]:
    """``a, β`` with ``(VIX/100)² = a + β·U``: mean variance over 30 days, jumps included."""
    constant, slope = ExpectedVariance.from_parameters(p).affine(THIRTY_DAYS)
    jumps = 0.0 if p.jumps is None else p.jumps.variance
    return constant / THIRTY_DAYS + jumps, slope / THIRTY_DAYS


@dataclass(frozen=True, eq=False)
class IndexLaw:
    """The law of the index at one future time, for any state now.

    Attributes:
        T: Year fraction.
        left: Transform of y on the contour that bends left.
        right: Transform of y on the contour that bends right.
        w_left: ``(Q,)`` nodes.
        w_right: ``(Q',)`` nodes.
        dw_left: ``(Q,)`` weights, ``1/π`` included.
        dw_right: ``(Q',)`` weights.
        mean: ``(n + 1,)`` row that turns ``(U, 1)`` into ``E y``.
        deviation: Standard deviation of y from the start, a scale.
    """

    T: float
    left: Transform
    right: Transform
    w_left: Complex
    w_right: Complex
    dw_left: Complex
    dw_right: Complex
    mean: Array
    deviation: float

    @staticmethod
    def from_parameters(p: Parameters, T: float) -> IndexLaw:
        """The law at time T, cached, since it serves every state."""
        return solve_index_law(p, float(T))

    def mean_squared_index(self, states: Array) -> Array:
        """``E y`` for states ``(D, n)``: the 30-day forward variance."""
        return np.asarray(states @ self.mean[:-1] + self.mean[-1])

    def future(self, states: Array) -> Array:
        """``E VIX`` in index points."""
        weight = self.dw_left * np.sqrt(np.pi) / (2.0 * self.w_left**1.5)
        return INDEX_POINTS * self._sum_left_contour(states, weight)

    def log_index(self, states: Array) -> Array:
        """``E log VIX``, of index points."""
        weight = -self.dw_left * (np.euler_gamma + np.log(self.w_left)) / self.w_left
        return 0.5 * self._sum_left_contour(states, weight) + float(np.log(INDEX_POINTS))

    def calls(self, states: Array, strikes: Array) -> Array:
        """``E (VIX − K)⁺``, ``(D, m)``, for strikes ``(m,)`` or ``(D, m)`` in index points."""
        K = np.broadcast_to(strikes / INDEX_POINTS, (states.shape[0], np.shape(strikes)[-1]))
        log_mgf = self.right.at(0, states)  # (D, Q)
        out, worthless = np.empty(K.shape), np.empty(K.shape, dtype=bool)
        rows = max(1, _MAX_COMPLEX_PER_BLOCK // (K.shape[1] * self.w_right.size))
        same = np.ndim(strikes) == 1
        payoff = self._payoff(K[0]) if same else None
        for start in range(0, K.shape[0], rows):
            part = slice(start, start + rows)
            exponent = log_mgf[part, None] - K[part, :, None] ** 2 * self.w_right
            worthless[part] = exponent.real.max(-1) > _MAX_LOG_INTEGRAND
            size = np.where(exponent.real > _NEGLIGIBLE_LOG_SIZE, exponent, -np.inf)
            size[worthless[part]] = -np.inf
            shape = self._payoff(K[part]) if payoff is None else payoff
            out[part] = (np.exp(size) * shape).real.sum(-1)
        future = self.future(states)[:, None]
        floor = np.maximum(future - INDEX_POINTS * K, 0.0)
        return np.asarray(np.where(worthless, floor, np.maximum(INDEX_POINTS * out, floor)))

    def _payoff(self, K: Array) -> Complex:
        """Weights with which ``E e^{wy − K²w}`` sums to calls, ``(…, m, Q)``."""
        root = np.sqrt(self.w_right)
        scaled = wofz(1j * K[..., None] * root)  # e^{z²} erfc(z)
        return np.asarray(self.dw_right * np.sqrt(np.pi) * scaled / (2.0 * self.w_right**1.5))

    def _sum_left_contour(self, states: Array, weight: Complex) -> Array:
        log_mgf = self.left.at(0, states)
        if not (log_mgf[:, -1].real < _MAX_LOG_LAST_NODE).all():
            raise ArithmeticError(
                f"the index at T = {self.T:.6g} can come so much nearer to zero from this state "
                "than from the start that its law is not resolved; give a point of a path"
            )
        out, zero = np.empty((len(states), 1)), np.zeros((len(states), 1))
        sum_waves(log_mgf + np.log(weight), np.zeros_like(weight), zero, out)  # no strike, no wave
        return out[:, 0]


@lru_cache(maxsize=256)
def solve_index_law(p: Parameters, T: float) -> IndexLaw:
    """The law of the index at ``T`` under ``p``; results are cached."""
    if not 0.0 < T < 100.0:
        raise ValueError(f"T = {T!r}: give a positive year fraction below 100")
    if p.theta * p.reversion == 0.0 and p.jumps is None:
        raise ValueError(_NEAR_ZERO_MESSAGE.format(0.0))
    constant, slope = squared_index(p)
    mean = _mean_row(p, T)
    mean_from_start = float(mean[-1])
    largest, variance, lowest = _moment_bounds(p, T, slope, mean_from_start)
    deviation = float(np.sqrt(max(variance, 0.0)))
    # crossing where e^{wy}, and for calls e^{w(y − K²)}, is of the order of one: no cancellation
    scale = 0.98 * min(largest, 0.5 / mean_from_start)
    w_left, dw_left = _contour(
        (scale, scale), _LEFT_ANGLE, _LEFT_STEP, _LEFT_CONTOUR_REACH / lowest
    )
    scale = min(largest, 2.0 / deviation) if deviation > 0.0 else largest
    w_right, dw_right = _contour(
        (0.02 * scale, 0.9 * scale), _RIGHT_ANGLE, _RIGHT_STEP, _RIGHT_CONTOUR_REACH
    )
    both = _mgf(p, T, constant, slope, np.concatenate([w_left, w_right]))
    split = w_left.size
    return IndexLaw(
        T,
        both.nodes(slice(split)),
        both.nodes(slice(split, None)),
        w_left,
        w_right,
        dw_left,
        dw_right,
        mean,
        deviation,
    )


def _contour(
    cross: tuple[float, float], omega: float, step: float, reach: float
) -> tuple[Complex, Complex]:
    """Nodes in the upper half plane and their weights."""
    w1, b = cross
    t = np.arange(0.0, np.log(2.0 * reach / b + 2.0) + step, step)
    along = np.full(t.size, step)
    along[0] *= 0.5
    w = w1 + 1j * b * np.sinh(t + 1j * omega)
    # (1/2πi) dw, twice its real part over the upper half
    return w, np.asarray(along * b * np.cosh(t + 1j * omega) / np.pi)


def _mgf(
    p: Parameters, T: float, constant: float, slope: Array, w: Complex, growth: float = STEP_GROWTH
) -> Transform:
    """``log E e^{w y_T}``."""
    found = solve_state_transform(p, np.array([T]), np.multiply.outer(w, slope), growth)
    return Transform(found.constant + constant * w, found.slope)


def _mean_row(p: Parameters, T: float) -> Array:
    """``E y_T`` from ``(U, 1)``: the affine map of the means at T + Δ less that at T."""
    late, early = (ExpectedVariance.from_parameters(p).affine(t) for t in (T + THIRTY_DAYS, T))
    jumps = 0.0 if p.jumps is None else p.jumps.variance
    return np.append(late[1] - early[1], late[0] - early[0] + jumps * THIRTY_DAYS) / THIRTY_DAYS


def _moment_bounds(
    p: Parameters, T: float, slope: Array, mean_from_start: float
) -> tuple[float, float, float]:
    """A moment ``E e^{wy}`` that is finite with room to spare, the variance and the lowest y."""
    largest = _MOMENT_SAFETY_SHARE * largest_moment(p, T, slope)
    test = 0.05 * largest
    w = np.array([test + 0j, -_ASYMPTOTIC_ARGUMENT + 0j])
    exact = _mgf(p, T, *squared_index(p), w, _COARSE_STEP_GROWTH).constant[0].real
    excess, lowest = (
        float(exact[0]) - test * mean_from_start,
        -float(exact[1]) / _ASYMPTOTIC_ARGUMENT,
    )
    if lowest < _MIN_SQUARED_INDEX:
        raise ValueError(_NEAR_ZERO_MESSAGE.format(p.reversion * p.theta))
    return largest, 2.0 * excess / test**2, lowest


def largest_moment(p: Parameters, T: float, slope: Array) -> float:
    """A lower bound, some percent below, of the w at which ``E e^{w slope·U_T}`` explodes.

    Implicit Euler steps in the real w: they grow faster than the solution, and have no real root
    where it explodes within the step.
    """
    w = np.geomspace(*_MOMENT_SEARCH_GRID)
    psi = np.multiply.outer(slope / p.c, w)  # (n, w)
    alive = np.ones(w.size, dtype=bool)
    for delta in np.diff(np.minimum(mesh(T, _SEARCH_GROWTH, _SEARCH_FIRST_STEP_YEARS), T)):
        decay = np.exp(-p.x * delta)
        push = np.where(p.x * delta > 1e-8, -np.expm1(-p.x * delta), p.x * delta)
        push = np.divide(push, p.x, out=np.full_like(push, delta), where=p.x > 0.0)
        size, start = float(p.c @ push), ((p.c * decay)[:, None] * psi).sum(0)
        linear = 1.0 + size * p.reversion
        inside = linear**2 - 2.0 * size * p.nu**2 * start
        alive &= inside > 0.0
        V = np.where(alive, 2.0 * start / (linear + np.sqrt(np.maximum(inside, 0.0))), 0.0)
        psi = psi * decay[:, None] + push[:, None] * (0.5 * p.nu**2 * V - p.reversion) * V
    if not alive[0]:
        raise ArithmeticError(f"no exponential moment of the squared index is finite at T = {T!r}")
    return float(w[alive.nonzero()[0][-1]])
