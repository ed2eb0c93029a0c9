"""Public prices of a surface, and the range of strikes over which they are not negligible.

Only public methods are called, so that a peer, or a surface whose prices were tampered with,
is checked like any other.

Glossary: ``κ = K/F``, ``k = log κ``; a table of prices is (maturities, strikes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from arbiter.audit.audited_surface import AuditedSurface
from arbiter.audit.grid import EPS, Mask, Places, find_slice_starts
from arbiter.audit.inequalities import Inequalities, describe_leg
from arbiter.audit.structural_proof import PRICE_TOLERANCE
from arbiter.conventions import Array

# Roundings that an accurate pricing routine may spend on one price: a few, and as many more as
# the exponents in it are large, because these are rounded too.
PRICING_ROUNDINGS = 8.0

_NEGLIGIBLE_PRICE = 1e-36  # of the forward, or of the strike for puts: about 12 standard deviations
_WALK_TOLERANCE = 1e-10  # relative: steps are long, and what they would show is not small
_MAX_ABS_LOG_STRIKE = 680.0  # in |k|: e^680 times an ordinary forward still is a float64
_MAX_LOG_FLOAT = 706.0  # and so is e^706: extreme forwards leave less room for strikes


class PublicPrices:
    """The public prices of a surface in forward units."""

    def __init__(self, surface: AuditedSurface) -> None:
        self.surface = surface
        self.maturities = np.atleast_1d(np.asarray(surface.maturities, dtype=np.float64))

    def price(self, k: Array, T: Array, side: str) -> Array:
        """Calls or puts at log-strikes and maturities that broadcast to (m, n)."""
        forward = self._ask_once(self.surface.forward, T)
        discount = self._ask_once(self.surface.discount, T)
        strike = forward * np.exp(k)
        method = self.surface.call if side == "call" else self.surface.put
        value = np.asarray(method(strike, T), dtype=np.float64)
        return np.asarray(np.broadcast_to(value, strike.shape) / (forward * discount))

    def otm(self, k: Array, T: Array) -> Array:
        """The side out of the money, (m, n)."""
        above = np.asarray(k >= 0.0)
        if not above.size:
            return np.empty(np.broadcast_shapes(k.shape, T.shape))
        if above.all() or not above.any():
            return self.price(k, T, "call" if above.any() else "put")
        shape = np.broadcast_shapes(k.shape, T.shape)
        row = k.ndim == 1 and T.shape == (*shape[:-1], 1)  # a table: all of a column is one side
        value = np.empty(shape)
        for side, here in (("put", ~above), ("call", above)):
            if row:
                value[..., here] = self.price(k[here], T, side)
            else:
                at = np.broadcast_to(here, shape)
                points, times = (np.broadcast_to(values, shape)[at] for values in (k, T))
                value[at] = self.price(points, times, side)
        return value

    def strike_error(self, k: Array, T: Array, width: Array) -> Array:
        """Rounding uncertainty of ``κ`` for a strike that was given in currency."""
        forward = self._ask_once(self.surface.forward, T)
        digits = 4.0 + np.abs(k) + 2.0 * np.abs(np.log(forward)) + width
        return np.asarray(EPS * digits * np.exp(k))

    def _ask_once(self, curve: Callable[[Array], ArrayLike], T: Array) -> Array:
        """A curve at maturities; for a run of equal ones it is asked once."""
        starts = find_slice_starts(T.ravel())
        value = np.broadcast_to(curve(T.ravel()[starts]), starts.shape)
        return np.repeat(value, np.diff(np.append(starts, T.size))).reshape(T.shape)


def estimate_price_rounding(price: Array, width: Array) -> Array:
    """Uncertainty of prices that were computed, not given, in slices that reach to ``width``."""
    size = np.abs(np.nan_to_num(price))
    digits = PRICING_ROUNDINGS - np.log(np.clip(size, 1e-300, 1.0)) + width
    return np.asarray(EPS * size * digits)


class PriceRange:
    """Range of log-strikes of each maturity over which public prices are not negligible.

    ``left`` and ``right`` are the distances in ``|k|`` at which the put over its strike, and the
    call, are negligible; ``scale`` the distance at which the option is worth half of what it
    is at the money: a standard deviation, roughly.
    """

    def __init__(self, market: PublicPrices, T: Array) -> None:
        self.T = T
        size = float(np.abs(np.log(np.asarray(market.surface.forward(T)))).max())
        reach = np.fmax(np.fmin(_MAX_ABS_LOG_STRIKE, _MAX_LOG_FLOAT - size), 1.0)
        self.walk = np.geomspace(1e-9, reach, 112)
        self.kappa = np.exp(-self.walk), np.exp(self.walk)
        self.put = market.price(-self.walk, T[:, None], "put")  # (L, w)
        self.call = market.price(self.walk, T[:, None], "call")
        self.left, self.right = (
            self.walk[self._first_true(price < _NEGLIGIBLE_PRICE)]
            for price in (self.put / self.kappa[0], self.call)
        )
        self.scale = self.walk[self._first_true(self.call < 0.5 * self.call[:, :1])]

    def reach_at(self, T: Array) -> Array:
        """Largest ``|k|`` with non-negligible prices at maturities ``T``, interpolated."""
        return np.asarray(np.interp(T, self.T, np.maximum(self.left, self.right)))

    def _first_true(self, reached: Mask) -> Places:
        """Place of the first True in each row, the last place where there is none."""
        reached[:, -1] = True
        return np.asarray(np.argmax(reached, axis=1))

    def draw_calendar_strikes(self, count: int, rng: Generator) -> Array:
        """Strikes for calendar spreads, near the forward of one maturity or another."""
        k = rng.choice(self.scale, count) * rng.normal(0.0, 1.5, count)
        return np.sort(np.append(0.0, np.clip(k, -self.left.max(), self.right.max())))

    def tail_inequalities(self) -> Iterator[Inequalities]:
        """Inequalities of the tails: prices fall outwards, the density has mass and mean one."""
        yield from self._monotonicity_inequalities()
        yield from self._moment_inequalities()

    def _monotonicity_inequalities(self) -> Iterator[Inequalities]:
        """Calls, and puts over their strike, fall all the way out, far past the last deviation.

        Puts by ratio spreads: long one, short ``κ/κ'`` of the next strike out, for a put is
        convex in its strike and free at zero.
        """
        for option, price, sign in (("put", self.put, -1.0), ("call", self.call, 1.0)):
            ratio = np.exp(np.diff(self.walk)) if sign < 0.0 else np.ones(self.walk.size - 1)
            inner, outer = price[:, :-1], ratio * price[:, 1:]
            row, at = np.nonzero(~(inner >= outer) | (inner > _NEGLIGIBLE_PRICE))
            T, k, held = self.T[row], sign * self.walk[at + 1], sign * self.walk[at]

            def words(
                i: int,
                option: str = option,
                weight: Array = ratio[at],
                T: Array = T,
                k: Array = k,
                held: Array = held,
            ) -> str:
                return (
                    f"{describe_leg(1.0, option, held[i], T[i])}, "
                    f"{describe_leg(-weight[i], option, k[i], T[i])}"
                )

            error = _WALK_TOLERANCE * (np.abs(inner) + np.abs(outer)) + 1e-300 * ratio
            yield Inequalities(
                "vertical", T, k, (inner - outer)[row, at], error[row, at], inner[row, at], words,
            )  # fmt: skip

    def _moment_inequalities(self) -> Iterator[Inequalities]:
        """The density, telescoped between outer secants, has mass one and mean one.

        With ``s`` the slope of the last put spread and ``d`` that of the last call spread:
        ``mass = 1 − s − d`` and ``mean = 1 + (p − κ s) − (c + κ d)``, each at its own end. A law
        whose tail still falls where float64 strikes end is not judged.
        """
        puts = self.put / self.kappa[0]
        done = [
            (tail[:, -1] < _NEGLIGIBLE_PRICE) | ~(tail[:, -1] < 0.99 * tail[:, -2])
            for tail in (puts, self.call)
        ]
        row = np.flatnonzero(done[0] & done[1])
        i = np.minimum(self._first_true(puts < _NEGLIGIBLE_PRICE), self.walk.size - 2)[row]
        j = np.minimum(self._first_true(self.call < _NEGLIGIBLE_PRICE), self.walk.size - 2)[row]
        T = self.T[row]
        low, high = self.kappa[0], self.kappa[1]
        s = (self.put[row, i] - self.put[row, i + 1]) / (low[i] - low[i + 1])
        d = (self.call[row, j] - self.call[row, j + 1]) / (high[j + 1] - high[j])
        mean = self.put[row, i] - low[i] * s - self.call[row, j] - high[j] * d
        for family, defect in (("mass", -s - d), ("mean", mean)):

            def words(at: int, family: str = family, defect: Array = defect) -> str:
                return f"the density of T={T[at]:.6g} has {family} {1.0 + defect[at]:.15g}"

            yield Inequalities(
                family, T, np.full(row.size, np.nan), -np.abs(defect),
                np.full(row.size, 0.25 * PRICE_TOLERANCE), np.ones(row.size), words,
            )  # fmt: skip
