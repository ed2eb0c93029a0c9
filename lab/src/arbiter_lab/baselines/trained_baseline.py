"""A trained baseline network as a method: from quotes to volatilities at any point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array
from arbiter.inputs import freeze_array, freeze_info
from arbiter.operators.checkpoint import CheckpointError
from arbiter.quotes import Quotes, require_quotes
from arbiter_lab.baselines.matched_size import Design, count_parameters
from arbiter_lab.baselines.readout import Memory, Readout
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.prior.gaussian_process import kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.peers.peer import Peer, broadcast_points

Index = NDArray[np.int64]

MAX_QUERIES = 1024  # queries: bounds memory, not results


@dataclass(frozen=True, eq=False, repr=False)
class NeuralSmiles(Peer):
    """Volatilities of one chain by a baseline network; they may have arbitrage.

    The logarithms of the reference volatility and of volatility over reference, at equal
    deviations, are linear in log-maturity between maturities and constant beyond the ends.

    Attributes:
        maturities: ``(L,)`` years.
        reference: ``(L,)`` reference volatility of each slice.
        network: The network.
        memory: The encoded chain.
    """

    name: ClassVar[str] = "network"
    maturities: Array
    reference: Array
    network: Readout
    memory: Memory

    def total_variance(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Total implied variance ``σ²T``; ``k`` and ``T`` broadcast."""
        at, t = broadcast_points(k, T)
        listed, when = np.log(self.maturities), np.log(t)
        log_sigma = np.interp(when, listed, np.log(self.reference))
        zeta = np.arcsinh(at * np.exp(-log_sigma) / np.sqrt(t))
        last = listed.size - 1
        right = np.searchsorted(self.maturities, t)
        low, high = np.clip(right - 1, 0, last), np.clip(right, 0, last)
        u = self._query_network(high, zeta)
        inner = (low < high) & (t < self.maturities[high])  # what is listed needs one answer alone
        if inner.any():
            below, above = listed[low[inner]], listed[high[inner]]
            share = (above - when[inner]) / (above - below)
            u[inner] += share * (self._query_network(low[inner], zeta[inner]) - u[inner])
        return np.asarray(np.exp(2.0 * (log_sigma + u)) * t)

    @torch.inference_mode()
    def _query_network(self, rows: Index, zeta: Array) -> Array:
        """Return log-volatility over reference at ζ of maturities ``rows``, of the same shape."""
        order = np.argsort(rows, axis=None, kind="stable")
        at, which = zeta.ravel()[order], rows.ravel()[order]
        found = np.empty(at.size)
        for start in range(0, at.size, MAX_QUERIES):
            some = slice(start, start + MAX_QUERIES)
            used, row, count = np.unique(which[some], return_inverse=True, return_counts=True)
            place = np.arange(row.size) - (np.cumsum(count) - count)[row]
            table = np.zeros((used.size, int(count.max())))
            table[row, place] = at[some]
            memory = self.network.select_maturities(self.memory, torch.from_numpy(used))
            answers = self.network.query_volatility(memory, torch.from_numpy(table)[None])
            found[some] = answers[0].numpy()[row, place]
        out = np.empty(at.size)
        out[order] = found
        return out.reshape(zeta.shape)


class Baseline:
    """A trained baseline network; it is called like the operator.

    Args:
        network: The network; it is converted to double precision in place.
        design: Shape of the network.
        info: Metadata of its checkpoint.
        source: Origin of the weights, such as a path.

    Example:
        >>> import arbiter as ab
        >>> from arbiter_lab.baselines.matched_size import match_design
        >>> design = match_design("gru")
        >>> model = Baseline(design.build(), design)(ab.example_chain().quotes())  # untrained
        >>> bool(0.05 < model.iv(0.0, 0.5) < 0.5)
        True
    """

    def __init__(
        self,
        network: Readout,
        design: Design,
        info: dict[str, Any] | None = None,
        source: str = "memory",
    ) -> None:
        self.network = network.double().eval().requires_grad_(False)
        self.design, self.source = design, source
        self._info = {} if info is None else info
        self.model = checkpoint.model_hash(self.network)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Baseline:
        """Load a baseline from a checkpoint file.

        Raises:
            FileNotFoundError: If the file does not exist.
            CheckpointError: If it is not a readable checkpoint of a baseline.
        """
        tensors, info = checkpoint.load(path)
        config = info.get("config")
        try:
            if not isinstance(config, dict) or "model" not in config:
                raise ValueError(
                    "it names no model: it is an operator's, for `arbiter evaluate --weights`"
                )
            design = Design.from_dict(config)
        except ValueError as error:
            raise CheckpointError(
                f"{path}: its config is not a baseline's ({error}); give weights of a run whose "
                "settings have model 'ssm', 'gru' or 'transformer'"
            ) from error
        network = checkpoint.restore_network(path, tensors, design.build)
        return cls(network, design, info, str(path))

    def __repr__(self) -> str:
        size = count_parameters(self.network)
        return f"Baseline({self.design.model}, {self.model}, {size:,} parameters)"

    @property
    def card(self) -> dict[str, Any]:
        """Return the model card: design, training data and settings, as plain values."""
        about = {"model": self.model, "parameters": count_parameters(self.network)}
        return {**about, "config": self.design.to_dict(), **freeze_info(self._info)}

    def __call__(self, quotes: Quotes) -> NeuralSmiles:
        """Return volatilities from quotes.

        Args:
            quotes: At least three quotes, from a chain's ``quotes()`` or
                :meth:`Quotes.from_frame`.

        Raises:
            ValueError: If there are fewer than three quotes, or none determines the reference
                volatility.
        """
        return self.many([quotes])[0]

    @torch.inference_mode()
    def many(self, chains: Sequence[Quotes]) -> list[NeuralSmiles]:
        """Return volatilities of many chains; each is computed on its own."""
        for place, quotes in enumerate(chains):
            require_quotes(quotes, "a baseline", f"chains[{place}]: " if len(chains) > 1 else "")
        return [self._solve_chain(quotes) for quotes in chains]

    def _solve_chain(self, quotes: Quotes) -> NeuralSmiles:
        chain = scaled(pad_chains([quotes]))
        place = self.network.kriging_heads
        memory = self.network.encode(chain, None if place is None else kriged(chain, place))
        whole = all(bool(torch.isfinite(part).all()) for part in (chain.sigma, *memory))
        if not whole:
            raise ValueError(
                f"{quotes!r}: the quotes do not tell a level of volatility, none of them is near "
                "the money; take fit(quotes) instead"
            )
        return NeuralSmiles(
            quotes.maturities, freeze_array(chain.sigma[0].numpy()), self.network, memory
        )
