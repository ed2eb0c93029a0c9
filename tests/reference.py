"""Reference prices from QuantLib, forward units, zero rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import QuantLib as ql
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.pricing import black

DAYS = np.array([7, 14, 21, 30, 45, 60, 91, 122, 182, 273, 365, 456, 547, 730])


@dataclass(frozen=True)
class Model:
    """Heston parameters, with Bates jumps where ``intensity`` is positive."""

    v0: float
    kappa: float
    theta: float
    sigma: float
    rho: float
    intensity: float = 0.0
    jump_mean: float = 0.0
    jump_deviation: float = 0.0

    def deviation(self, T: Array) -> Array:
        """Standard deviation of log S_T, the unit in which strikes are spread."""
        decay = (1.0 - np.exp(-self.kappa * T)) / (self.kappa * T)
        jumps = self.intensity * (self.jump_mean**2 + self.jump_deviation**2)
        return np.sqrt((self.theta + (self.v0 - self.theta) * decay + jumps) * T)

    def grid(self, count: int) -> tuple[Array, Array]:
        """Maturities ``(L,)`` and log-strikes ``(L, count)`` from −3.5 to 2 deviations."""
        T = DAYS / 365.0
        return T, np.linspace(-3.5, 2.0, count) * self.deviation(T)[:, None]

    def iv(self, k: Array, days: NDArray[np.int_]) -> Array:
        """Implied volatilities at log-strikes ``(L, m)``, from out-of-the-money prices."""
        prices = np.array([self._slice(row, int(day)) for row, day in zip(k, days, strict=True)])
        return black.implied_total_volatility(prices, k).volatility / np.sqrt(days / 365.0)[:, None]

    def _slice(self, k: Array, days: int) -> list[float]:
        today = ql.Date(2, 1, 2026)
        ql.Settings.instance().evaluationDate = today
        flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
        spot = ql.QuoteHandle(ql.SimpleQuote(1.0))
        heston = (flat, flat, spot, self.v0, self.kappa, self.theta, self.sigma, self.rho)
        if self.intensity > 0.0:
            jumps = (self.intensity, self.jump_mean, self.jump_deviation)
            model = ql.BatesModel(ql.BatesProcess(*heston, *jumps))
        else:
            model = ql.HestonModel(ql.HestonProcess(*heston))
        exercise = ql.EuropeanExercise(today + days)
        return [self._price(model, float(at), exercise) for at in k]

    def _price(self, model: ql.HestonModel, at: float, exercise: ql.Exercise) -> float:
        """By adaptive integration, with a looser tolerance where it gives up.

        Exponential fitting, QuantLib's own choice, is off by up to 2e-6 where sigma is large.
        """
        side = ql.Option.Call if at >= 0.0 else ql.Option.Put
        option = ql.VanillaOption(ql.PlainVanillaPayoff(side, float(np.exp(at))), exercise)
        adaptive = ql.BatesEngine if self.intensity > 0.0 else ql.AnalyticHestonEngine
        for tolerance in (1e-13, 1e-11, 1e-9):
            option.setPricingEngine(adaptive(model, tolerance, 100_000))
            try:
                return float(option.NPV())
            except RuntimeError:
                continue
        raise ArithmeticError(f"QuantLib gives no price at k = {at}: {self}")


HESTON = Model(v0=0.04, kappa=1.5, theta=0.05, sigma=0.7, rho=-0.75)
BATES = Model(0.015, 2.0, 0.03, 0.4, -0.7, intensity=1.0, jump_mean=-0.1, jump_deviation=0.05)
