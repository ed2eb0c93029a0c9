"""The constants of :class:`arbiter.pricing.knots.Knots` as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from arbiter.pricing import knots as compiled_knots
from arbiter.pricing.knots import QUADRATURE_NODES

_NODES = {torch.float64: QUADRATURE_NODES, torch.float32: 8}


@dataclass(frozen=True, eq=False)
class Knots:
    """A knot vector, cut at zero and into short segments, with its quadrature constants."""

    x: Tensor  # (N,) cut knots, zero among them
    first: float  # the end knots as numbers, for clamps without a device round trip
    last: float
    width: Tensor  # (N-1,)
    zero: int  # position of zero
    source: Tensor  # (N,) index of the given knot to the left
    blend: Tensor  # (N,) weight of the given knot to the right
    node: Tensor  # (q,) Gauss-Legendre abscissae on [0, 1]
    weight: Tensor  # (q,)
    upper: Tensor  # (N-1, q) width · weight · Φ(−x) at the nodes
    lower: Tensor  # (N-1, q) width · weight · Φ(x)
    mean: Tensor  # (N,) weights that turn slopes into E s(Z)

    @staticmethod
    def from_tensor(knots: Tensor, like: Tensor) -> Knots:
        """Constants of ``knots`` in the dtype and on the device of ``like``.

        Raises:
            ValueError: If the knots are not finite and strictly increasing, or ``like`` is
                neither float64 nor float32.
        """
        if like.dtype not in _NODES:
            raise ValueError(f"slopes must be float64 or float32, got {like.dtype}")
        key = tuple(float(x) for x in knots.detach().cpu().double().tolist())
        return _build_knots(key, like.dtype, like.device)

    def slopes_at_cuts(self, slopes: Tensor) -> Tensor:
        """Slopes ``(…, n)`` on the given knots, read at the cut knots ``(…, N)``."""
        right = torch.clamp(self.source + 1, max=slopes.shape[-1] - 1)
        left_slope = slopes[..., self.source]
        return left_slope + self.blend * (slopes[..., right] - left_slope)


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # kept between calls: must also serve one that needs gradients
def _build_knots(key: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Knots:
    grid = compiled_knots.Knots.from_array(key, _NODES[dtype])

    def constant(a: np.ndarray) -> Tensor:
        return torch.tensor(a, device=device, dtype=dtype)

    return Knots(
        x=constant(grid.x),
        first=float(grid.x[0]),
        last=float(grid.x[-1]),
        width=constant(grid.width),
        zero=grid.zero,
        source=torch.tensor(grid.source, device=device),
        blend=constant(grid.blend),
        node=constant(grid.node),
        weight=constant(grid.weight),
        upper=constant(grid.upper.T.copy()),
        lower=constant(grid.lower.T.copy()),
        mean=constant(grid.mean),
    )
