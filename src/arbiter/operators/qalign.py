"""Q-Align: linear maps kept inside a ball of the spectral norm.

The projection onto ``‖W‖₂ ≤ τ`` clips singular values. It is firmly nonexpansive, as projections
onto convex sets are. The paper scales the whole matrix by ``τ/‖W‖`` instead, which is not the
projection (it can move two matrices apart by √2), and reads ``‖W‖`` off a power iteration, which
is never above the norm: the map it calls safe may not be (:func:`scale_by_power`, for comparison).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_SQUARINGS = 5
_SIGN_STEPS, _POLAR_STEPS = 14, 12


class Aligned(nn.Module):
    """A linear map without bias that Q-Align keeps at ``‖W‖₂ ≤ budget``.

    Args:
        inputs: Size of what it takes.
        outputs: Size of what it gives.
        budget: Largest norm.
        gain: Norm to start from.
        rows: Bound each row's norm instead: the norm from the Euclidean to the largest entry,
            for maps whose outputs are read one by one.
    """

    def __init__(
        self, inputs: int, outputs: int, budget: float, *, gain: float = 1.0, rows: bool = False
    ) -> None:
        super().__init__()
        self.budget, self.rows = budget, rows
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.orthogonal_(self.weight, gain=gain)

    def forward(self, x: Tensor) -> Tensor:
        """``W x``."""
        return nn.functional.linear(x, self.weight)


def maps(module: nn.Module) -> list[Aligned]:
    """Every aligned map of a module, in a fixed order."""
    return [part for part in module.modules() if isinstance(part, Aligned)]


def norm_bound(W: Tensor) -> Tensor:
    """Upper bound of ``‖W‖₂`` for ``(…, a, b)``, by squaring the Gram matrix: never below it.

    ``‖W‖₂^{2p} ≤ ‖(WᵀW)^p‖_F`` for any power p, and at p = 32 the two differ by at most a
    factor ``rank^{1/128}``.
    """
    gram = W.transpose(-1, -2) @ W if W.shape[-2] >= W.shape[-1] else W @ W.transpose(-1, -2)
    log = torch.zeros(W.shape[:-2], dtype=W.dtype, device=W.device)
    for i in range(_SQUARINGS):
        size = torch.linalg.matrix_norm(gram).clamp(min=1e-30)
        log = log + torch.log(size) / 2.0**i
        gram = gram / size[..., None, None]
        gram = gram @ gram
    size = torch.linalg.matrix_norm(gram).clamp(min=1e-30)
    return torch.exp(0.5 * (log + torch.log(size) / 2.0**_SQUARINGS)) * (1.0 + 1e-6)


def clip(W: Tensor, budget: float) -> Tensor:
    """The projection onto ``‖W‖₂ ≤ budget``: singular values above it are cut."""
    U, s, V = torch.linalg.svd(W.double(), full_matrices=False)
    if float(s[0]) <= budget:
        return W
    kept = ((U * s.clamp(max=budget)) @ V).to(W.dtype)
    return kept * min(1.0, budget / float(torch.linalg.matrix_norm(kept.double(), 2)))


def scale_by_power(W: Tensor, budget: float, start: Tensor) -> Tensor:
    """The paper's rule: scale by ``τ/max(‖W‖, τ)`` with the norm from one power iteration."""
    v = W.T @ (W @ start)
    v = v / torch.linalg.vector_norm(v).clamp(min=1e-30)
    estimate = torch.linalg.vector_norm(W @ v)
    return W * (budget / torch.clamp(estimate, min=budget))


@torch.no_grad()
def align(parts: Sequence[Aligned]) -> Tensor:
    """Project all maps at once by matrix products alone, quick on a GPU: returns how far they moved.

    ``W(I − Π) + polar(WΠ)Π`` with Π the projector on singular values above the budget, a matrix
    sign by Newton-Schulz. Where a singular value is near the budget the sign is undecided, and
    either choice is right; a last scaling by the upper bound makes the constraint hold.
    """
    moved = parts[0].weight.new_zeros(())
    for part in [p for p in parts if p.rows]:
        moved = moved + _clip_rows(part)
    parts = [p for p in parts if not p.rows]
    # lying maps are stood up, so that Gram matrices are small
    standing = [w if w.shape[0] >= w.shape[1] else w.T for w in (p.weight for p in parts)]
    tall, wide = max(w.shape[0] for w in standing), max(w.shape[1] for w in standing)
    stack = torch.stack(
        [
            nn.functional.pad(w / p.budget, (0, wide - w.shape[1], 0, tall - w.shape[0]))
            for w, p in zip(standing, parts, strict=True)
        ]
    )
    bound = norm_bound(stack)
    eye = torch.eye(wide, dtype=stack.dtype, device=stack.device)
    excess = stack.transpose(-1, -2) @ stack - eye
    sign = excess / torch.clamp(bound**2 - 1.0, min=1.0)[:, None, None]
    for _ in range(_SIGN_STEPS):
        sign = 1.5 * sign - 0.5 * sign @ (sign @ sign)
    above = 0.5 * (eye + sign)
    high = stack @ above
    polar = high / torch.clamp(bound, min=1.0)[:, None, None]
    for _ in range(_POLAR_STEPS):
        polar = 1.5 * polar - 0.5 * polar @ (polar.transpose(-1, -2) @ polar)
    kept = torch.where((bound > 1.0)[:, None, None], stack - high + polar @ above, stack)
    kept = kept / torch.clamp(norm_bound(kept), min=1.0)[:, None, None]
    for part, was, new in zip(parts, standing, kept, strict=True):
        weight = new[: was.shape[0], : was.shape[1]] * part.budget
        moved = moved + torch.linalg.matrix_norm(weight - was)
        part.weight.copy_(weight if part.weight.shape[0] >= part.weight.shape[1] else weight.T)
    return moved


def _clip_rows(part: Aligned) -> Tensor:
    """The projection onto rows of bounded norm."""
    norm = torch.linalg.vector_norm(part.weight, dim=1, keepdim=True)
    weight = part.weight * (part.budget / norm.clamp(min=part.budget))
    moved = torch.linalg.matrix_norm(weight - part.weight)
    part.weight.copy_(weight)
    return moved
