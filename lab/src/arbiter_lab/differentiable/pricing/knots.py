"""Knots of the transport slopes and their quadrature constants."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing import normal

# Gaussian coordinates on which slopes live unless a caller brings others: 31 from −5⅓ to 4⅔.
DEFAULT_KNOTS = tuple(float(x) for x in np.arange(-16, 15) / 3.0)
# Slopes are total volatilities. Up to here the decoder's accuracy is tested.
MAX_SLOPE = 20.0
# A segment wider than this is cut (exactly: slopes are linear on it), so that the quadrature
# below stays at rounding up to the steepest slope, whatever knots a caller brings.
_MAX_SEGMENT_WIDTH = 0.35
_QUADRATURE_NODES = {torch.float64: 12, torch.float32: 8}


@dataclass(frozen=True, eq=False)
class Knots:
    """A knot vector, cut at zero and into short segments, with its quadrature constants."""

    x: Tensor  # (N,) cut knots, zero among them
    first: float  # the end knots as numbers, for clamps without a device round trip
    last: float
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
        """Constants of ``knots`` in the dtype and on the device of ``like``."""
        if like.dtype not in _QUADRATURE_NODES:
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
    given = np.asarray(key)
    if given.size < 1 or not np.all(np.isfinite(given)) or np.any(np.diff(given) <= 0):
        raise ValueError(f"knots must be finite and strictly increasing, got {given.tolist()}")
    ends = np.union1d(given, [0.0])
    pieces = [
        np.linspace(a, b, int(np.ceil((b - a) / _MAX_SEGMENT_WIDTH)) + 1)[:-1]
        for a, b in itertools.pairwise(ends)
    ]
    x = np.concatenate([*pieces, ends[-1:]])
    if x.size == 1:  # a single knot at zero: one slope for the whole line
        x = np.array([0.0, _MAX_SEGMENT_WIDTH])
    source = np.clip(np.searchsorted(given, x, side="right") - 1, 0, max(given.size - 2, 0))
    if given.size > 1:
        blend = np.clip((x - given[source]) / (given[source + 1] - given[source]), 0.0, 1.0)
    else:
        blend = np.zeros_like(x)
    raw_node, raw_weight = np.polynomial.legendre.leggauss(_QUADRATURE_NODES[dtype])
    node, weight = 0.5 * (raw_node + 1.0), 0.5 * raw_weight
    width = np.diff(x)
    at = torch.from_numpy(x[:-1, None] + width[:, None] * node)  # (N-1, q)
    measure = torch.from_numpy(width[:, None] * weight)
    upper, lower = measure * normal.cdf(-at), measure * normal.cdf(at)

    # E s(Z) = ∫_0^∞ b Φ(−x) dx − ∫_{−∞}^0 b Φ(x) dx, and b is a sum of hats on the cut knots.
    zero = int(np.searchsorted(x, 0.0))
    signed = torch.cat([-lower[:zero], upper[zero:]]).numpy()
    mean = np.zeros_like(x)
    mean[:-1] += signed @ (1.0 - node)
    mean[1:] += signed @ node
    first, last = torch.tensor(x[0]), torch.tensor(x[-1])
    mean[0] -= float(normal.pdf(first) + first * normal.cdf(first))
    mean[-1] += float(normal.pdf(last) - last * normal.cdf(-last))

    def constant(a: np.ndarray | Tensor) -> Tensor:
        return torch.as_tensor(a).to(device=device, dtype=dtype)

    return Knots(
        x=constant(x),
        first=float(x[0]),
        last=float(x[-1]),
        zero=zero,
        source=torch.from_numpy(source).to(device),
        blend=constant(blend),
        node=constant(node),
        weight=constant(weight),
        upper=constant(upper),
        lower=constant(lower),
        mean=constant(mean),
    )
