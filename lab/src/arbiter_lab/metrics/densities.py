"""Errors of the risk-neutral law: relative entropy and tail means (docs/metrics/density-error.md).

The definitions are per slice. Training evaluates them on transports; the results evaluate them on
surfaces and oracles through their public methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.pricing.transport import Transport
from arbiter_lab.metrics.marginals import Marginals, explain_missing_law
from arbiter_lab.metrics.metric import Metric

GAUSSIAN_NODES = np.linspace(
    -4.5, 4.25, 71
)  # Gaussian coordinates of the exact law where laws are compared
NODE_MASS = np.exp(-0.5 * GAUSSIAN_NODES**2) / np.exp(-0.5 * GAUSSIAN_NODES**2).sum()
TAIL_PROBABILITY = 0.05  # probability of the tails whose means are compared
TAILS = ("lower", "upper")
Compare = Callable[[Marginals, Marginals, ArrayLike], Array]


class Alignment(NamedTuple):
    """Differences between the laws of two families of slices, one number per slice.

    Attributes:
        relative_entropy: ``KL(exact ‖ model)``.
        cvar: Mean absolute difference of the means of both 5 % tails, over ``σ√T``.
    """

    relative_entropy: Array
    cvar: Array


def transport_alignment(model: Transport, exact: Transport, unit: Array) -> Alignment:
    """Compare slices ``(N,)`` of transports; ``unit`` is ``(N,)``, their ``σ√T``."""
    shape = (unit.size, GAUSSIAN_NODES.size)
    there = exact.at_coordinate(GAUSSIAN_NODES)
    here = model.at_strike(there.k.reshape(shape))
    # log of φ(x)/(κ b) on both sides, at one κ
    gain = 0.5 * (here.x**2 - there.x**2) + np.log(here.b / there.b)
    tail = np.array([TAIL_PROBABILITY])
    off = np.stack([np.abs(model.cvar(tail, t) - exact.cvar(tail, t))[:, 0] for t in TAILS])
    return Alignment(gain.reshape(shape) @ NODE_MASS, off.sum(axis=0) / unit / 2.0)


def slice_relative_entropy(model: Marginals, exact: Marginals, T: ArrayLike) -> Array:
    """``(L,)`` relative entropy ``KL(exact ‖ model)`` of each maturity.

    Infinite where the model gives no density to what happens.
    """
    times = np.atleast_1d(np.asarray(T, dtype=np.float64))[:, None]
    k = exact.log_strike(GAUSSIAN_NODES, times)
    with np.errstate(divide="ignore"):
        gain = np.log(exact.density(k, times)) - np.log(model.density(k, times))
    return np.asarray(gain @ NODE_MASS)


def slice_cvar_error(model: Marginals, exact: Marginals, T: ArrayLike) -> Array:
    """``(L,)`` mean absolute difference of the means of both 5 % tails, over the exact ``σ√T``."""
    times = np.atleast_1d(np.asarray(T, dtype=np.float64))
    unit = np.sqrt(exact.variance_swap(times) * times)
    off = [
        np.abs(model.cvar(TAIL_PROBABILITY, times, t) - exact.cvar(TAIL_PROBABILITY, times, t))
        for t in TAILS
    ]
    return np.asarray(0.5 * (off[0] + off[1]) / unit)


def relative_entropy(
    models: Sequence[Marginals], exacts: Sequence[Marginals], T: ArrayLike
) -> Metric:
    """Mean over days and maturities of ``KL(exact ‖ model)``, in nats.

    Args:
        models: A surface a day.
        exacts: The truth of each day; an oracle as
            `arbiter_lab.metrics.marginals.InvertedMarginals`.
        T: ``(L,)`` maturities, the same every day.
    """
    return _compare_days("relative_entropy", slice_relative_entropy, models, exacts, T)


def cvar_alignment(
    models: Sequence[Marginals], exacts: Sequence[Marginals], T: ArrayLike
) -> Metric:
    """Mean over days and maturities of the error of both 5 % tails' means, over ``σ√T``."""
    return _compare_days("cvar_alignment", slice_cvar_error, models, exacts, T)


def _compare_days(
    name: str,
    compare: Compare,
    models: Sequence[Marginals],
    exacts: Sequence[Marginals],
    T: ArrayLike,
) -> Metric:
    if len(models) != len(exacts):
        raise ValueError(f"{len(models)} models and {len(exacts)} laws: give one of each a day")
    for law in models:
        without = explain_missing_law(law)
        if without is not None:
            return Metric.undefined(name, without)
    daily = [compare(m, e, T).mean() for m, e in zip(models, exacts, strict=True)]
    return Metric.from_days(name, daily, "have a slice on which it is infinite or not a number")
