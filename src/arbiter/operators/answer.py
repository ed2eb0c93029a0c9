"""What the operator answers: a surface that remembers which network made it, and how it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.operators.domain import DomainReport
from arbiter.surface import Surface

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OperatorResult:
    """How a surface came about.

    Attributes:
        model: Hash of the weights.
        lipschitz: Certified bound of the move of any log-slope when every log-volatility of the
            quotes moves by at most one, for given strikes, maturities, spreads and reference.
        residuals: ``(m,)`` (model − mid) / half-spread of each quote, in the quotes' order.
        reference: ``(L,)`` the volatility that each slice was divided by.
        traits: The numbers that the domain is judged by.
        seconds: Wall time, for a batch its share.
    """

    model: str
    lipschitz: float
    residuals: Array
    reference: Array
    traits: Mapping[str, float]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Which network, its constant and the time, as plain values."""
        return {"model": self.model, "lipschitz": self.lipschitz, "seconds": self.seconds}


@dataclass(frozen=True, eq=False, repr=False)
class OperatorSurface(Surface):
    """A :class:`~arbiter.surface.Surface` from one pass of the operator.

    Saved and loaded, it is a plain surface: ``info["operator"]`` keeps the network's hash, its
    Lipschitz constant and the alarms.

    Attributes:
        result: How it came about.
        domain: Whether the quotes are like those of the training universe; None where the weights
            came without limits.
    """

    result: OperatorResult | None = field(default=None, kw_only=True)
    domain: DomainReport | None = field(default=None, kw_only=True)
