"""Q-Align: linear maps kept inside a ball of the spectral norm.

The projection onto ``‖W‖₂ ≤ τ`` clips singular values. It is firmly nonexpansive, as projections
onto convex sets are. The paper scales the whole matrix by ``τ/‖W‖`` instead, which is not the
projection (it can move two matrices apart by √2), and reads ``‖W‖`` off a power iteration, which
is never above the norm: the map it calls safe may not be (:func:`scale_by_power`; a network is
trained that way with ``Config(alignment="scaling")``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

ALIGNMENTS = ("projection", "scaling")
_SQUARINGS = 9
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

    ``‖W‖₂^{2p} ≤ ‖(WᵀW)^p‖_F`` for any power p, and at p = 512 the bound is at most a factor
    ``rank^{1/2048}`` too large: 0.26 % at rank 192.
    """
    gram = W.transpose(-1, -2) @ W if W.shape[-2] >= W.shape[-1] else W @ W.transpose(-1, -2)
    log = torch.zeros(W.shape[:-2], dtype=W.dtype, device=W.device)
    for i in range(_SQUARINGS):
        size = torch.linalg.matrix_norm(gram).clamp(min=1e-30)
        log = log + torch.log(size) / 2.0**i
        gram = gram / size[..., None, None]
        gram = gram @ gram
    size = torch.linalg.matrix_norm(gram).clamp(min=1e-30)
    log = log + torch.log(size) / 2.0**_SQUARINGS
    return torch.exp(0.5 * log) * (1.0 + 1e-6)


def clip(W: Tensor, budget: float) -> Tensor:
    """The projection onto ``‖W‖₂ ≤ budget``: singular values above it are cut."""
    U, s, V = torch.linalg.svd(W.double(), full_matrices=False)
    if float(s[0]) <= budget:
        return W
    kept: Tensor = ((U * s.clamp(max=budget)) @ V).to(W.dtype)
    return kept * min(1.0, budget / float(torch.linalg.matrix_norm(kept.double(), 2)))


def scale_by_power(W: Tensor, budget: float, start: Tensor) -> Tensor:
    """The paper's rule: scale by ``τ/max(‖W‖, τ)`` with the norm from one power iteration."""
    v = W.T @ (W @ start)
    v = v / torch.linalg.vector_norm(v).clamp(min=1e-30)
    estimate = torch.linalg.vector_norm(W @ v)
    return W * (budget / torch.clamp(estimate, min=budget))


@torch.no_grad()
def align(parts: Sequence[Aligned], rule: str = "projection") -> Tensor:
    """Bring maps back inside their balls, in place.

    The projection is that of :func:`clip` but for what matrix products cost: a map is never left
    outside its ball, and lies within ``τ(0.003 + max(‖W‖²/τ² − 1, 1)/2000)`` of the projection in
    spectral norm, at ranks up to 192. So it is firmly nonexpansive up to that distance and not
    exactly: two maps at the sphere, 0.4 % of τ apart, can end a fifth farther apart (tests).

    Args:
        parts: The maps.
        rule: ``"projection"``, or the paper's ``"scaling"``, with its defects.

    Returns:
        How far they moved: the sum of Frobenius distances.
    """
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r}: give one of {tuple(RULES)}")
    before = [part.weight.clone() for part in parts]
    RULES[rule](parts)
    moves = [torch.linalg.matrix_norm(p.weight - w) for p, w in zip(parts, before, strict=True)]
    return torch.stack(moves).sum()


def _project(parts: Sequence[Aligned]) -> None:
    """All maps at once by matrix products alone, quick on a GPU.

    ``W(I − Π) + polar(WΠ)Π`` with Π the projector on singular values above the budget, a matrix
    sign by Newton-Schulz. Where a singular value is near the budget the sign is undecided, and
    either choice is right; a last scaling by the upper bound makes the constraint hold.
    """
    for part in parts:
        if part.rows:
            norm = torch.linalg.vector_norm(part.weight, dim=1, keepdim=True)
            part.weight.mul_(part.budget / norm.clamp(min=part.budget))
    parts = [part for part in parts if not part.rows]
    if not parts:
        return
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
        part.weight.copy_(weight if part.weight.shape[0] >= part.weight.shape[1] else weight.T)


def _scale(parts: Sequence[Aligned]) -> None:
    """The paper's rule; of maps bounded row by row the norm is known, and no estimate is made."""
    for part in parts:
        W = part.weight
        if part.rows:
            largest = torch.linalg.vector_norm(W, dim=1).max()
            W.mul_(part.budget / largest.clamp(min=part.budget))
        else:
            # the same start every time, so that training resumes bit for bit
            W.copy_(scale_by_power(W, part.budget, W.new_ones(W.shape[1])))


RULES: dict[str, Callable[[Sequence[Aligned]], None]] = dict(
    zip(ALIGNMENTS, (_project, _scale), strict=True)
)
