"""Convergence of the oracle: in factors, in steps and in nodes of the contour, orders observed.

Factors: distance of prices from the rough Heston model, 2 days to 2 years, for the lift and, on the
same grid, for masses and means of cells (Abi Jaber 2019). The reference is the lift with 160
factors, whose kernel is right to 1e-14. Steps: error of the Heston transform on equal steps of a
year, against the closed form. Nodes: error of prices to 8 standard deviations, against twice as
many.

    python -m benchmarks.convergence [--picture PATH]
"""

from __future__ import annotations

import argparse
from functools import cached_property
from math import gamma
from pathlib import Path

import numpy as np

from arbiter.conventions import Array
from arbiter.markets import LiftedHeston
from arbiter.models.characteristic_function import solve_index_transforms
from arbiter.models.fourier_pricing import Contour, invert
from arbiter.models.fractional_kernel import default_speed_ratio
from arbiter.models.riccati import solve_riccati
from arbiter.models.riccati_steps import Quadratic

HESTON = LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.05, sigma=0.7, rho=-0.75)
DAYS = (2, 30, 182, 365, 730)


class Cells(LiftedHeston):
    """The lift of Abi Jaber (2019): masses and means of the cells of the grid."""

    @cached_property
    def _lift(self) -> tuple[Array, Array]:
        n, r, a = self.factors, default_speed_ratio(self.factors), self.hurst + 0.5
        edge = r ** (np.arange(n + 1) - 0.5 * n)
        mass = np.diff(edge ** (1.0 - a)) / (1.0 - a)
        pace = np.diff(edge ** (2.0 - a)) / (2.0 - a) / mass
        return mass / (gamma(a) * gamma(1.0 - a)), pace


def in_factors(kind: type[LiftedHeston] = LiftedHeston) -> tuple[list[int], list[float]]:
    """Parameters of Abi Jaber (2019), "Lifting the Heston model"."""
    T = np.array(DAYS) / 365.0
    k = np.array([-0.2, -0.1, 0.0, 0.05]) * np.sqrt(T)[:, None]
    model = (0.02, 0.3, 0.02, 0.3, -0.7, 0.1)
    rough = LiftedHeston(*model, factors=160).otm(k, T[:, None])
    sizes, errors = [5, 10, 20, 40, 80], []
    for factors in sizes:
        found = kind(*model, factors=factors).otm(k, T[:, None])
        errors.append(float(np.abs(found - rough).max()))
    return sizes, errors


def by_hurst(hurst: float, kind: type[LiftedHeston], factors: int) -> Array:
    """Largest error of volatility to two deviations in basis points, by maturity."""
    T = np.array(DAYS) / 365.0
    k = np.array([-2.0, -1.0, 0.0, 1.0]) * np.sqrt(0.04 * T)[:, None]
    model = (0.03, 0.5, 0.05, 0.35, -0.7, hurst)
    rough = LiftedHeston(*model, factors=160).iv(k, T[:, None])
    found = kind(*model, factors=factors).iv(k, T[:, None])
    return np.asarray(1e4 * np.abs(found - rough).max(1))


def in_steps() -> tuple[list[int], list[float]]:
    m, z = HESTON, np.array([[0.5 + 3.0j, 0.5 + 10.0j]])
    b = m.reversion - m.rho * m.nu * z[0]
    d = np.sqrt(b * b - m.nu**2 * (z[0] * z[0] - z[0]))
    g, decay = (b - d) / (b + d), np.exp(-d)
    C = (b - d) - 2.0 * np.log((1.0 - g * decay) / (1.0 - g))
    D = (b - d) * (1.0 - decay) / (1.0 - g * decay)
    exact = (m.reversion * m.theta * C + m.v0 * D) / m.nu**2
    quadratic = Quadratic(
        np.asarray(0.5 * (z * z - z)),
        np.asarray(m.rho * m.nu * z - m.reversion),
        np.array([m.nu**2]),
    )
    sizes, errors = [2, 3, 4, 6, 8, 12, 16], []
    for steps in sizes:
        zero = np.zeros((1, 1, 2), dtype=np.complex128)
        borders = np.linspace(0.0, 1.0, steps + 1)
        found = solve_riccati(m.c[None], m.x[None], quadratic, zero, np.array([1.0]), borders)
        log_cf = m.v0 * found.power + m.reversion * m.theta * found.mass
        errors.append(float(np.abs(log_cf[0, 0] - exact).max()))
    return sizes, errors


def in_nodes() -> tuple[list[int], list[float]]:
    T = np.array([0.25])
    k = np.linspace(-8.0, 8.0, 33) * float(np.sqrt(HESTON.log_variance(0.25)))
    fine = HESTON.otm_at_accuracy(k, 0.25, None, 0.02, 1.2)
    sizes, errors = [], []
    for step in (0.5, 0.4, 0.3, 0.25, 0.2, 0.16, 0.13, 0.1, 0.08, 0.06):
        price = np.empty(k.size)
        for contour in (Contour.from_parameters(HESTON, calls, step) for calls in (True, False)):
            log_cf = solve_index_transforms([HESTON], T, contour.xi[None], 1.2)[0].at(
                0, np.zeros((1, 1))
            )
            side = contour.covers_strikes(k, 0.25)
            integral = invert(log_cf, contour.xi, contour.weight, k[side])[0]
            price[side] = contour.price(integral, k[side])
        sizes.append(contour.xi.size)
        errors.append(float(np.abs(price - fine).max()))
    return sizes, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args()
    found = {
        "factors": in_factors(),
        "factors, cells": in_factors(Cells),
        "steps a year": in_steps(),
        "nodes a side": in_nodes(),
    }
    for name, (sizes, errors) in found.items():
        orders = -np.diff(np.log(errors)) / np.diff(np.log(sizes))
        print(f"{name}:")
        for i, (size, error) in enumerate(zip(sizes, errors, strict=True)):
            print(f"  {size:4d}  {error:.1e}  " + (f"order {orders[i - 1]:.1f}" if i else ""))
    print(f"error of volatility in basis points, days {DAYS}:")
    for hurst in (0.05, 0.12, 0.3, 0.45):
        for kind, factors in ((LiftedHeston, 10), (LiftedHeston, 20), (Cells, 20)):
            row = "  ".join(f"{error:7.3f}" for error in by_hurst(hurst, kind, factors))
            print(f"  H = {hurst:.2f}, {factors} factors{', cells' * (kind is Cells):7s}  {row}")
    if chosen.picture:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.0), layout="constrained")
        sizes, errors = found.pop("factors, cells")
        axes[0].plot(sizes, errors, "s--", color="grey", label="cells")
        axes[0].legend()
        for ax, (name, (sizes, errors)) in zip(axes, found.items(), strict=True):
            linear = name.startswith("nodes")
            ax.plot(sizes, errors, "o-")
            ax.set(xscale="linear" if linear else "log", yscale="log", xlabel=name)
            if not linear:
                ax.set_xticks(sizes[::2], [str(size) for size in sizes[::2]])
                ax.minorticks_off()
            ax.grid(alpha=0.3)
        axes[0].set_ylabel("largest error")
        figure.savefig(chosen.picture, dpi=130)
        plt.close(figure)


if __name__ == "__main__":
    main()
