"""Black's formula in forward units and its inverse.

Glossary: ``k = log κ`` log-strike, ``a = |k|``, ``v = σ√T`` total volatility, prices undiscounted
and divided by the forward, ``h = a/v``, ``t = v/2``, ``d = t − h``, ``φ Φ R`` as in
:mod:`arbiter.pricing.normal`. The side out of the money is always priced directly:
``otm = min(1, κ)·C(a, v)``, where ``C`` is the call at log-strike ``a ≥ 0``:

    C = φ(d) (R(h − t) − R(h + t)),    1 − C = φ(d) (R(t − h) + R(t + h)).

The first is accurate far in the wings, the second near the upper bound; docs/black.md derives
the rest and states how accurate the inverse is.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing import normal

Array: TypeAlias = npt.NDArray[Any]
NumericInput: TypeAlias = float | Array | Sequence[float]
Values = TypeVar("Values", Array, Tensor)

SIDES = ("otm", "call", "put")

# R(h−t) − R(h+t) is summed as a Taylor series in t below this v, where the plain difference
# would lose digits; above it, it loses at most a factor 12 of the rounding at the money.
MAX_SERIES_TOTAL_VOLATILITY = 0.1
LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)
# Elements per block: intermediate arrays stay in cache, yet two threads still share a block.
_ELEMENTS_PER_BLOCK = 1 << 16


class Reason(enum.IntEnum):
    """Outcome of an implied volatility: solved, or the reason why there is none."""

    OK = 0
    BELOW_INTRINSIC = 1
    AT_INTRINSIC = 2
    ABOVE_MAXIMUM = 3
    NOT_FINITE = 4

    def explain(self) -> str:
        """The outcome as a sentence, with the remedy."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.OK: "The price lies strictly between its bounds.",
    Reason.BELOW_INTRINSIC: "Below intrinsic value, an arbitrage: check the forward and discount.",
    Reason.AT_INTRINSIC: (
        "Equal to intrinsic value up to rounding, so the volatility cannot be told from zero: "
        "use the out-of-the-money option of the same strike."
    ),
    Reason.ABOVE_MAXIMUM: (
        "At or above the upper bound, one for a call and K/F for a put: check the units, prices "
        "are undiscounted and divided by the forward."
    ),
    Reason.NOT_FINITE: "The price or the log-strike is NaN or infinite: drop the quote.",
}


class Implied(NamedTuple, Generic[Values]):
    """Total volatilities, NaN where there is none, and the :class:`Reason` codes (int8)."""

    volatility: Values
    reason: Values


class _Elementwise(Protocol):
    """A function of log-strike and total volatility: tensors if any is given, else arrays."""

    @overload
    def __call__(self, k: Tensor, v: Tensor | NumericInput) -> Tensor: ...
    @overload
    def __call__(self, k: NumericInput, v: Tensor) -> Tensor: ...
    @overload
    def __call__(self, k: NumericInput, v: NumericInput) -> Array: ...


def _accept_arrays_or_tensors(kernel: Callable[[Tensor, Tensor], Tensor]) -> _Elementwise:
    """Wrap a float64 tensor kernel: arrays in and out, or tensors of the caller's dtype."""

    @functools.wraps(kernel)
    def wrapped(k: Any, v: Any) -> Any:
        dtype, k, v = _broadcast_to_float64(k, v)
        result = kernel(k, v)
        return result.numpy() if dtype is None else result.to(dtype)

    return wrapped


def _broadcast_to_float64(first: Any, second: Any) -> tuple[torch.dtype | None, Tensor, Tensor]:
    """The dtype of the result, None for NumPy, and both arguments as float64 tensors."""
    tensors = [x for x in (first, second) if isinstance(x, Tensor)]
    device = tensors[0].device if tensors else None
    # a copy in C order: PyTorch accepts neither read-only arrays nor negative strides
    pair = [
        (x if isinstance(x, Tensor) else torch.from_numpy(np.array(x, float, order="C"))).to(
            device, torch.float64
        )
        for x in (first, second)
    ]
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors]) if tensors else None
    if dtype is not None and not dtype.is_floating_point:
        dtype = torch.float64
    left, right = torch.broadcast_tensors(*pair)
    return dtype, left, right


def _apply_in_blocks(
    kernel: Callable[..., tuple[Tensor, ...]], *inputs: Tensor
) -> tuple[Tensor, ...]:
    """Apply an elementwise kernel block by block; a GPU takes everything at once."""
    shape, size = inputs[0].shape, max(1, inputs[0].numel())
    block = size if inputs[0].is_cuda else _ELEMENTS_PER_BLOCK
    # contiguous, so that the arithmetic does not depend on the layout of the input
    blocks = zip(*(x.reshape(-1).contiguous().split(block) for x in inputs), strict=True)
    results = zip(*(kernel(*parts) for parts in blocks), strict=True)
    return tuple(torch.cat(parts).reshape(shape) for parts in results)


def _mills_difference(
    h: Tensor, t: Tensor, upper: Tensor, mills: Callable[[Tensor], Tensor] = normal.mills
) -> Tensor:
    """``C/φ(d)``, or ``(1 − C)/φ(d)`` where ``upper`` is one rather than zero.

    With ``Tⱼ = t²ʲ R⁽²ʲ⁺¹⁾(h)/(2j+1)!`` and ``n = 2j+1`` the narrow difference is ``−2t Σ Tⱼ``,
    ``Tⱼ₊₁ = t² ((h² + 2n + 1) Tⱼ − t² Tⱼ₋₁)/((n+1)(n+2))`` with ``t² T₋₁ = −1``; five terms
    leave 1e-17. Choices are products with 0 or 1, several times faster than torch.where.
    """
    sign = 2.0 * upper - 1.0
    narrow = (t < 0.5 * MAX_SERIES_TOTAL_VOLATILITY).to(h) * (1.0 - upper)
    near = mills(narrow * h + (1.0 - narrow) * (sign * (t - h)))
    far = mills(h + t)
    # the series must stay finite where it is not taken, or where the price is zero anyway
    hh, tt = narrow * torch.clamp(h * h, max=1e6), narrow * (t * t)
    carried: Tensor | float = -1.0
    term = narrow * (h * near) - 1.0
    total = term
    for n in (1, 3, 5, 7):
        following = tt / ((n + 1) * (n + 2)) * ((hh + (2 * n + 1)) * term - carried)
        carried, term = tt * term, following
        total = total + term
    return (1.0 - narrow) * (near + sign * far) - 2.0 * narrow * (t * total)


def _price_otm_block(k: Tensor, v: Tensor) -> tuple[Tensor]:
    """Price the side out of the money; zero volatility and infinite strikes are worth zero."""
    live = (v > 0.0) & torch.isfinite(k)
    # squares of h and t have to stay finite
    h = torch.clamp(torch.where(live, k, 0.0).abs() / torch.where(live, v, 1.0), max=1e150)
    t = torch.clamp(0.5 * v, max=1e150)
    d = t - h
    # with d ≤ 0 the difference is the accurate form; with d > 0 the price is not small unless
    # the option is narrow, and one minus the complement can never exceed the upper bound
    upper = ((d > 0.0) & (v >= MAX_SERIES_TOTAL_VOLATILITY)).to(v)
    part = normal.pdf(d) * _mills_difference(h, t, upper)
    price = torch.exp(torch.clamp(k, max=0.0)) * (upper + (1.0 - 2.0 * upper) * part)
    worthless = torch.where((v >= 0.0) & ~torch.isnan(k), 0.0, torch.nan)
    return (torch.where(live, price, worthless),)


def _vega(k: Tensor, v: Tensor) -> Tensor:
    return normal.pdf(0.5 * v - k / v)


def _strike_derivative(k: Tensor, v: Tensor, put: Tensor) -> Tensor:
    """``∂p/∂k = κ Φ(−d₂)`` of a put, ``∂c/∂k = −κ Φ(d₂)`` of a call."""
    sign = torch.where(put, 1.0, -1.0).to(v)
    strike = torch.exp(torch.clamp(k, max=709.0))  # an infinite one times zero would be NaN
    return sign * strike * normal.cdf(sign * (k / v + 0.5 * v))


class _Otm(torch.autograd.Function):
    """Out-of-the-money price with its analytic derivatives, themselves differentiable."""

    @staticmethod
    def forward(ctx: Any, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(k, v)
        return _apply_in_blocks(_price_otm_block, k, v)[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        k, v = ctx.saved_tensors
        live = (v > 0.0) & torch.isfinite(k)
        k, v = torch.where(live, k, 0.0), torch.where(live, v, 1.0)
        grad = torch.where(live, grads[0], 0.0)
        return grad * _strike_derivative(k, v, k < 0.0), grad * _vega(k, v)


_otm_price = cast(Callable[[Tensor, Tensor], Tensor], _Otm.apply)


def call_parity(k: Tensor) -> Tensor:
    """Call minus out-of-the-money price: ``1 − κ`` below the forward, else zero."""
    return -torch.expm1(torch.where(k < 0.0, k, 0.0))


def put_parity(k: Tensor) -> Tensor:
    """Put minus out-of-the-money price: ``κ − 1`` from the forward up, else zero."""
    return torch.expm1(torch.where(k < 0.0, 0.0, k))


@_accept_arrays_or_tensors
def otm(k: Tensor, v: Tensor) -> Tensor:
    """Price the side out of the money: the call for ``k ≥ 0``, the put for ``k < 0``.

    Args:
        k: log-strike ``log(K/F)``.
        v: total volatility ``σ√T``; zero gives zero, negative or NaN gives NaN.

    Returns:
        Undiscounted prices over the forward, relatively accurate down to 1e-300: a tensor of
        the given dtype if an argument is a tensor (differentiable, computed in float64), else
        a float64 array.
    """
    return _otm_price(k, v)


@_accept_arrays_or_tensors
def call(k: Tensor, v: Tensor) -> Tensor:
    """Price a call, in the money by parity with the put; arguments as in :func:`otm`.

    Example:
        >>> round(float(call(0.0, 0.2)), 12)
        0.079655674554
    """
    return _otm_price(k, v) + call_parity(k)


@_accept_arrays_or_tensors
def put(k: Tensor, v: Tensor) -> Tensor:
    """Price a put, in the money by parity with the call; arguments as in :func:`otm`."""
    return _otm_price(k, v) + put_parity(k)


@_accept_arrays_or_tensors
def vega(k: Tensor, v: Tensor) -> Tensor:
    """Derivative of call and put to total volatility, ``φ(v/2 − k/v)``; at ``v = 0`` its limit."""
    density = _vega(k, torch.where(v > 0.0, v, 1.0))
    limit = torch.where(k == 0.0, normal.INV_ROOT_2PI, torch.where(torch.isnan(k), k, 0.0))
    return torch.where(v > 0.0, density, torch.where(v == 0.0, limit, torch.nan))


def _guess_total_volatility(k: Tensor, below: Tensor, upper: Tensor, target: Tensor) -> Tensor:
    """Initial total volatility, within 10 % of the answer wherever there is one.

    Lower half: invert Bachelier's formula by a rational fit (0.2 %), then map its moneyness to
    Black's; the map solves ``h²/2 + v²/8 = N`` far from the money. Upper half: a quantile.
    """
    a = k.abs()
    # at the money only the ratio a/C matters, and any small one will do (but not log 0)
    distance = torch.maximum(a, 0.001 * below).clamp(min=5e-324)
    odds = torch.log(distance) + 0.5 * a - target
    growth = torch.relu(odds) + torch.log1p(torch.exp(-odds.abs()))
    root = math.sqrt(2.0 * math.pi)
    u = 2.0 * growth / (root + torch.sqrt(2.0 * math.pi + 2.0 * growth))
    x = u / (1.0 + u)
    fit = 0.9979 + x * (0.3141 + x * (-0.8118 + x * (2.8972 - 2.3910 * x)))
    hh = (u * fit) ** 2
    inner = torch.relu(hh - a * a / (hh + 8.7))
    lower_half = distance / torch.sqrt(0.5 * (hh + torch.sqrt(hh * inner)))

    # 1 − C = m Φ(−d) with m between one and two; the quantile is Abramowitz & Stegun 26.2.22
    m = 1.0 + 1.0 / (1.0 + torch.sqrt(a))
    tau = torch.sqrt(2.0 * (torch.log(m) - target))
    d = tau - (2.30753 + 0.27061 * tau) / (1.0 + tau * (0.99229 + 0.04481 * tau))
    return upper * (d + torch.sqrt(d * d + 2.0 * a)) + (1.0 - upper) * lower_half


def _solve_total_volatility(k: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """Total volatility of a price ``below`` over its lower and ``above`` under its upper bound.

    Two Householder steps of fourth order on ``log C``, or on ``log(1 − C)`` in the upper half:
    from a guess within 10 % the first leaves 1e-4 and the second rounding. In units of
    ``log v`` all derivatives follow from ``∂C/∂v = φ(d)``, so a step costs one evaluation.
    """
    upper = (above < below).to(k)
    target = torch.log(torch.minimum(below, above)) - torch.clamp(k, max=0.0)
    guess = _guess_total_volatility(k, below, upper, target)
    v = guess
    for last in (False, True):
        h, t = k.abs() / v, 0.5 * v
        d = t - h
        # the first step needs few digits
        gap = _mills_difference(h, t, upper, normal.mills if last else normal.quick_mills)
        miss = torch.log(gap) - 0.5 * d * d - LOG_ROOT_2PI - target
        slope = (1.0 - 2.0 * upper) * v / gap
        hh, tt = h * h, t * t
        second = hh - tt - slope
        third = second * (second - slope) - 3.0 * hh - tt
        newton = -miss / slope
        step = newton * (1.0 + 0.5 * second * newton)
        v = v + v * step / (1.0 + newton * (second + third * newton / 6.0))
        # the answer lies inside this bracket (_guess_total_volatility), so no step may leave it
        v = torch.clamp(v, min=guess / 1.15, max=guess * 1.15)
    return v


def _solve_implied_block(price: Tensor, k: Tensor, side: str, eps: float) -> tuple[Tensor, Tensor]:
    """Volatilities and reason codes of one block; ``eps`` is the rounding unit of the prices."""
    negative = torch.clamp(k, max=0.0)
    if side == "otm":
        low, high = torch.zeros_like(k), torch.exp(negative)
    elif side == "call":
        low, high = -torch.expm1(negative), torch.ones_like(k)
    else:
        low, high = torch.expm1(torch.clamp(k, min=0.0)), torch.exp(k)
    below, above = price - low, high - price
    rounding = eps * low
    reason = Reason.ABOVE_MAXIMUM * (above <= 0.0).to(torch.int8)
    reason = torch.where(below <= rounding, int(Reason.AT_INTRINSIC), reason)
    reason = torch.where(below < -rounding, int(Reason.BELOW_INTRINSIC), reason)
    # a sum is finite only if both its terms are
    reason = torch.where(torch.isfinite(price + k), reason, int(Reason.NOT_FINITE))
    volatility = _solve_total_volatility(k, below, above)
    return torch.where(reason == Reason.OK, volatility, torch.nan), reason


def _is_put(k: Tensor, side: str) -> Tensor:
    return k < 0.0 if side == "otm" else torch.full_like(k, side == "put", dtype=torch.bool)


class _Implied(torch.autograd.Function):
    """Implied volatility with its gradient ``dv = (dprice − ∂price/∂k dk)/vega``."""

    @staticmethod
    def forward(ctx: Any, price: Tensor, k: Tensor, side: str, eps: float) -> tuple[Tensor, Tensor]:
        kernel = functools.partial(_solve_implied_block, side=side, eps=eps)
        v, reason = _apply_in_blocks(kernel, price, k)
        ctx.save_for_backward(k, v)
        ctx.side = side
        ctx.mark_non_differentiable(reason)
        return v, reason

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        k, v = ctx.saved_tensors
        ok = torch.isfinite(v)
        k, v = torch.where(ok, k, 0.0), torch.where(ok, v, 1.0)
        per_price = torch.where(ok, grads[0], 0.0) / _vega(k, v)
        return per_price, -per_price * _strike_derivative(k, v, _is_put(k, ctx.side)), None, None


@overload
def implied_total_volatility(
    price: Tensor, k: Tensor | NumericInput, side: str = "otm"
) -> Implied[Tensor]: ...
@overload
def implied_total_volatility(
    price: NumericInput, k: Tensor, side: str = "otm"
) -> Implied[Tensor]: ...
@overload
def implied_total_volatility(
    price: NumericInput, k: NumericInput, side: str = "otm"
) -> Implied[Array]: ...
def implied_total_volatility(price: Any, k: Any, side: str = "otm") -> Any:
    """Total volatility ``σ√T`` of undiscounted prices over the forward.

    For total volatilities from 1e-4 to 10, ``|k| ≤ 15 v`` and prices down to 1e-300 the
    relative error is at most ``max(1e-12, 2ε·price/(v·vega))``, ``ε = 2⁻⁵²``: the second term is
    what rounding the price itself does to the answer. Tensors of other dtypes are solved in
    float64, so that only their own rounding is added. No input data raises: what has no
    volatility gives NaN and a code.

    Args:
        price: undiscounted prices over the forward.
        k: log-strikes ``log(K/F)``, broadcast against ``price``.
        side: ``"otm"`` (calls for ``k ≥ 0``, puts for ``k < 0``), ``"call"`` or ``"put"``.

    Returns:
        :class:`Implied`: tensors if an argument is a tensor (then differentiable twice and in
        its dtype; NaN results send zero gradient), else arrays.

    Raises:
        ValueError: if ``side`` is none of the three.

    Example:
        >>> volatility, reason = implied_total_volatility([0.079655674554, 1.5], 0.0, side="call")
        >>> round(float(volatility[0]), 9), Reason(reason[1]).name
        (0.2, 'ABOVE_MAXIMUM')
    """
    if side not in SIDES:
        raise ValueError(f"side={side!r} is unknown: choose one of {', '.join(SIDES)}")
    dtype, price, k = _broadcast_to_float64(price, k)
    eps = torch.finfo(dtype or torch.float64).eps
    v, reason = _Implied.apply(price, k, side, eps)  # type: ignore[no-untyped-call]
    if dtype is None:
        return Implied(v.numpy(), reason.numpy())
    return Implied(v.to(dtype), reason)
