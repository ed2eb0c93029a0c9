"""Kriging of quotes in one row: as :func:`arbiter.operators.kriging.kriged`, without its padding.

Of the cubic splines at a quote four are not zero. So sums over the quotes of a slice are those of a
few products, 16 × 16 for each slice, and variances at them are read off as few.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.operators.flat import Flat
from arbiter.operators.intervals import posterior
from arbiter.operators.kriging import STRIKES, ZETA, Known, Kriged, along_clock, at_heads
from arbiter.operators.levels import Belief, Sums, at_splines

Array = NDArray[np.float64]
_PAIRS = [(i, j) for i in range(4) for j in range(i, 4)]  # of neighbouring splines


class Kriging:
    """Kriging at given heads.

    Args:
        place: ``(H,)`` of the heads.
    """

    def __init__(self, place: Tensor) -> None:
        self.place = place.double()

    def __call__(self, batch: Flat) -> Kriged:
        """The reference of a batch, in float64."""
        chain = batch.chain
        B, L = chain.total.shape
        slices = along_clock(chain.total)  # (B, L, NZ, d)
        left, basis = near_splines(batch.zeta.numpy(), ZETA, STRIKES)  # (N,), (4, N)
        many = torch.from_numpy(batch.counts).view(B, L).sum(1)
        quoted = torch.arange(int(many.max())) < many[:, None]  # (B, longest)
        at = quoted.flatten().nonzero()[:, 0].numpy()
        design = Banded(slices, batch.row.numpy(), left, basis, at, quoted.shape)

        def by_chain(values: Tensor, none: float) -> Tensor:
            padded = torch.full((quoted.numel(),), none, dtype=torch.float64)
            padded.numpy()[at] = values.numpy()
            return padded.view(quoted.shape)

        half = by_chain(torch.exp(batch.noise.double()), 1.0)
        law = posterior(design, by_chain(batch.u, 0.0), half, quoted)
        return at_heads(Known(law, slices), chain, self.place)


class Banded:
    """A :class:`~arbiter.operators.levels.Design` by the splines that are not zero.

    Args:
        slices: ``(B, L, NZ, d)`` from coefficients to the splines of each slice.
        row: ``(N,)`` slice of each quote.
        left: ``(N,)`` the first of its splines that is not zero.
        basis: ``(4, N)`` these four.
        at: ``(N,)`` its place among padded quotes.
        shape: ``(B, longest)`` of those.
    """

    def __init__(
        self,
        slices: Tensor,
        row: NDArray[np.int64],
        left: NDArray[np.int64],
        basis: Array,
        at: NDArray[np.int64],
        shape: torch.Size,
    ) -> None:
        self.nodes = slices
        self.place, self.shape, self.basis = at, shape, basis
        self.first = row * STRIKES + left
        corner = row * STRIKES**2 + left * (STRIKES + 1)
        self.corners = np.stack([corner + STRIKES * i + j for i, j in _PAIRS])
        self.pairs = np.stack([basis[i] * basis[j] for i, j in _PAIRS])  # (10, N)
        self.twice = np.array([1.0 if i == j else 2.0 for i, j in _PAIRS])[:, None] * self.pairs

    def sums(self, weight: Tensor, values: Tensor) -> Sums:
        """Of observations ``(B, longest)``, new."""
        load = weight.numpy().ravel()[self.place]
        spoken = load * values.numpy().ravel()[self.place]
        slices, shape = self.nodes.flatten(0, 1), self.nodes.shape[:2]
        many = len(slices)
        sums = np.bincount(
            self.corners.ravel(), (self.pairs * load).ravel(), minlength=many * STRIKES**2
        )
        upper = torch.from_numpy(sums).view(many, STRIKES, STRIKES)
        each = upper + upper.mT
        each.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        flat = self.nodes.flatten(1, 2)
        gram = flat.mT @ (each @ slices).view_as(flat)
        loads, said = (self._by_node(x).view(*shape, STRIKES) for x in (load, spoken))
        side = (said.flatten(1)[:, None] @ flat)[:, 0]
        rows = (loads[..., None, :] @ self.nodes)[..., 0, :]
        return Sums(gram, side, rows, loads.sum(-1), said.sum(-1))  # splines add up to one

    def at(self, belief: Belief) -> tuple[Tensor, Tensor]:
        """``(B, longest)`` and ``(B, longest)``."""
        value, squares = (part.numpy().ravel() for part in at_splines(self.nodes, belief))
        near = value[self.first + np.arange(4)[:, None]]
        return (
            self._padded((self.basis * near).sum(0), 0.0),
            self._padded((self.twice * squares[self.corners]).sum(0), 1.0),
        )

    def _by_node(self, values: Array) -> Tensor:
        """``(B·L·NZ,)`` sums over the quotes near each spline of a slice."""
        node = self.first + np.arange(4)[:, None]
        count = self.nodes[..., 0].numel()
        return torch.from_numpy(
            np.bincount(node.ravel(), (self.basis * values).ravel(), minlength=count)
        )

    def _padded(self, values: Array, none: float) -> Tensor:
        padded = np.full(self.shape.numel(), none)
        padded[self.place] = values
        return torch.from_numpy(padded).view(self.shape)


def near_splines(
    x: Array, ends: tuple[float, float], count: int
) -> tuple[NDArray[np.int64], Array]:
    """The first of the four cubic B-splines that are not zero at x ``(N,)``, and all ``(4, N)``."""
    low, high = ends
    t = (np.clip(x, low, high) - low) * ((count - 3) / (high - low))
    left = np.fmin(np.fmax(t, 0.0), count - 4.0).astype(np.int64)  # a NaN is left to the values
    f = t - left
    g, ff = 1.0 - f, f * f
    basis = np.empty((4, x.size))
    basis[0] = g * g * g / 6.0
    basis[3] = ff * f / 6.0
    basis[1] = 2.0 / 3.0 - ff * (1.0 - 0.5 * f)
    basis[2] = 2.0 / 3.0 - g * g * (1.0 - 0.5 * g)
    return left, basis
