"""An operator whose decoder is the paper's own, as a model of prices at any strike and maturity.

Before its projection: the largest so far along maturities of one convex potential each, from
intrinsic value up. Between maturities total variance is linear in T at equal moneyness, before the
first and past the last it grows in proportion to T. Nothing is promised.

After it: those prices on nodes that all maturities share, projected onto prices without static
arbitrage by one quadratic program, and between nodes and maturities as cleaned SVI
(:mod:`arbiter_lab.baselines.cleaned_svi`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from arbiter.conventions import Array
from arbiter.operators import checkpoint
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.network.config import Config
from arbiter.operators.network.network import Network
from arbiter.operators.quote_tensors import pad_chains
from arbiter.pricing import black
from arbiter.quotes import Quotes, require_quotes
from arbiter_lab.baselines.cleaned_svi import Nodes, choose_nodes, project_prices, quoted_range
from arbiter_lab.peers.peer import Peer, broadcast_points
from arbiter_lab.training.convex_decoder_prices import price_calls


@dataclass(frozen=True, eq=False, repr=False)
class ConvexModel(Peer):
    """Prices of one chain.

    Attributes:
        maturities: ``(L,)`` years.
        network: The operator.
        output: What it says of the chain.
    """

    name: ClassVar[str] = "icnn"
    maturities: Array
    network: Network
    output: Any

    def total_variance(self, k: Any, T: Any) -> Array:
        """Total implied variance; NaN where the price is that of no volatility."""
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
        """The nearest model without static arbitrage.

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
        """``(L, P)`` out-of-the-money prices, and their volatilities over the whole time."""
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
        network: With its weights.
        project: Whether its prices are projected.
        source: Where it comes from.

    Attributes:
        lipschitz: None: what is known of the network is a bound for slopes, and these are prices.
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
        """From a checkpoint.

        Raises:
            CheckpointError: If it is none of an operator with that decoder.
        """
        tensors, info = checkpoint.load(path)
        try:
            config = Config.from_dict(info.get("config"))
            if config.decoder != "icnn":
                raise ValueError(f"its decoder is {config.decoder!r}, not 'icnn'")
        except ValueError as error:
            raise CheckpointError(
                f"{path}: not an operator with the decoder 'icnn' ({error}); give weights of "
                "`arbiter train --ablate icnn`"
            ) from error
        network = checkpoint.restore_network(path, tensors, lambda: Network(config))
        return cls(network, project, str(path))

    def many(self, chains: Sequence[Quotes]) -> list[ConvexModel | Nodes]:
        """Models of several chains, one by one.

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
