"""Shaped laws: transports with the term structure of a pool's law and random smiles.

In one model the smiles of all maturities depend on each other: a diffusion whose smile is known up
to a year is almost determined at five years. Listed markets are less rigid. A shaped law is a
transport ``X_T = e^{s(Z)}/M`` whose slopes grow with total variance,

    b²(x, T) = ∫_0^T e^{2 A(x, t)} dW(t),

with W the total log-contract variance of a law of the pool and A any smooth function of the
Gaussian coordinate x and of log-maturity: slopes never fall with T, so there is no arbitrage
(docs/theory.md, theorem 1). A is drawn as desks describe smiles: a skew that fades, holds or grows
with maturity, how far it reaches on either side, wings that turn up, and a remainder without form.

Shapes: N laws, M maturities, Z strikes, n knots.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.pricing.knots import MAX_SLOPE
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport
from arbiter_lab.training.resolved_strikes import mask_near_money, mask_resolved_outwards

if TYPE_CHECKING:  # pools are made with shapes
    from arbiter_lab.training.law_pool import Laws

KNOTS = tuple(np.round(np.concatenate([np.arange(-7.2, -4.0, 0.4), np.arange(-4.0, 5.7, 0.2)]), 9))
MIN_RESOLVED_PRICE = 1e-10  # of the forward, as the laws of a pool
_SKEW_RANGE, _MAX_SKEW = (0.05, 2.4), 2.5  # −∂A/∂x at the money of a year's smile, and of any
_SKEW_GROWTHS, _SKEW_FADES = (
    (-0.15, 0.45),
    (-0.25, 0.35),
)  # of skew in log-maturity, before and beyond a year
_FLAT_SKEW_SHARE, _FLAT_SKEW_FACTORS = (
    0.08,
    (-0.5, 0.4),
)  # share with hardly any skew, or the other way round
_LEFT_REACHES, _RIGHT_REACHES = (
    (0.5, 6.0),
    (0.2, 3.0),
)  # how far skew reaches, in Gaussian coordinates
_LEFT_WINGS, _RIGHT_WINGS = (0.05, 1.5), (0.03, 0.7)  # growth of A beyond a place
_LEFT_WING_STARTS, _RIGHT_WING_STARTS = (0.3, 3.5), (0.3, 3.0)
_BEND_SIZE, _BEND_WIDTHS = 0.15, (0.4, 1.5)  # what is added at the money against the sides
_REMAINDER_SIZES, _REMAINDER_LENGTHS = (0.02, 0.4), (0.5, 2.5)
_MATURITY_LENGTHS, _SHORT_MATURITY_LENGTHS = (
    (1.2, 6.0),
    (0.6, 2.5),
)  # of log-maturity over which shapes change
_FAST_CHANGE_LENGTH = 0.6  # length below which what changes is made larger
_MAX_LOG_SIZE_DEVIATION = 0.6  # largest deviation of the logarithms of sizes along maturity
_REFERENCE_FACTORS = (0.6, 1.1)  # volatility at the money over the given law's reference
_MAX_LOG_SHAPE, _MAX_NEGATIVE_LOG_SHAPE = (
    (4.0, 0.9),
    2.0,
)  # A is bent to stay below, on either side, and above
_WAVE_COUNT = 8  # of a random function
_LAWS_PER_CHUNK, _LAWS_PER_CHUNK_CPU = 256, 16  # laws at a time
_OVERSAMPLING = 1.2  # shapes drawn for each one wanted: some do not fit the pool's strikes


def draw_shaped_laws(
    laws: Laws,
    count: int,
    rng: np.random.Generator,
    reference_range: tuple[float, float],
    deepest: float,
) -> Laws:
    """Return ``count`` new laws with term structures of the pool's laws.

    Args:
        laws: The pool.
        count: Number of laws.
        rng: Random number generator.
        reference_range: Least and largest reference volatility.
        deepest: Least volatility over reference near the money. Laws beyond either limit, and those
            not resolved near the money, are drawn again.
    """
    reference = laws.reference.new_empty(count, *laws.reference.shape[1:])
    iv = laws.iv.new_empty(count, *laws.iv.shape[1:])
    middle = mask_near_money(laws.z)
    done = 0
    while done < count:
        size = min(_LAWS_PER_CHUNK, int(_OVERSAMPLING * (count - done)) + 1)
        rows = torch.as_tensor(rng.integers(len(laws), size=size), device=laws.iv.device)
        low, high = np.log(_REFERENCE_FACTORS)
        factor = torch.as_tensor(np.exp(rng.uniform(low, high, (size, 1))), device=rows.device)
        variance = (factor * laws.reference[rows].double()) ** 2 * laws.T.double()
        A = draw_shape(laws.T, size, rng)
        for part in torch.arange(size, device=rows.device).split(
            _LAWS_PER_CHUNK if rows.is_cuda else _LAWS_PER_CHUNK_CPU
        ):
            found = make_shaped_laws(laws, variance[part], A[part])
            near = found.iv[..., middle] / found.reference[..., None]
            good = (near > deepest).flatten(1).all(1)  # false for NaN too
            good &= (found.reference > reference_range[0]).all(1)
            good &= (found.reference < reference_range[1]).all(1)
            kept = good.nonzero()[: count - done, 0]
            reference[done : done + len(kept)] = found.reference[kept]
            iv[done : done + len(kept)] = found.iv[kept]
            done += len(kept)
    return replace(laws, reference=reference, iv=iv)


def draw_shape(T: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """``(count, M, n)`` functions A at the knots, on the device of the maturities."""
    device = T.device

    def uniform(low: float, high: float) -> Tensor:
        return torch.as_tensor(rng.uniform(low, high, (count, 1, 1)), device=device)

    def log_uniform(low: float, high: float) -> Tensor:
        return torch.exp(uniform(np.log(low), np.log(high)))

    x = torch.tensor(KNOTS, dtype=torch.float64, device=device)
    age = torch.log(T.double())[:, None]  # zero at a year
    length = log_uniform(*_MATURITY_LENGTHS)

    change = uniform(0.0, _MAX_LOG_SIZE_DEVIATION)

    def varied(size: Tensor) -> Tensor:
        """Sizes ``(count, M, 1)`` that change slowly along maturity."""
        return size * torch.exp(change * _draw_smooth_functions(age / length, count, rng))

    grown = -uniform(*_SKEW_GROWTHS) * _smooth_ramp(-age) - uniform(*_SKEW_FADES) * _smooth_ramp(
        age
    )
    skew = varied(uniform(*_SKEW_RANGE) * torch.exp(grown))
    skew = _MAX_SKEW * torch.tanh(skew / _MAX_SKEW)
    skew = torch.where(
        uniform(0.0, 1.0) < _FLAT_SKEW_SHARE, skew * uniform(*_FLAT_SKEW_FACTORS), skew
    )
    left, right = (varied(log_uniform(*side)) for side in (_LEFT_REACHES, _RIGHT_REACHES))
    reach = torch.where(x < 0.0, left, right)  # (count, M, n)
    A = -skew * reach * torch.tanh(x / reach)
    A = A + varied(log_uniform(*_LEFT_WINGS)) * _smooth_ramp(-x - uniform(*_LEFT_WING_STARTS))
    A = A + varied(log_uniform(*_RIGHT_WINGS)) * _smooth_ramp(x - uniform(*_RIGHT_WING_STARTS))
    bend = _BEND_SIZE * _draw_smooth_functions(age / length, count, rng)
    A = A + bend * torch.exp(-0.5 * (x / log_uniform(*_BEND_WIDTHS)) ** 2)
    short, narrow = log_uniform(*_SHORT_MATURITY_LENGTHS), log_uniform(*_REMAINDER_LENGTHS)
    rough = _draw_smooth_functions(age / short, count, rng, x / narrow)
    # what changes fast is averaged out as variance adds up
    A = (
        A
        + log_uniform(*_REMAINDER_SIZES)
        * torch.sqrt(1.0 + (_FAST_CHANGE_LENGTH / short) ** 2)
        * rough
    )
    # to the right a bound near one: else the mean comes from where nobody looks
    highest = _MAX_LOG_SHAPE[1] + (_MAX_LOG_SHAPE[0] - _MAX_LOG_SHAPE[1]) * torch.sigmoid(
        -(x + 1.0) / 0.3
    )
    return torch.where(
        A > 0.0,
        highest * torch.tanh(A / highest),
        _MAX_NEGATIVE_LOG_SHAPE * torch.tanh(A / _MAX_NEGATIVE_LOG_SHAPE),
    )


def make_shaped_laws(laws: Laws, variance: Tensor, shape: Tensor) -> Laws:
    """Return the laws of total variances ``(N, M)``, nondecreasing, and shapes A ``(N, M, n)``."""
    T, z = laws.T.double(), laws.z.double()
    grown = torch.diff(variance, prepend=torch.zeros_like(variance[:, :1])).clamp(min=0.0)
    squares = torch.cumsum(grown[..., None] * torch.exp(2.0 * shape), 1)  # (N, M, n)
    slopes = torch.sqrt(squares).clamp(1e-6, MAX_SLOPE)  # cut alike at all maturities
    x = torch.tensor(KNOTS, dtype=torch.float64, device=slopes.device)
    law = Transport(x, slopes)
    total = torch.sqrt(law.log_variance())  # (N, M)
    k = z * total[..., None]
    price = law.otm(k)
    known = mask_resolved_outwards(price > MIN_RESOLVED_PRICE, z)
    v = black.implied_total_volatility(torch.where(known, price, torch.nan), k).volatility
    root = torch.sqrt(T)
    return replace(laws, reference=(total / root).float(), iv=(v / root[:, None]).float())


def _smooth_ramp(y: Tensor) -> Tensor:
    """Zero far below zero, y far above, smooth between."""
    return 0.5 * (y + torch.sqrt(y * y + 0.5))


def _draw_smooth_functions(
    age: Tensor, count: int, rng: np.random.Generator, x: Tensor | None = None
) -> Tensor:
    """Smooth random functions of mean zero and deviation one, of length one in each argument."""

    def drawn(values: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(values, device=age.device)

    total = torch.zeros(1, dtype=torch.float64, device=age.device)
    for _ in range(_WAVE_COUNT):
        phase = drawn(rng.standard_normal((count, 1, 1))) * age
        phase = phase + drawn(rng.uniform(0.0, 2.0 * np.pi, (count, 1, 1)))
        if x is not None:
            phase = phase + drawn(rng.standard_normal((count, 1, 1))) * x
        total = total + torch.cos(phase)
    return total * math.sqrt(2.0 / _WAVE_COUNT)
