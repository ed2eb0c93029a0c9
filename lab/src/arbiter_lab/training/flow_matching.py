"""The oracle's transports, and how far a network's are from them (martingale flow matching).

A law with total volatility ``v(k)`` has the distribution ``F = Φ(y) + φ(y) v'(k)``,
``y = k/v + v/2``; its Gaussian coordinate is ``x = Φ⁻¹(F)`` and its transport slope
``b = dk/dx``. Marginals that are ordered in b for every x are a flow of transports in √T, with the
velocity ``∂b/∂√T ≥ 0``. Regressing that velocity trains without dual variables. Where the oracle
violates the order, under heavy jumps, the target is cut at zero and counted. Targets above
:data:`MAX_VELOCITY` are cut as well: between a diffusion and its rare jumps the density almost
vanishes, and b is not bounded.

Shapes: B surfaces, L maturities, n knots, Z nodes of the pool.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbiter.operators.slope_head import KNOTS
from arbiter.pricing.transport import Transport
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.differentiable.pricing import normal
from arbiter_lab.metrics.densities import transport_alignment
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.law_pool import Laws

MAX_VELOCITY = 8.0  # of the velocity over the reference volatility; 99 of 100 are smaller
_KNOT_WEIGHT_DEVIATION = (
    2.0  # deviation of the weight of knots: wings count for more than their probability
)


class OracleSlopes(NamedTuple):
    """Transport slopes of exact laws.

    Attributes:
        b: ``(B, L, n)`` at the knots; where unknown, that of the nearest known knot.
        known: ``(B, L, n)`` whether the pool resolves the law there.
    """

    b: Tensor
    known: Tensor


class VelocityTargets(NamedTuple):
    """Velocity targets of the flow-matching regression.

    Attributes:
        target: ``(B, L, n)`` ``∂b/∂√T`` over the reference volatility, from 0 to
            :data:`MAX_VELOCITY`.
        weight: ``(B, L, n)`` zero where unknown.
        cut: ``(B, L, n)`` whether the oracle's velocity lies outside that range.
    """

    target: Tensor
    weight: Tensor
    cut: Tensor


def oracle_slopes(laws: Laws, batch: Batch) -> OracleSlopes:
    """Slopes of the exact laws of a batch, by derivatives along the pool's nodes."""
    clock = batch.clock
    root = torch.sqrt(clock).double()[..., None]
    scale = laws.reference_at(batch.rows, clock).double()[..., None] * root
    k = laws.z.double() * scale  # (B, L, Z)
    v = laws.volatility_at(batch.rows, clock, k.to(clock.dtype)).double() * root
    x = gaussian_coordinate(k, v)
    log_b = torch.log(_derivative(k)) - torch.log(_derivative(x))
    return _interpolate_at_knots(x, log_b, batch.T.dtype)


def gaussian_coordinate(k: Tensor, v: Tensor) -> Tensor:
    """``Φ⁻¹(P(X ≤ e^k))`` at nodes ``(…, Z)`` of total volatility v, NaN where not to be had."""
    skew = _derivative(v) / _derivative(k)
    y = k / v + 0.5 * v
    # from the side that is small, so that nothing cancels
    below = normal.quantile((normal.cdf(y) + normal.pdf(y) * skew).clamp(1e-300, 0.5))
    above = -normal.quantile((normal.cdf(-y) - normal.pdf(y) * skew).clamp(1e-300, 0.5))
    low = normal.cdf(y) + normal.pdf(y) * skew < 0.5
    x = torch.where(low, below, above)
    return torch.where(torch.isfinite(skew) & (x.abs() < 30.0), x, torch.nan)


def _derivative(f: Tensor) -> Tensor:
    """Return the fourth-order derivative by node number; NaN at two nodes of each end."""
    out = torch.full_like(f, torch.nan)
    near, far = f[..., 3:-1] - f[..., 1:-3], f[..., 4:] - f[..., :-4]
    out[..., 2:-2] = (8.0 * near - far) / 12.0
    return out


def _interpolate_at_knots(x: Tensor, log_b: Tensor, dtype: torch.dtype) -> OracleSlopes:
    good = torch.isfinite(log_b) & torch.isfinite(x)
    middle = torch.arange(x.shape[-1], device=x.device) < x.shape[-1] // 2
    outside = torch.where(middle, -1e3, 1e3).to(x)
    nodes = torch.cummax(torch.where(good, x, outside), -1).values.contiguous()
    knots = torch.tensor(KNOTS, dtype=x.dtype, device=x.device)
    knots = knots.expand(*x.shape[:-1], len(KNOTS)).contiguous()
    right = torch.searchsorted(nodes, knots).clamp(1, x.shape[-1] - 1)
    x0, x1 = nodes.gather(-1, right - 1), nodes.gather(-1, right)
    known = good.gather(-1, right - 1) & good.gather(-1, right) & (x1 > x0)
    share = ((knots - x0) / torch.where(x1 > x0, x1 - x0, 1.0)).clamp(0.0, 1.0)
    clean = torch.where(good, log_b, 0.0)
    b = torch.exp(torch.lerp(clean.gather(-1, right - 1), clean.gather(-1, right), share))
    return OracleSlopes(_extend_to_unknown_knots(b, known).to(dtype), known)


def _extend_to_unknown_knots(b: Tensor, known: Tensor) -> Tensor:
    """Unknown knots take the slope of the nearest known one."""
    place = torch.arange(b.shape[-1], device=b.device).expand(b.shape)
    before = torch.where(known, place, -1).cummax(-1).values
    after = torch.where(known, place, b.shape[-1]).flip(-1).cummin(-1).values.flip(-1)
    near = torch.where(before >= 0, before, after).clamp(max=b.shape[-1] - 1)
    return torch.where(known.any(-1, keepdim=True), b.gather(-1, near), 0.1)


def compute_velocity_targets(slopes: OracleSlopes, chain: Scaled) -> VelocityTargets:
    """Return the velocity targets at the listed maturities of a chain."""
    raw, share = _slope_velocity(slopes.b, chain), _maturity_weights(chain)
    both = slopes.known & torch.cat([slopes.known[:, :1], slopes.known[:, :-1]], 1)
    knots = torch.tensor(KNOTS, dtype=raw.dtype, device=raw.device)
    listed = chain.quoted.any(-1)[..., None]
    weight = (
        share[..., None] * torch.exp(-0.5 * (knots / _KNOT_WEIGHT_DEVIATION) ** 2) * (both & listed)
    )
    cut = both & listed & ((raw < 0.0) | (raw > MAX_VELOCITY))
    return VelocityTargets(raw.clamp(0.0, MAX_VELOCITY), weight, cut)


def velocity_mse(slopes: Tensor, chain: Scaled, wanted: VelocityTargets) -> Tensor:
    """``mfm_mse``: mean squared error of the velocity of slopes ``(B, L, n)``, over ``log √T``."""
    error = _slope_velocity(slopes, chain) - wanted.target
    return (wanted.weight * error * error).sum() / wanted.weight.sum().clamp(min=1e-12)


def _slope_velocity(b: Tensor, chain: Scaled) -> Tensor:
    """``∂b/∂√T`` over the reference volatility, from the maturity before (at first, from 0)."""
    root = torch.exp(chain.total) / chain.sigma
    step = torch.diff(root, prepend=torch.zeros_like(root[:, :1]))
    rise = torch.diff(b, dim=1, prepend=torch.zeros_like(b[:, :1]))
    return rise / (step * chain.sigma)[..., None]


def _maturity_weights(chain: Scaled) -> Tensor:
    """Each maturity's part of ``log √T``: expiries a day apart weigh what they add."""
    root = torch.exp(chain.total) / chain.sigma
    return torch.diff(root, prepend=torch.zeros_like(root[:, :1])) / root


def measure_alignment(slopes: Tensor, exact: OracleSlopes, chain: Scaled) -> tuple[Tensor, Tensor]:
    """Return the means of `transport_alignment` over listed maturities with known slopes."""
    centre = exact.known[..., [i for i, x in enumerate(KNOTS) if abs(x) < 2.0]].all(-1)
    chosen = chain.quoted.any(-1) & centre  # (B, L)
    ours, theirs, total = (
        x[chosen].detach().double().cpu().numpy() for x in (slopes, exact.b, chain.total)
    )
    found = transport_alignment(Transport(KNOTS, ours), Transport(KNOTS, theirs), np.exp(total))
    return slopes.new_tensor(found.relative_entropy.mean()), slopes.new_tensor(found.cvar.mean())
