"""The cheapest hedge of the last step: a convex envelope over the curve ``(y, log y)``.

Given what is held at T+Δ, ``h(y)``, the holder at T may trade the index and the log contract. The
best floor is the largest ``α + β y + γ log y`` below h, taken at the mean ``x`` and the mean log
``log x − Δv²/2`` of what comes: the convex envelope of h over the curve, at that point. Its
facets are the hedges, and the corners of the facet that holds a point are the conditional law
that no hedge of these beats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from arbiter.conventions import Array
from arbiter.joint.instruments import Columns, Payoff

Places = NDArray[np.int64]

_MAX_NUMBERS_PER_BLOCK = 1 << 22  # numbers at once
_TIE_BREAK_CURVATURE = (
    1e-8  # of the payoff's size: a bend that decides between equal triangulations
)
_BARYCENTRIC_TOLERANCE = (
    1e-3  # barycentric coordinates: nearer to the facet than this is settled onto it
)


@dataclass(frozen=True, eq=False)
class Envelope:
    """Facets of the envelope of one payoff over the nodes ``y``.

    Attributes:
        nodes: ``(n,)`` increasing levels of the later index.
        corners: ``(f, 3)`` places in the nodes.
        planes: ``(f, 3)`` coefficients of ``1, y, log y``.
        barycentric: ``(f, 3, 3)``: a row ``(1, y, log y)`` times it gives the coordinates.
        tenor: Δ in years.
    """

    nodes: Array
    corners: Places
    planes: Array
    barycentric: Array
    tenor: float

    @staticmethod
    def from_values(nodes: Array, values: Array, tenor: float) -> Envelope:
        """The envelope of a payoff with these values at the nodes."""
        log = np.log(nodes)
        basis = np.stack([np.ones_like(nodes), nodes, log], 1)
        # what is spanned by the hedges changes no facet; without it the scale is the payoff's own
        rest = values - basis @ np.linalg.lstsq(basis, values, rcond=None)[0]
        y = (nodes - nodes[0]) / (nodes[-1] - nodes[0])
        u = (log - log[0]) / (log[-1] - log[0])
        size = float(np.abs(rest).max())
        height = (rest / size if size > 0.0 else rest) + _TIE_BREAK_CURVATURE * y**2
        height = height if size > 1e-14 else y**2
        hull = ConvexHull(np.stack([y, u, height], 1))
        corners = hull.simplices[hull.equations[:, 2] < 0.0]
        spanned = basis[corners]  # (f, 3, 3)
        flat = np.abs(np.linalg.det(spanned)) < 1e-18
        corners, spanned = corners[~flat], spanned[~flat]
        barycentric = np.linalg.inv(spanned)
        planes = np.einsum("fij,fj->fi", barycentric, values[corners])
        return Envelope(nodes, corners, planes, barycentric, tenor)

    def moment_points(self, x: Array, v: Array) -> Array:
        """``(…, 3)`` rows ``1, mean, mean log`` of the states."""
        x, v = np.broadcast_arrays(x, v)
        return np.stack([np.ones_like(x), x, np.log(x) - 0.5 * self.tenor * v * v], -1)

    def floor(self, x: Array, v: Array) -> tuple[Array, Places]:
        """Value of the envelope at states ``(m,)`` and the facet that gives it."""
        points = self.moment_points(x, v)
        value, facet = np.empty(len(points)), np.empty(len(points), dtype=np.int64)
        step = max(1, _MAX_NUMBERS_PER_BLOCK // len(self.planes))
        for start in range(0, len(points), step):
            part = slice(start, start + step)
            every = points[part] @ self.planes.T
            facet[part] = every.argmax(1)
            value[part] = np.take_along_axis(every, facet[part, None], 1)[:, 0]
        return value, facet

    def columns(self, x: Array, v: Array) -> Columns:
        """Columns of the states: the conditional laws on the facets' corners, where one exists."""
        found = []
        step = max(1, _MAX_NUMBERS_PER_BLOCK // (3 * len(self.corners)))
        for start in range(0, x.size, step):
            part = slice(start, start + step)
            points = self.moment_points(x[part], v[part])
            inside = np.einsum("pi,fij->pfj", points, self.barycentric)
            facet = inside.min(2).argmax(1)
            weight = np.take_along_axis(inside, facet[:, None, None], 1)[:, 0]
            good = weight.min(1) > -_BARYCENTRIC_TOLERANCE
            weight = np.maximum(weight, 0.0)
            weight /= weight.sum(1, keepdims=True)
            atoms = self.nodes[self.corners[facet]]
            found.append(_columns_from_laws(atoms[good], weight[good], self.tenor))
        every = found[0]
        for more in found[1:]:
            every = every.append_columns(more)
        return every

    def lower_below(self, payoff: Payoff) -> Envelope:
        """This envelope moved down until its facets lie below the payoff at every ``y``.

        Between strikes the payoff less a plane is linear plus a logarithm, whose least value is
        at an end or at one stationary point: no grid is involved.
        """
        low, high = self.nodes[[0, -1]]
        inner = payoff.strikes[(payoff.strikes > low) & (payoff.strikes < high)]
        edges = np.concatenate([[low], inner, [high]])
        alpha, beta, gamma = (self.planes[:, i, None] for i in range(3))
        intercept, slope = payoff.linear_piece(0.5 * (edges[1:] + edges[:-1]))  # (s,)
        rise = slope - beta  # (f, s)
        with np.errstate(divide="ignore", invalid="ignore"):
            still = np.where((gamma > 0.0) & (rise > 0.0), gamma / rise, edges[:-1])
        at = np.clip(still, edges[:-1], edges[1:])
        inside = intercept + slope * at - alpha - beta * at - gamma * np.log(at)
        ends = payoff(edges) - alpha - beta * edges - gamma * np.log(edges)
        gap = np.minimum(inside.min(1), ends.min(1))  # (f,)
        planes = self.planes.copy()
        planes[:, 0] += np.minimum(gap, 0.0)
        return Envelope(self.nodes, self.corners, planes, self.barycentric, self.tenor)


def _columns_from_laws(atoms: Array, weight: Array, tenor: float) -> Columns:
    """Columns whose state is read off the law, so that both conditions hold to rounding."""
    x = (weight * atoms).sum(1)
    log_gap = np.log(x) - (weight * np.log(atoms)).sum(1)
    return Columns(x, np.sqrt(np.maximum(2.0 / tenor * log_gap, 0.0)), atoms, weight)
