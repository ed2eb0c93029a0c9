"""Characteristic functions of :mod:`arbiter.models.characteristic_function`, in torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from arbiter.conventions import Array
from arbiter.models.characteristic_function import (
    build_index_mesh,
    build_index_quadratic,
    parameter_column,
)
from arbiter.models.exact_prices import Complex
from arbiter.models.parameters import Parameters
from arbiter.models.riccati import STEP_GROWTH
from arbiter_lab.differentiable.models.riccati import Quadratic, solve_riccati


@dataclass(frozen=True, eq=False)
class Transform:
    """``log E[· | U] = constant + slope · U`` at maturities and frequencies.

    Attributes:
        constant: ``(M, Q)`` complex.
        slope: ``(M, n, Q)`` complex.
    """

    constant: Tensor
    slope: Tensor


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
    c, x = np.stack([p.c for p in sets]), np.stack([p.x for p in sets])
    shared = build_index_quadratic(sets, xi)
    quadratic = Quadratic(*(torch.as_tensor(part, device=device) for part in shared))
    borders = build_index_mesh(sets, times, xi, growth)
    psi = torch.zeros(*c.shape, xi.shape[1], dtype=torch.complex128, device=device)
    found = solve_riccati(c, x, quadratic, psi, times, borders)
    v0 = torch.as_tensor(parameter_column(sets, "v0"), device=device)
    pull = parameter_column(sets, "reversion") * parameter_column(sets, "theta")
    constant = v0 * found.power + torch.as_tensor(pull, device=device) * found.mass  # (M, P, Q)
    slope = found.psi * torch.as_tensor(c, device=device)[..., None]  # (M, P, n, Q)
    for i, parameters in enumerate(sets):
        if parameters.jumps is not None:
            jumps = np.multiply.outer(times, parameters.jumps.log_cf(1j * xi[i]))
            constant[:, i] += torch.as_tensor(jumps, device=device)
    return [Transform(constant[:, i], slope[:, i]) for i in range(len(sets))]
