"""Fourier inversion for many parameter sets at once, where they share nodes and blocks of strikes.

Shapes: P parameter sets, D states of each, Q Fourier nodes, m strikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.models.fourier_pricing import Contour

Complex = NDArray[np.complex128]

_PADDING_LOG_WEIGHT = -1e4  # logarithm of the weight of a node that only fills a row
_POINTS_PER_CHUNK, _POINTS_PER_CHUNK_CPU = 1 << 25, 1 << 17  # strikes × nodes at a time
_NEGLIGIBLE_LOG_SIZE = -41.0  # e^−41 = 2e-18


def pad_rows(rows: Sequence[NDArray[np.complex128]], fill: complex | None = None) -> Complex:
    """Rows of different lengths, drawn out to the longest by their last entry or by ``fill``."""
    width = max(row.size for row in rows)
    out = np.empty((len(rows), width), dtype=np.complex128)
    for i, row in enumerate(rows):
        out[i, : row.size], out[i, row.size :] = row, row[-1] if fill is None else fill
    return out


@dataclass(frozen=True, eq=False)
class ContourBatch:
    """Contours of many sets on one side of the money: nodes and weights ``(P, Q)``."""

    calls: bool
    xi: Tensor
    log_weight: Tensor

    @staticmethod
    def from_contours(contours: Sequence[Contour], device: torch.device) -> ContourBatch:
        """Stack contours of the same side, padded to the longest."""
        log_weight = pad_rows([np.log(c.weight) for c in contours], fill=_PADDING_LOG_WEIGHT)
        return ContourBatch(
            contours[0].calls,
            torch.as_tensor(pad_rows([c.xi for c in contours]), device=device),
            torch.as_tensor(log_weight, device=device),
        )

    def invert(self, log_cf: Tensor, k: Tensor) -> Tensor:
        """``Re Σ_q weight_q e^{log_cf_q − i ξ_q k}``, from ``(P, D, Q)`` and ``(P, D, m)``."""
        scaled = log_cf + self.log_weight[:, None]
        nearest = k[..., 0] if self.calls else k[..., -1]
        size = scaled.real + nearest[..., None] * self.xi.imag[:, None]
        audible = (size > _NEGLIGIBLE_LOG_SIZE).flatten(0, 1).any(0).nonzero()
        nodes = int(audible[-1]) + 1 if audible.numel() else 1
        D = log_cf.shape[1]
        size = scaled.real[..., :nodes].flatten(0, 1)
        turn = scaled.imag[..., :nodes].flatten(0, 1)
        decay = self.xi.imag[:, None, :nodes].expand(-1, D, -1).flatten(0, 1)
        wave = self.xi.real[:, None, :nodes].expand(-1, D, -1).flatten(0, 1)
        points = k.flatten(0, 1)
        out = torch.empty_like(points)
        rows = max(
            1,
            (_POINTS_PER_CHUNK_CPU if k.device.type == "cpu" else _POINTS_PER_CHUNK)
            // (nodes * max(1, k.shape[-1])),
        )
        for start in range(0, points.shape[0], rows):
            part = slice(start, start + rows)
            at = points[part, :, None]
            mass = torch.exp(size[part, None] + at * decay[part, None])
            out[part] = (mass * torch.cos(turn[part, None] - at * wave[part, None])).sum(-1)
        return out.reshape(k.shape)
