"""Ragged chains and small networks that the operator's tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter.operators.quote_rows import QuoteRows
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged

SMALL: dict[str, Any] = {
    "heads": 8, "width": 16, "state": 8, "rank": 2, "context": 12, "looks": 2,
    "reach": (3.0, 2.4), "spans": (), "kriging": False, "budget": 2.0,
}  # fmt: skip


def random_chain(seed: int, chains: int = 2, maturities: int = 5, strikes: int = 9) -> Ragged:
    """Noisy smiles at uneven strikes and maturities, a fifth of the quotes missing."""
    g = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=g, dtype=torch.float64)

    T = torch.cumsum(0.01 + 0.3 * uniform(chains, maturities), 1)
    shape = (chains, maturities, strikes)
    k = torch.cumsum(0.005 + 0.04 * uniform(*shape), 2)
    k = k - k[..., (2 * strikes) // 3, None]
    noise = torch.randn(*shape, generator=g, dtype=torch.float64)
    iv = 0.2 * torch.exp(-0.8 * k + 0.08 * noise)
    half = iv * (0.002 + 0.05 * uniform(*shape))
    quoted = uniform(*shape) < 0.8
    quoted[..., 0] = True  # every slice has a quote, until a test takes it away
    return Ragged(T, k, iv, half, quoted)


def network(seed: int = 0, spread: float = 0.2, **switches: Any) -> Network:
    """A small network whose every parameter is random: nothing rests on how training starts."""
    torch.manual_seed(seed)
    made = Network(Config(**{**SMALL, **switches})).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    return made


def with_values(chain: Scaled, u: Tensor) -> Scaled:
    """The same geometry, other quotes."""
    return chain._replace(u=torch.where(chain.quoted, u, 0.0))


def in_units(seed: int, **shape: int) -> Scaled:
    return scaled(random_chain(seed, **shape))


def ratio(made: Network, chain: Scaled, seed: int) -> float:
    """How far proposals move, over how far quotes did, between two random sets of quotes."""
    g = torch.Generator().manual_seed(seed)
    u = MAX_LOG_VOLATILITY_RATIO * (
        2.0 * torch.rand(chain.u.shape, generator=g, dtype=torch.float64) - 1.0
    )
    v = (u + 0.01 * torch.sign(u)).clamp(-MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO)
    gap = made.decode(with_values(chain, u)).proposal - made.decode(with_values(chain, v)).proposal
    return float(gap.abs().max() / ((u - v) * chain.quoted).abs().max())


def to_rows(quotes: Ragged) -> QuoteRows:
    """The same quotes as the library lays them, in one row."""
    count = quotes.quoted.sum(-1).flatten().numpy()
    ends = np.concatenate([[0], np.cumsum(count)])
    row = np.repeat(np.arange(count.size), count)
    k, iv, half = (part[quotes.quoted].numpy() for part in (quotes.k, quotes.iv, quotes.half))
    return QuoteRows(quotes.T.numpy(), ends, row, k, iv, half)
