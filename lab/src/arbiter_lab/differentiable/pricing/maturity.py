"""The interpolation in maturity of :mod:`arbiter.pricing.maturity` on tensors, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from arbiter.pricing.maturity import MAX_END_VOLATILITY_RATIO


def slopes_at(maturities: Tensor, slopes: Tensor, T: Tensor) -> Tensor:
    """Slopes at any maturities, from those at the listed ones.

    Args:
        maturities: ``(L,)`` listed maturities, increasing and positive.
        slopes: ``(…, J, L, n)``, nondecreasing along L and along J.
        T: ``(U,)`` positive maturities.

    Returns:
        ``(…, J, U, n)``.
    """
    u = torch.cat([torch.zeros_like(maturities[:1]), torch.sqrt(maturities)])
    values = torch.cat([torch.zeros_like(slopes[..., :1, :]), slopes], -2)  # (…, J, L+1, n)
    rate = _divided_differences(u, values)
    last = _end_tangent(u, values, rate)
    # past the last maturity components must not cross: no tangent above a higher component's
    last = last.flip(-2).cummin(-2).values.flip(-2)
    # the first tangent is the first secant: volatility b/√T is flat towards T = 0
    tangent = limit_crossing_tangents(
        u, values, _fritsch_butland_tangents(u, rate, rate[..., 0, :], last)
    )
    return _evaluate_hermite(u, values, tangent, torch.sqrt(T))


def weights_at(maturities: Tensor, weights: Tensor, T: Tensor) -> Tensor:
    """Mixture weights ``(…, J, U)`` at maturities ``T``, from ``(…, J, L)`` at the listed ones.

    What is interpolated is the survival function ``P(J ≥ j)``, which must not fall in T;
    it is held constant before the first and after the last listed maturity.
    """
    if weights.shape[-2] == 1:
        return torch.ones(*weights.shape[:-1], T.numel(), dtype=T.dtype, device=T.device)
    u = torch.sqrt(maturities)
    survival = weights.flip(-2).cumsum(-2)[..., None][..., :-1, :, :]  # j = J … 2, increasing
    if u.numel() == 1:
        at = survival.expand(*survival.shape[:-2], T.numel(), 1)
    else:
        rate = _divided_differences(u, survival)
        flat = torch.zeros_like(rate[..., 0, :])
        tangent = limit_crossing_tangents(
            u, survival, _fritsch_butland_tangents(u, rate, flat, flat)
        )
        at = _evaluate_hermite(u, survival, tangent, torch.clamp(torch.sqrt(T), u[0], u[-1]))
    at = at[..., 0]  # (…, J-1, U)
    ones = torch.ones_like(at[..., :1, :])
    steps = torch.cat([at[..., :1, :], torch.diff(torch.cat([at, ones], -2), dim=-2)], -2)
    return steps.flip(-2)


def _divided_differences(u: Tensor, values: Tensor) -> Tensor:
    return torch.diff(values, dim=-2) / torch.diff(u)[:, None]


def _fritsch_butland_tangents(u: Tensor, rate: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Fritsch-Butland tangents: a weighted harmonic mean of the two secants, given ends."""
    width = torch.diff(u)[:, None]
    left, right = rate[..., :-1, :], rate[..., 1:, :]
    near_left, near_right = 2.0 * width[1:] + width[:-1], width[1:] + 2.0 * width[:-1]
    bottom = near_left * right + near_right * left
    flat = bottom <= 0.0
    inner = (near_left + near_right) * left * right / torch.where(flat, 1.0, bottom)
    inner = torch.where(flat, 0.0, inner)
    return torch.cat([first[..., None, :], inner, last[..., None, :]], -2)


def _end_tangent(u: Tensor, values: Tensor, rate: Tensor) -> Tensor:
    """Tangent at the last node, which is also the slope's growth beyond it.

    The three-point formula, kept within what is monotone, and within a little more than the
    rate of a flat volatility, b/u: two late maturities that lie close together say nothing
    about years to come.
    """
    if u.numel() == 2:
        return rate[..., -1, :]
    width = torch.diff(u)
    lean = width[-1] / (width[-1] + width[-2])
    tangent = rate[..., -1, :] + lean * (rate[..., -1, :] - rate[..., -2, :])
    limit = torch.minimum(
        3.0 * rate[..., -1, :], MAX_END_VOLATILITY_RATIO * values[..., -1, :] / u[-1]
    )
    return torch.minimum(torch.clamp(tangent, min=0.0), limit)


def limit_crossing_tangents(u: Tensor, values: Tensor, tangent: Tensor) -> Tensor:
    """Tangents drawn together, node by node, so that ordered components cannot cross.

    In Bernstein form two cubics are ordered when their control points are: at a node with
    gap g between neighbours, tangents may differ by at most 3g over the interval's width.
    """
    if values.shape[-3] == 1:
        return tangent
    width = torch.diff(u)[:, None]
    gap = torch.diff(values, dim=-3)
    tangent_gap = torch.diff(tangent, dim=-3)
    pad = torch.zeros_like(gap[..., :1, :])
    ahead = torch.cat([torch.clamp(-tangent_gap[..., :-1, :], min=0.0) * width, pad], -2)
    behind = torch.cat([pad, torch.clamp(tangent_gap[..., 1:, :], min=0.0) * width], -2)
    need = torch.maximum(ahead, behind)
    shrink = torch.where(need > 3.0 * gap, 3.0 * gap / torch.where(need > 0, need, 1.0), 1.0)
    lowest = tangent.amin(-3, keepdim=True)
    return lowest + (tangent - lowest) * shrink.amin(-3, keepdim=True)


def _evaluate_hermite(u: Tensor, values: Tensor, tangent: Tensor, at: Tensor) -> Tensor:
    """The cubic through ``values`` with ``tangent``, a straight line past the last node."""
    i = torch.clamp(torch.searchsorted(u, at.detach(), right=True) - 1, 0, u.numel() - 2)
    width = (u[i + 1] - u[i])[:, None]
    inside = torch.clamp(at, max=float(u[-1]))
    t = (inside - u[i])[:, None] / width
    left, right = values[..., i, :], values[..., i + 1, :]
    d_left, d_right = tangent[..., i, :] * width, tangent[..., i + 1, :] * width
    # Bernstein form: ordered control points keep ordered components ordered
    one = left + d_left / 3.0
    two = right - d_right / 3.0
    s = 1.0 - t
    cubic = s * s * (s * left + 3.0 * t * one) + t * t * (3.0 * s * two + t * right)
    return cubic + tangent[..., -1:, :] * (at - inside)[:, None]
