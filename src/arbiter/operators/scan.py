"""The Green scan: a state carried along maturities by a dissipative resolvent.

    h_ℓ = R_ℓ h_{ℓ−1} + B_ℓ x_ℓ,     R_ℓ = (I − Δ_ℓ A)⁻¹  (or e^{Δ_ℓ A})

``A = −diag(d) − U Uᵀ`` is diagonal plus low rank, symmetric and below −μ (d ≥ μ), so that ``‖R_ℓ‖ ≤ 1/(1 + Δ_ℓ μ)`` whatever is learned; the paper's condition on the
spectral radius does not give that (docs/errata.md). ``‖B_ℓ‖ ≤ b Δ_ℓ`` with b such that the Green
sum ``Σ_s ‖R_ℓ⋯R_{s+1} B_s‖`` is at most ‖W‖, W the input map. Steps are log-maturity times a
learned factor, inputs are gated: both depend on where the quotes are and how good, not on what
they say, so that for given strikes the scan is linear and its bounds are true.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from arbiter.operators.qalign import Aligned

MU = 0.5  # the least rate of forgetting, per unit of log-maturity
EPSILON = 0.05
_SELECTION = 1.4  # steps are stretched or shrunk by at most e^1.4
_SMALLEST = 1e-3  # step


class Guarded(NamedTuple):
    """Steps after Spec-Guard.

    Attributes:
        step: ``(…, L)`` with ``ρ(A)·step ≤ 1 − ε``.
        hits: How many were scaled.
        distance: ``Σ ‖A − Â‖_F`` over the scaled ones.
        largest: The largest ``ρ̄(A)·step`` before, ρ̄ an upper bound of the spectral radius.
    """

    step: Tensor
    hits: Tensor
    distance: Tensor
    largest: Tensor


class Generator(nn.Module):
    """``A = −diag(d) − U Uᵀ``: diagonal plus low rank, symmetric, dissipative."""

    def __init__(self, size: int, rank: int) -> None:
        super().__init__()
        self.size, self.rank = size, rank
        self.raw = nn.Parameter(torch.linspace(-3.0, 1.2, size))
        self.U = nn.Parameter(0.5 * torch.randn(size, rank) / size**0.5)

    @property
    def rates(self) -> Tensor:
        """``(m,)`` d, at least μ."""
        return MU + nn.functional.softplus(self.raw)

    def dense(self) -> Tensor:
        """``(m, m)``."""
        return -torch.diag(self.rates) - self.U @ self.U.T

    def radius(self) -> Tensor:
        """An upper bound of the spectral radius of A, which for a symmetric A is its norm."""
        return self.rates.max() + self.U.square().sum()

    def guard(self, step: Tensor, on: bool = True) -> Guarded:
        """Spec-Guard: ``ρ(A) Δ ≤ 1 − ε`` by scaling A, which is the same as scaling Δ."""
        radius = self.radius().detach()
        limit = (1.0 - EPSILON) / radius
        kept = torch.minimum(step, limit) if on else step
        norm = torch.linalg.matrix_norm(self.dense().detach())
        return Guarded(
            step=kept,
            hits=(step > limit).sum(),
            distance=(norm * (1.0 - kept / step)).sum().detach(),
            largest=(radius * step).max().detach(),
        )

    def resolvent(self, step: Tensor) -> Tensor:
        """``(I − Δ A)⁻¹`` for steps ``(…)``, by Woodbury's formula: ``(…, m, m)``."""
        decay, core = self._woodbury(step)
        left = decay[..., None] * self.U  # (…, m, r)
        return torch.diag_embed(decay) - left @ core @ left.transpose(-1, -2)

    def propagate(self, step: Tensor, h: Tensor) -> Tensor:
        """``(I − Δ A)⁻¹ h`` for h ``(…, m)``, without forming the matrix."""
        decay, core = self._woodbury(step)
        faded = decay * h
        return faded - decay * ((core @ (faded @ self.U)[..., None])[..., 0] @ self.U.T)

    def _woodbury(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """``E = 1/(1 + Δd)`` ``(…, m)`` and ``Δ (I + Δ UᵀEU)⁻¹`` ``(…, r, r)``."""
        decay = 1.0 / (1.0 + step[..., None] * self.rates)
        small = self.U.T @ (decay[..., None] * self.U) * step[..., None, None]
        eye = torch.eye(self.rank, dtype=small.dtype, device=small.device)
        return decay, step[..., None, None] * inverse(small + eye)

    def exponential(self, step: Tensor) -> Tensor:
        """``e^{Δ A}``."""
        return torch.linalg.matrix_exp(step[..., None, None] * self.dense())


def inverse(matrix: Tensor) -> Tensor:
    """Inverse of small positive definite matrices ``(…, r, r)``, by elimination.

    Written out because the library's solver waits for the device at each call; positive definite
    matrices need no pivots.
    """
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for k, e in enumerate(unit):  # the sweep operator, pivot by pivot
        pivot = matrix[..., k, k, None, None]
        column, row = matrix[..., :, k, None] - e[:, None], matrix[..., k, None, :] + e
        matrix = matrix - column * row / pivot
    return matrix


class GreenScan(nn.Module):
    """A selective scan in one direction.

    Args:
        width: Of inputs.
        size: m, of the state.
        rank: r, of the three low-rank factors.
        context: Width of the geometry that selects steps and inputs.
        kind: ``"resolvent"`` or ``"exponential"``.
        budget: Largest norm of the input map.
        guarded: Whether Spec-Guard acts.
    """

    def __init__(
        self,
        width: int,
        size: int,
        rank: int,
        context: int,
        *,
        kind: str = "resolvent",
        budget: float = 4.0,
        guarded: bool = True,
    ) -> None:
        super().__init__()
        self.kind, self.guarded = kind, guarded
        self.generator = Generator(size, rank)
        self.enter = Aligned(width, size, budget)
        self.select = nn.Linear(context, 1 + size)
        nn.init.zeros_(self.select.weight)
        nn.init.zeros_(self.select.bias)
        self.last: Guarded | None = None

    def steps(self, gap: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Guarded steps ``(B, L)`` and inputs' gates ``(B, L, m)`` within ``±bΔ``."""
        choice = self.select(context)
        stretch = torch.exp(_SELECTION * torch.tanh(choice[..., 0]))
        guarded = self.generator.guard((gap * stretch).clamp(min=_SMALLEST), self.guarded)
        self.last = Guarded(*(part.detach() for part in guarded))
        return guarded.step, self.strength(guarded.step)[..., None] * torch.tanh(
            1.5 + choice[..., 1:]
        )

    def strength(self, step: Tensor) -> Tensor:
        """``b Δ`` with ``b = μ/(1 + μ Δ̄)``: the Green sum is then at most the input map's norm."""
        longest = (1.0 - EPSILON) / self.generator.radius().detach() if self.guarded else step.max()
        return step * MU / (1.0 + MU * longest)

    def forward(self, x: Tensor, gap: Tensor, context: Tensor, seen: Tensor) -> Tensor:
        """States ``(B, L, m)`` for inputs ``(B, L, d)``; nothing enters where ``seen`` is false."""
        step, gate = self.steps(gap, context)
        drive = gate * self.enter(x) * seen[..., None]
        matrix = (
            self.generator.resolvent(step)
            if self.kind == "resolvent"
            else self.generator.exponential(step)
        )
        h = torch.zeros_like(drive[:, 0])
        out = []
        for R, d in zip(matrix.unbind(1), drive.unbind(1), strict=True):
            h = torch.baddbmm(d[..., None], R, h[..., None])[..., 0]
            out.append(h)
        return torch.stack(out, 1)

    def _stream(self, step: Tensor, drive: Tensor) -> Tensor:
        """The same in O(m r) memory beside the output, for inference."""
        h = torch.zeros_like(drive[:, 0])
        out = []
        for delta, d in zip(step.unbind(1), drive.unbind(1), strict=True):
            h = self.generator.propagate(delta, h) + d
            out.append(h)
        return torch.stack(out, 1)
