"""The randomised martingale test of the gate's measure: whether its mean is the forward.

In forward units the discounted increment from today to T is X_T − 1, and its mean under the gate's
density on the strikes of a slice has to vanish. The mean is computed and reported. A trained gate
never reaches zero exactly, so the test needs a tolerance. It draws strikes from the densities of
random slices and tests whether the sample rejects a mean of one. Its level is exact for measures of
mean one, and its resolution is that of the sample, σ/√draws per slice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class MartingaleTest(NamedTuple):
    """Statistics of the martingale test; true if it passed."""

    p_value: float
    """Twice the smaller of the p-values of ``bias`` and ``dispersion``, at most one."""
    level: float
    """Measures of mean one are rejected with this probability, or a little less."""
    bias: float
    """Standard normal under the null: a defect common to all slices."""
    dispersion: float
    """χ² with ``slices`` degrees of freedom under the null: defects of any signs."""
    slices: int
    """Slices drawn."""
    untestable: int
    """Listed slices whose strikes do not surround the forward: no density there has mean one."""
    defect_rms: float
    """Root mean square over the drawn slices of the exact defect ∫κw dκ − 1."""
    defect_max: float
    """Its largest size."""

    @property
    def passed(self) -> bool:
        """Whether the test does not reject a mean of one."""
        return self.p_value > self.level

    def __bool__(self) -> bool:
        return self.passed


def martingale_test(
    mass: Tensor,
    kappa: Tensor,
    listed: Tensor | None = None,
    *,
    seed: int,
    slices: int = 64,
    draws: int = 4096,
    level: float = 0.05,
) -> MartingaleTest:
    """Test that the densities of random slices have mean one.

    Args:
        mass: ``(B, L, S)`` density times quadrature weight at each strike; sums to one over S.
        kappa: ``(B, L, S)`` moneyness K / F of the strikes.
        listed: ``(B, L, S)`` or ``(B, L)`` which strikes, or slices, are there; all by default.
        seed: Of slices and draws: the same seed gives the same answer on every device.
        slices: How many are drawn, without replacement; all, where there are fewer.
        draws: How many strikes are drawn in each.
        level: Probability of rejecting measures of mean one.

    Raises:
        ValueError: If shapes disagree, a listed slice is not a density, or none can be tested.
    """
    mass, kappa, strikes = _check_densities(mass, kappa, listed)
    below = torch.where(strikes, kappa, math.inf).amin(-1) < 1.0
    above = torch.where(strikes, kappa, -math.inf).amax(-1) > 1.0
    testable = (below & above).nonzero().squeeze(-1)
    if len(testable) == 0:
        raise ValueError(
            f"none of the {len(mass)} listed slices has strikes on both sides of the forward: "
            "there is no measure to test"
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(testable), generator=generator)[:slices]
    p, k = mass[testable[order]], kappa[testable[order]]  # (n, S)
    p = p / p.sum(-1, keepdim=True)
    mean = (p * k).sum(-1)
    # A density on one strike has no deviation; rounding then decides nothing, a real defect all.
    deviation = (p * (k - mean[:, None]) ** 2).sum(-1).sqrt().clamp(min=1e-9)

    uniform = torch.rand(len(p), draws, generator=generator, dtype=torch.float64)
    place = torch.searchsorted(p.cumsum(-1), uniform).clamp(max=p.shape[-1] - 1)
    drawn = k.gather(-1, place).mean(-1)
    z = (drawn - 1.0) / deviation * math.sqrt(draws)  # (n,) standard normal under the null

    n = len(z)
    bias, dispersion = float(z.sum()) / math.sqrt(n), float((z**2).sum())
    p_bias = math.erfc(abs(bias) / math.sqrt(2.0))
    half = torch.tensor([0.5 * n, 0.5 * dispersion], dtype=torch.float64)
    p_dispersion = float(torch.special.gammaincc(half[0], half[1]))
    defect = mean - 1.0
    return MartingaleTest(
        p_value=min(1.0, 2.0 * min(p_bias, p_dispersion)),
        level=level,
        bias=bias,
        dispersion=dispersion,
        slices=n,
        untestable=len(mass) - len(testable),
        defect_rms=float((defect**2).mean().sqrt()),
        defect_max=float(defect.abs().max()),
    )


def _check_densities(
    mass: Tensor, kappa: Tensor, listed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Listed slices ``(N, S)`` on the CPU in double precision: mass, moneyness, which strikes."""
    if mass.ndim != 3 or kappa.shape != mass.shape:
        raise ValueError(
            f"mass and kappa must share a shape (B, L, S), got {tuple(mass.shape)} and "
            f"{tuple(kappa.shape)}"
        )
    if listed is None:
        listed = torch.ones(mass.shape, dtype=torch.bool)
    if listed.shape not in (mass.shape, mass.shape[:2]):
        raise ValueError(
            f"listed must have the shape {tuple(mass.shape)} or {tuple(mass.shape[:2])}, got "
            f"{tuple(listed.shape)}"
        )
    strikes = listed.detach().cpu().bool()
    strikes = (strikes if strikes.ndim == 3 else strikes[..., None]).expand(mass.shape)
    there = strikes.any(-1)
    rows = strikes[there]
    p = torch.where(rows, mass.detach().cpu().double()[there], 0.0)
    k = torch.where(rows, kappa.detach().cpu().double()[there], 1.0)
    total = p.sum(-1)
    bad = (p < 0.0).any(-1) | ~((total - 1.0).abs() < 1e-3) | ~(torch.isfinite(k).all(-1))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        b, ell = there.nonzero()[first].tolist()
        raise ValueError(
            f"slice ({b}, {ell}) is not a density: its mass is {float(total[first]):.6g}, its "
            f"smallest {float(p[first].min()):.3g}; give density times quadrature weight"
        )
    return p, k, rows
