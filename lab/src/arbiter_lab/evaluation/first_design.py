"""The operator's first design with its transport decoder, as a method that gives surfaces.

It runs the network as it was trained, in torch and double precision, one chain at a time. The
paper's tables were made with networks of this design.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from arbiter.fitting import FitOptions, FittedSurface
from arbiter.fitting.cross_validation import QuoteFold, folds
from arbiter.fitting.refinement import refine
from arbiter.operators import residuals, slope_head
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.operator_surface import put_on_clock
from arbiter.quotes import MIN_QUOTES, Quotes, require_quotes
from arbiter.surface import Surface
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.lipschitz import constant
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains


def operator_weights() -> Path:
    """Return the path of the first design's operator, which shipped before the law network."""
    return Path(str(files("arbiter_lab.nets"))) / "operator.safetensors"


def load_network(path: str | PathLike[str], decoder: str) -> Network:
    """Load a network of the first design.

    Args:
        path: A checkpoint.
        decoder: The decoder that it must have.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it is not a checkpoint of such a network.
    """
    tensors, info = checkpoint.load(path)
    try:
        config = Config.from_dict(info.get("config"))
        if config.decoder != decoder:
            raise ValueError(f"its decoder is {config.decoder!r}, not {decoder!r}")
    except ValueError as error:
        raise CheckpointError(
            f"{path}: not an operator with the decoder {decoder!r} ({error}); give weights of "
            "`arbiter train` with that decoder"
        ) from error
    return checkpoint.restore_network(path, tensors, lambda: Network(config))


class FirstDesign:
    """A trained network of the first design: quotes in, surfaces out.

    Args:
        network: The trained network.
        source: Origin of the weights, such as a path.

    Attributes:
        network: The network in double precision, without gradients.
        model: Hash of its weights as they are stored.
    """

    def __init__(self, network: Network, source: str = "memory") -> None:
        self.model = checkpoint.model_hash(network.float())
        self.network = network.double().eval().requires_grad_(False)
        self.source, self.config = source, network.config

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None) -> FirstDesign:
        """Load a network; the first design's operator if no path is given.

        Raises:
            CheckpointError: If it is not a checkpoint of a network with the transport decoder.
        """
        path = operator_weights() if path is None else path
        return cls(load_network(path, "transport"), str(path))

    @cached_property
    def lipschitz(self) -> float:
        """Certified bound of the move of log-slopes over that of log-volatilities."""
        return constant(self.network).value

    def __call__(self, quotes: Quotes) -> Surface:
        """Return the surface of one chain."""
        return self.many([quotes])[0]

    def many(self, chains: Sequence[Quotes]) -> list[Surface]:
        """Return one surface per chain.

        Raises:
            ValueError: If a chain has fewer than three quotes, or tells no level of volatility.
        """
        return [self._answer(quotes) for quotes in chains]

    def refine(self, quotes: Quotes) -> FittedSurface:
        """Return the direct fit with the surface as a prior, weighted by cross-validation."""
        return refine(quotes, self(quotes), self._fold_guides(quotes), FitOptions())

    def _answer(self, quotes: Quotes) -> Surface:
        require_quotes(quotes, "the operator")
        moved = quotes.in_clock_time()
        with torch.no_grad():
            rows = pad_chains([moved], implied=residuals.implied([moved]))
            slopes = self.network(rows).slopes[0].numpy()
        if not np.isfinite(slopes).all():
            raise ValueError(
                f"{quotes!r}: the quotes do not tell a level of volatility, none of them is near "
                "the money; take fit(quotes) instead"
            )
        curve = moved.curve
        made = Surface.from_slopes(
            slope_head.KNOTS, moved.maturities, slopes, curve.forwards, curve.discounts
        )
        return put_on_clock(made, quotes)

    def _fold_guides(self, quotes: Quotes) -> list[QuoteFold]:
        """Folds of the quotes, each with the surface of all others; none if those are too few."""
        outs = folds(quotes)
        kept = [quotes.select(~out) for out in outs]
        if min(map(len, kept)) < MIN_QUOTES:
            return []
        try:
            guides = self.many(kept)
        except ValueError:  # no level of volatility without one of the folds
            return []
        return [QuoteFold(out, guide) for out, guide in zip(outs, guides, strict=True)]
