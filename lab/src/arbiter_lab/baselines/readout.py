"""Base classes of the baseline networks: log-volatility over reference at any strike.

The input is a chain in its own units (:mod:`arbiter.operators.prior.reference_volatility`), which
removes the overall volatility and the time scale. The output is ``log(iv/σ)`` at queries
``(ζ, log σ√T)``. There is no measure, no guard, no norm bound and no decoder, so the output may
have arbitrage.

Shapes: B chains, L maturities, S strikes, P queries, H heads, C coefficients of a smile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from arbiter.operators.prior.gaussian_process import ZETA
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged, splines
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

SMILE_COEFFICIENTS = len(KNOTS)  # of a smile: as many numbers a slice as the operator has slopes
_LOG_VOLATILITY_MARGIN = 0.5  # log-volatility past that of any quote that an answer may reach

Memory = tuple[Tensor, ...]
"""Encoded chains: tensors whose first axis is the chain."""


class Readout(nn.Module, ABC):
    """A network from quotes to volatilities."""

    @property
    def kriging_heads(self) -> Tensor | None:
        """Coordinates ζ ``(H,)`` at which the network uses kriging; None if it does not."""
        return None

    @abstractmethod
    def encode(self, chain: Scaled, guess: Kriged | None = None) -> Memory:
        """Encode chains; ``guess`` is their kriging, for networks that use it."""

    @abstractmethod
    def query_volatility(self, memory: Memory, zeta: Tensor) -> Tensor:
        """Return ``(B, L, P)`` log-volatility over reference at coordinates ζ ``(B, L, P)``."""

    @abstractmethod
    def select_maturities(self, memory: Memory, rows: Tensor) -> Memory:
        """Return the encoding of some maturities only."""

    def forward(self, chain: Scaled, zeta: Tensor, guess: Kriged | None = None) -> Tensor:
        """Encode chains and return ``(B, L, P)`` log-volatility over reference at ζ."""
        return self.query_volatility(self.encode(chain, guess), zeta)


class SmileReadout(Readout):
    """A readout with the coefficients of a smooth smile for each maturity."""

    @abstractmethod
    def coefficients(self, chain: Scaled, guess: Kriged | None) -> Tensor:
        """Return ``(B, L, C)`` coefficients of cubic splines in ζ."""

    def encode(self, chain: Scaled, guess: Kriged | None = None) -> Memory:
        """Return the spline coefficients of the smiles."""
        return (self.coefficients(chain, guess),)

    def query_volatility(self, memory: Memory, zeta: Tensor) -> Tensor:
        """Evaluate the smiles at ζ; flat beyond the splines, 20 deviations below the money."""
        (coefficients,) = memory
        basis = splines(zeta, ZETA, coefficients.shape[-1])  # (B, L, P, C)
        return bound_log_volatility((basis @ coefficients[..., None])[..., 0])

    def select_maturities(self, memory: Memory, rows: Tensor) -> Memory:
        """Return the coefficients of some maturities only."""
        return (memory[0][:, rows],)


def bound_log_volatility(u: Tensor) -> Tensor:
    """Clamp log-volatility over reference to the range of quotes plus a margin."""
    most = MAX_LOG_VOLATILITY_RATIO + _LOG_VOLATILITY_MARGIN
    return u.clamp(-most, most)


def smoothed_smile(place: Tensor) -> Tensor:
    """Return the initial matrix ``(C, 2H)`` from values and slopes at the heads to coefficients.

    The smile interpolates the values; slopes have zero weight.
    """
    low, high = ZETA
    step = (high - low) / (SMILE_COEFFICIENTS - 3)
    centre = low + step * (torch.arange(SMILE_COEFFICIENTS) - 1.0)
    centre = torch.clamp(centre, place[0], place[-1])
    near = 1.0 - (centre[:, None] - place).abs() / (place[1] - place[0])
    hats = near.clamp(min=0.0)
    return torch.cat([hats, torch.zeros_like(hats)], 1)
