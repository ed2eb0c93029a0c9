"""Seeded paths of index and state: variance never negative, means exact, the index a martingale.

Each step is split (Bayer and Breneis 2023; Alfonsi 2023): half the drift, the noise, half the
drift.

* The drift ``dU = (−x U + λ(θ − v)) dt`` is linear, and its flow a matrix exponential, exact for
  the stiffest factor.
* The noise ``dU^i = ν √v dB`` moves the factors along one direction w, and ``v = v0 + c·U`` by
  ``dv = σ √v dB`` with ``σ = ν c·w``: a squared Bessel process of dimension zero, whose law after
  a step is a Poisson mixture of gamma laws, drawn exactly. For factors that are slow within a step
  w is one; fast ones, which forget most of the step's noise before it ends, move by less.

Completely monotone kernels preserve nonnegativity (Alfonsi 2023), and what a kick along w adds to
the variances ahead is one: variance is not negative after a kick, so it is not negative in
between, nor is any forward variance of a state that is reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.models.expected_variance import ExpectedVariance, drift
from arbiter.models.matrix_product import exponentiate, multiply
from arbiter.models.parameters import Parameters

STEPS_PER_DAY = 8


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of one parameter set.

    Attributes:
        parameters: The model.
        times: ``(N,)`` years, increasing.
        log_index: ``(P, N)`` logarithm of the index over its forward, a martingale from 1 at
            time 0.
        states: ``(P, N, n)`` factors U.
    """

    parameters: Parameters
    times: Array
    log_index: Array
    states: Array

    @property
    def variance(self) -> Array:
        """``(P, N)`` ``v ≥ 0``; what rounding leaves below zero is zero."""
        return _state_variance(self.parameters, self.states)


def simulate(
    parameters: Parameters,
    times: ArrayLike,
    seed: int | np.random.SeedSequence,
    *,
    paths: int = 1,
    steps_per_day: float = STEPS_PER_DAY,
    state: ArrayLike | None = None,
) -> Paths:
    """Paths of index and state at given times.

    Args:
        parameters: The model.
        times: ``(N,)`` years, increasing, in calendar time as maturities are; may start at 0.
        seed: The same seed and arguments give the same bits.
        paths: How many.
        steps_per_day: Steps of the scheme per calendar day; an interval has at least one.
        state: ``(n,)`` the state at time 0; all zeros if left out.

    Example:
        >>> from arbiter.models.parameters import preset
        >>> found = simulate(preset("calm"), [0.0, 1 / 365, 2 / 365], seed=1, paths=3)
        >>> found.states.shape, bool((found.variance >= 0.0).all())
        ((3, 3, 20), True)
    """
    if not isinstance(parameters, Parameters):
        raise ValueError(f"parameters = {parameters!r}: give Parameters, preset('calm') say")
    if not isinstance(seed, (int, np.integer, np.random.SeedSequence)):
        raise ValueError(f"seed = {seed!r}: give a whole number")
    at = _check_times(times)
    if paths < 1 or not steps_per_day > 0.0:
        raise ValueError(
            f"paths = {paths}, steps_per_day = {steps_per_day!r}: both must be positive"
        )
    rng = np.random.default_rng(seed)
    U = np.tile(_initial_state(parameters, state, float(at[-1])), (paths, 1))
    log_index = np.zeros(paths)
    states, logs, now = [], [], 0.0
    for then in at.tolist():
        gap = then - now
        if gap > 0.0:
            steps = max(1, int(np.ceil(gap * DAYS_PER_YEAR * steps_per_day - 1e-6)))
            U, gain = _advance(parameters, U, gap / steps, steps, rng)
            log_index = log_index + gain + _draw_jumps(parameters, gap, paths, rng)
        now = then
        states.append(U)
        logs.append(log_index)
    return Paths(parameters, at, np.stack(logs, axis=1), np.stack(states, axis=1))


def _advance(
    p: Parameters, U: Array, delta: float, steps: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """States after some steps of length ``delta``, and what the index has gained."""
    half, full, w = _flow(p, 0.5 * delta), _flow(p, delta), noise_direction(p, delta)
    size = float(p.c @ w)
    if 0.5 * p.rho * p.nu * size * delta >= 1.0:
        raise ValueError(
            f"steps of {delta * DAYS_PER_YEAR:.3g} days are too long for rho = {p.rho}: the "
            "index's return over one has no mean; give more steps per day"
        )
    gain = np.zeros(U.shape[0])
    U = multiply(U, half[0]) + half[1]
    for step in range(steps):
        v = _state_variance(p, U)
        after = _draw_squared_bessel(v, p.nu * size, delta, rng)
        U = U + np.multiply.outer((after - v) / size, w)
        gain += _index_gain(p.rho, p.nu * size, delta, (v, after), rng)
        last = step == steps - 1
        U = multiply(U, (half if last else full)[0]) + (half if last else full)[1]
    return U, gain


def _draw_squared_bessel(v: Array, sigma: float, delta: float, rng: np.random.Generator) -> Array:
    """``dv = σ √v dB`` for a time ``delta``: exact, with an atom at zero, where it stays."""
    scale = 0.5 * sigma**2 * delta
    return np.asarray(scale * rng.standard_gamma(rng.poisson(v / scale).astype(np.float64)))


def _index_gain(
    rho: float,
    sigma: float,
    delta: float,
    variance: tuple[Array, Array],
    rng: np.random.Generator,
) -> Array:
    """The logarithm of the index's return over a step, given variance before and after.

    The part along B is known, ``ρ ∫√v dB = ρ (v' − v)/σ``; integrated variance is the trapezoid.
    The last term makes the mean of the return exactly one: it is the logarithm of its Laplace
    transform, ``E e^{a v'} = exp(a v / (1 − a σ² δ / 2))``.
    """
    v, after = variance
    spent = 0.5 * delta * (v + after)
    along = rho * (after - v) / sigma
    across = np.sqrt((1.0 - rho**2) * spent) * rng.standard_normal(v.size)
    a = rho / sigma - 0.25 * rho**2 * delta
    before = -rho / sigma - 0.25 * rho**2 * delta
    mean = (before + a / (1.0 - 0.5 * a * sigma**2 * delta)) * v
    return np.asarray(along + across - 0.5 * spent - mean)


def _draw_jumps(p: Parameters, gap: float, paths: int, rng: np.random.Generator) -> Array:
    """Compensated jumps over an interval."""
    if p.jumps is None:
        return np.zeros(paths)
    j = p.jumps
    count = rng.poisson(j.intensity * gap, paths)
    size = j.mean * count + j.deviation * np.sqrt(count) * rng.standard_normal(paths)
    return np.asarray(size - gap * j.intensity * np.expm1(j.mean + 0.5 * j.deviation**2))


@lru_cache(maxsize=1024)
def _flow(p: Parameters, delta: float) -> tuple[Array, Array]:
    """``U → U M + m``: the drift for a time ``delta``."""
    n = p.factors
    flow = exponentiate(drift(p) * delta)
    turn, push = flow[:n, :n].T.copy(), flow[:n, n].copy()
    for part in (turn, push):
        part.setflags(write=False)
    return turn, push


@lru_cache(maxsize=1024)
def noise_direction(p: Parameters, delta: float) -> Array:
    """``(n,)`` direction w in which a step's noise moves the factors.

    The mean of its effect now and a step later is that of noise spread over the step: with A the
    drift's matrix, ``½ (1 + e^{Aδ}) w = (1/δ) ∫_0^δ e^{As} ds 1``, that is ``tanh(y)/y`` in the
    eigenvectors of A with ``y = −δ/2`` times the eigenvalue. Positive, so that variances ahead move
    by a completely monotone function of time; 1 to second order for slow factors; 1/y for fast.
    """
    n = p.factors
    system = np.zeros((n + 1, n + 1))
    system[:n, :n], system[:n, n] = drift(p)[:n, :n], 1.0
    flow = exponentiate(system * delta)
    w = np.linalg.solve(0.5 * (np.eye(n) + flow[:n, :n]), flow[:n, n] / delta)
    w.setflags(write=False)
    return np.asarray(w)


def _state_variance(p: Parameters, U: Array) -> Array:
    return np.asarray(np.maximum(p.v0 + np.einsum("...n,n->...", U, p.c), 0.0))


def _check_times(times: ArrayLike) -> Array:
    at = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if at.ndim != 1 or at.size == 0 or not np.isfinite(at).all():
        raise ValueError("times must be finite years in one dimension, at least one")
    if at[0] < 0.0 or np.any(np.diff(at) <= 0.0):
        bad = 0 if at[0] < 0.0 else int(np.flatnonzero(np.diff(at) <= 0.0)[0]) + 1
        raise ValueError(f"times[{bad}] = {at[bad]!r}: times must increase from 0 on")
    return at


def _initial_state(p: Parameters, state: ArrayLike | None, last: float) -> Array:
    if state is None:
        return np.zeros(p.factors)
    U = np.asarray(state, dtype=np.float64)
    if U.shape != (p.factors,) or not np.isfinite(U).all():
        raise ValueError(f"state must be {p.factors} finite numbers, got shape {U.shape}")
    ahead = ExpectedVariance.from_parameters(p).variance(
        np.append(0.0, np.geomspace(1e-5, max(last, 1e-4), 24)), U
    )
    if ahead.min() < -1e-12:
        raise ValueError(
            f"state has an expected variance of {ahead.min():.4g}, now or later: none may be "
            "negative; take a point of a path, since an arbitrary state may have such"
        )
    return U
