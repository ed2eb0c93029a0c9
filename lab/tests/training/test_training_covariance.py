"""The covariance of the universe: expectation maximisation finds it from partial views."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tiny
from arbiter.operators.prior.gaussian_process import CLOCK, CLOCKS, STRIKES, ZETA
from arbiter_lab.differentiable.operators.prior.gaussian_process import factor, splines
from arbiter_lab.training import prior_covariance
from arbiter_lab.training.batch_stream import make_generator
from arbiter_lab.training.batches import BatchLayout, draw_batch
from arbiter_lab.training.prior_covariance import (
    NormalEquations,
    build_normal_equations,
    covariance_factor,
    dominant_second_moment,
    gram,
    second_moment,
    smooth_covariance,
)
from ragged_chains import in_units

D = STRIKES * CLOCKS


def views(true: Tensor, surfaces: int, points: int, seed: int = 0) -> NormalEquations:
    """Normal equations of surfaces with second moment ``true``, each seen at a few places."""
    g = torch.Generator().manual_seed(seed)
    size = len(true)
    values, vectors = torch.linalg.eigh(true)
    draws = torch.randn(surfaces, size, generator=g, dtype=torch.float64)
    c = (draws * values.clamp(min=0.0).sqrt()) @ vectors.T
    seen = torch.randn(surfaces, points, size, generator=g, dtype=torch.float64)
    noise = 1e-2 * torch.randn(surfaces, points, generator=g, dtype=torch.float64)
    u = (seen @ c[..., None])[..., 0] + noise
    return NormalEquations(seen.mT @ seen / 1e-4, (seen.mT @ u[..., None])[..., 0] / 1e-4)


def distance(found: Tensor, true: Tensor) -> float:
    return float(torch.linalg.matrix_norm(found - true) / torch.linalg.matrix_norm(true))


def test_a_known_moment_is_found_from_partial_views() -> None:
    size = 12
    at = torch.arange(size, dtype=torch.float64)
    true = 0.2 * torch.exp(-0.5 * ((at[:, None] - at) / 3.0) ** 2)
    familiar = 0.09 * torch.eye(size, dtype=torch.float64)
    seen = views(true, 1500, 6)
    found = second_moment(seen, familiar, iterations=30)
    start = second_moment(seen, familiar, iterations=1)
    assert distance(found, true) < 0.12 < 0.5 * distance(start, true)
    other = views(2.0 * true, 1500, 6)
    assert distance(second_moment(other, familiar, iterations=30), true) > 0.5


def test_where_nothing_is_seen_the_smooth_covariance_stays() -> None:
    familiar = smooth_covariance("cpu")
    grams = torch.zeros(5, D, D, dtype=torch.float64)
    nothing = NormalEquations(grams, torch.zeros(5, D, dtype=torch.float64))
    found = second_moment(nothing, familiar, iterations=3)
    assert distance(found, familiar) < 0.2
    assert float(torch.linalg.eigvalsh(found).min()) > 0.0


def test_the_usual_kind_is_found_among_wilder_ones() -> None:
    """Nine in ten surfaces are calm: their moment is found, the moment of all is far off."""
    size = 6
    calm = 0.1 * torch.eye(size, dtype=torch.float64)
    both = [views(calm, 900, 5), views(100.0 * calm, 100, 5, seed=1)]
    seen = NormalEquations(*(torch.cat(part) for part in zip(*both, strict=True)))
    loose = torch.zeros_like(calm)
    found = dominant_second_moment(seen, loose, kinds=2, iterations=12)
    everyone = dominant_second_moment(seen, loose, kinds=1, iterations=12)
    assert distance(found, calm) < 1.0  # of which the covariance of all weighs a sixteenth
    assert distance(everyone, calm) > 3.0


def test_no_kind_is_boundless_where_nothing_is_seen_of_it() -> None:
    size, seen = 4, views(torch.eye(4, dtype=torch.float64), 200, 5)
    seen.grams[:, -1], seen.grams[:, :, -1], seen.sides[:, -1] = 0.0, 0.0, 0.0
    bound = torch.eye(size, dtype=torch.float64) / 0.5**2
    variance = [
        float(dominant_second_moment(seen, tight * bound, kinds=1, iterations=6)[-1, -1])
        for tight in (1.0, 0.0)
    ]
    assert variance[0] < 0.5**2
    assert variance[1] > 0.9


def test_surfaces_are_seen_by_the_clock_of_their_law() -> None:
    """A clock that runs unevenly changes nothing but where on it a surface is seen."""
    laws = tiny.laws()
    batch = draw_batch(laws, BatchLayout(8, 16, 24), make_generator("cpu", 3), 6)
    faster = 1.0 + 0.1 * (torch.arange(batch.T.shape[1]) % 2)  # every other expiry
    uneven = batch._replace(
        T=batch.T * faster,
        **{
            name: getattr(batch, name) / torch.sqrt(faster)[:, None]
            for name in ("iv", "half", "oracle_iv", "target_iv")
        },
    )
    one, other = build_normal_equations(batch), build_normal_equations(uneven)
    torch.testing.assert_close(one.grams, other.grams, rtol=1e-3, atol=1.0)
    torch.testing.assert_close(one.sides, other.sides, rtol=1e-3, atol=1.0)
    by_calendar = build_normal_equations(uneven._replace(clock=uneven.T))
    assert float((by_calendar.sides - one.sides).abs().max()) > 100.0


def test_the_gram_matrix_is_that_of_the_basis() -> None:
    chain = in_units(3)
    basis, clock = splines(chain.zeta, ZETA, STRIKES), splines(chain.total, CLOCK, CLOCKS)
    weight = torch.exp(chain.noise) * chain.quoted
    design = torch.einsum("blsz,blw->blszw", basis, clock).flatten(3).flatten(1, 2)
    wanted = design.mT @ (weight.flatten(1)[..., None] * design)
    found = gram(basis, basis * weight[..., None], clock)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-9 * float(wanted.max()))
    assert float((found - 1.1 * wanted).abs().max()) > 1e-3 * float(wanted.max())


def test_the_factor_of_a_small_universe_explains_its_surfaces() -> None:
    laws = tiny.laws()
    with torch.no_grad():
        F = covariance_factor(laws, 60, rank=40, iterations=5)
        batch = draw_batch(laws, BatchLayout(14, 33, 24), make_generator("cpu", 5), 20)
        grams, sides = build_normal_equations(batch)
    assert F.shape == (STRIKES, CLOCKS, 40)
    size = F.flatten(0, 1).square().sum(0)
    assert bool((size.diff() <= 1e-12).all())  # leading directions first

    def left(factor: Tensor) -> float:
        """Share of the squared values that the best coefficients of the prior leave."""
        flat = factor.flatten(0, 1)
        P = flat.T @ grams @ flat + torch.eye(flat.shape[1], dtype=flat.dtype)
        side = sides @ flat
        explained = (side[:, None] @ torch.linalg.solve(P, side[..., None]))[:, 0, 0]
        return float(explained.mean())

    assert left(F) > 1.05 * left(F[..., :2])


def test_the_same_seed_gives_the_same_factor() -> None:
    laws = tiny.laws()
    with torch.no_grad():
        one, two = (covariance_factor(laws, 30, rank=8, iterations=2) for _ in range(2))
        other = covariance_factor(laws, 30, rank=8, iterations=2, seed=1)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_the_shipped_factor_is_a_covariance_of_smiles() -> None:
    """Falling spectrum, near the money a tenth or so, no corner that runs away."""
    F = factor(torch.device("cpu"))
    assert bool((F.flatten(0, 1).square().sum(0).diff() <= 1e-6).all())
    deviation = F.square().sum(-1).sqrt()
    money = round((0.0 - ZETA[0]) / (ZETA[1] - ZETA[0]) * (STRIKES - 3)) + 1
    assert 0.01 < float(deviation[money, 6:13].median()) < 0.3
    assert 0.05 < float(deviation.median()) < 2.0
    assert float(deviation.max()) < 5.0 * prior_covariance.MAX_COEFFICIENT


@pytest.mark.parametrize("told", [[], [0, 1, 2]])
def test_iterations_are_told(told: list[int]) -> None:
    heard: list[int] = []
    with torch.no_grad():
        covariance_factor(tiny.laws(), 20, rank=4, iterations=len(told), told=heard.append)
    assert heard == told
