"""Heston prices of many parameter sets on one set of Fourier nodes.

The integrals are those of the difference from Black's model at a similar total volatility, whose
prices are known. At short maturities a Fourier integral of prices has a narrow peak, which cancels
in the difference.

Shapes: P markets, L maturities, Q nodes, m strikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from functools import lru_cache

import numpy as np

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.heston import Heston, log_transform
from arbiter.models.matrix_product import multiply_real_part
from arbiter.pricing import black

_LOG_NODE_DENSITY_RATIO = 4.5  # logarithm of how much denser nodes are at zero than at the last one
_FOURIER_NODE_COUNT, _MAX_SCALED_FREQUENCY = 256, 80.0  # of prices that surfaces are made of


class FourierNodes:
    """Nodes of Lewis' integral for maturities.

    Args:
        T: ``(L,)`` maturities.
        total_volatility: ``(L,)`` or ``(P, L)``, about σ√T.
        nodes: Q.
        farthest: Frequency of the last node, times the total volatility.

    Attributes:
        plain: ``(Q,)`` frequencies times the total volatility.
        u: ``(..., L, Q)`` frequencies.
    """

    def __init__(self, T: Array, total_volatility: Array, nodes: int, farthest: float) -> None:
        x, weight = _legendre(nodes)
        place, most = (
            np.exp(0.5 * _LOG_NODE_DENSITY_RATIO * (x + 1.0)),
            np.expm1(_LOG_NODE_DENSITY_RATIO),
        )
        self.T = T
        self.plain = farthest * (place - 1.0) / most
        self.u = self.plain / total_volatility[..., None]
        length = (
            0.5
            * farthest
            * _LOG_NODE_DENSITY_RATIO
            * weight
            * place
            / most
            / total_volatility[..., None]
        )
        self._weight = length / (np.pi * (self.u**2 + 0.25))
        self._black = np.exp(-0.5 * total_volatility[..., None] ** 2 * (self.u**2 + 0.25))

    def difference_weights(self, parameters: Array) -> Complex:
        """``(P, L, Q)`` weights of the waves, of parameters ``(P, 5)``, less those of Black's."""
        sets = np.asarray(parameters).T[:, :, None, None]
        logs = log_transform(sets, 0.5 + 1j * self.u, self.T[:, None])
        return np.asarray(self._weight * (np.exp(logs) - self._black))


@lru_cache(maxsize=4)
def _legendre(nodes: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(nodes)


def otm(markets: Sequence[Heston], T: Array, total_volatility: Array, z: Array) -> Array:
    """``(P, L, m)`` out-of-the-money prices at log-strikes ``k = z·total_volatility``.

    Within six deviations to 3e-8 of the forward for markets like an index, and to 1e-4 for those
    whose variance is all but stuck at zero.
    """
    waves = FourierNodes(T, total_volatility, _FOURIER_NODE_COUNT, _MAX_SCALED_FREQUENCY)
    weight = waves.difference_weights(np.array([astuple(one) for one in markets]))
    k = total_volatility[..., None] * z
    flat = weight.reshape(-1, waves.plain.size)
    sums = multiply_real_part(flat, np.exp(-1j * np.outer(waves.plain, z)))
    covered = np.exp(0.5 * k) * sums.reshape(*weight.shape[:-1], z.size)
    return np.asarray(black.otm(k, total_volatility[..., None]) - covered)
