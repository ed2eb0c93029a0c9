"""A plain readout: log-volatility over reference, at any strike of any maturity.

Every network here takes a chain in its own units
(:mod:`arbiter.operators.prior.reference_volatility`), so that level and clock are divided out, and
answers ``log(iv/σ)`` at queries ``(ζ, log σ√T)``. There is no measure, no guard, no bound on its
maps and no decoder: nothing keeps the answers free of arbitrage.

Shapes: B chains, L maturities, S strikes, P queries, H heads, C coefficients of a smile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from arbiter.operators.prior.gaussian_process import ZETA, Kriged, splines
from arbiter.operators.prior.reference_volatility import FARTHEST, Scaled
from arbiter.operators.slope_head import KNOTS

SMILE_COEFFICIENTS = len(KNOTS)  # of a smile: as many numbers a slice as the operator has slopes
_LOG_VOLATILITY_MARGIN = 0.5  # log-volatility past that of any quote that an answer may reach

Memory = tuple[Tensor, ...]
"""What a network keeps of chains, to be asked: tensors whose first axis is the chain."""


class Readout(nn.Module, ABC):
    """A network from quotes to volatilities."""

    @property
    def kriging_heads(self) -> Tensor | None:
        """Heads ``(H,)`` of ζ where kriging is wanted, or None where it is not."""
        return None

    @abstractmethod
    def encode(self, chain: Scaled, guess: Kriged | None = None) -> Memory:
        """What is kept of chains, with what kriging is for them where that is wanted."""

    @abstractmethod
    def query_volatility(self, memory: Memory, zeta: Tensor) -> Tensor:
        """``(B, L, P)`` log-volatility over reference at strikes of the maturities."""

    @abstractmethod
    def select_maturities(self, memory: Memory, rows: Tensor) -> Memory:
        """What is kept of some maturities alone."""

    def forward(self, chain: Scaled, zeta: Tensor, guess: Kriged | None = None) -> Tensor:
        """Both."""
        return self.query_volatility(self.encode(chain, guess), zeta)


class SmileReadout(Readout):
    """A readout with the coefficients of a smooth smile for each maturity."""

    @abstractmethod
    def coefficients(self, chain: Scaled, guess: Kriged | None) -> Tensor:
        """``(B, L, C)`` of cubic splines over ζ."""

    def encode(self, chain: Scaled, guess: Kriged | None = None) -> Memory:
        """The coefficients."""
        return (self.coefficients(chain, guess),)

    def query_volatility(self, memory: Memory, zeta: Tensor) -> Tensor:
        """Smiles at strikes; flat beyond the splines, 20 deviations below the money."""
        (coefficients,) = memory
        basis = splines(zeta, ZETA, coefficients.shape[-1])  # (B, L, P, C)
        return bound_log_volatility((basis @ coefficients[..., None])[..., 0])

    def select_maturities(self, memory: Memory, rows: Tensor) -> Memory:
        """Their coefficients."""
        return (memory[0][:, rows],)


def bound_log_volatility(u: Tensor) -> Tensor:
    """Log-volatility over reference within what quotes may be, and some more."""
    most = FARTHEST + _LOG_VOLATILITY_MARGIN
    return u.clamp(-most, most)


def smoothed_smile(place: Tensor) -> Tensor:
    """``(C, 2H)`` from values and slopes of heads to coefficients: where training starts.

    The smile through the heads' values; slopes are not used.
    """
    low, high = ZETA
    step = (high - low) / (SMILE_COEFFICIENTS - 3)
    centre = low + step * (torch.arange(SMILE_COEFFICIENTS) - 1.0)
    centre = torch.clamp(centre, place[0], place[-1])
    near = 1.0 - (centre[:, None] - place).abs() / (place[1] - place[0])
    hats = near.clamp(min=0.0)
    return torch.cat([hats, torch.zeros_like(hats)], 1)
