"""Ragged quotes as tensors: one row of strikes per maturity, padded, many chains at once.

Shapes throughout the operator: B chains, L maturities, S strikes, H heads, n knots. Integrals over
strikes are sums with the weights of :func:`trapezoid`, so that what a network makes of a smile
does not depend on how many strikes it was quoted at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbiter.operators.quote_rows import ImpliedVolatilities, pad_maturities

if TYPE_CHECKING:  # tensors alone need no tables
    from arbiter.quotes import Quotes

# what padding holds: it is multiplied by zero
_PADDING_VOLATILITY, _PADDING_HALF_SPREAD = 0.2, 0.01
MIN_QUADRATURE_WEIGHT = 1e-6  # no quote weighs zero


class Ragged(NamedTuple):
    """Quotes of B chains.

    Attributes:
        T: ``(B, L)`` years, increasing along L, padding included.
        k: ``(B, L, S)`` log-moneyness, increasing along S where quoted; :func:`sort_quotes` sorts.
        iv: ``(B, L, S)`` volatility of the mid price.
        half: ``(B, L, S)`` half the spread of volatility.
        quoted: ``(B, L, S)`` whether there is a quote; padding and query maturities have none.
    """

    T: Tensor
    k: Tensor
    iv: Tensor
    half: Tensor
    quoted: Tensor

    @property
    def listed(self) -> Tensor:
        """``(B, L)`` maturities with a quote."""
        return self.quoted.any(-1)


def pad_chains(
    chains: Sequence[Quotes],
    dtype: torch.dtype = torch.float64,
    implied: Sequence[ImpliedVolatilities] | None = None,
) -> Ragged:
    """Chains side by side, padded to the longest of them.

    Args:
        chains: At least one, each with at least one quote.
        dtype: Of the tensors.
        implied: Their volatilities, if not what the quotes say themselves.

    Raises:
        ValueError: If there is nothing to look at; names the chain.
    """
    if not chains:
        raise ValueError("chains is empty: give at least one chain")
    for i, quotes in enumerate(chains):
        if not len(quotes):
            raise ValueError(f"chain {i} has no quotes that can be used: see its .counts()")
    implied = (
        [ImpliedVolatilities.from_quotes(quotes) for quotes in chains]
        if implied is None
        else implied
    )
    deep = max(quotes.maturities.size for quotes in chains)
    slot = np.concatenate([quotes.expiry + i * deep for i, quotes in enumerate(chains)])
    count = np.bincount(slot, minlength=len(chains) * deep)
    shape = (len(chains), deep, int(count.max()))
    at = slot * shape[2] + np.arange(slot.size) - (np.cumsum(count) - count)[slot]
    k, quoted = np.zeros(shape), np.zeros(shape, dtype=bool)
    iv, half = np.full(shape, _PADDING_VOLATILITY), np.full(shape, _PADDING_HALF_SPREAD)
    bid, mid, ask = (np.concatenate(part) for part in zip(*implied, strict=True))
    k.ravel()[at] = np.concatenate([quotes.k for quotes in chains])
    quoted.ravel()[at], iv.ravel()[at], half.ravel()[at] = True, mid, 0.5 * (ask - bid)
    T = np.stack([pad_maturities(quotes.maturities, deep) for quotes in chains])
    tensors = [torch.from_numpy(a).to(dtype) for a in (T, k, iv, half)]
    return Ragged._make([*tensors, torch.from_numpy(quoted)])


def sort_quotes(quotes: Ragged) -> Ragged:
    """The same quotes with maturities and strikes increasing, padding last, repetitions dropped.

    :func:`pad_chains` gives them so; tensors from elsewhere may not be. Of quotes at one strike the
    first is kept, as :meth:`arbiter.Quotes.from_frame` does.
    """
    slices = torch.argsort(quotes.T, dim=1, stable=True)  # (B, L)
    far = torch.where(quotes.quoted, quotes.k, torch.inf)
    strikes = torch.argsort(far, dim=-1, stable=True)  # (B, L, S)

    def arranged(x: Tensor) -> Tensor:
        within = x.gather(-1, strikes)
        return within.gather(1, slices[..., None].expand_as(within))

    T = quotes.T.gather(1, slices)
    k, iv, half, quoted = (arranged(x) for x in quotes[1:])
    again = torch.zeros_like(quoted)
    again[..., 1:] = quoted[..., 1:] & (k[..., 1:] == k[..., :-1])
    return Ragged(T, k, iv, half, quoted & ~again)


def trapezoid(at: Tensor, quoted: Tensor) -> Tensor:
    """Quadrature weights ``(…, S)`` on the quoted points, which increase; others may lie between.

    Inside, the trapezoidal rule: half the distance between the neighbours. An end stands for the
    line beyond it too and weighs its whole gap, so that a sum over points is the trapezoidal rule
    plus half a gap at each end: of second order for what vanishes at the ends, else of first. A
    single point weighs one.
    """
    inside = torch.where(quoted, at, torch.nan)
    before = _last_seen(inside)
    after = _last_seen(inside.flip(-1)).flip(-1)
    left, right = at - before, after - at
    lone = torch.isnan(left) & torch.isnan(right)
    left = torch.where(torch.isnan(left), torch.nan_to_num(right), left)
    right = torch.where(torch.isnan(right), left, right)
    width = torch.where(lone, 1.0, 0.5 * (left + right))
    return torch.where(quoted, width.clamp(min=MIN_QUADRATURE_WEIGHT), 0.0)


def _last_seen(values: Tensor) -> Tensor:
    """The last number strictly before each place, NaN where there is none."""
    place = torch.arange(values.shape[-1], device=values.device).expand(values.shape)
    seen = torch.where(torch.isnan(values), -1, place)
    last = torch.cat([torch.full_like(seen[..., :1], -1), seen[..., :-1]], -1).cummax(-1).values
    found = values.gather(-1, last.clamp(min=0))
    return torch.where(last >= 0, found, torch.nan)
