"""An operator with the paper's ICNN decoder, as a model of prices at any strike and maturity.

Before the projection a price is the running maximum along maturities of one convex potential per
maturity, floored at intrinsic value. Total variance is linear in T between maturities at equal
moneyness, and proportional to T before the first and past the last. It may have arbitrage.

After the projection the prices on nodes that all maturities share are the nearest ones without
static arbitrage, by one quadratic program. Between nodes and maturities they are interpolated like
cleaned SVI (:mod:`arbiter_lab.baselines.cleaned_svi`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from arbiter.conventions import Array
from arbiter.quotes import Quotes, require_quotes
from arbiter_lab.baselines.cleaned_svi import Nodes, choose_nodes, project_prices, quoted_range
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.network import Network, Output
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.evaluation.first_design import load_network
from arbiter_lab.peers.peer import Peer, broadcast_points
from arbiter_lab.training.convex_decoder_prices import price_calls


@dataclass(frozen=True, eq=False, repr=False)
class ConvexModel(Peer):
    """Prices of one chain before the projection.

    Attributes:
        maturities: ``(L,)`` years.
        network: Network of the operator.
        output: Output of the network for the chain.
    """

    name: ClassVar[str] = "icnn"
    maturities: Array
    network: Network
    output: Output

    def total_variance(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Total implied variance; NaN where the price has no implied volatility."""
        at, times = broadcast_points(k, T)
        slices = self._variances(at.ravel())  # (L, P)
        after = np.searchsorted(self.maturities, times.ravel())
        right = np.clip(after, 0, self.maturities.size - 1)
        left = np.clip(after - 1, 0, self.maturities.size - 1)
        column = np.arange(right.size)
        low, high = self.maturities[left], self.maturities[right]
        early, late, asked = slices[left, column], slices[right, column], times.ravel()
        span = np.where(high > low, high - low, 1.0)
        between = early + (asked - low) / span * (late - early)
        # before the first maturity and past the last: one slice, in proportion to time
        found = np.where(high > low, between, late * asked / high)
        return np.asarray(found.reshape(at.shape))

    def project_onto_grid(self, quoted: Array) -> Nodes:
        """Return the nearest model without static arbitrage.

        Args:
            quoted: ``(L, 2)`` lowest and highest log-strike of the quotes of each maturity.
        """
        k = choose_nodes(np.exp(self.output.chain.total[0].numpy()), quoted)
        price, total = self._prices(k)
        made, found, left = project_prices(price, total, k, quoted)
        return Nodes(self.maturities, np.exp(k), made, found, left)

    def _variances(self, k: Array) -> Array:
        return np.asarray(self._prices(k)[1] ** 2)

    def _prices(self, k: Array) -> tuple[Array, Array]:
        """Return ``(L, P)`` out-of-the-money prices and their total volatilities ``σ√T``."""
        assert self.network.icnn is not None
        with torch.no_grad():
            rows = torch.tensor(k).expand(1, self.maturities.size, -1)
            price = price_calls(self.network.icnn, self.output, rows) - black.call_parity(rows)
            price = torch.cummax(price.clamp(min=0.0), 1).values[0]
            total: Tensor = black.implied_total_volatility(price, rows[0]).volatility
        return price.numpy(), total.numpy()


class ConvexOperator:
    """A trained operator with the ``icnn`` decoder, as a method that can be evaluated.

    Args:
        network: The trained network.
        project: Whether prices are projected.
        source: Origin of the weights, such as a path.

    Attributes:
        lipschitz: None: the known bound is one of slopes, and this decoder gives prices.
    """

    lipschitz: None = None

    def __init__(self, network: Network, project: bool = True, source: str = "memory") -> None:
        self._network = network.double().eval().requires_grad_(False)
        self._project = project
        self.source = source
        self.config = network.config
        self.model = checkpoint.model_hash(self._network)

    @classmethod
    def load(cls, path: str | PathLike[str], project: bool = True) -> ConvexOperator:
        """Load the operator of a checkpoint.

        Raises:
            CheckpointError: If it is not a checkpoint of an operator with the ICNN decoder.
        """
        return cls(load_network(path, "icnn"), project, str(path))

    def many(self, chains: Sequence[Quotes]) -> list[ConvexModel | Nodes]:
        """Return one model per chain.

        Raises:
            ValueError: If a chain has fewer than three quotes.
        """
        found: list[ConvexModel | Nodes] = []
        for quotes in chains:
            require_quotes(quotes, "the operator")
            with torch.no_grad():
                output = self._network(pad_chains([quotes]))
            made = ConvexModel(quotes.maturities, self._network, output)
            found.append(made.project_onto_grid(quoted_range(quotes)) if self._project else made)
        return found
