"""The paper's decoder and its projection: what they promise, and where the letter falls short."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.special import ndtr
from torch import Tensor, nn

import arbiter as ab
from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter_lab.baselines import grid_projection
from arbiter_lab.baselines.grid_projection import project, violations
from arbiter_lab.differentiable.operators.network.convex_decoder import ICNNDecoder, bachelier
from counts import count

CONVERGED = ["qp", "dykstra"]


def findings(T: Array, kappa: Array, calls: Array) -> int:
    """Return the number of violations that the audit finds at rounding tolerance."""
    k = np.tile(np.log(kappa), T.size)
    found = ab.audit({"T": np.repeat(T, kappa.size), "k": k, "call": calls.ravel()})
    assert found.passed == found.findings.is_empty()
    return found.findings.height


def market(L: int, m: int, atm: float = 0.2) -> tuple[Array, Array, Array, Array]:
    """Maturities, strikes, calls of a skewed surface without arbitrage, and vegas."""
    T, kappa = np.geomspace(0.05, 2.0, L), np.exp(np.linspace(-0.5, 0.35, m))
    k, root = np.log(kappa), np.sqrt(T)[:, None]
    v = (atm - 0.1 * k / (root + 0.5)) * root
    out = np.asarray(black.otm(np.broadcast_to(k, v.shape), v))
    return T, kappa, out + np.maximum(1.0 - kappa, 0.0), np.asarray(black.vega(k, v))


def noisy(seed: int, L: int, m: int, noise: float) -> tuple[Array, Array, Array]:
    T, kappa, calls, vega = market(L, m)
    return T, kappa, calls + noise * vega * np.random.default_rng(seed).normal(size=calls.shape)


@pytest.mark.parametrize("method", CONVERGED)
def test_a_projected_grid_has_no_arbitrage(method: str) -> None:
    """Zero findings at rounding tolerance; what was projected has dozens."""
    for seed in range(count(full=40, reduced=4)):
        T, kappa, wrong = noisy(seed, 9, 21, 0.01)
        assert findings(T, kappa, wrong) > 20
        found = project(wrong, kappa, method=method)
        assert findings(T, kappa, found.prices) == 0
        assert found.violations.largest < 1e-15
        assert found.residual < 1e-8


@given(
    seed=st.integers(0, 2**31),
    L=st.integers(1, 6),
    m=st.integers(2, 12),
    gap=st.floats(0.03, 2.0),
)
def test_whatever_is_projected_becomes_a_surface(seed: int, L: int, m: int, gap: float) -> None:
    rng = np.random.default_rng(seed)
    kappa = np.cumsum(rng.uniform(0.02, gap, m))
    found = project(rng.normal(0.2, 0.5, (L, m)), kappa, method="dykstra")
    assert found.violations.largest < 1e-15
    assert findings(np.arange(1.0, L + 1.0), kappa, found.prices) == 0


def test_two_methods_find_the_same_point() -> None:
    """The joint program and the alternation share no code but the constraints."""
    for seed in range(count(full=30, reduced=3)):
        _, kappa, wrong = noisy(seed, 8, 19, 0.02)
        joint, alternating = (project(wrong, kappa, method=m) for m in ("qp", "dykstra"))
        assert np.abs(joint.prices - alternating.prices).max() < 2e-7
        once = project(wrong, kappa, method="pava_then_qp")
        assert np.abs(joint.prices - once.prices).max() > 1e-5


@pytest.mark.parametrize("method", CONVERGED)
def test_the_projection_is_the_nearest_surface(method: str, rng: np.random.Generator) -> None:
    """⟨y − x, f − x⟩ ≤ 0 for every surface f: the angle that defines a projection."""
    _, kappa, wrong = noisy(5, 8, 19, 0.02)
    weights = rng.uniform(0.2, 5.0, wrong.shape)

    def angle(x: Array) -> float:
        others = [market(8, 19, atm)[2] for atm in (0.1, 0.2, 0.25, 0.4)]
        others += [
            grid_projection.remove_tolerance_faults(wrong, kappa),
            project(wrong, kappa, method=method).prices,
        ]
        return max(float(np.sum(weights * (wrong - x) * (f - x))) for f in others)

    found = project(wrong, kappa, weights=weights, method=method).prices
    assert angle(found) < 1e-7
    near = 0.9 * found + 0.1 * market(8, 19, 0.2)[2]  # a surface, and not the nearest
    assert violations(near, kappa).largest < 1e-15
    assert angle(near) > 1e-6


def test_the_letter_leaves_calendar_spreads_at_a_negative_price() -> None:
    """Pooled adjacent violators, then convex slices: up to 4e-3 of the forward on noisy grids."""
    left = []
    for seed in range(12):
        T, kappa, wrong = noisy(seed, 12, 25, 0.05)
        once = project(wrong, kappa, method="pava_then_qp")
        assert max(once.violations.butterfly, once.violations.vertical) < 1e-12
        left.append(once.violations.calendar)
        if seed == 0:
            assert findings(T, kappa, once.prices) > 0
    assert max(left) > 2e-3
    assert min(left) > 1e-5


@pytest.mark.parametrize("method", [*CONVERGED, "pava_then_qp"])
def test_a_surface_is_its_own_projection(method: str) -> None:
    _, kappa, calls, _ = market(8, 19)
    assert violations(calls, kappa).largest < 1e-15
    found = project(calls, kappa, method=method)
    assert np.abs(found.prices - calls).max() < 1e-9
    assert np.abs(project(calls + 1e-3, kappa, method=method).prices - calls).max() > 1e-4


def test_each_violation_has_its_size() -> None:
    """Planted one by one in a grid without any."""
    T, kappa, calls, _ = market(4, 11)
    assert violations(calls, kappa) == (0.0, 0.0, 0.0, 0.0)
    gap = np.diff(kappa)
    hump, rise, fall, cheap = (calls.copy() for _ in range(4))
    hump[-1, 5] += 0.01
    left = gap[5] / (gap[4] + gap[5])
    plain = left * calls[-1, 4] + (1.0 - left) * calls[-1, 6] - calls[-1, 5]
    assert violations(hump, kappa).butterfly == pytest.approx(0.01 - plain, abs=1e-12)
    rise[-1, -1] = rise[-1, -2] + 0.003
    assert violations(rise, kappa).vertical == pytest.approx(0.003)
    fall[2] = calls[1] - 0.002
    assert violations(fall, kappa).calendar == pytest.approx(0.002)
    cheap[0, 0] = 1.0 - kappa[0] - 0.004
    assert violations(cheap, kappa).bound == pytest.approx(0.004)
    for wrong in (hump, rise, fall, cheap):
        assert findings(T, kappa, wrong) > 0
        assert findings(T, kappa, project(wrong, kappa, method="dykstra").prices) == 0


def test_isotonic_regression_is_that_of_pooled_adjacent_violators(
    rng: np.random.Generator,
) -> None:
    y, weights = rng.normal(size=(9, 5)), rng.uniform(0.1, 4.0, (9, 5))
    found = grid_projection.isotonic_in_maturity(y, weights)
    for j in range(5):
        assert np.allclose(found[:, j], isotonic_regression(y[:, j], weights=weights[:, j]).x)
    assert not np.allclose(found, grid_projection.isotonic_in_maturity(y, np.ones_like(y)))


def test_distances_are_of_volatility_unless_weights_are_given() -> None:
    """One wrong price at the money and one in the wing: the wing is whitened, and holds on."""
    _, kappa, wrong = noisy(3, 6, 15, 0.01)
    white = project(wrong, kappa, method="dykstra").prices
    plain = project(wrong, kappa, weights=1.0, method="dykstra").prices
    assert np.sum((plain - wrong) ** 2) < np.sum((white - wrong) ** 2)
    far = np.s_[:, -3:]
    assert np.abs(white - wrong)[far].max() < np.abs(plain - wrong)[far].max()


def test_what_cannot_be_projected_is_refused_with_the_remedy() -> None:
    _, kappa, calls, _ = market(3, 5)
    with pytest.raises(ValueError, match=r"prices \(3, 5\) must be \(L, m\) and kappa \(4,\)"):
        project(calls, kappa[:-1])
    broken = calls.copy()
    broken[1, 2] = np.nan
    with pytest.raises(ValueError, match=r"prices\[1, 2\] = nan must be finite"):
        project(broken, kappa)
    with pytest.raises(ValueError, match="kappa must be finite, positive and increasing"):
        project(calls, kappa[::-1])
    with pytest.raises(ValueError, match="weights must be finite and positive"):
        project(calls, kappa, weights=0.0)
    with pytest.raises(ValueError, match=r"method = 'pava': give 'qp', 'dykstra'"):
        project(calls, kappa, method="pava")


def test_a_missing_solver_is_named_with_the_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(grid_projection, "import_module", none)
    _, kappa, calls, _ = market(3, 5)
    with pytest.raises(ImportError, match=r"needs piqp: pip install .* or use method='dykstra'"):
        project(calls, kappa)


STRIKES = torch.exp(torch.linspace(-0.7, 0.5, 81, dtype=torch.float64))


def decoder(seed: int, layers: int = 2) -> tuple[ICNNDecoder, Tensor, Tensor, Tensor]:
    """Random weights and features of 3 chains with 7 maturities; prices are far from a market's."""
    torch.manual_seed(seed)
    made = ICNNDecoder(5, width=8, layers=layers).double()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.5 * torch.randn_like(weight))
    h = torch.randn(3, 7, 5, dtype=torch.float64)
    total = torch.log(torch.linspace(0.05, 0.4, 7, dtype=torch.float64)).expand(3, 7)
    return made, h, STRIKES.expand(3, 7, -1), total


def bend(calls: Tensor) -> float:
    """The least slope change along strikes, over the size of the prices."""
    slope = torch.diff(calls, dim=-1) / torch.diff(STRIKES)
    return float(torch.diff(slope, dim=-1).min() / calls.abs().max())


def test_the_activation_is_bacheliers_formula() -> None:
    x = np.linspace(-12.0, 12.0, 97)
    found = bachelier(torch.from_numpy(x)).numpy()
    density = np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    assert np.allclose(found, x * ndtr(x) + density, atol=1e-15)
    assert np.all(np.diff(found) > 0.0)
    assert np.all(np.diff(found, 2) > -1e-14)
    # far out of the money: φ(x)/x² (1 − 3/x² + 15/x⁴ − …), Mills' ratio
    assert found[16] == pytest.approx(density[16] / 64.0 * (1 - 3 / 64 + 15 / 64**2), rel=0.01)


@pytest.mark.parametrize("layers", [1, 2, 3])
@given(seed=st.integers(0, 2**31))
def test_prices_are_convex_in_strike_and_rise_in_maturity(layers: int, seed: int) -> None:
    made, h, kappa, total = decoder(seed, layers)
    with torch.no_grad():
        calls = made(h, kappa, total)
    assert bend(calls) > -1e-11
    assert float(torch.diff(calls, dim=1).min()) >= 0.0
    assert float((calls - torch.clamp(1.0 - kappa, min=0.0)).min()) >= 0.0


def test_negative_weights_would_break_convexity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same network without its softplus, and the potentials without increments."""
    made, h, kappa, total = decoder(1)
    with torch.no_grad():
        alone = torch.exp(total)[..., None] * made.potential(h, (kappa - 1.0) / 0.1)
        assert float(torch.diff(alone, dim=1).min()) < -1e-3
        monkeypatch.setattr(nn.functional, "softplus", lambda x: x)
        assert bend(made(h, kappa, total)) < -1e-4


def test_the_letter_leaves_bounds_to_the_projection() -> None:
    """Convex potentials do not satisfy c(0) = 1: slopes lie below −1 and prices above 1."""
    made, h, kappa, total = decoder(2)
    with torch.no_grad():
        calls = made(h, kappa, total)[0].numpy()
    T, strikes = np.arange(1.0, 8.0), STRIKES.numpy()
    assert violations(calls, strikes).largest > 1e-3
    assert findings(T, strikes, calls) > 0
    mended = project(calls, strikes, method="qp")
    assert findings(T, strikes, mended.prices) == 0


def test_it_starts_near_a_gaussian_law_and_learns() -> None:
    """A hundred steps on one skewed surface; every weight has a gradient."""
    torch.manual_seed(0)
    T, kappa, calls, vega = market(6, 31)
    made = ICNNDecoder(6, width=16).double()
    h = torch.eye(6, dtype=torch.float64)[None]
    strikes = torch.from_numpy(kappa).expand(1, 6, -1)
    total = torch.from_numpy(np.log(0.2 * np.sqrt(T)))[None]
    truth, scale = torch.from_numpy(calls), torch.from_numpy(np.maximum(vega, 0.02))
    optimiser = torch.optim.Adam(made.parameters(), lr=0.003)
    errors = []
    for step in range(100):
        error = (((made(h, strikes, total)[0] - truth) / scale) ** 2).mean()
        optimiser.zero_grad()
        error.backward()
        if step == 0:
            for name, weight in made.named_parameters():
                assert weight.grad is not None, name
                assert float(weight.grad.abs().max()) > 0.0, name
        optimiser.step()
        errors.append(float(error.detach()) ** 0.5)
    assert errors[0] < 0.1
    assert errors[-1] < 0.4 * errors[0]


def test_inputs_that_do_not_fit_are_refused() -> None:
    made, h, kappa, total = decoder(3)
    with pytest.raises(ValueError, match=r"must be \(B, L, d\), \(B, L, P\) and \(B, L\)"):
        made(h, kappa[:, :-1], total)
    with pytest.raises(ValueError, match="kappa must be the same for every maturity"):
        made(h, kappa * torch.linspace(1.0, 1.1, 7)[None, :, None], total)
    with pytest.raises(ValueError, match="layers = 0 must be at least one"):
        ICNNDecoder(4, layers=0)
