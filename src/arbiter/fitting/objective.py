"""The objective of a fit: residuals of all quotes in half-spreads, and roughness.

Unknowns, expiry by expiry: the log-slopes of each component, then (for two components) the
probability of the second. In logarithms the star order stays a set of linear inequalities and
the roughness is quadratic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting import prior_mean
from arbiter.fitting.interior_point import Expansion, OrderConstraints
from arbiter.fitting.loss import Cost
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.price_derivatives import KnotQuadrature, OtmPricer, QuotePrices, SliceIntegrals
from arbiter.fitting.roughness import Penalty
from arbiter.pricing import black
from arbiter.pricing.knots import MAX_SLOPE
from arbiter.quotes import Quotes
from arbiter.surface import Surface

LINK_BANDWIDTH = (
    2  # diagonals on each side, in the blocks beside the diagonal ones: second differences
)
LOWEST_LOG_SLOPE = np.log(2e-6)  # log-slope, inside what a surface accepts
_MIN_SHARE, _MAX_SHARE = 1e-6, 0.6
_MIN_SLOPE_BOUND, _SLOPE_BOUND_MULTIPLE = (
    5.0,
    3.0,
)  # slopes may reach this, or this multiple of the longest smile's level
_BOUND_MARGIN, _PRIOR_MARGIN = (
    0.03,
    0.3,
)  # of log-slopes: within what a surface accepts, and above a prior's
_SHARE_CHANGE_COST = 1.0  # cost of a change of the share along maturity, per unit of log √T
_COMPONENT_DISTANCE_WEIGHT = 0.03  # pull of the two components to the distance of their centres


class ObjectivePoint(NamedTuple):
    """Prices and costs of one set of unknowns."""

    z: Array
    slices: SliceIntegrals
    levels: QuotePrices
    residuals: Array
    cost: Cost
    loss: float


def compute_half_spreads(quotes: Quotes, options: FitOptions) -> Array:
    """``(m,)`` what one half-spread of each quote is worth, with a floor in volatility."""
    vega = np.asarray(black.vega(quotes.k, quotes.iv_mid * np.sqrt(quotes.T))) * np.sqrt(quotes.T)
    half = quotes.half_spread
    floor = np.where(half > 0.0, options.finest, options.unsure)
    return np.asarray(np.maximum(half, floor * vega))


class FitObjective:
    """Objective over unknowns ``(L, B)``, ``B = n`` for one component and ``2n + 1`` for two.

    Args:
        quotes: What is fitted.
        options: How.
        weights: ``(m,)`` factors of each quote's loss, or None for ones.
        prior: A surface of as many components, whose distance is penalised.
    """

    def __init__(
        self,
        quotes: Quotes,
        options: FitOptions,
        weights: Array | None = None,
        prior: Surface | None = None,
    ) -> None:
        self.quotes, self.options = quotes, options
        self.knots = options.line()
        self.components = options.components
        self.L, self.n = quotes.maturities.size, self.knots.size
        self.block = self.components * self.n + self.components - 1
        self.shape, self.size = (self.L, self.block), self.L * self.block
        self.starts = np.searchsorted(quotes.expiry, np.arange(self.L + 1))
        self.quoted = np.flatnonzero(np.diff(self.starts))  # other dates are there for the VIX
        self.volatility = quotes.iv_mid * np.sqrt(quotes.T)  # (m,) total
        # (m,) Gaussian coordinates of the strikes, by Black's formula
        self.level = quotes.k / self.volatility + 0.5 * self.volatility
        self.mid, self.unit = quotes.mid, compute_half_spreads(quotes, options)
        self.weights = np.ones(len(quotes)) if weights is None else weights
        slice_of = np.concatenate([quotes.expiry + j * self.L for j in range(self.components)])
        k = np.tile(quotes.k, self.components)
        self.kernel = OtmPricer(KnotQuadrature.from_knots(self.knots), slice_of, k)
        self.penalty = self._penalty()
        lower = np.tril_indices(self.block)
        self.lower_positions = lower[0] * self.block + lower[1]
        place = (lower[0] - lower[1]) * self.size + lower[1]
        self.band_positions = (np.arange(self.L)[:, None] * self.block + place).ravel()
        self.highest = self._highest_log_slope()
        self.last_point: ObjectivePoint | None = None
        self._set_prior_mean(prior)
        # two components start looser: too stiff a second one loses its share, and never returns
        self.roughness = (
            Roughness(1.0, 10.0, 1.0) if self.components == 1 else Roughness(0.1, 1.0, 0.1)
        )
        if prior is not None:
            self.roughness = replace(self.roughness, level=1.0)
        self.data = np.zeros((self.L, self.block, self.block))  # Gauss-Newton blocks of the data
        self.residuals = np.zeros(len(quotes))

    def quoted_range(self) -> Array:
        """``(L, 2)`` Gaussian coordinates of the end strikes; without any, the nearest expiry's."""
        near = self.quoted[find_nearest(self.quoted, self.L)]
        first, last = self.starts[:-1][near], self.starts[1:][near] - 1
        return np.stack([self.level[first], self.level[last]], axis=1)

    def _penalty(self) -> Penalty:
        unseen = np.asarray(np.diff(self.starts) == 0)  # maturities without quotes
        return Penalty(self.knots, self.quotes.maturities, self.quoted_range(), unseen)

    def _highest_log_slope(self) -> float:
        """Bound of the log-slopes: beyond it mass only piles up at zero, where no quote sees."""
        final = self.quoted[-1]
        last = slice(self.starts[final], self.starts[final + 1])
        v = float(np.median(self.quotes.iv_mid[last])) * np.sqrt(self.quotes.maturities[final])
        return float(np.log(np.clip(_SLOPE_BOUND_MULTIPLE * v, _MIN_SLOPE_BOUND, 15.0)))

    def raise_slope_bound(self, logs: Array) -> None:
        """Raise the bound above log-slopes that the fit is drawn to.

        Drawn to what it may not reach, it would bend far inside the quotes to come nearer.
        """
        self.highest = max(
            self.highest, min(float(logs.max()) + _PRIOR_MARGIN, np.log(MAX_SLOPE) - _BOUND_MARGIN)
        )

    # -- unknowns -------------------------------------------------------------------------

    def pack(self, log_slopes: Array, shares: Array) -> Array:
        """Unknowns from log-slopes ``(J, L, n)`` and shares ``(J-1, L)``."""
        return np.concatenate([*log_slopes, *shares[:, :, None]], axis=1).reshape(-1)

    def unpack(self, z: Array) -> tuple[Array, Array]:
        """Log-slopes ``(J, L, n)`` and shares ``(J-1, L)``."""
        table, slopes = z.reshape(self.shape), self.components * self.n
        logs = table[:, :slopes].reshape(self.L, self.components, self.n).transpose(1, 0, 2)
        return logs, table[:, slopes:].T

    @property
    def roughness(self) -> Roughness:
        """Weights of the penalties."""
        return self._roughness

    @roughness.setter
    def roughness(self, roughness: Roughness) -> None:
        self._roughness = roughness
        blocks, link = self.precision()
        band = np.zeros((self.block + LINK_BANDWIDTH + 1, self.size))
        band.reshape(-1)[self.band_positions] = blocks.reshape(self.L, -1)[
            :, self.lower_positions
        ].ravel()
        table = band.reshape(-1, self.L, self.block)
        for shift, column in iterate_link_diagonals(self.block):
            table[self.block + shift, :-1, column] = link[:, column + shift, column].T
        self.band, self._blocks, self._link = band, blocks, link

    def precision(self) -> tuple[Array, Array]:
        """P of the roughness ``½ (z − centre)ᵀ P (z − centre)``: its blocks and those beside."""
        diagonal, link = self.penalty.blocks(self._roughness)
        blocks = np.zeros((self.L, self.block, self.block))
        links = np.zeros((self.L - 1, self.block, self.block))
        for j in range(self.components):
            part = slice(j * self.n, (j + 1) * self.n)
            blocks[:, part, part], links[:, part, part] = diagonal, link
        if self.components == 2:
            first = np.arange(self.n)
            second = first + self.n
            blocks[:, first, first] += _COMPONENT_DISTANCE_WEIGHT
            blocks[:, second, second] += _COMPONENT_DISTANCE_WEIGHT
            blocks[:, first, second] -= _COMPONENT_DISTANCE_WEIGHT
            blocks[:, second, first] -= _COMPONENT_DISTANCE_WEIGHT
            share = _SHARE_CHANGE_COST / np.diff(self.penalty.tau)
            blocks[1:, -1, -1] += share
            blocks[:-1, -1, -1] += share
            blocks[:, -1, -1] += 1e-6
            links[:, -1, -1] = -share
        return blocks, links

    def _set_prior_mean(self, prior: Surface | None) -> None:
        self.prior = prior is not None
        if prior is None:
            found = prior_mean.make_flat_prior_mean(self.penalty.tau, self.n, self.components)
        else:
            T = self.quotes.maturities
            found = prior_mean.read_prior_mean(prior, self.knots, T, self.penalty.mass)
            self.raise_slope_bound(found.flat + found.shape)
        shares = found.shares[None, :] if self.components == 2 else np.zeros((0, self.L))
        self.flat_mean = self.pack(found.flat, shares)
        self.shape_of_prior = self.pack(found.shape, 0.0 * shares)
        self.trust = 1.0

    @property
    def trust(self) -> float:
        """Share of the prior's shape in the centre."""
        return self._trust

    @trust.setter
    def trust(self, trust: float) -> None:
        self._trust = trust
        self.centre = self.flat_mean + trust * self.shape_of_prior

    def build_constraints(self) -> OrderConstraints:
        """The star order, the nesting of components, and bounds at both ends."""
        index = np.arange(self.size).reshape(self.shape)
        slopes = self.components * self.n
        none = np.full(self.n, -1)
        high = [index[1:].ravel(), index[0, : self.n], none]
        low = [index[:-1].ravel(), none, index[-1, slopes - self.n : slopes]]
        offset = [
            np.zeros(index[1:].size),
            np.full(self.n, -LOWEST_LOG_SLOPE),
            np.full(self.n, self.highest),
        ]
        if self.components == 2:
            high += [index[:, self.n : slopes].ravel(), index[0, -1:], none[:1]]
            low += [index[:, : self.n].ravel(), none[:1], index[-1, -1:]]
            offset += [
                np.zeros(self.L * self.n),
                np.array([-_MIN_SHARE]),
                np.array([_MAX_SHARE]),
            ]
        return OrderConstraints(np.concatenate(high), np.concatenate(low), np.concatenate(offset))

    # -- the objective --------------------------------------------------------------------

    def value(self, z: Array) -> float:
        """The objective."""
        return self._add_roughness(z, self.evaluate_at(z).loss)[0]

    def expand(self, z: Array) -> Expansion:
        """The objective with gradient and Gauss-Newton matrix."""
        point = self.evaluate_at(z)
        self.residuals = point.residuals
        value, gradient = self._add_roughness(z, point.loss)
        gradient += self.linearise(z, point.cost)
        return Expansion(value, gradient, self.band + self.information())

    def linearise(self, z: Array, cost: Cost) -> Array:
        """The data's gradient at ``z``; its Gauss-Newton blocks are left in :attr:`data`."""
        scale = np.sqrt(self.weights * cost.weight) / self.unit
        force = self.weights * cost.slope / (self.unit * scale + 1e-300)
        rows, factor = self.scaled_jacobian(self.evaluate_at(z), scale)
        gradient = np.empty(self.shape)
        for i in range(self.L):
            part = rows[self.starts[i] : self.starts[i + 1]]
            np.matmul(part.T, part, out=self.data[i])
            np.matmul(force[self.starts[i] : self.starts[i + 1]], part, out=gradient[i])
        self.data *= factor[:, :, None]
        self.data *= factor[:, None, :]
        return np.asarray((gradient * factor).reshape(-1))

    def information(self) -> Array:
        """The Gauss-Newton matrix of the data alone as last linearised, lower banded."""
        band = np.zeros_like(self.band)
        band.reshape(-1)[self.band_positions] = self.data.reshape(self.L, -1)[
            :, self.lower_positions
        ].ravel()
        return band

    def evaluate_at(self, z: Array) -> ObjectivePoint:
        """Prices and costs at ``z``; the last are remembered.

        Each step asks twice, and so does each change of the roughness.
        """
        if self.last_point is not None and self.last_point.z is z:
            return self.last_point
        logs, shares = self.unpack(z)
        slices = self.kernel.integrate_slices(np.exp(logs.reshape(-1, self.n)))
        levels = self.kernel.price_quotes(slices)
        price = levels.price
        if self.components == 2:
            calm, crash = price.reshape(2, -1)
            price = calm + shares[0][self.quotes.expiry] * (crash - calm)
        residuals = (price - self.mid) / self.unit
        cost = self.options.loss(residuals)
        loss = float(self.weights @ cost.value)
        self.last_point = ObjectivePoint(z, slices, levels, residuals, cost, loss)
        return self.last_point

    def _add_roughness(self, z: Array, loss: float) -> tuple[float, Array]:
        """``loss`` with the roughness added, and the gradient of the roughness."""
        away = z - self.centre
        pull = self.apply_precision(away)
        return loss + 0.5 * float(away @ pull), pull

    def apply_precision(self, away: Array) -> Array:
        """The roughness' matrix P times a change of the unknowns."""
        return _multiply_tridiagonal(self._blocks, self._link, away.reshape(self.shape)).reshape(-1)

    def scaled_jacobian(self, point: ObjectivePoint, scale: Array) -> tuple[Array, Array]:
        """``(m, B)`` scaled derivatives, and ``(L, B)`` factors still to be applied to columns."""
        logs, shares = self.unpack(point.z)
        if self.components == 1:
            return self.kernel.jacobian(point.slices, point.levels, scale), np.exp(logs[0])
        calm, crash = point.levels.price.reshape(2, -1)
        both = self.kernel.jacobian(point.slices, point.levels, np.tile(scale, 2))
        first, second = both.reshape(2, scale.size, self.n)
        rows = np.concatenate([first, second, (scale * (crash - calm))[:, None]], axis=1)
        share = shares[0][:, None]
        factor = [(1.0 - share) * np.exp(logs[0]), share * np.exp(logs[1]), np.ones_like(share)]
        return rows, np.concatenate(factor, axis=1)


def _multiply_tridiagonal(blocks: Array, link: Array, table: Array) -> Array:
    """The block-tridiagonal matrix times ``table`` ``(L, B)``."""
    out: Array = np.matmul(blocks, table[:, :, None])[:, :, 0]
    out[1:] += np.matmul(link, table[:-1, :, None])[:, :, 0]
    out[:-1] += np.matmul(link, table[1:, :, None])[:, :, 0]  # the links are symmetric
    return out


def find_nearest(places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Which of the increasing ``places`` is nearest to each of ``range(count)``."""
    return np.asarray(np.abs(np.arange(count)[:, None] - places).argmin(axis=1))


def iterate_link_diagonals(block: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Diagonals of the blocks beside the diagonal ones: by how much they are shifted, columns."""
    for shift in range(-LINK_BANDWIDTH, LINK_BANDWIDTH + 1):
        yield shift, np.arange(max(0, -shift), block - max(0, shift))
