"""The Green scan: a state carried along maturities by a dissipative resolvent.

    h_ℓ = R_ℓ h_{ℓ−1} + B_ℓ x_ℓ,     R_ℓ = (I − Δ_ℓ A)⁻¹  (or e^{Δ_ℓ A})

``A = −diag(d) − U Uᵀ`` is diagonal plus low rank, symmetric and below −μ (d ≥ μ), so that
``‖R_ℓ‖ ≤ 1/(1 + Δ_ℓ μ)`` whatever is learned; the paper's condition on the spectral radius does
not give that (docs/errata.md). ``‖B_ℓ‖ ≤ b Δ_ℓ`` with b such that the Green sum
``Σ_s ‖R_ℓ⋯R_{s+1} B_s‖`` is at most ‖W‖, W the input map. Steps are log-maturity times a learned
factor, inputs are gated: both depend on where the quotes are and how good, not on what they say,
so that for given strikes the scan is linear and its bounds are true.

Three ways to the same states: :meth:`GreenScan.forward` for a batch, :meth:`GreenScan.stream` for
a maturity axis of any length with one state in memory, and the kernel itself
(:mod:`arbiter_lab.stability.green_kernel`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from arbiter_lab.differentiable.operators.law.green_scan import Path, inverse
from arbiter_lab.differentiable.operators.law.spectral_projection import Aligned

MU = 0.5  # the least rate of forgetting, per unit of log-maturity
EPSILON = 0.05
MAX_LOG_STRETCH = 1.4  # steps are stretched or shrunk by at most e^1.4
MIN_STEP = 1e-3  # step
GATE_BIAS = 1.5  # where inputs' gates start: nearly open


class Guarded(NamedTuple):
    """Steps after Spec-Guard, and what it did; the counts are made when they are asked for.

    Attributes:
        step: ``(…)`` with ``ρ(A)·step ≤ 1 − ε``.
        wanted: ``(…)`` steps before.
        radius: An upper bound of the spectral radius of A.
        norm: The Frobenius norm of A.
    """

    step: Tensor
    wanted: Tensor
    radius: Tensor
    norm: Tensor

    @property
    def hits(self) -> Tensor:
        """How many were scaled: none if the guard is off, however far they reach."""
        return (self.step < self.wanted).sum()

    @property
    def distance(self) -> Tensor:
        """``Σ ‖A − Â‖_F`` over the scaled ones."""
        return (self.norm * (1.0 - self.step / self.wanted)).sum()

    @property
    def largest(self) -> Tensor:
        """The largest ``ρ̄(A)·step`` before, ρ̄ the upper bound."""
        return (self.radius * self.wanted).max()


class Generator(nn.Module):
    """``A = −diag(d) − U Uᵀ``: diagonal plus low rank, symmetric, dissipative.

    Args:
        size: m, of the state.
        rank: r, of the low-rank part.
    """

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

    def frobenius(self) -> Tensor:
        """The Frobenius norm of A, without forming it."""
        rates, U = self.rates, self.U
        own = 2.0 * (rates * U.square().sum(1)).sum() + rates.square().sum()
        return torch.sqrt(own + (U.T @ U).square().sum())

    def guard(self, step: Tensor, on: bool = True) -> Guarded:
        """Spec-Guard: ``ρ(A) Δ ≤ 1 − ε`` by scaling A, which is the same as scaling Δ."""
        radius = self.radius().detach()
        limit = (1.0 - EPSILON) / radius
        kept = torch.minimum(step, limit) if on else step
        return Guarded(kept, step.detach(), radius, self.frobenius().detach())

    def resolvent(self, step: Tensor) -> Tensor:
        """``(I − Δ A)⁻¹`` for steps ``(…)``, by Woodbury's formula: ``(…, m, m)``."""
        return _resolvent(step, self.rates, self.U)

    def exponential(self, step: Tensor) -> Tensor:
        """``e^{Δ A}`` for steps ``(…)``: ``(…, m, m)``."""
        return torch.matrix_exp(step[..., None, None] * self.dense())

    def propagate(self, step: Tensor, h: Tensor) -> Tensor:
        """``(I − Δ A)⁻¹ h`` for h ``(…, m)``, in O(m r + r³) and without forming the matrix."""
        decay, core = _woodbury(step, self.rates, self.U)
        faded = decay * h
        back: Tensor = (core @ (faded @ self.U)[..., None])[..., 0] @ self.U.T
        return faded - decay * back


def _woodbury(step: Tensor, rates: Tensor, U: Tensor) -> tuple[Tensor, Tensor]:
    """``E = 1/(1 + Δd)`` ``(…, m)`` and ``Δ (I + Δ UᵀEU)⁻¹`` ``(…, r, r)``.

    Of one generator, or of D at once: steps ``(D, N)``, rates ``(D, 1, m)``, U ``(D, m, r)``.
    """
    r = U.shape[-1]
    decay = 1.0 / (1.0 + step[..., None] * rates)
    pairs = (U[..., :, None] * U[..., None, :]).flatten(-2)  # (…, m, r²)
    small = (decay @ pairs).unflatten(-1, (r, r)) * step[..., None, None]
    eye = torch.eye(r, dtype=small.dtype, device=small.device)
    return decay, step[..., None, None] * inverse(small + eye)


def _resolvent(step: Tensor, rates: Tensor, U: Tensor) -> Tensor:
    decay, core = _woodbury(step, rates, U)
    left = decay[..., None] * (U if U.ndim == 2 else U[:, None])  # (…, m, r)
    return torch.diag_embed(decay) - left @ core @ left.transpose(-1, -2)


class GreenScan(nn.Module):
    """A selective scan in one direction.

    Args:
        width: Of inputs.
        size: m, of the state.
        rank: r, of the generator's low-rank part.
        context: Width of the geometry that selects steps and inputs.
        kind: ``"resolvent"`` or ``"exponential"``.
        budget: Largest norm of the input map.
        guarded: Whether Spec-Guard acts.

    Attributes:
        last: What Spec-Guard did when the scan last ran.
        walks: Paths that it was given, while somebody keeps them (:mod:`.stability`); else None.
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
        self.walks: list[Path] | None = None

    def steps(self, gap: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Guarded steps ``(…)`` and inputs' gates ``(…, m)`` within ``±bΔ``."""
        choice = self.select(context)
        stretch = torch.exp(MAX_LOG_STRETCH * torch.tanh(choice[..., 0]))
        guarded = self.generator.guard((gap * stretch).clamp(min=MIN_STEP), self.guarded)
        self.last = guarded._replace(step=guarded.step.detach())
        opened = torch.tanh(GATE_BIAS + choice[..., 1:])
        return guarded.step, self.strength(guarded)[..., None] * opened

    def strength(self, guarded: Guarded) -> Tensor:
        """``b Δ``, for which the Green sum is at most the norm of the input map.

        With steps of at most Δ̄, which the guard sees to, ``b = μ/(1 + μΔ̄)``; without the guard
        each step has its own ``b = μ/(1 + μΔ)``.
        """
        longest = (1.0 - EPSILON) / guarded.radius if self.guarded else guarded.step
        return guarded.step * (MU / (1.0 + MU * longest))

    def carriers(self, step: Tensor) -> Tensor:
        """``R_ℓ`` ``(…, m, m)`` for steps ``(…)``."""
        if self.kind == "resolvent":
            return self.generator.resolvent(step)
        return self.generator.exponential(step)

    def drive(self, path: Path) -> tuple[Tensor, Tensor]:
        """Steps ``(…)`` and what enters the state at each, ``B_ℓ x_ℓ`` ``(…, m)``."""
        if self.walks is not None:
            self.walks.append(path)
        step, gate = self.steps(path.gap, path.context)
        return step, gate * self.enter(path.x) * path.seen[..., None]

    def forward(self, path: Path) -> Tensor:
        """States ``(B, L, m)``."""
        return scan_together([self], [path])[0]

    def stream(self, path: Iterable[Path]) -> Iterator[Tensor]:
        """States ``(B, m)``, one for each maturity as it comes: one state in memory, no more.

        Args:
            path: The parts of a path at one maturity after another, ``(B, d)``, ``(B)``,
                ``(B, c)`` and ``(B)``; it may be endless.
        """
        h: Tensor | None = None
        for here in path:
            step, drive = self.drive(here)
            if h is None:
                h = drive
            elif self.kind == "resolvent":
                h = self.generator.propagate(step, h) + drive
            else:
                h = (self.carriers(step) @ h[..., None])[..., 0] + drive
            yield h


def scan_together(scans: Sequence[GreenScan], paths: Sequence[Path]) -> list[Tensor]:
    """States ``(B, L, m)`` of several scans of one shape in one walk along the maturities.

    The walk is the part that cannot be spread over processors: two directions cost one.
    """
    driven = [scan.drive(path) for scan, path in zip(scans, paths, strict=True)]
    batch = driven[0][0].shape[0]
    step = torch.stack([each for each, _ in driven])  # (D, B, L)
    drive = torch.stack([each for _, each in driven])  # (D, B, L, m)
    entering = drive.flatten(0, 1)[..., None].unbind(1)
    walk = _walk_resolvent if scans[0].kind == "resolvent" else _walk_exponential
    states = walk([scan.generator for scan in scans], step, entering)  # (DB, m, 1)
    walked = torch.stack(states, 1)[..., 0].unflatten(0, (len(scans), batch))
    return list(walked.unbind(0))


def _walk_resolvent(
    generators: Sequence[Generator], step: Tensor, entering: Sequence[Tensor]
) -> list[Tensor]:
    """``R h = E h − (E U C)(E U)ᵀ h``: diagonal and low rank apart, no matrix is formed."""
    rates = torch.stack([each.rates for each in generators])[:, None]
    U = torch.stack([each.U for each in generators])  # (D, m, r)
    decay, core = _woodbury(step.flatten(1), rates, U)
    faded = decay[..., None] * U[:, None]  # (D, BL, m, r)
    shape = step.shape[1:]
    parts = (decay[..., None], faded @ core, faded.transpose(-1, -2))
    along = [part.unflatten(1, shape).flatten(0, 1).unbind(1) for part in parts]
    states = [entering[0]]
    for E, left, right, new in zip(*(part[1:] for part in along), entering[1:], strict=True):
        kept = torch.addcmul(new, E, states[-1])
        states.append(torch.baddbmm(kept, left, right @ states[-1], alpha=-1.0))
    return states


def _walk_exponential(
    generators: Sequence[Generator], step: Tensor, entering: Sequence[Tensor]
) -> list[Tensor]:
    learned = any(part.requires_grad for each in generators for part in each.parameters())
    if not (learned and torch.is_grad_enabled()):
        return _walk_in_eigenvectors(generators, step, entering)
    each = zip(generators, step, strict=True)
    matrix = torch.cat([generator.exponential(steps) for generator, steps in each])
    states = [entering[0]]
    for R, new in zip(matrix.unbind(1)[1:], entering[1:], strict=True):
        states.append(torch.baddbmm(new, R, states[-1]))
    return states


def _walk_in_eigenvectors(
    generators: Sequence[Generator], step: Tensor, entering: Sequence[Tensor]
) -> list[Tensor]:
    """``e^{ΔA} = V e^{ΔΛ} Vᵀ``: one decomposition, and a step is m products.

    Not where A is learned: eigenvectors of equal eigenvalues have no derivative.
    """
    pairs = [torch.linalg.eigh(each.dense().double()) for each in generators]
    rates = torch.stack([values for values, _ in pairs]).to(step)  # (D, m), below zero
    vectors = torch.stack([basis for _, basis in pairs]).to(step)  # (D, m, m)
    fade = torch.exp(step[..., None] * rates[:, None, None])  # (D, B, L, m)
    drive = torch.stack(list(entering), 1)[..., 0].unflatten(0, step.shape[:2])
    turned = (drive.flatten(1, 2) @ vectors).unflatten(1, step.shape[1:])
    states = [turned[:, :, 0]]
    for faded, new in zip(fade.unbind(2)[1:], turned.unbind(2)[1:], strict=True):
        states.append(torch.addcmul(new, faded, states[-1]))
    back = torch.stack(states, 2).flatten(1, 2) @ vectors.transpose(-1, -2)
    return list(back.unflatten(1, step.shape[1:]).flatten(0, 1)[..., None].unbind(1))
