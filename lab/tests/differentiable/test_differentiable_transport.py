"""The decoder on tensors: gradients, dtypes, inference mode, threads.

That its numbers are the library's, and so exact, is in `test_pricing_pairs.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import index_slopes
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer
from arbiter_lab.differentiable.pricing.maturity import slopes_at
from arbiter_lab.differentiable.pricing.mixture import Mixture
from arbiter_lab.differentiable.pricing.transport import Transport

KNOTS = {n: torch.from_numpy(x) for n, x in index_slopes.KNOTS.items()}


def skewed(n: int = 31) -> Tensor:
    return torch.from_numpy(index_slopes.skewed(n))


def points(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def wild(rng: np.random.Generator, n: int, low: float = -6.0, high: float = 1.3) -> Tensor:
    """Slopes log-uniform between 1e-6 and 20, independent from knot to knot."""
    return torch.from_numpy(10.0 ** rng.uniform(low, high, n))


@pytest.mark.parametrize("name", ["call", "put", "otm", "digital", "density"])
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
    for name in ("z", "otm", "digital"):
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
        for name in ("otm", "call", "digital"):
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


def test_mixture_gradients() -> None:
    knots = KNOTS[31][::4]
    calm = 0.1 * torch.exp(-0.05 * knots)
    slopes = torch.stack([calm, calm + 0.3 * torch.exp(-0.4 * (knots + 2.0))])[:, None]  # (J, L, n)
    weights = points(0.9, 0.1)[:, None].requires_grad_()
    for name in ("otm", "digital", "density"):
        assert torch.autograd.gradcheck(
            lambda b, w, name=name: getattr(Mixture(knots, b, w), name)(points(-0.3, 0.1)[None]),
            (slopes.clone().requires_grad_(), weights),
            atol=1e-7,
        )


def test_mixture_needs_weights() -> None:
    with pytest.raises(ValueError, match="2 components need weights"):
        Mixture(KNOTS[31], torch.ones(2, 1, 31, dtype=torch.float64))


def test_slopes_between_maturities_are_differentiable() -> None:
    listed = points(0.02, 0.1, 0.3, 1.0)
    steps = 0.02 + 0.05 * torch.rand(2, 4, 3, dtype=torch.float64)
    slopes = torch.cumsum(torch.cumsum(steps, 1), 0).requires_grad_()
    at = points(0.01, 0.07, 0.5, 2.0)
    assert torch.autograd.gradcheck(lambda b: slopes_at(listed, b, at), slopes, eps=1e-7, atol=1e-6)


def test_the_fits_derivatives_are_those_of_autograd() -> None:
    """The library's closed forms, which `tests/fitting` compares with differences."""
    slopes = torch.stack([skewed(), 1.7 * skewed()]).requires_grad_()
    k = Transport(KNOTS[31], slopes).log_strike(torch.linspace(-7.0, 7.0, 29).double()).detach()
    price = Transport(KNOTS[31], slopes).otm(k).ravel()
    exact = np.stack(
        [torch.autograd.grad(p, slopes, retain_graph=True)[0].sum(0).numpy() for p in price]
    )
    line = KnotQuadrature.from_knots(KNOTS[31].numpy())
    pricer = OtmPricer(line, np.repeat([0, 1], 29), k.numpy().ravel())
    slices = pricer.integrate_slices(slopes.detach().numpy())
    ours = pricer.jacobian(slices, pricer.price_quotes(slices), np.ones(58))
    assert np.abs(ours - exact).max() < 1e-13
    assert np.abs(ours * (1.0 + 1e-9) - exact).max() > 1e-11
