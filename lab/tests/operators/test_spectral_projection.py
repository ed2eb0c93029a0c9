"""Q-Align is the projection; the paper's scaling is not, and does not keep its promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from arbiter_lab.differentiable.operators.law.spectral_projection import (
    Aligned,
    align,
    clip,
    maps,
    norm_bound,
    scale_by_power,
)
from arbiter_lab.differentiable.operators.network.config import Config
from counts import count
from ragged_chains import network

seeds = st.integers(0, 2**31)
sizes = st.integers(1, 7)


def matrix(seed: int, rows: int, columns: int, size: float = 1.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return size * torch.randn(rows, columns, generator=g, dtype=torch.float64)


def spectral(W: Tensor) -> float:
    return float(torch.linalg.matrix_norm(W.double(), 2))


def tolerance(W: Tensor, budget: float) -> float:
    """How far align() may be from the projection, in spectral norm.

    A part by which the upper bound of the norm exceeds it; and singular values near the budget,
    whose sign is undecided in a band that is as wide as the excess of the largest is large.
    """
    return budget * (3e-3 + max((spectral(W) / budget) ** 2 - 1.0, 1.0) / 2000.0)


def inner(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())


def distance(a: Tensor, b: Tensor) -> float:
    return float(torch.linalg.matrix_norm(a - b))


def obtuse(rule: Tensor, W: Tensor, seed: int, budget: float) -> float:
    """Largest ⟨W − PW, V − PW⟩ over points V of the ball: not positive iff P projects onto it."""
    worst = -torch.inf
    for i in range(20):
        V = matrix(seed + i, *W.shape)
        V = V * (budget / spectral(V))
        worst = max(worst, inner(W - rule, V - rule))
    # the point of the ball that is worst of all: the polar factor of W − PW
    U, _, Vh = torch.linalg.svd(W - rule, full_matrices=False)
    return max(worst, inner(W - rule, budget * U @ Vh - rule))


@given(seed=seeds, rows=sizes, columns=sizes, size=st.floats(0.1, 10.0))
def test_clip_is_the_projection(seed: int, rows: int, columns: int, size: float) -> None:
    W = matrix(seed, rows, columns, size)
    kept = clip(W, 1.5)
    assert spectral(kept) <= 1.5 * (1.0 + 1e-12)
    assert obtuse(kept, W, seed, 1.5) <= 1e-10 * size**2


def test_clip_is_the_nearest_point_that_a_search_finds() -> None:
    W = matrix(3, 3, 4, 2.0)
    free = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    search = torch.optim.Adam([free], lr=0.05)
    for _ in range(count(2000, 600)):
        search.zero_grad()
        inside = free / torch.linalg.matrix_norm(free, 2).clamp(min=1.0)
        (inside - W).square().sum().backward()
        search.step()
    with torch.no_grad():
        found = free / torch.linalg.matrix_norm(free, 2).clamp(min=1.0)
        assert distance(clip(W, 1.0), W) <= distance(found, W) + 1e-9
        assert distance(found, clip(W, 1.0)) < 0.05


def test_scaling_is_not_the_projection() -> None:
    W = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    scaled = W / 3.0
    assert obtuse(scaled, W, 0, 1.0) > 0.1
    assert distance(clip(W, 1.0), W) < distance(scaled, W)


@given(first=seeds, second=seeds, size=st.floats(0.1, 10.0))
def test_clip_is_firmly_nonexpansive(first: int, second: int, size: float) -> None:
    W, V = matrix(first, 4, 3, size), matrix(second, 4, 3, size)
    moved = clip(W, 1.0) - clip(V, 1.0)
    assert inner(moved, moved) <= inner(moved, W - V) + 1e-10 * size**2


def test_scaling_can_move_two_matrices_apart() -> None:
    """1 and diag(1 + h, 1 − h), √2·h apart, become 2h apart; the projection moves them closer."""
    W = torch.eye(2, dtype=torch.float64)
    V = torch.diag(torch.tensor([1.001, 0.999], dtype=torch.float64))
    scaled = [X / max(spectral(X), 1.0) for X in (W, V)]
    assert distance(*scaled) / distance(W, V) > 1.41
    assert distance(clip(W, 1.0), clip(V, 1.0)) < distance(W, V)
    # with the top vector for a start, the paper's rule is that scaling
    top = [torch.tensor([1.0, 0.0], dtype=torch.float64)] * 2
    ruled = [scale_by_power(X, 1.0, start) for X, start in zip((W, V), top, strict=True)]
    assert distance(*ruled) / distance(W, V) > 1.41


def test_one_power_iteration_leaves_the_ball() -> None:
    """The estimate is never above the norm; from a start off the top vector it is far below."""
    W = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    start = torch.tensor([0.01, 1.0], dtype=torch.float64)
    assert spectral(scale_by_power(W, 1.0, start)) > 1.5
    assert spectral(clip(W, 1.0)) <= 1.0 + 1e-12


@given(seed=seeds, rows=sizes, columns=sizes, size=st.floats(1e-3, 1e3))
def test_norm_bound_is_above_the_norm_and_close(
    seed: int, rows: int, columns: int, size: float
) -> None:
    W = matrix(seed, rows, columns, size)
    for number, slack in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        bound = float(norm_bound(W.to(number)))
        assert spectral(W.to(number)) * (1.0 - slack) <= bound
        assert bound <= spectral(W) * 7.0 ** (1.0 / 2048) * (1.0 + 1e-5)


def test_norm_bound_of_many_equal_singular_values() -> None:
    Q, _ = torch.linalg.qr(matrix(1, 192, 192))
    assert 1.0 <= float(norm_bound(Q)) < 1.0027


def blocks(seed: int, size: float, number: torch.dtype = torch.float64) -> list[Aligned]:
    torch.manual_seed(seed)
    made = [
        Aligned(5, 9, 1.0),
        Aligned(9, 4, 2.0),
        Aligned(7, 7, 0.5),
        Aligned(6, 3, 1.0, rows=True),
    ]
    for part in made:
        part.to(number).requires_grad_(False)
        part.weight.mul_(size * torch.rand(()) * 3.0).add_(
            0.3 * size * torch.randn_like(part.weight)
        )
    return made


@pytest.mark.parametrize("number", [torch.float64, torch.float32])
@settings(max_examples=count(200, 25))
@given(seed=seeds, size=st.floats(0.1, 3.0))
def test_align_is_the_projection_within_tolerance_and_inside_the_ball(
    number: torch.dtype, seed: int, size: float
) -> None:
    parts = blocks(seed, size, number)
    before = [part.weight.clone() for part in parts]
    moved = float(align(parts))
    total = 0.0
    for part, W in zip(parts, before, strict=True):
        if part.rows:
            norms = torch.linalg.vector_norm(part.weight, dim=1)
            assert float(norms.max()) <= part.budget * (1.0 + 1e-6)
            inside = torch.linalg.vector_norm(W, dim=1) <= part.budget
            assert torch.equal(part.weight[inside], W[inside])
        else:
            assert spectral(part.weight) <= part.budget * (1.0 + 2e-6)
            off = spectral(part.weight.double() - clip(W.double(), part.budget))
            assert off <= tolerance(W, part.budget)
        total += distance(part.weight, W)
    assert moved == pytest.approx(total, rel=1e-4, abs=1e-6)


def aligned(W: Tensor) -> Tensor:
    part = Aligned(W.shape[1], W.shape[0], 1.0).to(W.dtype).requires_grad_(False)
    part.weight.copy_(W)
    align([part])
    return part.weight.clone()


def firmness(rule: Callable[[Tensor], Tensor], W: Tensor, V: Tensor) -> tuple[float, float]:
    """``‖PW − PV‖² − ⟨PW − PV, W − V⟩`` of a rule P, and what align's tolerance allows.

    Of the projection the first is not positive. Let d be by how much the rule's difference is off
    the projection's, which moves nothing apart: then the first is at most
    ``‖d‖(3‖W − V‖ + ‖d‖)``, and ``‖d‖`` at most √rank times two tolerances.
    """
    moved = rule(W) - rule(V)
    off = min(W.shape) ** 0.5 * (tolerance(W, 1.0) + tolerance(V, 1.0))
    return inner(moved, moved - (W - V)), off * (3.0 * distance(W, V) + off)


@settings(max_examples=count(400, 40))
@given(
    seed=seeds,
    rows=sizes,
    columns=sizes,
    size=st.floats(0.1, 3.0),
    apart=st.sampled_from([1e-3, 1e-2, 0.1, 1.0]),
)
def test_align_is_firmly_nonexpansive_but_for_its_distance_from_the_projection(
    seed: int, rows: int, columns: int, size: float, apart: float
) -> None:
    W = matrix(seed, rows, columns, size)
    V = W + matrix(seed + 1, rows, columns, apart)
    broken, allowed = firmness(aligned, W, V)
    assert broken <= allowed


def test_scaling_is_not_firmly_nonexpansive_by_more_than_that() -> None:
    W = torch.eye(2, dtype=torch.float64)
    V = torch.diag(torch.tensor([1.3, 0.7], dtype=torch.float64))
    broken, allowed = firmness(lambda X: X / max(spectral(X), 1.0), W, V)
    assert broken > 5.0 * allowed


def test_align_by_itself_moves_some_maps_apart() -> None:
    """Its last division is a scaling. At the sphere it shows, by no more than the tolerance."""
    W = 0.9995 * torch.eye(2, dtype=torch.float64)
    V = W @ torch.diag(torch.tensor([1.003, 0.997], dtype=torch.float64))
    assert distance(aligned(W), aligned(V)) / distance(W, V) > 1.15
    assert distance(clip(W, 1.0), clip(V, 1.0)) <= distance(W, V)
    broken, allowed = firmness(aligned, W, V)
    assert 0.0 < broken <= allowed


def test_align_of_a_whole_network() -> None:
    """The sizes of the default network, every map four times its budget."""
    torch.manual_seed(1)
    parts = [
        Aligned(82, 192, 2.0),
        Aligned(192, 64, 1.0),
        Aligned(192, 384, 1.4),
        Aligned(384, 192, 1.4),
    ]
    for part in parts:
        part.requires_grad_(False)
        part.weight.mul_(4.0 * part.budget).add_(0.05 * torch.randn_like(part.weight))
    before = [part.weight.clone() for part in parts]
    align(parts)
    for part, W in zip(parts, before, strict=True):
        assert spectral(part.weight) <= part.budget * (1.0 + 1e-6)
        assert spectral(part.weight - clip(W, part.budget)) <= tolerance(W, part.budget)


def test_align_leaves_what_is_inside_alone() -> None:
    parts = blocks(1, 1.0)
    for part in parts:
        part.weight.mul_(0.3 / max(spectral(part.weight), 1.0))
    before = [part.weight.clone() for part in parts]
    assert float(align(parts)) < 1e-12
    for part, W in zip(parts, before, strict=True):
        torch.testing.assert_close(part.weight, W, rtol=1e-14, atol=0.0)


def test_a_map_that_is_not_handed_over_stays_outside() -> None:
    parts = blocks(3, 3.0)
    parts[2].weight.mul_(10.0)
    align(parts[:2])
    assert spectral(parts[2].weight) > parts[2].budget


def test_the_paper_s_rule_is_one_flag_away() -> None:
    ours, theirs = network(1, 1.0), network(1, 1.0, alignment="scaling")
    free = network(1, 1.0, align=False)
    weights = [part.weight.detach().clone() for part in maps(theirs)]
    for made in (ours, theirs, free):
        made.align()
    for part, W in zip(maps(theirs), weights, strict=True):
        ratio = part.weight.detach() / W
        torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=1e-9, atol=0.0)
    over = [spectral(part.weight.detach()) / part.budget for part in maps(theirs) if not part.rows]
    within = [spectral(part.weight.detach()) / part.budget for part in maps(ours) if not part.rows]
    assert max(within) <= 1.0 + 1e-6 < max(over)
    for part, W in zip(maps(free), weights, strict=True):
        assert torch.equal(part.weight.detach(), W)


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="projection"):
        align(blocks(1, 1.0), "halving")
    with pytest.raises(ValueError, match="alignment = 'halving'"):
        Config(alignment="halving")
