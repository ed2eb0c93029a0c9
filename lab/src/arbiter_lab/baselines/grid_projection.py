"""Projection of a grid of calls onto those without static arbitrage (paper, section 3.3).

On strikes ``κ_1 < … < κ_m`` shared by all maturities, calls ``c`` are free of static arbitrage
if every slice is convex together with ``c(0) = 1``, does not rise, has ``c(κ_1) ≥ 1 − κ_1`` and
``c(κ_m) ≥ 0``, and if no price falls from one maturity to the next. Slopes in [−1, 0] and the
bounds ``(1 − κ)+ ≤ c ≤ 1`` follow.

There are three methods. ``"qp"`` is one quadratic program of all constraints. ``"dykstra"``
alternates between the paper's two sets with Dykstra's corrections and converges to the same point.
``"pava_then_qp"`` is the paper's algorithm as written: pooled adjacent violators along maturity,
then a quadratic program in strike, once. Its second step violates the constraints of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import nnls

from arbiter.conventions import Array
from arbiter.pricing import black

_FAINTEST = 4e-3  # a hundredth of the money's vega: far wings are whitened no further
_ALTERNATIONS = 5_000
_CONVERGED = 1e-9  # change of any price between two alternations, and the program's tolerance


class Violations(NamedTuple):
    """The largest violation of each kind, in forward units, zero where there is none.

    The size is the gain of the violating portfolio with long legs of weight one.
    """

    butterfly: float
    vertical: float
    calendar: float
    bound: float

    @property
    def largest(self) -> float:
        """Largest violation of all kinds."""
        return max(self)


@dataclass(frozen=True, eq=False)
class Projection:
    """A projected grid of calls.

    Attributes:
        prices: ``(L, m)`` calls in forward units.
        iterations: Iterations of the quadratic program, or alternations.
        residual: Distance from convergence at the end, in forward units.
        violations: Remaining violations of each kind.
    """

    prices: Array
    iterations: int
    residual: float
    violations: Violations


def project(
    prices: ArrayLike,
    kappa: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    method: str = "qp",
) -> Projection:
    """Return the surface without static arbitrage that is nearest to ``prices``.

    Args:
        prices: ``(L, m)`` calls in forward units, maturities in increasing order.
        kappa: ``(m,)`` strikes over forward, positive and increasing, the same for each maturity.
        weights: ``(L, m)`` positive factors of the squared distances; one over vega squared
            when left out, so that distances are of volatility.
        method: ``"qp"`` (needs the package piqp), ``"dykstra"`` (slow on grids that are far
            from any surface; see ``residual``), or ``"pava_then_qp"``, the paper's algorithm,
            which leaves calendar spreads at a negative price.

    Returns:
        The projection. With the first two methods :func:`arbiter.audit` finds nothing in it.

    Raises:
        ValueError: If the arguments do not fit together.
        ImportError: If ``method`` is ``"qp"`` and piqp is not installed.

    Example:
        >>> found = project(
        ...     [[0.30, 0.12, 0.05], [0.29, 0.16, 0.04]], [0.8, 1.0, 1.2], method="dykstra"
        ... )
        >>> bool(found.prices[1, 0] >= found.prices[0, 0]), found.violations.largest < 1e-15
        (True, True)
    """
    y, strikes = np.asarray(prices, dtype=np.float64), np.asarray(kappa, dtype=np.float64)
    _require(y, strikes)
    root = np.sqrt(_weights(y, strikes, weights))
    if method not in _METHODS:
        raise ValueError(f"method = {method!r}: give 'qp', 'dykstra' or 'pava_then_qp'")
    found, iterations, residual = _METHODS[method](y, strikes, root)
    if method != "pava_then_qp":
        found = remove_tolerance_faults(found, strikes)
    return Projection(found, iterations, residual, violations(found, strikes))


def violations(prices: ArrayLike, kappa: ArrayLike) -> Violations:
    """Return the violations of calls ``(L, m)`` at strikes ``(m,)``."""
    c, strikes = np.asarray(prices, dtype=np.float64), np.asarray(kappa, dtype=np.float64)
    _require(c, strikes)
    padded = np.concatenate([np.ones((c.shape[0], 1)), c], axis=1)
    x = np.concatenate([[0.0], strikes])
    left = (x[2:] - x[1:-1]) / (x[2:] - x[:-2])
    wings = left * padded[:, :-2] + (1.0 - left) * padded[:, 2:] - padded[:, 1:-1]
    bounds = [c.min(), (c - (1.0 - strikes)).min(), 1.0 - c.max()]
    return Violations(
        butterfly=_size(wings),
        vertical=_size(-np.diff(c, axis=1)),
        calendar=_size(np.diff(c, axis=0)),
        bound=_size(np.array(bounds)),
    )


def _size(slack: Array) -> float:
    return max(0.0, -float(slack.min())) if slack.size else 0.0


def _require(prices: Array, kappa: Array) -> None:
    if prices.ndim != 2 or prices.shape[1:] != kappa.shape or kappa.size < 2:
        raise ValueError(
            f"prices {prices.shape} must be (L, m) and kappa {kappa.shape} be (m,) with two "
            "strikes or more"
        )
    if not np.isfinite(prices).all():
        row, column = np.argwhere(~np.isfinite(prices))[0]
        raise ValueError(f"prices[{row}, {column}] = {prices[row, column]} must be finite")
    if not (np.isfinite(kappa).all() and kappa[0] > 0.0 and np.all(np.diff(kappa) > 0.0)):
        raise ValueError("kappa must be finite, positive and increasing")


def _weights(prices: Array, kappa: Array, weights: ArrayLike | None) -> Array:
    """Return the given weights, or one over squared vega at each slice's own volatility."""
    if weights is not None:
        found = np.broadcast_to(np.asarray(weights, dtype=np.float64), prices.shape)
        if not np.all(np.isfinite(found) & (found > 0.0)):
            raise ValueError("weights must be finite and positive, one per price")
        return found
    nearest = int(np.argmin(np.abs(kappa - 1.0)))
    worth = prices[:, nearest] - np.maximum(1.0 - kappa[nearest], 0.0)
    total = np.clip(np.sqrt(2.0 * np.pi) * worth, 1e-3, 3.0)  # √(2π) times the money's price
    vega = np.asarray(black.vega(np.log(kappa), total[:, None]))  # (L, m)
    return np.asarray(np.maximum(vega, _FAINTEST) ** -2.0)


def _slice(kappa: Array) -> tuple[Array, Array]:
    """Rows ``G c ≥ h`` of one slice: convex from (0, 1) on, then the two ends."""
    m = kappa.size
    x = np.concatenate([[0.0], kappa])
    left = (x[2:] - x[1:-1]) / (x[2:] - x[:-2])  # (m-1,)
    rows, bound = np.zeros((m + 2, m)), np.zeros(m + 2)
    at = np.arange(m - 1)
    rows[at, at] = -1.0
    rows[at, at + 1] = 1.0 - left
    rows[at[1:], at[1:] - 1] = left[1:]
    bound[0] = -left[0]  # the leg at κ = 0 is worth one
    rows[m - 1, 0], bound[m - 1] = 1.0, 1.0 - kappa[0]
    rows[m, m - 2], rows[m, m - 1] = 1.0, -1.0
    rows[m + 1, m - 1] = 1.0
    return rows, bound


def _joint(y: Array, kappa: Array, root: Array) -> tuple[Array, int, float]:
    """One quadratic program, in distances of volatility: unscaled ones end at wrong optima."""
    try:
        piqp = import_module("piqp")
    except ImportError as error:
        raise ImportError(
            "method='qp' needs piqp: pip install 'piqp>=0.6', or use method='dykstra'"
        ) from error
    L, m = y.shape
    rows, bound = _slice(kappa)
    slices = sparse.kron(sparse.eye_array(L), sparse.csr_array(rows))
    later = sparse.diags_array([-1.0, 1.0], offsets=[0, m], shape=((L - 1) * m, L * m))
    matrix = sparse.vstack([slices, later]) if L > 1 else slices
    slack = np.concatenate([np.tile(bound, L), np.zeros((L - 1) * m)]) - matrix @ y.ravel()
    scaled = sparse.csc_matrix(matrix @ sparse.diags_array(1.0 / root.ravel()))
    length = np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
    scaled = sparse.csc_matrix(sparse.diags_array(1.0 / length) @ scaled)
    solver = piqp.SparseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-3 * _CONVERGED
    solver.settings.max_iter = 500
    identity = sparse.csc_matrix(sparse.eye_array(L * m))
    solver.setup(identity, np.zeros(L * m), None, None, scaled, slack / length, None)
    status = solver.solve()
    if status != piqp.PIQP_SOLVED:
        raise ValueError(
            f"the quadratic program ended as {status}: give weights nearer to each other"
        )
    change = np.asarray(solver.result.x).reshape(L, m) / root
    return y + change, int(solver.result.info.iter), float(solver.result.info.primal_res)


def _dykstra(y: Array, kappa: Array, root: Array) -> tuple[Array, int, float]:
    """Dykstra's alternating projections between convex slices and rising maturities."""
    convex = _Convex(kappa, root)
    found, left_convex, left_rising = y, np.zeros_like(y), np.zeros_like(y)
    moved = np.inf
    count = 0
    while moved > _CONVERGED and count < _ALTERNATIONS:
        count += 1
        rising = isotonic_in_maturity(found + left_rising, root**2)
        left_rising = found + left_rising - rising
        slices = convex(rising + left_convex)
        left_convex = rising + left_convex - slices
        moved = max(float(np.abs(slices - rising).max()), float(np.abs(slices - found).max()))
        found = slices
    return found, count, moved


def _letter(y: Array, kappa: Array, root: Array) -> tuple[Array, int, float]:
    """Pooled adjacent violators in T, then convex slices, once."""
    rising = isotonic_in_maturity(y, root**2)
    found = _Convex(kappa, root)(rising)
    return found, 1, float(np.abs(found - rising).max())


_METHODS: dict[str, Callable[[Array, Array, Array], tuple[Array, int, float]]] = {
    "qp": _joint,
    "dykstra": _dykstra,
    "pava_then_qp": _letter,
}


def isotonic_in_maturity(y: Array, weights: Array) -> Array:
    """Weighted least squares nondecreasing along maturity, for all strikes at once.

    By the minimax formula of isotonic regression (Barlow et al. 1972): the largest over
    starts of the least over ends of the means between.
    """
    L = y.shape[0]
    zero = np.zeros((1, y.shape[1]))
    total = np.concatenate([zero, np.cumsum(weights * y, axis=0)])
    mass = np.concatenate([zero, np.cumsum(weights, axis=0)])
    start, end = np.arange(L)[:, None], np.arange(L)[None, :]
    inside = (start <= end)[:, :, None]  # (L, L, 1)
    width = np.where(inside, mass[end + 1] - mass[start], 1.0)
    mean = np.where(inside, (total[end + 1] - total[start]) / width, np.inf)
    least = np.minimum.accumulate(mean[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.where(inside, least, -np.inf).max(axis=0))


class _Convex:
    """Weighted least squares onto the slices without arbitrage, one after the other.

    Lawson and Hanson's least distance program: the dual is a nonnegative least squares problem,
    whose active set ends exactly.
    """

    def __init__(self, kappa: Array, root: Array) -> None:
        self.root = root
        self.rows, self.bound = _slice(kappa)

    def __call__(self, y: Array) -> Array:
        return np.stack([self._one(*pair) for pair in zip(y, self.root, strict=True)])

    def _one(self, y: Array, root: Array) -> Array:
        short = self.bound - self.rows @ y  # what each constraint lacks
        if short.max() <= 0.0:
            return y
        rows = self.rows / root
        length = np.linalg.norm(rows, axis=1)
        rows, short = rows / length[:, None], short / length
        # nearest point to 0 of rows · x ≥ short, by its multipliers: min |rowsᵀ u|²/2 − short·u
        scale = short.max()
        target = np.concatenate([np.zeros(y.size), [1.0]])
        multipliers, _ = nnls(
            np.concatenate([rows.T, short[None, :] / scale]), target, maxiter=100 * target.size
        )
        rest = target - np.concatenate([rows.T @ multipliers, [short @ multipliers / scale]])
        return np.asarray(y - scale * rest[:-1] / rest[-1] / root)


def remove_tolerance_faults(prices: Array, kappa: Array) -> Array:
    """Remove what a method leaves at its tolerance: to rounding, moving no price further.

    The greatest convex function below each slice, then the largest of it and all earlier ones:
    a maximum of convex, falling functions is convex and falling.
    """
    x = np.concatenate([[0.0], kappa])
    low = np.maximum(1.0 - kappa, 0.0)
    below = np.empty_like(prices)
    for i, row in enumerate(np.minimum.accumulate(np.clip(prices, low, 1.0), axis=1)):
        curve = np.concatenate([[1.0], row])
        below[i] = np.interp(kappa, *_hull(x, curve))
    return np.asarray(np.maximum.accumulate(np.maximum(below, low), axis=0))


def _hull(x: Array, y: Array) -> tuple[list[float], list[float]]:
    """Vertices of the lower convex hull."""
    u: list[float] = []
    v: list[float] = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        while len(u) > 1 and (v[-1] - v[-2]) * (a - u[-2]) >= (b - v[-2]) * (u[-1] - u[-2]):
            u.pop()
            v.pop()
        u.append(a)
        v.append(b)
    return u, v
