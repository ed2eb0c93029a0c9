"""Rough Bergomi on a grid of times: Monte Carlo volatilities with their standard errors.

    dX/X = √v (ρ dB + √(1 − ρ²) dB'),   v_t = ξ(t) exp(ν W_t − ½ ν² t^{2H}),
    W_t = √(2H) ∫ (t − s)^{H − ½} dB_s,   ξ(t) = θ + (v0 − θ) e^{−κt}.

The market is the one whose variance stays what it was at the last time of the grid. It is free of
arbitrage as it stands, and W is drawn from its exact law at these times, so that the error of a
volatility is that of Monte Carlo alone.

Given the path of B the law of X is lognormal (the conditional or turbocharged estimator of
McCrickerd and Pakkanen 2018): a price is the mean of Black's formula, a smooth function of
``M = ρ∫√v dB`` and ``V = ∫v``. Paths are therefore tabulated by log V and M, each spread over 4 × 4
nodes of a fine table by cubic interpolation, and all strikes are priced at the nodes. Control
variates are ``e^{M − ρ²V/2} − 1``, M, ``V − E V`` and ``M² − ρ²V``, whose means are zero exactly.

Shapes: n steps, L maturities, S strikes, A × B nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import hyp2f1

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.scoring import BASIS_POINT

Singles = NDArray[np.float32]

STEPS_PER_MATURITY = 8  # steps between one maturity and the next
_M_RANGE, _M_NODES = (-14.0, 10.0), 401  # of M in deviations
_LOG_V_RANGE, _LOG_V_NODES = (-3.0, 4.5), 151  # of log V over its mean
_PATHS_PER_DRAW, _PATHS_PER_BLOCK = 1 << 13, 1 << 20
_JITTER = 1e-13  # on the diagonal of a covariance whose smallest eigenvalues are rounding


class Volatilities(NamedTuple):
    """Monte Carlo volatilities at log-strikes.

    Attributes:
        iv: ``(L, S)``; NaN where no strike is listed.
        error: ``(L, S)`` standard errors.
        paths: Number of paths.
    """

    iv: Array
    error: Array
    paths: int


@dataclass(frozen=True)
class RoughBergomi:
    """Parameters of a market.

    Attributes:
        v0: Variance now.
        reversion: κ of the forward variance curve.
        theta: Variance in the long run.
        nu: ν, volatility of log-variance.
        rho: Correlation.
        hurst: H of the kernel.
    """

    v0: float
    reversion: float
    theta: float
    nu: float
    rho: float
    hurst: float

    def forward_variance(self, t: Array) -> Array:
        """``ξ(t)``."""
        return np.asarray(self.theta + (self.v0 - self.theta) * np.exp(-self.reversion * t))

    def log_variance(self, T: Array) -> Array:
        """``E V``, total variance of the log contract at the maturities ``(L,)`` of the grid."""
        t = build_times(T)
        total = np.cumsum(self.forward_variance(t[:-1]) * np.diff(t))
        return np.asarray(total[STEPS_PER_MATURITY - 1 :: STEPS_PER_MATURITY])


def build_times(T: Array) -> Array:
    """Return the grid ``(n + 1,)`` from zero, even between maturities ``(L,)``."""
    first = np.concatenate([np.zeros(1), T[:-1]])
    share = np.arange(STEPS_PER_MATURITY) / STEPS_PER_MATURITY
    return np.append((first[:, None] + (T - first)[:, None] * share).ravel(), T[-1])


def simulate(
    market: RoughBergomi,
    T: Array,
    k: Array,
    min_price: float,
    target_bp: float,
    max_paths: int,
    seed: int,
) -> Volatilities:
    """Simulate until the largest standard error of a listed volatility is small enough.

    Args:
        market: The parameters.
        T: ``(L,)`` maturities.
        k: ``(L, S)`` log-strikes.
        min_price: Price over the forward from which on a strike is listed.
        target_bp: Standard error in basis points of volatility to stop at.
        max_paths: Number of paths to stop at.
        seed: Of the paths.
    """
    rng = np.random.default_rng(seed)
    table = np.zeros((T.size, _M_NODES, _LOG_V_NODES))
    paths, size = 0, min(_PATHS_PER_BLOCK, max_paths)
    while True:
        _tabulate(market, T, size, rng, table)
        paths += size
        price, price_error = _price(market, T, k, table / paths, paths)
        price[price < min_price] = np.nan
        total = np.asarray(black.implied_total_volatility(price, k).volatility)
        iv = total / np.sqrt(T)[:, None]
        error = price_error / (black.vega(k, total) * np.sqrt(T)[:, None])
        worst = float(np.nanmax(error)) / BASIS_POINT
        if worst <= target_bp or paths >= max_paths:
            return Volatilities(iv, np.asarray(np.where(np.isnan(iv), np.nan, error)), paths)


def _tabulate(
    market: RoughBergomi, T: Array, paths: int, rng: np.random.Generator, table: Array
) -> None:
    """Add paths to a table ``(L, A, B)``."""
    t = build_times(T)
    dt, n = np.diff(t), t.size - 1
    maps, drift = log_variance_maps(market, t)
    mean = market.log_variance(T)
    for begin in range(0, paths, _PATHS_PER_DRAW):
        z = rng.standard_normal((min(_PATHS_PER_DRAW, paths - begin), 2 * n), np.float32)
        v = np.exp(z @ maps + drift)
        _spread_paths(v, z, dt, market.rho, mean, table)


def log_variance_maps(market: RoughBergomi, t: Array) -> tuple[Singles, Singles]:
    """Return what normals ``(2n,)`` make of log v at the starts of steps, and its drift, float32.

    The first n normals are those of B, the others complete the law of W.
    """
    H, late = market.hurst, t[1:]
    power = H + 0.5
    low, high = np.minimum.outer(late, late), np.maximum.outer(late, late)
    apart = np.where(low < high, low / high, 0.0)
    covariance = 2.0 * H * low**power * high ** (power - 1.0) / power
    covariance *= hyp2f1(0.5 - H, 1.0, power + 1.0, apart)
    np.fill_diagonal(covariance, late ** (2.0 * H))

    def kernel(gap: Array) -> Array:
        return np.asarray(np.maximum(gap, 0.0) ** power)

    by_brownian = kernel(late[:, None] - t[:-1]) - kernel(late[:, None] - t[1:])
    by_brownian *= np.sqrt(2.0 * H) / power / np.sqrt(np.diff(t))
    rest = covariance - by_brownian @ by_brownian.T + _JITTER * np.eye(late.size)
    maps = np.zeros((2 * late.size, late.size))  # W is zero at the start of the first step
    maps[:, 1:] = np.concatenate([by_brownian[:-1].T, np.linalg.cholesky(rest)[:-1].T])
    variance = np.append(0.0, late[:-1] ** (2.0 * H))
    drift = np.log(market.forward_variance(t[:-1])) - 0.5 * market.nu**2 * variance
    return (market.nu * maps).astype(np.float32), drift.astype(np.float32)


@compiled
def _spread_paths(v: Singles, z: Singles, dt: Array, rho: float, mean: Array, table: Array) -> None:
    across = (_M_RANGE[1] - _M_RANGE[0]) / (_M_NODES - 1)
    along = (_LOG_V_RANGE[1] - _LOG_V_RANGE[0]) / (_LOG_V_NODES - 1)
    for path in range(v.shape[0]):
        total = moved = 0.0
        for i in range(dt.size):
            step = v[path, i] * dt[i]
            total += step
            moved += rho * np.sqrt(step) * z[path, i]
            if (i + 1) % STEPS_PER_MATURITY != 0:
                continue
            row = i // STEPS_PER_MATURITY
            a = (moved / np.sqrt(mean[row]) - _M_RANGE[0]) / across
            b = (np.log(total / mean[row]) - _LOG_V_RANGE[0]) / along
            a, b = min(max(a, 1.0), _M_NODES - 3.0), min(max(b, 1.0), _LOG_V_NODES - 3.0)
            p, q = int(a), int(b)
            a, b = a - p, b - q
            for c in range(4):
                for d in range(4):
                    table[row, p - 1 + c, q - 1 + d] += _lagrange(a, c) * _lagrange(b, d)


@compiled
def _lagrange(x: float, node: int) -> float:
    """Cubic weight at x in [0, 1] of the nodes −1, 0, 1 and 2."""
    if node == 0:
        return -x * (x - 1.0) * (x - 2.0) / 6.0
    if node == 1:
        return (x + 1.0) * (x - 1.0) * (x - 2.0) / 2.0
    if node == 2:
        return -(x + 1.0) * x * (x - 2.0) / 2.0
    return (x + 1.0) * x * (x - 1.0) / 6.0


def _price(
    market: RoughBergomi, T: Array, k: Array, share: Array, paths: int
) -> tuple[Array, Array]:
    """Return prices ``(L, S)`` and standard errors from shares of the paths ``(L, A, B)``."""
    price, error, rho2 = np.empty(k.shape), np.empty(k.shape), market.rho**2
    at, ratio = np.linspace(*_M_RANGE, _M_NODES), np.exp(np.linspace(*_LOG_V_RANGE, _LOG_V_NODES))
    for row, mean in enumerate(market.log_variance(T).tolist()):
        a, b = np.nonzero(share[row])
        w, m, v = share[row, a, b], at[a], ratio[b]
        log_x = np.sqrt(mean) * m - 0.5 * rho2 * mean * v
        x = np.exp(log_x)
        payoff = _otm(k[row], log_x, np.sqrt((1.0 - rho2) * mean * v))
        controls = np.stack([x - 1.0, m, v - 1.0, m * m - rho2 * v], 1)
        rows = np.concatenate([np.ones((w.size, 1)), controls], 1)
        gain = np.linalg.solve(rows.T @ (w[:, None] * rows), rows.T @ (w[:, None] * payoff))
        left = payoff - controls @ gain[1:]
        price[row] = w @ left
        error[row] = np.sqrt(np.maximum(w @ (left - price[row]) ** 2, 0.0) / paths)
    return price, error


def _otm(k: Array, log_x: Array, deviation: Array) -> Array:
    """``(P, S)`` means of out-of-the-money payoffs ``(S,)``, X lognormal of mean e^log_x."""
    moved, x = k - log_x[:, None], np.exp(log_x)[:, None]
    value = x * np.asarray(black.otm(moved, np.broadcast_to(deviation[:, None], moved.shape)))
    # Black's side is that of the moved strike: parity where it is the other one
    other = (moved < 0.0) != (k < 0.0)
    return np.asarray(value + np.where(other, np.abs(x - np.exp(k)), 0.0))
