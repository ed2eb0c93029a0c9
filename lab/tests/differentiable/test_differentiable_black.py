"""Black's formula on tensors: gradients, dtypes, threads.

That it is the library's, and so exact, is in `test_pricing_pairs.py`.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from arbiter.pricing.black import Reason
from arbiter_lab.differentiable.pricing import black, normal

PRICERS = {"otm": black.otm, "call": black.call, "put": black.put}


def test_quick_mills_ratios_are_mills_ratios() -> None:
    y = torch.linspace(-5.0, 200.0, 4001, dtype=torch.float64)
    found, wanted = normal.quick_mills(y), normal.mills(y)
    off = (found / wanted - 1.0).abs()
    assert 0.0 < float(off.max()) < 1e-9
    assert float(off[y < normal.MIN_ASYMPTOTIC_ARGUMENT].max()) < 2e-13
    assert float((normal.quick_mills(y + 1e-6) / wanted - 1.0).abs().max()) > 1e-8


def smooth_points() -> tuple[torch.Tensor, torch.Tensor]:
    k = torch.tensor([-0.4, -0.1, -0.01, 0.02, 0.1, 0.3, 1.5], dtype=torch.float64)
    v = torch.tensor([0.3, 0.2, 0.05, 0.04, 0.5, 0.3, 2.0], dtype=torch.float64)
    return k.requires_grad_(), v.requires_grad_()


@pytest.mark.parametrize("name", ["otm", "call", "put", "vega"])
def test_price_gradients(name: str) -> None:
    function = getattr(black, name)
    assert gradcheck(function, smooth_points())
    assert gradgradcheck(function, smooth_points())


@pytest.mark.parametrize("side", ["otm", "call", "put"])
def test_implied_volatility_gradients(side: str) -> None:
    k, v = smooth_points()
    price = PRICERS[side](k, v).detach().requires_grad_()

    def solve(price: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return black.implied_total_volatility(price, k, side).volatility

    assert gradcheck(solve, (price, k), eps=1e-8, atol=1e-5, rtol=1e-5)
    assert gradgradcheck(solve, (price, k), eps=1e-8, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("k", [0.5, -0.5, 3.0, -3.0])
def test_price_slope_in_strike_is_accurate(k: float) -> None:
    """∂/∂k of the call is −κ Φ(d₂), of the put κ Φ(−d₂), twelve deviations out as well."""
    log_strike = torch.tensor(k, dtype=torch.float64, requires_grad=True)
    black.otm(log_strike, 0.25).backward()
    assert log_strike.grad is not None
    d2 = -mp.mpf(k) / 0.25 - 0.125
    with mp.workdps(60):
        exact = mp.exp(k) * (-mp.ncdf(d2) if k > 0 else mp.ncdf(-d2))
    assert float(log_strike.grad) == pytest.approx(float(exact), rel=1e-13, abs=0.0)


@pytest.mark.parametrize(("name", "sign"), [("otm", -1.0), ("call", -1.0), ("put", 1.0)])
def test_slope_in_strike_at_the_money(name: str, sign: float) -> None:
    """At k = 0 sides meet: the call's slope is −Φ(−v/2), the put's Φ(v/2)."""
    k = torch.zeros((), dtype=torch.float64, requires_grad=True)
    PRICERS[name](k, 0.3).backward()
    assert k.grad is not None
    assert float(k.grad) == pytest.approx(sign * float(mp.ncdf(sign * 0.15)), rel=1e-15)


def test_results_without_a_volatility_send_no_gradient() -> None:
    price = torch.tensor([0.1, -1.0, 2.0, torch.nan, 0.0], dtype=torch.float64, requires_grad=True)
    k = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    result = black.implied_total_volatility(price, k)
    result.volatility.sum().backward()
    assert result.reason.tolist() == [0, 1, 3, 4, 2]
    assert price.grad is not None
    assert k.grad is not None
    assert price.grad[0] > 0
    assert torch.equal(price.grad[1:], torch.zeros(4, dtype=torch.float64))
    assert torch.equal(k.grad[1:], torch.zeros(4, dtype=torch.float64))


def test_zero_volatility_sends_no_gradient() -> None:
    k = torch.tensor([-0.5, 0.0, 0.5], requires_grad=True)
    v = torch.zeros(3, requires_grad=True)
    black.otm(k, v).sum().backward()
    assert k.grad is not None
    assert v.grad is not None
    assert k.grad.abs().sum() + v.grad.abs().sum() == 0


def test_results_have_the_dtype_of_the_tensors() -> None:
    expected = float(black.call(torch.tensor(0.1, dtype=torch.float64), 0.2))
    wide = black.call(torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.2))
    assert wide.dtype == torch.float64
    assert float(wide) == pytest.approx(expected, rel=1e-6)
    assert black.call(torch.tensor(0.1), 0.2).dtype == torch.float32
    assert black.call(torch.tensor(0), torch.tensor(1)).dtype == torch.float64
    found = black.implied_total_volatility(
        torch.tensor([expected], dtype=torch.float64), 0.1, "call"
    )
    assert float(found.volatility) == pytest.approx(0.2, rel=1e-14)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_empty_input(shape: tuple[int, ...]) -> None:
    assert black.implied_total_volatility(torch.empty(shape), 0.0).volatility.shape == shape
    assert black.otm(torch.empty(shape), 0.2).shape == shape


def test_unknown_side_is_named() -> None:
    with pytest.raises(ValueError, match="side='straddle' is unknown"):
        black.implied_total_volatility(torch.tensor(0.1), 0.0, side="straddle")


def test_float32_is_accurate_to_its_own_rounding() -> None:
    rng = np.random.default_rng(3)
    v = torch.tensor(10 ** rng.uniform(-3, 0.5, 5_000), dtype=torch.float32)
    k = torch.tensor(rng.uniform(-5, 5, 5_000), dtype=torch.float32) * v
    price = black.otm(k, v)
    assert price.dtype == torch.float32
    live = price > 1e-35
    exact = black.otm(k.double(), v.double())
    torch.testing.assert_close(price[live].double(), exact[live], rtol=6e-8, atol=0.0)
    volatility, reason = black.implied_total_volatility(price, k)
    assert volatility.dtype == torch.float32
    eps = torch.finfo(torch.float32).eps
    limit = eps * (price / (v * black.vega(k, v))).double()
    error = (volatility.double() / v.double() - 1).abs()
    ok = live & (reason == Reason.OK) & (limit < 0.01)
    assert ok.sum() > 4_000
    assert (error <= torch.clamp(limit, min=eps))[ok].all()


def test_float32_prices_at_intrinsic_are_called_so() -> None:
    k = torch.linspace(-2, -0.2, 500)
    assert set(black.implied_total_volatility(black.call(k, 0.01), k, "call").reason.tolist()) == {
        2
    }


def test_result_does_not_depend_on_threads() -> None:
    rng = np.random.default_rng(4)
    v = torch.tensor(10 ** rng.uniform(-3, 0.7, 150_001))
    k = v * torch.tensor(rng.normal(0, 3, v.numel()))
    price = black.otm(k, v)
    whole = black.implied_total_volatility(price, k).volatility
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        again = black.implied_total_volatility(price, k).volatility
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(again, whole, rtol=4.5e-16, atol=0.0, equal_nan=True)
