"""The transforms in torch are the library's, to a stated rounding.

Rounding grows with the frequency. Where ``|E X^{iξ}|`` is not negligible, and prices come from,
logarithms agree to 1e-12; at nodes that no price reads, to 1e-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from arbiter.conventions import Array
from arbiter.models import characteristic_function as library
from arbiter.models.exact_prices import Complex
from arbiter.models.fourier_pricing import Contour
from arbiter.models.parameters import PRESETS, Jumps, Parameters, draw
from arbiter.models.riccati import mesh, solve_riccati
from arbiter.models.riccati_steps import Quadratic
from arbiter_lab.differentiable.models import characteristic_function, riccati
from counts import count

T = np.array([2.0, 30.0, 365.0, 1825.0]) / 365.0
NEGLIGIBLE_LOG_SIZE = -41.0  # e^−41 = 2e-18
ROUNDING, ROUNDING_ELSEWHERE = 1e-12, 1e-10

HESTON = Parameters(v0=0.05, reversion=1.5, theta=0.04, nu=0.8, rho=-0.8, factors=1)
SETS = {
    "heston": [HESTON, replace(HESTON, nu=0.3, jumps=Jumps(1.0, -0.08, 0.06))],
    "three factors": [replace(HESTON, factors=3, hurst=0.2), replace(HESTON, factors=3, rho=0.9)],
    "presets": list(PRESETS.values()),
    "drawn": [draw(np.random.default_rng(seed)) for seed in range(count(full=1_000, reduced=10))],
}


def contour_nodes(sets: Sequence[Parameters]) -> Complex:
    """``(P, Q)`` nodes of both contours, as many of each set as the shortest has."""
    rows = [
        np.concatenate([Contour.from_parameters(p, calls).xi for calls in (True, False)])
        for p in sets
    ]
    count = min(row.size for row in rows)
    return np.stack([row[np.linspace(0, row.size - 1, count).astype(int)] for row in rows])


def relative_gaps(found: Complex, wanted: Complex, size: Array | None = None) -> Array:
    scale = np.abs(wanted) if size is None else size
    return np.asarray(np.abs(found - wanted) / (1.0 + scale))


def assert_pair(ours: Sequence[Parameters], theirs: Sequence[Parameters]) -> None:
    """Torch solutions of the first sets are the library's of the second."""
    xi = contour_nodes(theirs)
    pairs = zip(
        characteristic_function.solve_index_transforms(ours, T, xi),
        library.solve_index_transforms(theirs, T, xi),
        strict=True,
    )
    for found, wanted in pairs:
        read = wanted.constant.real > NEGLIGIBLE_LOG_SIZE  # (M, Q)
        assert 0 < np.count_nonzero(read) < read.size
        largest = np.abs(wanted.slope).max(1)  # (M, Q)
        gaps = np.maximum(
            relative_gaps(found.constant.numpy(), wanted.constant),
            relative_gaps(found.slope.numpy(), wanted.slope, largest[:, None]).max(1),
        )
        assert gaps[read].max() < ROUNDING
        assert gaps.max() < ROUNDING_ELSEWHERE


@pytest.mark.parametrize("name", SETS)
def test_transforms_are_those_of_the_library(name: str) -> None:
    sets = SETS[name]
    for start in range(0, len(sets), 5):
        some = sets[start : start + 5]
        assert_pair(some, some)


@pytest.mark.parametrize("change", ["v0", "reversion", "theta", "nu"])
def test_another_parameter_is_seen(change: str) -> None:
    moved = replace(HESTON, **{change: getattr(HESTON, change) * (1.0 + 1e-10)})
    with pytest.raises(AssertionError):
        assert_pair([moved], [HESTON])


def random_quadratics(rng: np.random.Generator, nodes: int) -> tuple[Complex, Complex, Array]:
    z = rng.uniform(0.1, 0.9, (2, nodes)) + 1j * rng.uniform(0.0, 30.0, (2, nodes))
    nu = rng.uniform(0.2, 1.5, 2)
    beta = -0.7 * nu[:, None] * z - 1.5
    return np.asarray(0.5 * (z * z - z)), np.asarray(beta), nu**2


def test_riccati_solutions_are_those_of_the_library(rng: np.random.Generator) -> None:
    """From a start that is not zero, and with another number of rounds to begin with."""
    sets, times = [PRESETS["rough"], PRESETS["calm"]], np.array([0.1, 1.0])
    c, x = np.stack([p.c for p in sets]), np.stack([p.x for p in sets])
    alpha, beta, nu2 = random_quadratics(rng, 40)
    psi = np.full((*c.shape, 40), -1.0 - 0.5j, dtype=np.complex128)
    psi *= rng.uniform(0.0, 1.0, psi.shape)
    start, borders = torch.from_numpy(psi), mesh(1.0)
    ours = riccati.Quadratic(*map(torch.from_numpy, (alpha, beta, nu2)))
    found = riccati.solve_riccati(c, x, ours, start, times, borders, 3)
    wanted = solve_riccati(c, x, Quadratic(alpha, beta, nu2), psi, times, borders, 3)
    for name in ("psi", "power", "mass"):
        assert relative_gaps(getattr(found, name).numpy(), getattr(wanted, name)).max() < ROUNDING
    two = riccati.solve_riccati(c, x, ours, start + 1e-9, times, borders, 3)
    assert relative_gaps(two.psi.numpy(), wanted.psi).max() > ROUNDING


def test_both_say_that_a_moment_explodes() -> None:
    wild = replace(HESTON, reversion=0.1, nu=2.0, rho=0.2)
    for solve in (
        characteristic_function.solve_index_transforms,
        library.solve_index_transforms,
    ):
        with pytest.raises(ArithmeticError, match="not solved"):
            solve([wild], np.array([10.0]), np.array([[-40j]]))
