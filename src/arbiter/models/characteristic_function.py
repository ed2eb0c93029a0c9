"""Characteristic functions of the lifted Heston model: one solution serves every state.

    log E[X_T^{iξ} | U] = constant(T, ξ) + Σ_i slope_i(T, ξ) U^i

so that every day of a path costs one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.parameters import Parameters
from arbiter.models.riccati import (
    FIRST_STEP_YEARS,
    STEP_GROWTH,
    Quadratic,
    RiccatiSolution,
    mesh,
    solve_riccati,
)

_NEWTON_ROUNDS = 3  # of Newton's method: a start far from rest is harder to extrapolate
_FIRST_STEP_SHARE = (
    0.05  # first step over the time in which the start of a state's transform decays
)


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
        """``(D, Q)`` logarithms at one maturity, for states ``(D, n)``."""
        U = torch.as_tensor(states, device=self.slope.device)
        flat = torch.view_as_real(self.slope[maturity]).flatten(-2)  # (n, 2Q)
        linear = torch.view_as_complex((U @ flat).unflatten(-1, (-1, 2)))
        return linear + self.constant[maturity]

    def nodes(self, part: slice) -> Transform:
        """This transform at a part of the frequencies."""
        return Transform(self.constant[:, part], self.slope[:, :, part])


def solve_index_transforms(
    sets: Sequence[Parameters],
    times: Array,
    xi: Complex,
    growth: float = STEP_GROWTH,
    device: torch.device | str = "cpu",
) -> list[Transform]:
    """``log E X_T^{iξ}`` of several parameter sets, one transform each.

    Args:
        sets: P parameter sets with equally many factors.
        times: ``(M,)`` maturities, increasing.
        xi: ``(P, Q)`` frequencies.
        growth: Ratio of neighbouring steps, above one; nearer to one is finer.
        device: Where the solution is computed and stays.
    """
    z = 1j * xi
    lean = _parameter_column(sets, "rho") * _parameter_column(sets, "nu") * z - _parameter_column(
        sets, "reversion"
    )
    quadratic = Quadratic(
        torch.as_tensor(0.5 * (z * z - z), device=device),
        torch.as_tensor(lean, device=device),
        torch.as_tensor(_parameter_column(sets, "nu") ** 2, device=device),
    )
    c, x = np.stack([p.c for p in sets]), np.stack([p.x for p in sets])
    psi = torch.zeros(len(sets), c.shape[1], xi.shape[1], dtype=torch.complex128, device=device)
    # V starts with the rate of Heston's, whose volatility of variance is the lift's at time zero
    rate = float((c.sum(1)[:, None] * _parameter_column(sets, "nu") * np.abs(z)).max())
    borders = mesh(float(times[-1]), growth, min(FIRST_STEP_YEARS, 1.0 / rate))
    transforms = _assemble_transforms(sets, solve_riccati(c, x, quadratic, psi, times, borders))
    for i, parameters in enumerate(sets):
        if parameters.jumps is not None:
            jumps = np.multiply.outer(times, parameters.jumps.log_cf(z[i]))
            constant = transforms[i].constant + torch.as_tensor(jumps, device=device)
            transforms[i] = Transform(constant, transforms[i].slope)
    return transforms


def solve_state_transform(
    parameters: Parameters,
    times: Array,
    start: Complex,
    growth: float = STEP_GROWTH,
) -> Transform:
    """``log E exp(Σ start_i U^i_T)`` for ``start`` of shape ``(Q, n)``."""
    p, V = parameters, start.sum(-1)
    none = torch.zeros(1, V.size, dtype=torch.complex128)
    quadratic = Quadratic(none, none - p.reversion, torch.tensor([[p.nu**2]], dtype=torch.float64))
    # the start decays like 1/(1 + Σc ν² V t/2): the first step must see that
    finest = min(FIRST_STEP_YEARS, _FIRST_STEP_SHARE / float(p.c.sum() * p.nu**2 * np.abs(V).max()))
    psi = torch.as_tensor((start / p.c).T.astype(np.complex128).copy())[None]
    borders = mesh(float(times[-1]), growth, finest)
    c, x = np.stack([p.c]), np.stack([p.x])
    return _assemble_transforms(
        [p], solve_riccati(c, x, quadratic, psi, times, borders, _NEWTON_ROUNDS)
    )[0]


def _assemble_transforms(sets: Sequence[Parameters], found: RiccatiSolution) -> list[Transform]:
    device = found.psi.device
    c = torch.as_tensor(np.stack([p.c for p in sets]), device=device)
    v0 = torch.as_tensor(_parameter_column(sets, "v0"), device=device)
    pull = _parameter_column(sets, "reversion") * _parameter_column(sets, "theta")
    constant = v0 * found.power + torch.as_tensor(pull, device=device) * found.mass  # (M, P, Q)
    slope = found.psi * c[..., None]  # (M, P, n, Q)
    return [Transform(constant[:, i], slope[:, i]) for i in range(len(sets))]


def _parameter_column(sets: Sequence[Parameters], name: str) -> Array:
    return np.array([[getattr(p, name)] for p in sets], dtype=np.float64)  # (P, 1)
