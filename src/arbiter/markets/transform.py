"""Characteristic functions of the lifted Heston model: solved once, linear in the state ever after.

    log E[X_T^{iξ} | U] = constant(T, ξ) + Σ_i slope_i(T, ξ) U^i

so that every day of a path costs one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.markets.parameters import Parameters
from arbiter.markets.riccati import GROWTH, Quadratic, mesh, solve

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Transform:
    """``log E[· | U] = constant + slope · U`` at maturities and frequencies.

    Attributes:
        constant: ``(M, Q)`` complex.
        slope: ``(M, n, Q)`` complex.
    """

    constant: Tensor
    slope: Tensor

    def at(self, maturity: int, states: Array) -> Tensor:
        """``(D, Q)`` at one maturity, for states ``(D, n)``."""
        U = torch.as_tensor(states, device=self.slope.device)
        flat = torch.view_as_real(self.slope[maturity]).flatten(-2)  # (n, 2Q)
        linear = torch.view_as_complex((U @ flat).unflatten(-1, (-1, 2)))
        return linear + self.constant[maturity]

    def nodes(self, part: slice) -> Transform:
        """The same at some of the frequencies."""
        return Transform(self.constant[:, part], self.slope[:, :, part])


def of_index(
    sets: Sequence[Parameters],
    times: Array,
    xi: Complex,
    growth: float = GROWTH,
    device: torch.device | str = "cpu",
) -> list[Transform]:
    """``log E X_T^{iξ}`` of several parameter sets in one go.

    Args:
        sets: P parameter sets with equally many factors.
        times: ``(M,)`` maturities, increasing.
        xi: ``(P, Q)`` frequencies.
        growth: Ratio of neighbouring steps, above one; nearer to one is finer.
        device: Where the solution is computed and stays.
    """
    z = 1j * xi
    transforms = _transforms(sets, times, z, np.zeros((*xi.shape, sets[0].factors)), growth, device)
    for i, parameters in enumerate(sets):
        if parameters.jumps is not None:
            jumps = np.multiply.outer(times, parameters.jumps.log_cf(z[i]))
            constant = transforms[i].constant + torch.as_tensor(jumps, device=device)
            transforms[i] = Transform(constant, transforms[i].slope)
    return transforms


def of_state(
    parameters: Parameters,
    times: Array,
    start: Complex,
    growth: float = GROWTH,
    device: torch.device | str = "cpu",
) -> Transform:
    """``log E exp(Σ start_i U^i_T)`` for ``start`` of shape ``(Q, n)``."""
    z = np.zeros((1, start.shape[0]), dtype=np.complex128)
    return _transforms([parameters], times, z, start[None] / parameters.c, growth, device)[0]


def _transforms(
    sets: Sequence[Parameters],
    times: Array,
    z: Complex,
    start: Array | Complex,
    growth: float,
    device: torch.device | str,
) -> list[Transform]:
    def put(a: Array | Complex) -> Tensor:
        return torch.as_tensor(np.asarray(a, dtype=np.complex128), device=device)

    def column(name: str) -> Array:
        return np.array([[getattr(p, name)] for p in sets], dtype=np.float64)  # (P, 1)

    c, x = np.stack([p.c for p in sets]), np.stack([p.x for p in sets])
    nu2 = torch.as_tensor(column("nu") ** 2, device=device)
    quadratic = Quadratic(
        put(0.5 * (z * z - z)), put(column("rho") * column("nu") * z - column("reversion")), nu2
    )
    psi = put(np.swapaxes(start, -1, -2).copy())  # (P, n, Q)
    found = solve(c, x, quadratic, psi, times, mesh(times, growth))
    v0 = torch.as_tensor(column("v0"), device=device)
    pull = torch.as_tensor(column("reversion") * column("theta"), device=device)
    constant = v0 * found.power + pull * found.mass  # (M, P, Q)
    slope = found.psi * torch.as_tensor(c, device=device)[..., None]  # (M, P, n, Q)
    return [Transform(constant[:, i], slope[:, i]) for i in range(len(sets))]
