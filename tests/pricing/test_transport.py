"""The decoder: exact against 34 digits, differentiable.

That its prices cannot be arbitraged is in `test_no_arbitrage.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import theorems
from arbiter.pricing import black, normal
from arbiter.pricing.mixture import Mixture
from arbiter.pricing.transport import Transport
from counts import count
from index_slopes import KNOTS, skewed
from oracle import Slice


def points(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def wild(rng: np.random.Generator, n: int, low: float = -6.0, high: float = 1.3) -> Tensor:
    """Slopes log-uniform between 1e-6 and 20, independent from knot to knot."""
    return torch.from_numpy(10.0 ** rng.uniform(low, high, n))


def slices(rng: np.random.Generator) -> list[tuple[str, int, Tensor]]:
    cases = [("index smile", n, skewed(n)) for n in (31, 41)]
    for i in range(count(full=24, reduced=1)):
        n = (31, 41, 5)[i % 3]
        cases.append(("wild", n, wild(rng, n)))
        cases.append(("moderate", n, wild(rng, n, -1.5, 0.2)))
    cases += [("flat", 31, torch.full((31,), b, dtype=torch.float64)) for b in (1e-6, 0.2, 20.0)]
    return cases


def conditioning(ours: Transport, k: Tensor) -> float:
    """What rounding of k and log M, a few ulps, does to a price: no formula can be better."""
    sides = (ours.digital(k), ours.call(k)) if k.item() >= 0.0 else (ours.cdf(k), ours.put(k))
    elasticity = (torch.exp(k) * sides[0] / sides[1]).item()
    return 32.0 * 2.0**-53 * (abs(k.item()) + abs(ours.log_mean.item())) * elasticity


def test_far_wings_keep_relative_accuracy(rng: np.random.Generator) -> None:
    """Prices at |z| up to 12 against mpmath: to 1e-9, or to the rounding of the strike itself.

    The second only matters where an end slope is near 1e-6, so that one ulp of k is a part in
    1e-9 of a deviation; everywhere else 1e-12 holds.
    """
    smallest = 1.0
    for _, n, slopes in slices(rng):
        exact, ours = Slice(KNOTS[n].tolist(), slopes.tolist()), Transport(KNOTS[n], slopes)
        for z in (-12.0, -0.7, 3.1, 12.0):
            k = ours.log_strike(points(z))
            reference = exact.call(k.item()) if k.item() >= 0.0 else exact.put(k.item())
            error = float(abs(ours.otm(k).item() / reference - 1))
            limit = conditioning(ours, k)
            assert error < max(1e-12, limit)
            assert error < 1e-9 or limit > 1e-9
            smallest = min(smallest, float(reference))
    assert smallest < 1e-40


def test_ordinary_smiles_are_exact_to_rounding(rng: np.random.Generator) -> None:
    """No allowance for conditioning: slopes within a factor of twenty of each other."""
    for slopes in (skewed(), wild(rng, 31, -1.3, 0.0)):
        exact, ours = Slice(KNOTS[31].tolist(), slopes.tolist()), Transport(KNOTS[31], slopes)
        for z in (-12.0, -6.0, -1.0, 0.5, 5.0, 12.0):
            k = ours.log_strike(points(z))
            reference = exact.call(k.item()) if k.item() >= 0.0 else exact.put(k.item())
            assert abs(ours.otm(k).item() / reference - 1) < 2e-13


def test_prices_down_to_1e_300() -> None:
    ours = Transport(KNOTS[31], skewed())
    exact = Slice(KNOTS[31].tolist(), skewed().tolist())
    for z in (-36.5, 36.5):
        k = ours.log_strike(points(z))
        reference = exact.call(k.item()) if z > 0 else exact.put(k.item())
        assert 1e-303 < reference < 1e-285
        assert abs(ours.otm(k).item() / reference - 1) < 1e-9


def test_the_comparison_can_fail() -> None:
    """One slope moved by a part in a million moves the wing past the tolerance."""
    slopes = skewed()
    exact = Slice(KNOTS[31].tolist(), slopes.tolist())
    slopes = slopes.clone()
    slopes[0] *= 1.0 + 1e-6
    k = Transport(KNOTS[31], slopes).log_strike(points(-12.0))
    ours = Transport(KNOTS[31], slopes).otm(k).item()
    assert abs(ours / exact.put(k.item()) - 1) > 1e-7


@pytest.mark.parametrize("total", [1e-6, 1e-3, 0.2, 3.0, 9.0, 20.0])
def test_one_slope_is_black(total: float) -> None:
    flat = Transport(KNOTS[31], torch.full((31,), total, dtype=torch.float64))
    k = total * torch.linspace(-8.0, 8.0, 33, dtype=torch.float64)
    torch.testing.assert_close(flat.otm(k), black.otm(k, points(total)), rtol=1e-11, atol=0)
    torch.testing.assert_close(
        flat.log_variance(), torch.tensor(total**2, dtype=torch.float64), rtol=1e-9, atol=0.0
    )


def test_log_variance_against_quadrature(rng: np.random.Generator) -> None:
    for slopes in (skewed(), wild(rng, 31), wild(rng, 31, -1.5, 0.2)):
        exact = Slice(KNOTS[31].tolist(), slopes.tolist()).log_variance()
        ours = Transport(KNOTS[31], slopes).log_variance().item()
        assert abs(ours / exact - 1) < 1e-12


def test_cutting_segments_changes_nothing() -> None:
    """Slopes are linear between knots, so a coarse and a refined knot vector are one surface."""
    coarse = torch.tensor([-5.0, -1.0, 2.5], dtype=torch.float64)
    slopes = points(0.35, 0.2, 0.12)
    fine = torch.linspace(-5.0, 2.5, 61, dtype=torch.float64)
    refined = torch.from_numpy(np.interp(fine.numpy(), coarse.numpy(), slopes.numpy()))
    k = torch.linspace(-2.0, 1.0, 31, dtype=torch.float64)
    torch.testing.assert_close(
        Transport(coarse, slopes).otm(k), Transport(fine, refined).otm(k), rtol=1e-12, atol=0.0
    )


def test_mean_one_is_exact() -> None:
    """E X = 1: the call struck at zero, and ∫ κ f dκ through the Lorenz curve's end."""
    for slopes in (skewed(), wild(np.random.default_rng(3), 31, -3.0, 0.5)):
        ours = Transport(KNOTS[31], slopes)
        assert ours.call(points(-700.0)).item() == 1.0
        tiny = torch.tensor([1e-14], dtype=torch.float64)
        assert abs(ours.dual(1.0 - tiny).item() - 1.0) < 1e-13


def test_price_and_dual_potential_are_conjugate() -> None:
    ours = Transport(KNOTS[31], skewed())
    q = normal.cdf(torch.linspace(-6.0, 6.0, 24001, dtype=torch.float64))
    kappa = torch.exp(torch.linspace(-0.8, 0.5, 27, dtype=torch.float64))
    theorems.assert_conjugate(q, ours.dual(q), kappa, ours.call(torch.log(kappa)), slack=1e-8)
    with pytest.raises(AssertionError, match="conjugate"):
        theorems.assert_conjugate(
            q, ours.dual(q) + 1e-7, kappa, ours.call(torch.log(kappa)), slack=1e-8
        )
    # the maximiser is the digital, and there G − qκ is the price to rounding
    q_star = ours.digital(torch.log(kappa))
    value = ours.dual(q_star) - q_star * kappa
    torch.testing.assert_close(value, ours.call(torch.log(kappa)), rtol=0.0, atol=1e-14)


def test_law_is_consistent() -> None:
    """Digital, delta, density and quantile are the derivatives and inverses they claim to be."""
    ours = Transport(KNOTS[31], skewed())
    kappa = torch.linspace(0.5, 1.6, 23, dtype=torch.float64).requires_grad_()
    call = ours.call(torch.log(kappa))
    (slope,) = torch.autograd.grad(call.sum(), kappa, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), kappa)
    k = torch.log(kappa.detach())
    torch.testing.assert_close(-slope.detach(), ours.digital(k), rtol=1e-10, atol=1e-15)
    torch.testing.assert_close(bend, ours.density(k), rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(
        (call - kappa * slope).detach(), ours.delta(k), rtol=1e-12, atol=1e-15
    )
    u = points(1e-12, 1e-3, 0.2, 0.5, 0.9, 0.999999)
    torch.testing.assert_close(ours.cdf(torch.log(ours.quantile(u))), u, rtol=1e-12, atol=0.0)
    z = points(-20.0, -6.0, -5.5, 0.0, 1e-9, 4.5, 11.0)
    torch.testing.assert_close(ours.z(ours.log_strike(z)), z, rtol=1e-12, atol=1e-14)


def test_cvar_is_the_mean_of_its_tail() -> None:
    ours = Transport(KNOTS[31], skewed())
    node, weight = np.polynomial.legendre.leggauss(400)
    for q in (0.01, 0.25):
        u = torch.from_numpy(0.5 * q * (node + 1.0))
        w = torch.from_numpy(0.5 * weight)
        lower = (w * ours.quantile(u)).sum().item()
        upper = (w * torch.exp(ours.log_strike(-normal.quantile(u)))).sum().item()
        assert ours.cvar(points(q), "lower").item() == pytest.approx(lower, rel=1e-5)
        assert ours.cvar(points(q), "upper").item() == pytest.approx(upper, rel=1e-5)
    with pytest.raises(ValueError, match="sideways"):
        ours.cvar(points(0.1), "sideways")


@pytest.mark.parametrize("name", ["call", "put", "otm", "digital", "delta", "density"])
def test_gradcheck(name: str) -> None:
    slopes = skewed().requires_grad_()
    k = points(-0.7, -0.1, 0.05, 0.3)
    assert torch.autograd.gradcheck(
        lambda b, at: getattr(Transport(KNOTS[31], b), name)(at),
        (slopes, k.requires_grad_()),
        eps=1e-6,
        atol=1e-9,
        rtol=1e-6,
    )


@pytest.mark.parametrize("name", ["otm", "digital", "density", "log_variance"])
def test_gradcheck_where_neighbouring_slopes_tie(name: str) -> None:
    """A flat Black slice is where every optimisation starts."""
    flat = torch.full((5,), 0.2, dtype=torch.float64, requires_grad=True)
    k = points(-0.3, -0.1, 0.05, 0.2)

    def quantity(slopes: Tensor) -> Tensor:
        ours = Transport(KNOTS[5], slopes)
        answer: Tensor = ours.log_variance() if name == "log_variance" else getattr(ours, name)(k)
        return answer

    assert torch.autograd.gradcheck(quantity, flat, eps=1e-6, atol=1e-8)


def test_gradients_at_strikes_on_the_knots() -> None:
    """Derivatives in k are continuous there; a clamp that ties must not halve them."""
    ours = Transport(KNOTS[31], skewed())
    at = ours.log_strike(ours.knots.x[1:-1])
    for name in ("z", "otm", "digital", "delta"):
        rates = []
        for shift in (-1e-9, 0.0, 1e-9):
            k = (at + shift).requires_grad_()
            rates.append(torch.autograd.grad(getattr(ours, name)(k).sum(), k)[0])
        torch.testing.assert_close(rates[1], rates[0], rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(rates[1], rates[2], rtol=1e-6, atol=1e-9)


def test_second_derivatives() -> None:
    slopes = skewed(5).requires_grad_()
    k = points(-0.7, -0.1, 0.3)
    assert torch.autograd.gradgradcheck(
        lambda b: Transport(KNOTS[5], b).otm(k), slopes, eps=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("z", [-12.0, -6.0, 5.0, 12.0])
def test_gradcheck_in_the_far_wings(z: float) -> None:
    """Log-prices, whose relative derivatives stay of order one where prices are 1e-35."""
    slopes = skewed().requires_grad_()
    k = Transport(KNOTS[31], slopes).log_strike(points(z)).detach()
    assert torch.autograd.gradcheck(
        lambda b: torch.log(Transport(KNOTS[31], b).otm(k)), slopes, eps=1e-7, atol=1e-5, rtol=1e-5
    )


def test_no_gradient_is_nan(rng: np.random.Generator) -> None:
    for dtype in (torch.float64, torch.float32):
        slopes = torch.stack([wild(rng, 31) for _ in range(50)]).to(dtype).requires_grad_()
        ours = Transport(KNOTS[31], slopes)
        k = torch.linspace(-300.0, 300.0, 41, dtype=dtype).requires_grad_()
        for name in ("otm", "call", "delta", "digital"):
            gradients = torch.autograd.grad(
                getattr(ours, name)(k).sum(), (slopes, k), retain_graph=True
            )
            assert all(torch.isfinite(g).all() for g in gradients), (dtype, name)


def test_inference_mode_leaves_nothing_behind() -> None:
    """Constants first made in inference mode serve a later call that needs gradients."""
    knots = torch.tensor([-3.0, 0.123, 2.0], dtype=torch.float64)
    k = points(0.1)
    with torch.inference_mode():
        Transport(knots, points(0.2, 0.2, 0.3)).otm(k)
    slopes = points(0.2, 0.2, 0.3).requires_grad_()
    Transport(knots, slopes).otm(k).sum().backward()
    assert slopes.grad is not None


def test_batches_are_the_slices_one_by_one(rng: np.random.Generator) -> None:
    slopes = torch.stack([wild(rng, 31, -2.0, 0.0) for _ in range(24)]).reshape(2, 3, 4, 31)
    k = torch.from_numpy(rng.normal(0.0, 0.3, (2, 3, 4, 7)))
    batched = Transport(KNOTS[31], slopes).otm(k)
    assert batched.shape == (2, 3, 4, 7)
    alone = Transport(KNOTS[31], slopes[1, 2, 3]).otm(k[1, 2, 3])
    torch.testing.assert_close(batched[1, 2, 3], alone, rtol=1e-14, atol=0.0)


def test_single_precision_follows_double(rng: np.random.Generator) -> None:
    slopes = torch.stack([wild(rng, 31, -2.0, 0.3) for _ in range(100)])
    k = torch.linspace(-1.0, 1.0, 21, dtype=torch.float64)
    double = Transport(KNOTS[31], slopes).otm(k)
    single = Transport(KNOTS[31], slopes.float()).otm(k.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=2e-4, atol=2e-6)


def test_half_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="float64 or float32"):
        Transport(KNOTS[31], skewed().half())


@pytest.mark.parametrize("knots", [[0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0]])
def test_bad_knots_are_refused(knots: list[float]) -> None:
    with pytest.raises(ValueError, match="knots must be finite and strictly increasing"):
        Transport(torch.tensor(knots), torch.ones(2, dtype=torch.float64))


def test_results_do_not_depend_on_threads(rng: np.random.Generator) -> None:
    slopes = torch.stack([wild(rng, 31, -2.0, 0.0) for _ in range(2000)])
    k = torch.linspace(-0.5, 0.5, 41, dtype=torch.float64)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        ours = Transport(KNOTS[31], slopes)
        results.append(torch.cat([ours.otm(k), ours.density(k), ours.log_variance()[:, None]], 1))
    torch.set_num_threads(1)
    assert torch.equal(*results)


def crash_mixture() -> Mixture:
    calm = 0.1 * torch.exp(-0.05 * KNOTS[31])
    crash = calm + 0.3 * torch.exp(-0.4 * (KNOTS[31] + 2.0))
    slopes = torch.stack([calm, crash])[:, None]  # (J, L, n)
    return Mixture(KNOTS[31], slopes, torch.tensor([[0.9], [0.1]], dtype=torch.float64))


def test_mixture_quantities_agree_with_each_other() -> None:
    ours = crash_mixture()
    z = points(-8.0, -2.0, 0.0, 1.0, 5.0)[None]
    torch.testing.assert_close(ours.z(ours.log_strike(z)), z, rtol=0.0, atol=1e-10)
    q = normal.cdf(torch.linspace(-6.0, 6.0, 4001, dtype=torch.float64))[None]
    kappa = torch.exp(torch.linspace(-0.5, 0.3, 9, dtype=torch.float64))[None]
    call = ours.call(torch.log(kappa))
    theorems.assert_conjugate(q, ours.dual(q), kappa, call, slack=3e-7)
    q_star = ours.digital(torch.log(kappa))
    torch.testing.assert_close(ours.dual(q_star) - q_star * kappa, call, rtol=0.0, atol=1e-14)
    u = points(0.05, 0.5)[None]
    assert (ours.cvar(u, "lower") < ours.quantile(u)).all()
    assert (ours.cvar(u, "upper") > 1.0).all()
    torch.testing.assert_close(
        u * ours.cvar(u, "lower") + (1.0 - u) * ours.cvar(1.0 - u, "upper"),
        torch.ones_like(u),
        rtol=0.0,
        atol=1e-13,
    )


def test_mixture_gradients() -> None:
    ours = crash_mixture()
    slopes = torch.stack([ours.parts.b[0], ours.parts.b[1]]).detach()[..., ::4].contiguous()
    knots = ours.parts.knots.x[::4]
    weights = ours.weights.clone().requires_grad_()
    for name, at in (("otm", points(-0.3, 0.1)[None]), ("log_strike", points(-2.0, 1.0)[None])):
        assert torch.autograd.gradcheck(
            lambda b, w, name=name, at=at: getattr(Mixture(knots, b, w), name)(at),
            (slopes.clone().requires_grad_(), weights),
            atol=1e-7,
        )


def test_mixture_needs_weights() -> None:
    with pytest.raises(ValueError, match="2 components need weights"):
        Mixture(KNOTS[31], torch.ones(2, 1, 31, dtype=torch.float64))
