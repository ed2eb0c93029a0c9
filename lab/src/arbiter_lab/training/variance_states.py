"""States of many parameter sets at once: means and paths in the eigenbasis of the drift.

With ``y_i = √c_i U^i`` the drift matrix ``diag(x) + λ √c √cᵀ`` is symmetric. In its eigenbasis
``w`` the mean decays coordinate by coordinate, ``w' = −g w + λ(θ − v0) e``, variance is
``v = v0 + e·w``, and the noise of a step δ moves w along ``e tanh(y)/y``, ``y = g δ/2``: the scheme
of :mod:`arbiter.markets.paths` without a matrix product.

Shapes: P sets, D states, n factors, M maturities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import Array
from arbiter.models.parameters import Parameters

HORIZON_YEARS = (0.05, 2.0)  # years that a path has run
# steps before the end over the horizon: fast factors forget, so only the last steps are fine
RELATIVE_TIMES_TO_END = 2.0 ** np.arange(0.0, -12.0, -0.25)


@dataclass(frozen=True, eq=False)
class _EigenBasis:
    """Speeds g and loadings e ``(P, n)``, and the way back to the factors ``(P, n, n)``."""

    speed: Array
    load: Array
    back: Array

    @staticmethod
    def from_parameters(sets: Sequence[Parameters]) -> _EigenBasis:
        c, x = np.stack([p.c for p in sets]), np.stack([p.x for p in sets])
        root = np.sqrt(c)
        reversion = _parameter_column(sets, "reversion")[..., None]
        drift = reversion * root[:, :, None] * root[:, None, :]
        drift += x[:, :, None] * np.eye(x.shape[1])
        speed, vectors = np.linalg.eigh(drift)
        load = np.einsum("pin,pi->pn", vectors, root)
        return _EigenBasis(np.maximum(speed, 1e-9), load, vectors / root[:, :, None])


def simulate_states(sets: Sequence[Parameters], states: int, rng: np.random.Generator) -> Array:
    """``(P, D, n)``: the start, all zeros, and ends of independent paths of random length."""
    basis = _EigenBasis.from_parameters(sets)
    v0, drift = _parameter_column(sets, "v0"), _drift_constant(sets)[..., None]
    nu = _parameter_column(sets, "nu")
    low, high = np.log(HORIZON_YEARS)
    horizon = np.exp(rng.uniform(low, high, (len(sets), 1, 1)))
    w = np.zeros((len(sets), states - 1, basis.speed.shape[1]))
    load, speed = basis.load[:, None], basis.speed[:, None]
    for share in -np.diff(np.append(RELATIVE_TIMES_TO_END, 0.0)):
        delta = share * horizon
        y = 0.5 * delta * speed
        fade, gone = np.exp(-y), -np.expm1(-y) / speed
        kick = load * np.tanh(y) / y
        size = (load * kick).sum(-1)
        w = w * fade + gone * drift * load
        v = np.maximum(v0 + (w * load).sum(-1), 0.0)
        scale = 0.5 * (nu * size) ** 2 * delta[..., 0]
        after = scale * rng.standard_gamma(rng.poisson(v / scale).astype(np.float64))
        w = w + ((after - v) / size)[..., None] * kick
        w = w * fade + gone * drift * load
    U = np.einsum("pin,pdn->pdi", basis.back, w)
    start = np.zeros((len(sets), 1, U.shape[-1]))
    return np.concatenate([start, U], 1)


def log_variance(sets: Sequence[Parameters], U: Array, T: Array) -> Array:
    """``(P, D, M)`` total log-contract variance ``W(T)`` in states ``(P, D, n)``."""
    basis = _EigenBasis.from_parameters(sets)
    w = np.einsum("pin,pdi->pdn", _to_eigenbasis(sets, basis), U)[..., None]  # (P, D, n, 1)
    g, e = basis.speed[:, None, :, None], basis.load[:, None, :, None]
    faded = -np.expm1(-g * T) / g  # (P, 1, n, M)
    pulled = _drift_constant(sets)[..., None, None] * e * (T - faded) / g
    mean = (e * (w * faded + pulled)).sum(2)
    jumps = np.array([[[p.jumps.variance if p.jumps else 0.0]] for p in sets])
    return np.asarray((_parameter_column(sets, "v0")[..., None] + jumps) * T + mean)


def _to_eigenbasis(sets: Sequence[Parameters], basis: _EigenBasis) -> Array:
    """``w = Vᵀ √c U`` with V orthogonal: ``back = V/√c``, so the way there is ``c·back``."""
    return np.asarray(np.stack([p.c for p in sets])[:, :, None] * basis.back)


def _drift_constant(sets: Sequence[Parameters]) -> Array:
    return _parameter_column(sets, "reversion") * (
        _parameter_column(sets, "theta") - _parameter_column(sets, "v0")
    )


def _parameter_column(sets: Sequence[Parameters], name: str) -> Array:
    return np.array([[getattr(p, name)] for p in sets], dtype=np.float64)  # (P, 1)
