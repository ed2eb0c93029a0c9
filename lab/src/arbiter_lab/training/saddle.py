"""Two-time-scale extragradient with an Adam preconditioner (paper, section 3.4; design, section 7).

For min over θ, max over λ in a box, of L(θ, λ), with z = (θ, λ) and F = (∇_θ L, −∇_λ L):

    extra          y = Π(z − η F(z)),              z ← Π(z − η F(y))     two gradients a step
    optimistic     y = Π(z − η F(last y)),         z ← Π(z − η F(y))     one (Popov's past gradient)
    simultaneous   z ← Π(z − η F(z))                                     one; for comparison only

The last one, gradient descent-ascent, spirals away from the saddle of the game θλ; the first two
converge for a monotone, L-Lipschitz F when ηL < 1 and ηL < ½. A network's F is not monotone
(errata 31): the theorems guide the choice, they do not promise its training.

Decisions where the paper is silent or contradicts itself:

* **Preconditioner.** Adam on θ alone. λ takes plain steps: Adam would divide a defect by its own
  size, and multipliers of constraints that hold would move as fast as those of broken ones.
* **Moments** are updated once a step, with the gradient at y. The extrapolation uses the moments
  that the gradient at z would give, then forgets them. So each direction is scaled by its own
  gradient too, and bounded where the other of the two vanishes.
* **Momentum.** β₁ = 0 by default: with 0.9 the bilinear game diverges (tests), as it does with the
  default of cooper's ExtraAdam. Where the fit bends L in θ and λ is slow, momentum is safe (tests),
  and a network is fitted better with it: `Settings` takes (0.9, 0.99), and a ``dual_lr`` small
  enough for the multipliers to move without swinging.
* **Projection.** `project` acts on the parameters in place, at y and after the step, as in the
  paper's appendix D. The proof needs y in the feasible set: only there is ⟨F(y), y − z*⟩ ≥ 0.
  `project_half=False`, as in training, leaves y free, for half the projections and no theorem.
* **Noise.** One step should use one batch for both its gradients: with two batches the difference
  F(y) − F(z), on which the method depends, is dominated by the difference of the batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from arbiter_lab.training.duals import Box, Duals

__all__ = ["Box", "Duals", "Evaluation", "ExtraGradient", "Lagrangian", "Mode", "Rates", "Step"]

Mode = Literal["extra", "optimistic", "simultaneous"]


class Evaluation(NamedTuple):
    """L at the current parameters and multipliers."""

    value: Tensor
    """L = fit + Σ ⟨λ, defect⟩, a scalar."""
    defects: Mapping[str, Tensor]
    """The defects by block: ∇_λ L."""
    gradients: Sequence[Tensor] | None = None
    """∇_θ L in the order of the parameters, where the caller has it already (a recorded graph);
    left out, ``value`` is differentiated here."""


Lagrangian = Callable[[Duals], tuple[Tensor, Mapping[str, Tensor]] | Evaluation]
"""What is called at each point: the value and the defects, or an `Evaluation`."""

# Largest entry of Adam's direction. Without a bound it is 1/√(1 − β₂) at a gradient that was small
# for long, 32 steps at once; the extrapolation then throws the point far out, again and again.
MAX_ADAM_ENTRY = 2.0


@dataclass(frozen=True)
class Rates:
    """Step sizes and method of the optimiser.

    Attributes:
        lr: Step of θ. With Adam no parameter moves by more than twice this in one step.
        dual_lr: Step of λ, times each block's own rate; plain ascent.
        betas: Adam's decay rates; None takes plain gradient steps.
        eps: Adam's floor under the root of the second moment.
        ramp_steps: Over so many steps the step of λ rises linearly to ``dual_lr``.
        mode: Which of the three methods.
        clip: Bound on the Euclidean norm of the whole gradient of θ; None for no bound.
        project_half: Whether ``project`` acts at the extrapolated point too.
        check_every: Number of steps between checks for gradients that are not finite, which end
            the training; each check waits for the device. 0 never checks.
    """

    lr: float = 1e-3
    dual_lr: float = 1e-2
    betas: tuple[float, float] | None = (0.0, 0.999)
    eps: float = 1e-8
    ramp_steps: int = 0
    mode: Mode = "extra"
    clip: float | None = None
    project_half: bool = True
    check_every: int = 1

    def __post_init__(self) -> None:
        for name in ("lr", "dual_lr", "eps"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if self.betas is not None and not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas must lie in [0, 1), got {self.betas}; None for plain steps")
        if self.clip is not None and not self.clip > 0.0:
            raise ValueError(f"clip must be positive, got {self.clip}; None for no clipping")
        for name in ("ramp_steps", "check_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {get_args(Mode)}, got {self.mode!r}")


class Step(NamedTuple):
    """Measurements of one step, as tensors on the device.

    They are taken at the current point; in mode ``optimistic`` at the extrapolated one, the only
    point that it evaluates.
    """

    value: Tensor
    """L(θ, λ), a scalar."""
    defects: dict[str, Tensor]
    """∇_λ L by block."""
    dual_residual: Tensor
    """Natural residual of λ."""
    gradient_norm: Tensor
    """Norm of ∇_θ L before clipping."""


class ExtraGradient:
    """Optimiser of a saddle point: minimises over parameters, maximises over multipliers.

    >>> theta = torch.zeros(1, requires_grad=True)
    >>> duals = Duals({"ceiling": Box.inequality(1, 10.0)})
    >>> def lagrangian(duals):  # min (θ − 2)² subject to θ ≤ 1: the multiplier is 2
    ...     defects = {"ceiling": theta - 1.0}
    ...     return ((theta - 2.0) ** 2).sum() + duals.inner_product(defects), defects
    >>> optimiser = ExtraGradient([theta], duals, Rates(lr=0.1, dual_lr=0.1, betas=None))
    >>> for _ in range(300):
    ...     seen = optimiser.step(lagrangian)
    >>> round(float(theta.detach()), 4), round(float(duals["ceiling"]), 4)
    (1.0, 2.0)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        duals: Duals,
        rates: Rates | None = None,
        project: Callable[[], object] | None = None,
    ) -> None:
        """Hold the parameters and multipliers; both are changed in place by ``step``.

        Args:
            params: Leaf tensors that require gradients, always in the same order.
            duals: The multipliers.
            rates: How steps are taken.
            project: Brings the parameters back into their feasible set, in place (Q-Align and the
                guard); what it returns is ignored.
        """
        self.params = list(params)
        if not self.params:
            raise ValueError("params is empty: there is nothing to train")
        for place, p in enumerate(self.params):
            if not (p.is_leaf and p.requires_grad):
                raise ValueError(f"params[{place}] must be a leaf tensor that requires a gradient")
        self.duals = duals
        self.rates = rates or Rates()
        self.project = project
        self.lr = self.rates.lr
        self.dual_lr = self.rates.dual_lr
        self.steps = 0
        self._square = self._zeros() if self.rates.betas else []
        self._momentum = self._zeros() if self.rates.betas and self.rates.betas[0] else []
        self._stale = self._zeros() if self.rates.mode == "optimistic" else []
        self._start = self._zeros()
        self._stale_dual = torch.zeros_like(duals.vector)

    @property
    def ramped_dual_lr(self) -> float:
        """Step of λ that the next step will take."""
        ramp = self.rates.ramp_steps
        return self.dual_lr * min(1.0, (self.steps + 1) / ramp) if ramp else self.dual_lr

    def step(self, lagrangian: Lagrangian) -> Step:
        """Take one step and return its measurements.

        ``lr`` and ``dual_lr`` of this object may be set between steps, for a schedule.

        Args:
            lagrangian: Called once or twice, at different points; see `Lagrangian`.

        Raises:
            FloatingPointError: If a gradient is not finite (see ``Rates.check_every``); parameters
                and multipliers are then where they were before the step.
        """
        mode, dual_lr = self.rates.mode, self.ramped_dual_lr
        start_dual = self.duals.vector.clone()
        with torch.no_grad():
            torch._foreach_copy_(self._start, self.params)
        try:
            if mode == "optimistic":
                self._move_parameters(self._stale, self.rates.project_half)
                self.duals.take_projected_step(start_dual, self._stale_dual, dual_lr)
            seen, gradients, dual = self._evaluate_gradients(lagrangian)
            if mode == "extra":
                self._move_parameters(
                    self._direction(gradients, keep=False), self.rates.project_half
                )
                self.duals.take_projected_step(start_dual, dual, dual_lr)
                _, gradients, dual = self._evaluate_gradients(lagrangian)
        except BaseException:
            self._restore(start_dual)
            raise
        direction = self._direction(gradients, keep=True)
        self._move_parameters(direction, projected=True)
        self.duals.take_projected_step(start_dual, dual, dual_lr)
        if mode == "optimistic":
            self._stale, self._stale_dual = direction, dual
        self.steps += 1
        return seen

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the optimiser besides the parameters, as named tensors.

        Training that goes on from a copy of it (and of the parameters, and of the state of what
        draws the batches) takes the same steps, bit for bit.
        """
        state = {
            "steps": torch.tensor(self.steps),
            "rates": torch.tensor([self.lr, self.dual_lr], dtype=torch.float64),
            "duals": self.duals.vector.clone(),
            "stale_dual": self._stale_dual.clone(),
        }
        for name, group in self._moment_groups().items():
            state |= {f"{name}.{place}": tensor.clone() for place, tensor in enumerate(group)}
        return state

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state of `state_dict`.

        Raises:
            ValueError: If it belongs to other parameters, multipliers, or another method.
        """
        own = self.state_dict()
        if state.keys() != own.keys():
            odd = sorted(state.keys() ^ own.keys())
            raise ValueError(
                f"the state has other parts than this optimiser, among them {odd[:3]}: use the "
                "same parameters, mode and betas as the run that is resumed"
            )
        for name, tensor in own.items():
            if state[name].shape != tensor.shape or state[name].dtype != tensor.dtype:
                raise ValueError(
                    f"{name} of the state is {tuple(state[name].shape)} {state[name].dtype}, here "
                    f"{tuple(tensor.shape)} {tensor.dtype}: it belongs to other parameters"
                )
        self.duals.assign(state["duals"])
        self.steps = int(state["steps"])
        self.lr, self.dual_lr = (float(rate) for rate in state["rates"])
        self._stale_dual.copy_(state["stale_dual"])
        for name, group in self._moment_groups().items():
            for place, tensor in enumerate(group):
                tensor.copy_(state[f"{name}.{place}"])

    def _moment_groups(self) -> dict[str, list[Tensor]]:
        return {"square": self._square, "momentum": self._momentum, "stale": self._stale}

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(p, requires_grad=False) for p in self.params]

    def _evaluate_gradients(self, lagrangian: Lagrangian) -> tuple[Step, list[Tensor], Tensor]:
        """Value, gradient of θ (clipped) and gradient of λ at the current point."""
        value, defects, ready = Evaluation(*lagrangian(self.duals))
        gradients = self._differentiate_value(value) if ready is None else list(ready)
        dual = self.duals.gradient(defects)
        norms = torch._foreach_norm(gradients)
        norm = torch.linalg.vector_norm(torch.stack(norms))
        every = self.rates.check_every
        if every and self.steps % every == 0 and not bool(torch.isfinite(norm + dual.sum())):
            self._raise_not_finite(norms, value)
        if self.rates.clip is not None:
            torch._foreach_mul_(gradients, (self.rates.clip / (norm + 1e-12)).clamp(max=1.0))
        # Copies, because a recorded graph writes its next results in the same places.
        plain = {name: defect.detach().clone() for name, defect in defects.items()}
        seen = Step(value.detach().clone(), plain, self.duals.residual(plain), norm)
        return seen, gradients, dual

    def _differentiate_value(self, value: Tensor) -> list[Tensor]:
        """∇_θ L. Through ``backward``, on which data-parallel training hangs its averaging."""
        for p in self.params:
            p.grad = None
        value.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        for p in self.params:
            p.grad = None
        return gradients

    def _raise_not_finite(self, norms: Iterable[Tensor], value: Tensor) -> None:
        bad = [place for place, norm in enumerate(norms) if not bool(torch.isfinite(norm))]
        where = f"params {bad[:5]}" if bad else "the multipliers"
        raise FloatingPointError(
            f"step {self.steps}: the gradient of {where} is not finite (L is "
            f"{float(value.detach()):.6g}); lower lr, set clip, or go on from the last checkpoint "
            "with another batch"
        )

    @torch.no_grad()
    def _direction(self, gradients: list[Tensor], *, keep: bool) -> list[Tensor]:
        """Return Adam's direction after one more gradient; ``keep`` stores the updated moments."""
        if self.rates.betas is None:
            return [gradient.clone() for gradient in gradients]
        beta1, beta2 = self.rates.betas
        count = self.steps + 1
        square = torch._foreach_mul(self._square, beta2)
        torch._foreach_addcmul_(square, gradients, gradients, value=1.0 - beta2)
        scale = torch._foreach_sqrt(square)
        torch._foreach_div_(scale, math.sqrt(1.0 - beta2**count))
        torch._foreach_add_(scale, self.rates.eps)
        momentum = torch._foreach_lerp(self._momentum, gradients, 1.0 - beta1) if beta1 else ()
        mean = torch._foreach_div(momentum, 1.0 - beta1**count) if beta1 else gradients
        bound = torch._foreach_abs(mean)
        torch._foreach_div_(bound, MAX_ADAM_ENTRY)
        torch._foreach_maximum_(scale, bound)
        direction = torch._foreach_div(mean, scale)
        if keep:
            self._square, self._momentum = list(square), list(momentum)
        return list(direction)

    @torch.no_grad()
    def _move_parameters(self, direction: list[Tensor], projected: bool) -> None:
        """Set θ to its start − lr · direction, and project."""
        torch._foreach_copy_(self.params, self._start)
        torch._foreach_add_(self.params, direction, alpha=-self.lr)
        if projected and self.project is not None:
            self.project()

    @torch.no_grad()
    def _restore(self, start_dual: Tensor) -> None:
        torch._foreach_copy_(self.params, self._start)
        self.duals.vector.copy_(start_dual)
