"""The Green scan: a state carried along maturities by a dissipative resolvent.

    h_ℓ = R_ℓ h_{ℓ−1} + B_ℓ x_ℓ,     R_ℓ = (I − Δ_ℓ A)⁻¹

``A = −diag(d) − U Uᵀ`` is symmetric, with rates d between the slowest and the fastest, and a
low-rank part of bounded norm, so that ``‖R_ℓ‖ ≤ 1/(1 + Δ_ℓ μ)``. ``‖B_ℓ‖ ≤ b Δ_ℓ`` with b such that
the Green sum ``Σ_s ‖R_ℓ⋯R_{s+1} B_s‖`` is at most ‖W‖, W the input map. Steps are log-maturity
times a learned factor, and approach a longest one; inputs are gated. Both depend on where the
quotes are, how good, and on the prior: for a given prior the scan is linear.

Spec-Guard shortens a step to ``ρ(A) Δ ≤ 1 − ε``.

Shapes: B chains, L maturities, d inputs, m states, r the rank, D directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from arbiter.operators.law.config import (
    FASTEST_RATE,
    GATE_BIAS,
    GUARD_MARGIN,
    LONGEST_STEP,
    MAX_LOG_STRETCH,
    MAX_LOW_RANK,
    MIN_STEP,
    SLOWEST_RATE,
)
from arbiter_lab.differentiable.operators.law.spectral_projection import Aligned


class Path(NamedTuple):
    """What a scan is given, maturities in the order in which they are walked.

    Attributes:
        x: ``(B, L, d)`` inputs.
        gap: ``(B, L)`` log-maturity from the one before.
        context: ``(B, L, c)`` geometry, which selects steps and inputs.
        seen: ``(B, L)`` where anything is quoted: nothing enters elsewhere, the state passes.
    """

    x: Tensor
    gap: Tensor
    context: Tensor
    seen: Tensor

    def reversed(self, ahead: Tensor) -> Path:
        """The same from long to short maturities, ``ahead`` being the gaps to the next one."""
        turned = (part.flip(1) for part in (self.x, ahead, self.context, self.seen))
        return Path(*turned)


class Guarded(NamedTuple):
    """What Spec-Guard did.

    Attributes:
        hits: Share of the steps that it shortened.
        distance: Mean of ``‖A − Â‖_F`` over all steps, the shortening seen as a smaller A.
        largest: Largest ``ρ̄(A) Δ`` after it, ρ̄ an upper bound of ρ.
    """

    hits: Tensor
    distance: Tensor
    largest: Tensor


class GreenScan(nn.Module):
    """A selective scan in one direction.

    Args:
        width: Of inputs.
        size: m, of the state.
        rank: r, of the generator's low-rank part.
        context: Width of the geometry.
        budget: Largest norm of the input map.
        guarded: Whether Spec-Guard acts, and steps approach a longest one.

    Attributes:
        last: What Spec-Guard did when the scan last ran.
    """

    def __init__(
        self, width: int, size: int, rank: int, context: int, budget: float, guarded: bool = True
    ) -> None:
        super().__init__()
        self.guarded = guarded
        self.raw = nn.Parameter(torch.linspace(-3.0, 2.0, size))
        self.U = nn.Parameter(0.3 * torch.randn(size, rank) / math.sqrt(size))
        self.enter = Aligned(width, size, budget)
        self.select = nn.Linear(context, 1 + size)
        nn.init.zeros_(self.select.weight)
        nn.init.zeros_(self.select.bias)
        self.last: Guarded | None = None

    @property
    def rates(self) -> Tensor:
        """``(m,)`` d."""
        return SLOWEST_RATE + (FASTEST_RATE - SLOWEST_RATE) * torch.sigmoid(self.raw)

    @property
    def low_rank(self) -> Tensor:
        """``(m, r)`` U, its part of the generator no larger than it may be."""
        size = self.U.square().sum()
        return self.U * torch.sqrt(MAX_LOW_RANK / size.clamp(min=MAX_LOW_RANK))

    def dense(self) -> Tensor:
        """``(m, m)`` A."""
        U = self.low_rank
        return -torch.diag(self.rates) - U @ U.T

    def radius(self) -> Tensor:
        """An upper bound of the spectral radius of A, which for a symmetric A is its norm."""
        return self.rates.max() + self.low_rank.square().sum()

    def drive(self, path: Path) -> tuple[Tensor, Tensor]:
        """Steps ``(B, L)`` and what enters the state at each, ``B_ℓ x_ℓ`` ``(B, L, m)``."""
        choice = self.select(path.context)
        step = path.gap * torch.exp(MAX_LOG_STRETCH * torch.tanh(choice[..., 0]))
        if self.guarded:
            step = LONGEST_STEP * -torch.expm1(-step / LONGEST_STEP)
        step = step.clamp(min=MIN_STEP)
        limit = (1.0 - GUARD_MARGIN) / self.radius().detach()
        kept = torch.minimum(step, limit) if self.guarded else step
        self.last = self._measure(step.detach(), kept.detach(), path.seen)
        longest = limit if self.guarded else kept
        strength = kept * (SLOWEST_RATE / (1.0 + SLOWEST_RATE * longest)) * path.seen
        opened = torch.tanh(GATE_BIAS + choice[..., 1:])
        return kept, strength[..., None] * opened * self.enter(path.x)

    def _measure(self, wanted: Tensor, kept: Tensor, seen: Tensor) -> Guarded:
        count = seen.sum().clamp(min=1)
        norm, cut = torch.linalg.matrix_norm(self.dense().detach()), (1.0 - kept / wanted) * seen
        return Guarded(
            ((kept < wanted) & seen).sum() / count,
            norm * cut.sum() / count,
            (self.radius().detach() * kept * seen).amax(),
        )


def scan(scans: Sequence[GreenScan], path: Path, ahead: Tensor) -> list[Tensor]:
    """States ``(B, L, m)`` of one scan, or of two: the second one comes back from the far end.

    Both are walked at once: the walk is the part that cannot be spread over processors.
    """
    paths = [path, path.reversed(ahead)][: len(scans)]
    driven = [one.drive(way) for one, way in zip(scans, paths, strict=True)]
    B, (D, r) = path.x.shape[0], (len(scans), scans[0].U.shape[1])
    step = torch.stack([each for each, _ in driven])  # (D, B, L)
    drive = torch.stack([each for _, each in driven])  # (D, B, L, m)
    rates = torch.stack([one.rates for one in scans])[:, None, None]
    U = torch.stack([one.low_rank for one in scans])[:, None]  # (D, 1, m, r)
    # R h = E h − (E U C)(E U)ᵀ h by Woodbury, E = 1/(1 + Δd) and C = Δ (I + Δ UᵀEU)⁻¹
    decay = 1.0 / (1.0 + step[..., None] * rates)  # (D, B, L, m)
    pairs = (U[..., :, None] * U[..., None, :]).flatten(-2)  # (D, 1, m, r²)
    small = (decay @ pairs).unflatten(-1, (r, r)) * step[..., None, None]
    core = step[..., None, None] * inverse(small + torch.eye(r, device=step.device))
    faded = decay[..., None] * U[:, :, None]  # (D, B, L, m, r)
    parts = (decay[..., None], faded @ core, faded.transpose(-1, -2), drive[..., None])
    along = [part.flatten(0, 1).unbind(1) for part in parts]
    states = [along[3][0]]
    for E, left, right, new in zip(*(part[1:] for part in along), strict=True):
        kept = torch.addcmul(new, E, states[-1])
        states.append(torch.baddbmm(kept, left, right @ states[-1], alpha=-1.0))
    walked = torch.stack(states, 1)[..., 0].unflatten(0, (D, B))
    return [walked[0], *(way.flip(1) for way in walked[1:])]


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
