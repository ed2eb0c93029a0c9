"""A transport slice in thirty-four-digit arithmetic, straight from its definition.

Prices are ``E(X − κ)+`` by Gauss-Legendre quadrature of the payoff against the normal density: none
of the decoder's formulas is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import mpmath as mp

mp.mp.dps = 34


class Slice:
    """``X = e^{s(Z)}/M`` with slopes linear between knots."""

    def __init__(self, knots: Sequence[float], slopes: Sequence[float]) -> None:
        self.x = [mp.mpf(float(x)) for x in knots]
        self.b = [mp.mpf(float(b)) for b in slopes]
        self.s = [mp.mpf(0)]
        for i in range(len(self.x) - 1):
            width = self.x[i + 1] - self.x[i]
            self.s.append(self.s[-1] + width * (self.b[i] + self.b[i + 1]) / 2)
        self.mean = self._share(-mp.inf, mp.inf)

    def log_strike(self, z: float) -> mp.mpf:
        return self._transport(mp.mpf(z)) - mp.log(self.mean)

    def level(self, k: float) -> mp.mpf:
        """``x*`` with ``s(x*) = k + log M``."""
        target = mp.mpf(k) + mp.log(self.mean)
        if target <= 0:
            return self.x[0] + target / self.b[0]
        for i in range(len(self.x) - 1):
            if target <= self.s[i + 1]:
                bend = (self.b[i + 1] - self.b[i]) / (self.x[i + 1] - self.x[i])
                climb = target - self.s[i]
                root = mp.sqrt(self.b[i] ** 2 + 2 * bend * climb)
                return self.x[i] + 2 * climb / (self.b[i] + root)
        return self.x[-1] + (target - self.s[-1]) / self.b[-1]

    def call(self, k: float) -> mp.mpf:
        x = self.level(k)
        return self._share(x, mp.inf) / self.mean - mp.exp(mp.mpf(k)) * mp.ncdf(-x)

    def put(self, k: float) -> mp.mpf:
        x = self.level(k)
        return mp.exp(mp.mpf(k)) * mp.ncdf(x) - self._share(-mp.inf, x) / self.mean

    def log_variance(self) -> mp.mpf:
        """``−2 E log X``."""
        low, high = self.x[0], self.x[-1]
        inner = mp.quad(lambda x: self._transport(x) * mp.npdf(x), self.x, method="gauss-legendre")
        left = self.b[0] * (-mp.npdf(low) - low * mp.ncdf(low))
        right = self.s[-1] * mp.ncdf(-high) + self.b[-1] * (mp.npdf(high) - high * mp.ncdf(-high))
        return 2 * (mp.log(self.mean) - inner - left - right)

    def _transport(self, x: mp.mpf) -> mp.mpf:
        if x <= self.x[0]:
            return self.b[0] * (x - self.x[0])
        for i in range(len(self.x) - 1):
            if x <= self.x[i + 1]:
                t = x - self.x[i]
                bend = (self.b[i + 1] - self.b[i]) / (self.x[i + 1] - self.x[i])
                return self.s[i] + self.b[i] * t + bend * t * t / 2
        return self.s[-1] + self.b[-1] * (x - self.x[-1])

    def _share(self, low: mp.mpf, high: mp.mpf) -> mp.mpf:
        """``E[e^s; low < Z < high]``, the tails in closed form."""
        total = mp.mpf(0)
        first, last = self.x[0], self.x[-1]
        if low < first:
            b = self.b[0]
            top = mp.ncdf(min(high, first) - b) - (mp.ncdf(low - b) if low > -mp.inf else 0)
            total += mp.exp(b * b / 2 - b * first) * top
        inner_low, inner_high = max(low, first), min(high, last)
        if inner_low < inner_high:
            inside = [x for x in self.x if inner_low < x < inner_high]
            total += mp.quad(
                lambda x: mp.exp(self._transport(x) - x * x / 2),
                [inner_low, *inside, inner_high],
                method="gauss-legendre",
            ) / mp.sqrt(2 * mp.pi)
        if high > last:
            b = self.b[-1]
            top = mp.ncdf(b - max(low, last)) - (mp.ncdf(b - high) if high < mp.inf else 0)
            total += mp.exp(self.s[-1] + b * b / 2 - b * last) * top
        return total
