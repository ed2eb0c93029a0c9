"""Saddle points that are known exactly are found, and methods that miss them are seen to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arbiter_lab.training.duality import estimate_dual_gap, estimate_ratio_log
from arbiter_lab.training.duals import Box, Duals
from arbiter_lab.training.saddle import Evaluation, ExtraGradient, Lagrangian, Mode, Rates

MODES: tuple[Mode, ...] = ("extra", "optimistic", "simultaneous")
PLAIN = Rates(lr=0.45, dual_lr=0.45, betas=None)  # the games below are 1-Lipschitz
ADAM = Rates(lr=0.05, dual_lr=0.3)


def uniform(*shape: int) -> Tensor:
    return 2.0 * torch.rand(*shape, dtype=torch.float64) - 1.0


class Problem(NamedTuple):
    theta: Tensor
    duals: Duals
    lagrangian: Lagrangian
    solution: Tensor  # θ*, then λ*

    def distance(self) -> float:
        z = torch.cat([self.theta.detach(), self.duals.vector])
        return float((z - self.solution).norm())


def game(n: int = 4, curvature: float = 0.0, bound: float = 1e3) -> Problem:
    """min max b·x + y·(Aᵀx + c) ± curvature/2 |·|², with singular values of A in [0.6, 1]."""
    left, right = (torch.linalg.qr(uniform(n, n))[0] for _ in range(2))
    A = left @ torch.diag(torch.linspace(0.6, 1.0, n, dtype=torch.float64)) @ right
    x, y = uniform(n), uniform(n)
    b, c = -A @ y - curvature * x, -A.T @ x + curvature * y
    theta = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    duals = Duals({"y": Box.signed(n, bound)}, dtype=torch.float64)

    def lagrangian(duals: Duals) -> tuple[Tensor, dict[str, Tensor]]:
        y = duals["y"]
        value = b @ theta + y @ (A.T @ theta + c)
        value = value + 0.5 * curvature * ((theta**2).sum() - (y**2).sum())
        return value, {"y": A.T @ theta + c - curvature * y}

    return Problem(theta, duals, lagrangian, torch.cat([x, y]))


def constrained(bound: float = 10.0, active: int = 2) -> Problem:
    """min ½θᵀQθ + q·θ subject to Gθ ≤ h, built around its solution and multipliers."""
    n, m = 4, 3
    root = uniform(n, n)
    Q = root @ root.T + torch.eye(n, dtype=torch.float64)
    G, x = uniform(m, n), uniform(n)
    multipliers = torch.zeros(m, dtype=torch.float64)
    multipliers[:active] = 0.5 + torch.rand(active, dtype=torch.float64)
    slack = torch.where(multipliers > 0.0, 0.0, 0.5)
    q, h = -Q @ x - G.T @ multipliers, G @ x + slack
    theta = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    duals = Duals({"ceiling": Box.inequality(m, bound)}, dtype=torch.float64)

    def lagrangian(duals: Duals) -> tuple[Tensor, dict[str, Tensor]]:
        defects = {"ceiling": G @ theta - h}
        return 0.5 * theta @ Q @ theta + q @ theta + duals.inner_product(defects), defects

    return Problem(theta, duals, lagrangian, torch.cat([x, multipliers]))


def run(problem: Problem, rates: Rates, steps: int, decay: bool = False) -> float:
    """Distance to the solution after so many steps, as a multiple of that before."""
    before = problem.distance()
    optimiser = ExtraGradient([problem.theta], problem.duals, rates)
    for step in range(steps):
        if decay:
            optimiser.lr = rates.lr * (1.0 - step / steps)
        optimiser.step(problem.lagrangian)
    return problem.distance() / before


@pytest.mark.parametrize("mode", ["extra", "optimistic"])
def test_bilinear_game_is_solved(mode: Mode) -> None:
    assert run(game(), replace(PLAIN, mode=mode), 500) < 1e-6


def test_descent_ascent_leaves_the_bilinear_game() -> None:
    assert run(game(), replace(PLAIN, mode="simultaneous"), 50) > 10.0


@pytest.mark.parametrize("mode", MODES)
def test_strongly_monotone_saddle_is_found_by_all(mode: Mode) -> None:
    assert run(game(curvature=1.0), replace(PLAIN, lr=0.3, dual_lr=0.3, mode=mode), 120) < 1e-6


@pytest.mark.parametrize(("mode", "found"), [*zip(MODES, [True, True, False], strict=True)])
def test_strongly_monotone_saddle_is_left_by_descent_ascent_at_the_same_step(
    mode: Mode, found: bool
) -> None:
    """μ/2|x|² + xᵀAy − μ/2|y|², shifted, with μ = 0.1 and singular values σ of A up to 1.

    Along a pair of singular vectors F is multiplication by μ + iσ. So a step η of descent-ascent
    multiplies the distance by |1 − η(μ + iσ)|, which at σ = 1 is below one only for
    η < 2μ/(μ² + σ²) = 0.198: strong monotonicity alone does not make it converge, its step has to
    shrink with μ. Extragradient multiplies by |1 − q + q²| with q = η(μ + iσ), below one at 0.45
    for every σ here, as for every monotone F with ηL < 1; the optimistic step is within its ½.
    """
    mu, eta, steps = 0.1, PLAIN.lr, 200
    assert 2.0 * mu / (mu**2 + 1.0) < eta < 0.5
    left = run(game(curvature=mu), replace(PLAIN, mode=mode), steps)
    assert left < 1e-6 if found else left > 10.0
    if mode == "extra":
        factors = [eta * complex(mu, sigma) for sigma in (0.6, 1.0)]
        assert left <= max(abs(1.0 - q + q * q) for q in factors) ** steps
    # and where its own limit is kept, descent-ascent gets there too
    small = replace(PLAIN, lr=0.1, dual_lr=0.1, mode=mode)
    assert run(game(curvature=mu), small, 800) < 0.05


@pytest.mark.parametrize(("mode", "found"), [*zip(MODES, [True, True, False], strict=True)])
def test_game_on_boxes(mode: Mode, found: bool) -> None:
    """Matching pennies: (2x − 1)(2y − 1) on [0, 1]² has its saddle in the middle."""
    x = torch.tensor([0.9], dtype=torch.float64, requires_grad=True)
    duals = Duals({"y": Box.inequality(1, 1.0)}, dtype=torch.float64)

    def lagrangian(duals: Duals) -> tuple[Tensor, dict[str, Tensor]]:
        defects = {"y": 2.0 * (2.0 * x - 1.0)}
        return duals.inner_product(defects) - (2.0 * x - 1.0).sum(), defects

    def clamp() -> None:
        x.data.clamp_(0.0, 1.0)

    optimiser = ExtraGradient([x], duals, Rates(lr=0.1, dual_lr=0.1, betas=None, mode=mode), clamp)
    for _ in range(300):
        optimiser.step(lagrangian)
    apart = max(abs(float(x.detach()) - 0.5), abs(float(duals["y"]) - 0.5))
    assert apart < 1e-6 if found else apart > 0.3


@pytest.mark.parametrize("mode", ["extra", "optimistic"])
def test_adam_without_momentum_solves_the_bilinear_game(mode: Mode) -> None:
    assert run(game(), replace(ADAM, mode=mode), 1200) < 0.02


@pytest.mark.parametrize("mode", MODES)
def test_adam_with_the_usual_momentum_leaves_it(mode: Mode) -> None:
    """Why betas are not (0.9, 0.999), the default of Adam and of cooper's ExtraAdam."""
    assert run(game(), replace(ADAM, betas=(0.9, 0.999), mode=mode), 600) > 10.0


def test_adam_with_descent_ascent_leaves_it() -> None:
    assert run(game(), replace(ADAM, mode="simultaneous"), 1200) > 2.0


@pytest.mark.parametrize("mode", ["extra", "optimistic"])
@pytest.mark.parametrize("betas", [None, (0.0, 0.999)])
def test_multipliers_of_a_constrained_problem_are_found(
    mode: Mode, betas: tuple[float, float] | None
) -> None:
    problem = constrained()
    rates = Rates(lr=0.1 if betas is None else 0.02, dual_lr=0.2, betas=betas, mode=mode)
    # Adam's steps do not shrink with the gradient: a constant rate ends in an orbit of its size.
    run(problem, rates, 1200, decay=betas is not None)
    assert problem.distance() < 1e-3
    inactive = problem.solution[4:] == 0.0
    assert torch.equal(problem.duals["ceiling"][inactive], torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize(("dual_lr", "found"), [(0.05, True), (5.0, False)])
@pytest.mark.parametrize("mode", ["extra", "optimistic"])
def test_momentum_is_safe_where_the_multipliers_are_slow(
    mode: Mode, dual_lr: float, found: bool
) -> None:
    """Two time scales: the curvature of the fit outruns slow multipliers, and not fast ones."""
    problem = constrained()
    rates = Rates(lr=0.02, dual_lr=dual_lr, betas=(0.9, 0.99), mode=mode)
    run(problem, rates, 1500, decay=True)
    assert problem.distance() < 1e-2 if found else problem.distance() > 0.5


def test_box_that_is_too_small_leaves_the_constraint_broken() -> None:
    """The multiplier then lies on its bound, which shows the problem to a user."""
    problem = constrained(bound=0.25)
    run(problem, Rates(lr=0.1, dual_lr=0.2, betas=None), 600)
    _, defects = problem.lagrangian(problem.duals)[:2]
    assert torch.equal(problem.duals["ceiling"][:2], torch.full((2,), 0.25, dtype=torch.float64))
    assert float(defects["ceiling"].detach().max()) > 1e-2
    assert float(problem.duals.residual(defects)) < 1e-6


@given(
    defects=st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5),
    step=st.floats(1e-6, 1e6),
    steps=st.integers(1, 5),
)
def test_multipliers_stay_in_their_boxes(defects: list[float], step: float, steps: int) -> None:
    duals = Duals({"a": Box.inequality(2, 3.0), "b": Box.signed(3, 0.5, rate=2.0)})
    gradient = torch.tensor(defects, dtype=torch.float32)
    for _ in range(steps):
        duals.take_projected_step(duals.vector.clone(), gradient, step)
        assert bool(((duals["a"] >= 0.0) & (duals["a"] <= 3.0)).all())
        assert bool((duals["b"].abs() <= 0.5).all())


@given(st.lists(st.floats(-10.0, 10.0), min_size=3, max_size=3))
def test_supremum_over_the_box_is_that_of_its_corners(defect: list[float]) -> None:
    duals = Duals({"a": Box.inequality(1, 3.0), "b": Box.signed(2, 0.5)}, dtype=torch.float64)
    d = torch.tensor(defect, dtype=torch.float64)
    corners = itertools.product((0.0, 3.0), (-0.5, 0.5), (-0.5, 0.5))
    best = max(float(torch.tensor(corner, dtype=torch.float64) @ d) for corner in corners)
    assert float(duals.box_supremum({"a": d[:1], "b": d[1:]})) == pytest.approx(best, abs=1e-12)


def test_natural_residual_vanishes_at_the_maximiser_where_the_gradient_does_not() -> None:
    duals = Duals({"a": Box.inequality(2, 3.0)})
    defects = {"a": torch.tensor([1.0, -1.0])}
    assert float(duals.residual(defects)) == 1.0
    duals.assign(torch.tensor([3.0, 0.0]))
    assert float(duals.residual(defects)) == 0.0
    assert float(duals.gradient(defects).norm()) > 1.0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("betas", [None, (0.0, 0.99), (0.9, 0.99)])
def test_training_resumes_bit_for_bit(mode: Mode, betas: tuple[float, float] | None) -> None:
    rates = Rates(lr=0.01, dual_lr=0.1, betas=betas, ramp_steps=15, mode=mode, clip=0.5)
    problem = constrained()
    optimiser = ExtraGradient([problem.theta], problem.duals, rates)
    for _ in range(10):
        optimiser.step(problem.lagrangian)
    optimiser.lr = 0.005
    state, theta = optimiser.state_dict(), problem.theta.detach().clone()

    def onwards(optimiser: ExtraGradient) -> Tensor:
        for _ in range(10):
            optimiser.step(problem.lagrangian)
        return torch.cat([problem.theta.detach(), problem.duals.vector])

    straight = onwards(optimiser)
    problem.theta.data.copy_(theta)
    resumed = ExtraGradient([problem.theta], problem.duals, rates)
    resumed.load_state_dict(state)
    assert torch.equal(onwards(resumed), straight)
    # Without the state the same ten steps lead elsewhere.
    problem.theta.data.copy_(theta)
    problem.duals.assign(state["duals"])
    assert not torch.equal(onwards(ExtraGradient([problem.theta], problem.duals, rates)), straight)


def test_state_of_another_optimiser_is_refused() -> None:
    one, other = game(4), game(3)
    state = ExtraGradient([one.theta], one.duals, ADAM).state_dict()
    with pytest.raises(ValueError, match=r"duals of the state is \(4,\)"):
        ExtraGradient([other.theta], other.duals, ADAM).load_state_dict(state)
    with pytest.raises(ValueError, match="same parameters, mode and betas"):
        ExtraGradient([one.theta], one.duals, PLAIN).load_state_dict(state)
    state["duals"] += 1e9
    with pytest.raises(ValueError, match="outside their box"):
        ExtraGradient([one.theta], one.duals, ADAM).load_state_dict(state)


def test_rate_of_the_multipliers_is_ramped() -> None:
    problem = constrained()
    optimiser = ExtraGradient([problem.theta], problem.duals, replace(PLAIN, ramp_steps=4))
    rates = []
    for _ in range(6):
        rates.append(optimiser.ramped_dual_lr)
        optimiser.step(problem.lagrangian)
    assert rates == pytest.approx([0.1125, 0.225, 0.3375, 0.45, 0.45, 0.45])


@pytest.mark.parametrize(("half", "projections", "leaves"), [(True, 2, False), (False, 1, True)])
def test_where_the_projection_acts(half: bool, projections: int, leaves: bool) -> None:
    """At the extrapolated point too, or L is evaluated outside the feasible set."""
    problem = game()
    problem.theta.data.fill_(0.01)
    calls, seen = [], []

    def shrink() -> None:
        calls.append(1)
        problem.theta.data.clamp_(-0.01, 0.01)

    def watched(duals: Duals) -> tuple[Tensor, object]:
        seen.append(float(problem.theta.detach().abs().max()))
        return problem.lagrangian(duals)[:2]

    rates = replace(PLAIN, project_half=half)
    optimiser = ExtraGradient([problem.theta], problem.duals, rates, shrink)
    for _ in range(5):
        optimiser.step(watched)  # type: ignore[arg-type]
    assert len(calls) == 5 * projections
    assert (max(seen) > 0.01) is leaves
    assert float(problem.theta.detach().abs().max()) <= 0.01


@pytest.mark.parametrize("mode", MODES)
def test_gradient_that_is_not_finite_stops_where_the_step_began(mode: Mode) -> None:
    problem = constrained()
    optimiser = ExtraGradient([problem.theta], problem.duals, replace(ADAM, mode=mode))
    for _ in range(3):
        optimiser.step(problem.lagrangian)
    before = problem.theta.detach().clone(), problem.duals.vector.clone()

    def broken(duals: Duals) -> tuple[Tensor, dict[str, Tensor]]:
        value, defects = problem.lagrangian(duals)[:2]
        return value * float("inf"), dict(defects)

    with pytest.raises(FloatingPointError, match=r"step 3: the gradient of params \[0\]"):
        optimiser.step(broken)
    assert torch.equal(problem.theta.detach(), before[0])
    assert torch.equal(problem.duals.vector, before[1])
    optimiser.rates = replace(optimiser.rates, check_every=0)
    optimiser.step(broken)
    assert not bool(torch.isfinite(problem.theta).all())


@pytest.mark.parametrize("mode", MODES)
def test_ready_gradients_give_the_same_steps(mode: Mode) -> None:
    """Gradients come in the same buffers every time, as from a recorded graph."""
    ends = []
    for recorded in (False, True):
        torch.manual_seed(1)
        problem = constrained()
        buffer = torch.zeros_like(problem.theta)

        def ready(duals: Duals, problem: Problem = problem, buffer: Tensor = buffer) -> Evaluation:
            value, defects = problem.lagrangian(duals)[:2]
            buffer.data.copy_(torch.autograd.grad(value, problem.theta)[0])
            return Evaluation(value.detach(), defects, [buffer.detach()])

        optimiser = ExtraGradient([problem.theta], problem.duals, replace(ADAM, mode=mode, clip=1))
        for _ in range(20):
            optimiser.step(ready if recorded else problem.lagrangian)
        ends.append(torch.cat([problem.theta.detach(), problem.duals.vector]))
    assert torch.equal(*ends)


@pytest.mark.parametrize("mode", MODES)
def test_no_parameter_moves_by_more_than_two_rates(mode: Mode) -> None:
    """Also at a gradient a thousand times as large as all before it."""
    theta = torch.zeros(3, requires_grad=True)
    optimiser = ExtraGradient([theta], Duals({}), Rates(lr=0.1, mode=mode))
    for size in [1e-3] * 50 + [1.0]:
        before = theta.detach().clone()
        optimiser.step(lambda _, size=size: (size * theta.sum(), {}))  # type: ignore[misc]
        assert float((theta.detach() - before).abs().max()) <= 0.2 + 1e-6
    assert float((theta.detach() - before).abs().max()) > 0.19


def test_clipping_bounds_plain_steps() -> None:
    theta = torch.zeros(4, requires_grad=True)
    rates = Rates(lr=1.0, betas=None, mode="simultaneous", clip=0.5)
    optimiser = ExtraGradient([theta], Duals({}), rates)
    seen = optimiser.step(lambda _: (100.0 * theta.sum(), {}))
    assert float(seen.gradient_norm) == 200.0
    assert float(theta.detach().norm()) == pytest.approx(0.5)


def test_parameter_that_the_loss_does_not_see_stays() -> None:
    seen, unseen = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimiser = ExtraGradient([seen, unseen], Duals({}), ADAM)
    optimiser.step(lambda _: ((seen**2).sum(), {}))
    assert torch.equal(unseen.detach(), torch.ones(2))
    assert not torch.equal(seen.detach(), torch.ones(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box(2, 0.0, float("inf")), "supremum over the multipliers is infinite"),
        (lambda: Box(0, 0.0, 1.0), "leave the block out"),
        (lambda: Box.inequality(1, -1.0), r"finite low <= high, got \[0.0, -1.0\]"),
        (lambda: Rates(lr=0.0), "lr must be positive"),
        (lambda: Rates(betas=(0.9, 1.0)), r"betas must lie in \[0, 1\)"),
        (lambda: Rates(mode="sideways"), "'sideways'"),  # type: ignore[arg-type]
        (lambda: Rates(clip=0.0), "None for no clipping"),
        (lambda: Rates(ramp_steps=-1), "ramp_steps must not be negative"),
        (lambda: ExtraGradient([], Duals({})), "nothing to train"),
        (lambda: ExtraGradient([torch.zeros(1)], Duals({})), r"params\[0\] must be a leaf"),
        (lambda: Duals({"a": Box.signed(2, 1.0)}).inner_product({"a": torch.zeros(3)}), r"\(3,\)"),
        (
            lambda: Duals({"a": Box.signed(2, 1.0)}).inner_product({"b": torch.zeros(2)}),
            "needs both",
        ),
        (lambda: Duals({"a": Box.signed(2, 1.0)}).assign(torch.zeros(3)), "2 multipliers"),
    ],
)
def test_mistakes_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_gap_closes_at_the_saddle_and_nowhere_else() -> None:
    problem = constrained(bound=2.0)
    start = estimate_dual_gap(problem.lagrangian, [problem.theta], problem.duals, steps=50, lr=0.05)
    run(problem, Rates(lr=0.1, dual_lr=0.2, betas=None), 800)
    end = estimate_dual_gap(problem.lagrangian, [problem.theta], problem.duals, steps=50, lr=0.05)
    assert start.gap > 0.1
    assert 0.0 <= end.gap < 1e-6


def test_gap_is_an_underestimate_that_grows_with_the_look_ahead() -> None:
    problem = constrained(bound=2.0)
    problem.duals.assign(torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64))
    gaps = []
    for steps in (0, 5, 50, 2000):
        measured = estimate_dual_gap(
            problem.lagrangian, [problem.theta], problem.duals, steps=steps, lr=0.02
        )
        gaps.append(measured.gap)
        assert measured.primal >= measured.value >= measured.dual
    assert gaps == sorted(gaps)
    # The exact infimum of the quadratic, by one Newton step.
    value, _ = problem.lagrangian(problem.duals)[:2]
    (gradient,) = torch.autograd.grad(value, problem.theta, create_graph=True)
    hessian = torch.stack(
        [torch.autograd.grad(g, problem.theta, retain_graph=True)[0] for g in gradient]
    )
    decrease = 0.5 * gradient @ torch.linalg.solve(hessian, gradient)
    infimum = float((value - decrease).detach())
    assert gaps[0] < gaps[-1] <= measured.primal - infimum + 1e-9
    assert gaps[-1] == pytest.approx(measured.primal - infimum, abs=1e-3)


def test_measuring_the_gap_changes_nothing() -> None:
    problem = constrained()
    problem.duals.assign(torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64))
    theta, duals = problem.theta.detach().clone(), problem.duals.vector.clone()
    estimate_dual_gap(problem.lagrangian, [problem.theta], problem.duals, steps=5, lr=0.1)
    assert torch.equal(problem.theta.detach(), theta)
    assert torch.equal(problem.duals.vector, duals)
    assert problem.theta.grad is None


def test_gap_stays_inside_the_feasible_set() -> None:
    problem = constrained()

    def pin() -> None:
        problem.theta.data.zero_()

    pinned = estimate_dual_gap(
        problem.lagrangian, [problem.theta], problem.duals, steps=5, project=pin
    )
    assert pinned.dual == pinned.value
    free = estimate_dual_gap(problem.lagrangian, [problem.theta], problem.duals, steps=5)
    assert free.dual < free.value


def test_gap_of_a_broken_point_is_refused() -> None:
    problem = constrained()
    problem.theta.data.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="no gap to measure"):
        estimate_dual_gap(problem.lagrangian, [problem.theta], problem.duals)


def test_ratio_of_sides_of_one_sign() -> None:
    assert estimate_ratio_log(2.0, 2.0) == 0.0
    assert estimate_ratio_log(4.0, 2.0) == pytest.approx(0.693147, abs=1e-6)
    assert all(math.isnan(estimate_ratio_log(*x)) for x in ((1.0, 0.0), (1.0, -1.0), (-1.0, -2.0)))
