"""The Green kernel of a scan and its two proved bounds.

Unrolled, the recursion is a sum over the maturities before (paper, section 3.1),

    h_ℓ = Σ_{s≤ℓ} G(T_ℓ, T_s) x_s,     G(T_ℓ, T_s) = R_ℓ ⋯ R_{s+1} B_s,     B_s = diag(g_s) W.

The generator being dissipative and ``‖B_s‖ ≤ bΔ_s``,

    Σ_s ‖G(T_ℓ, T_s)‖ ≤ b (1 + μΔ̄)/μ     (Green sum),
    ‖h_ℓ‖ ≤ b (1 + μΔ̄)/μ · sup_s ‖x_s‖     (bounded input, bounded output),

and b is chosen so that the right-hand factor is ‖W‖ (docs/notebook/first-design.md, theorem 6).
The kernel takes L² matrices: it is for looking at a scan and for bounds; the scan itself is linear.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from arbiter_lab.differentiable.operators.law.green_scan import Path
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan


class GreenBound(NamedTuple):
    """Measured Green sum and state of a scan on a path, with their proved bounds.

    Attributes:
        total: The largest Green sum ``Σ_s ‖G(T_ℓ, T_s)‖`` over chains and maturities.
        bound: Proved bound of the Green sum, ‖W‖.
        state: The largest ``‖h_ℓ‖``.
        state_bound: Proved bound of the state, ``bound · sup ‖x‖``.
    """

    total: float
    bound: float
    state: float
    state_bound: float

    @property
    def holds(self) -> bool:
        """Whether both bounds hold up to rounding."""
        slack = 1.0 + 1e-6
        return self.total <= slack * self.bound and self.state <= slack * self.state_bound


def products(carriers: Tensor) -> Tensor:
    """``R_ℓ ⋯ R_{s+1}`` ``(…, L, L, m, m)`` at ``[ℓ, s]`` from ``(…, L, m, m)``.

    The identity on the diagonal, zero above it; ``R_1`` is not used, nothing being before it.
    """
    deep, size = carriers.shape[-3], carriers.shape[-1]
    eye = torch.eye(size, dtype=carriers.dtype, device=carriers.device)
    eye = eye.expand(*carriers.shape[:-3], 1, size, size)
    rows = [eye]
    for i in range(1, deep):
        rows.append(torch.cat([carriers[..., i, None, :, :] @ rows[-1], eye], -3))
    padding = [(0, 0, 0, 0, 0, deep - row.shape[-3]) for row in rows]
    padded = [torch.nn.functional.pad(r, p) for r, p in zip(rows, padding, strict=True)]
    return torch.stack(padded, -4)


def kernel(scan: GreenScan, path: Path, enter: Tensor | None = None) -> Tensor:
    """``(B, L, L, m, d)`` the kernel ``G(T_ℓ, T_s)`` at ``[:, ℓ, s]``, zero for s after ℓ.

    Args:
        scan: The scan.
        path: Its maturities; the values on the path are not used.
        enter: A map ``(m, d)`` in place of the scan's own, W.
    """
    step, gate = scan.steps(path.gap, path.context)
    W = scan.enter.weight if enter is None else enter
    entering = (gate * path.seen[..., None])[..., None] * W  # (B, L, m, d)
    return products(scan.carriers(step)) @ entering[:, None]


def apply(green: Tensor, x: Tensor) -> Tensor:
    """Return ``Σ_s G(T_ℓ, T_s) x_s`` ``(B, L, m)``: the scan computed from its kernel."""
    return torch.einsum("blsmd,bsd->blm", green, x)


def sums(green: Tensor) -> Tensor:
    """``(B, L)`` the Green sums ``Σ_s ‖G(T_ℓ, T_s)‖₂``."""
    deep = green.shape[-3]
    row, column = torch.tril_indices(deep, deep, device=green.device)
    some = green[..., row, column, :, :]
    # largest eigenvalues of Gram matrices: half the time of singular values, and as exact
    squares = torch.linalg.eigvalsh(some @ some.transpose(-1, -2))[..., -1].clamp(min=0.0)
    total = green.new_zeros(green.shape[:-3])
    return total.index_add_(-1, row, torch.sqrt(squares))


@torch.no_grad()
def measure_scan_bounds(scan: GreenScan, path: Path) -> GreenBound:
    """Return the largest Green sum and state of a scan on a path, with their bounds."""
    W = scan.enter.weight
    # W = LQ with orthonormal rows of Q: L has the same norms after any map, and fewer columns
    green = kernel(scan, path, torch.linalg.qr(W.T, mode="r").R.T)
    bound = float(torch.linalg.matrix_norm(W, 2))
    largest = float((torch.linalg.vector_norm(path.x, dim=-1) * path.seen).max())
    state = float(torch.linalg.vector_norm(scan(path), dim=-1).max())
    return GreenBound(float(sums(green).max()), bound, state, bound * largest)
