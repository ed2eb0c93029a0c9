"""Monitors of the paper's assumptions A1 to A4 (section 2.4), and the regression of section 7.2.

The paper does not define the statistics; docs/protocol.md does, and shows each on a case that is
built to violate the assumption.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.markets.paths import simulate
from arbiter.models.parameters import Parameters
from arbiter.operators.monitor_sums import RELATIVE_ROUNDING, decay_power, patch_orders
from arbiter.operators.monitors import MIN_COVERAGE, decay_index, kazamaki_gap
from arbiter.quotes import Quotes
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.protocol.inference import (
    Interval,
    Regression,
    clopper_pearson_interval,
    hac_regression,
)

if TYPE_CHECKING:
    from torch import Tensor

    from arbiter_lab.differentiable.operators.law.green_scan import Path
    from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
    from arbiter_lab.differentiable.operators.network.network import Network

Mask = NDArray[np.bool_]

NOMINAL_ORDER = 2.0  # smoothness that a smile is taken to have: two bounded derivatives
_MAX_PATH_SHARE = 0.05  # of a sum of exponentials: above it the sample does not show a finite mean
_MIN_PATHS = 40
_MIN_KAZAMAKI_GAIN = 0.01  # of Novikov's exponent: what makes Kazamaki's worth having
_NORMAL_QUANTILE_5PCT = -1.6448536269514722  # 5 % of a standard normal variable lies below
_RELATIVE_KERNEL_FLOOR = 1e-12  # of the largest part of a kernel


class MartingaleEnds(NamedTuple):
    """Ends of paths of ``M = ∫√v dW``, window by window.

    Attributes:
        end: ``(W, P)`` ``M`` at the end of the window.
        variation: ``(W, P)`` ``<M> = ∫v``.
    """

    end: Array
    variation: Array


@dataclass(frozen=True, eq=False)
class SwitchRate:
    """A1: in which windows Novikov's condition holds and Kazamaki's is preferred.

    Attributes:
        holds: ``(W,)`` no path has more than a twentieth of the sum of ``e^{<M>/2}``.
        gap: ``(W,)`` Kazamaki's exponent ``log E e^{M/2}`` over a quarter of Novikov's, less one:
            zero when the variance is known, negative when it rises as the index falls.
        statistic: ``(W,)`` t-value of the gap being above −1 %.
        switched: ``(W,)`` Novikov holds, and the statistic is below its 5 % quantile.
        interval: Exact, of the rate, as if windows were independent.
    """

    holds: Mask
    gap: Array
    statistic: Array
    switched: Mask
    interval: Interval

    @property
    def rate(self) -> float:
        """Share of the windows that switch."""
        return float(self.switched.mean())

    def metric(self) -> Metric:
        """Return the rate as a metric under the paper's name, with one entry per window."""
        return Metric("novik_to_kazamaki_rate", self.rate, None, self.switched.astype(np.float64))


def window_martingales(
    parameters: Parameters,
    states: ArrayLike,
    days: int,
    *,
    paths: int = 1024,
    seed: int = 0,
) -> MartingaleEnds:
    """Simulate the continuous part of a market over windows that begin in given states.

    Args:
        parameters: The market; its jumps are left out, since both conditions are about M.
        states: ``(W, n)`` initial state of each window, such as states of a timeline.
        days: Length of a window, in calendar days.
        paths: Number of paths per window.
        seed: Seed of all paths.
    """
    smooth = replace(parameters, jumps=None)
    times = np.arange(8 * days + 1) / (8.0 * DAYS_PER_YEAR)
    seeds = np.random.SeedSequence(seed).spawn(len(np.asarray(states)))
    ends, variations = [], []
    for state, own in zip(np.asarray(states, dtype=np.float64), seeds, strict=True):
        found = simulate(smooth, times, own, paths=paths, steps_per_day=8, state=state)
        spent = np.trapezoid(found.variance, times, axis=1)  # (P,)
        ends.append(found.log_index[:, -1] + 0.5 * spent)
        variations.append(spent)
    return MartingaleEnds(np.stack(ends), np.stack(variations))


def switch_rate(end: ArrayLike, variation: ArrayLike, level: float = 0.95) -> SwitchRate:
    """Compute A1 from paths ``(W, P)``, such as those of :func:`window_martingales`.

    The mean of ``e^{M/2}`` is adjusted for what is known: ``e^{M/2 − <M>/8}`` has mean one, and M
    has mean zero.
    """
    m, v = (np.atleast_2d(np.asarray(a, dtype=np.float64)) for a in (end, variation))
    if m.shape != v.shape or m.shape[1] < _MIN_PATHS:
        raise ValueError(
            f"end has shape {m.shape}, variation {v.shape}: give (W, P) of each, with at least "
            f"{_MIN_PATHS} paths, since no one of them may have a twentieth of a sum"
        )
    if not (np.isfinite(m).all() and np.isfinite(v).all() and (v >= 0.0).all()):
        raise ValueError("end and variation must be finite, and variation not negative")
    half = 0.5 * v
    scaled = np.exp(half - half.max(1, keepdims=True))  # the largest term is one
    holds = 1.0 / scaled.sum(1) <= _MAX_PATH_SHARE
    exponent = half.max(1) + np.log(scaled.mean(1))
    away = scaled / scaled.mean(1, keepdims=True) - 1.0
    rows = [_compute_kazamaki_gap(*row) for row in zip(m, v, away, exponent.tolist(), strict=True)]
    gap, statistic = np.array(rows).T
    switched = holds & (statistic < _NORMAL_QUANTILE_5PCT)
    interval = clopper_pearson_interval(int(switched.sum()), switched.size, level)
    return SwitchRate(holds, gap, statistic, switched, interval)


def _compute_kazamaki_gap(m: Array, v: Array, away: Array, exponent: float) -> tuple[float, float]:
    """The gap of one window and its t-value, from Novikov's terms over their mean, less one."""
    known = np.exp(0.5 * m - 0.125 * v)  # of mean one
    rest = known * np.expm1(0.125 * v)  # e^{M/2} less what is known
    off, power = m - m.mean(), float(np.var(m))
    slope = float(np.mean(off * (rest - 0.25 * away))) / power if power > 0.0 else 0.0
    rest = rest - slope * m
    moment = 1.0 + float(rest.mean())
    if moment <= 0.0 or exponent <= 0.0:
        return 0.0, math.inf  # nothing to prefer: no variance, or a sample that contradicts itself
    gap = kazamaki_gap(exponent, math.log(moment))
    # the gap's first-order dependence on each path
    influence = (rest - rest.mean()) / moment - (1.0 + gap) * 0.25 * away
    error = float(np.std(influence)) / math.sqrt(m.size) / (0.25 * exponent)
    return gap, (gap + _MIN_KAZAMAKI_GAIN) / error if error > 0.0 else math.inf


@dataclass(frozen=True, eq=False)
class Smoothness:
    """A2: local Hölder orders of slices.

    Attributes:
        orders: ``(…, N)`` order on each of N patches of strikes, between 0 and 2.
        nominal: The order that is assumed.
        below: ``(…, N)`` where the order is less.
    """

    orders: Array
    nominal: float
    below: Mask

    @property
    def lowest_order(self) -> float:
        """The least order of all."""
        return float(self.orders.min())

    @property
    def share_below(self) -> float:
        """Share of patches that are less smooth than assumed: they fall back to T2′."""
        return float(self.below.mean())


def local_orders(
    values: ArrayLike, *, patch: int = 33, nominal: float = NOMINAL_ORDER, slack: float = 0.5
) -> Smoothness:
    """A2: Hölder orders from second differences at dyadic distances, patch by patch.

    On a patch the largest ``u(k+h) − 2u(k) + u(k−h)`` behaves as ``h^β``: β is 2 where u has
    two derivatives, 1 at a kink, ½ for a Brownian path (0.38 on patches as short as these) and 0
    for noise. The order is the slope of its logarithm over that of h, kept between 0 and 2; a
    straight line has 2.

    Args:
        values: ``(…, m)`` volatilities, or any function, at evenly spaced log-strikes.
        patch: Points of a patch, at least 9; patches overlap by half.
        nominal: The order that is assumed.
        slack: An order counts as less when it is less by more than this.
    """
    u = np.asarray(values, dtype=np.float64)
    if patch < 9 or u.shape[-1] < patch:
        raise ValueError(f"patch = {patch}: give at least 9, and {u.shape[-1]} at most")
    if not np.isfinite(u).all():
        raise ValueError("values must be finite: take strikes where the model has volatilities")
    floor = RELATIVE_ROUNDING * np.abs(u).max() + np.finfo(np.float64).tiny
    flat = patch_orders(np.ascontiguousarray(u.reshape(-1, u.shape[-1])), patch, floor)
    orders = flat.reshape(*u.shape[:-1], flat.shape[-1])
    return Smoothness(orders, nominal, orders < nominal - slack)


@dataclass(frozen=True, eq=False)
class ScanMemory:
    """A3: how long a scan remembers.

    Attributes:
        chi: One less the power, kept between 0 and 1: sums over what is remembered grow like
            ``T^χ``. 1 where nothing is forgotten.
        power: With which what entered decays in the distance of maturities.
        rank: Effective rank κ of the kernel: the exponential of the entropy of its spectrum.
        slope: Slope of the logarithm of its singular values over that of their number.
    """

    chi: float
    power: float
    rank: float
    slope: float


def measure_memory(kernel: ArrayLike, T: ArrayLike) -> ScanMemory:
    """A3 from the Green kernel ``(L, L, m, d)`` of a scan and what it walks along.

    What is left at ℓ of what entered at s is ``‖G(T_ℓ, T_s)‖/‖G(T_s, T_s)‖``. The power is minus
    the slope of its logarithm over that of the distance ``T_ℓ − T_s``, on the far half of the
    distances, by their logarithm; an exponential decay has a large one, and χ = 0.

    Args:
        kernel: ``G(T_ℓ, T_s)`` at ``[ℓ, s]``, zero for s after ℓ
            (arbiter_lab.stability.green_kernel).
        T: ``(L,)`` the scan's own clock, increasing: log-maturity for :class:`GreenScan`.
    """
    green, at = np.asarray(kernel, dtype=np.float64), np.asarray(T, dtype=np.float64)
    if green.ndim != 4 or green.shape[:2] != (at.size, at.size) or at.size < 8:
        raise ValueError(f"kernel has shape {green.shape}, T {at.shape}: give (L, L, m, d), L ≥ 8")
    if not (np.diff(at) > 0.0).all():
        raise ValueError("T must increase")
    size = np.linalg.norm(green, 2, axis=(-2, -1))  # (L, L)
    if not (np.isfinite(size).all() and size.max() > 0.0):
        raise ValueError("the kernel is zero, or not finite: give that of a scan on a path")
    enters = np.diagonal(size)
    row, column = np.tril_indices(at.size, -1)
    some = (
        enters[column] > _RELATIVE_KERNEL_FLOOR * size.max()
    )  # nothing enters where nothing is quoted
    row, column = row[some], column[some]
    apart, left = at[row] - at[column], size[row, column] / enters[column]
    power = decay_power(apart, np.log(np.maximum(left, _RELATIVE_KERNEL_FLOOR)))
    if left.max() <= _RELATIVE_KERNEL_FLOOR:
        power = math.inf  # nothing is carried at all
    chi = decay_index(power)
    flat = green.transpose(0, 2, 1, 3).reshape(at.size * green.shape[2], -1)
    spectrum = np.linalg.svd(flat, compute_uv=False)
    spectrum = spectrum[spectrum > _RELATIVE_KERNEL_FLOOR * spectrum[0]]
    share = spectrum / spectrum.sum()
    slope = 0.0
    if spectrum.size > 1:
        slope = float(np.polyfit(np.log(np.arange(1, spectrum.size + 1)), np.log(spectrum), 1)[0])
    return ScanMemory(chi, power, float(np.exp(-(share * np.log(share)).sum())), slope)


def measure_scan_memories(network: Network, quotes: Quotes) -> dict[str, ScanMemory]:
    """A3 of every scan of an operator's network, on one chain of at least 8 expiries."""
    import torch

    from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
    from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
    from arbiter_lab.stability.green_kernel import kernel

    scans = {name: part for name, part in network.named_modules() if isinstance(part, GreenScan)}
    walked: dict[str, Path] = {}

    def spied(name: str, scan: GreenScan) -> Callable[[Path], tuple[Tensor, Tensor]]:
        drive = scan.drive

        def spy(path: Path) -> tuple[Tensor, Tensor]:
            walked[name] = path
            return drive(path)

        return spy

    with torch.no_grad(), ExitStack() as stack:
        for name, scan in scans.items():
            # an attribute of the instance hides the method until it is deleted
            scan.__dict__["drive"] = spied(name, scan)
            stack.callback(scan.__dict__.pop, "drive")
        network(pad_chains([quotes], next(network.parameters()).dtype))
        found = {}
        for name, path in walked.items():
            green = kernel(scans[name], path)[0].double().cpu().numpy()
            found[name] = measure_memory(green, np.cumsum(path.gap[0].double().cpu().numpy()))
    return found


@dataclass(frozen=True, eq=False)
class Coverage:
    """A4: how much of the listed grid is quoted.

    Attributes:
        windows: ``(W,)`` share of the listed cells that are quoted, of each window.
        least: The share that is required.
    """

    windows: Array
    least: float

    @property
    def first_window_below(self) -> int | None:
        """The first window below what is required, if there is one."""
        below = np.flatnonzero(self.windows < self.least)
        return int(below[0]) if below.size else None

    def metrics(self) -> list[Metric]:
        """Return the coverage as metrics under the paper's names."""
        first = self.first_window_below
        at = (
            Metric("coverage_at_trigger", float(self.windows[first]))
            if first is not None
            else (
                Metric.undefined(
                    "coverage_at_trigger", f"no window has a coverage below {self.least:g}"
                )
            )
        )
        return [
            Metric("coverage_min", float(self.windows.min()), None, self.windows),
            Metric("coverage_mean", float(self.windows.mean()), None, self.windows),
            at,
        ]


def compute_coverage(
    quoted: ArrayLike, listed: ArrayLike, windows: ArrayLike, least: float = MIN_COVERAGE
) -> Coverage:
    """Compute the share of listed cells that are quoted, by window (A4).

    Args:
        quoted: ``(D, …)`` cells of each day with a quote that passed the cleaning.
        listed: ``(D, …)`` cells that are listed at all.
        windows: ``(D,)`` number of the window that each day belongs to, from 0 on.
        least: The share that is required.
    """
    has, all_, label = np.asarray(quoted), np.asarray(listed), np.asarray(windows)
    if has.shape != all_.shape or label.shape != has.shape[:1] or has.dtype != np.bool_:
        raise ValueError(
            f"quoted {has.dtype} {has.shape}, listed {all_.shape}, windows {label.shape}: give two "
            "masks of one shape, and a window for each day"
        )
    if (has & ~all_).any():
        raise ValueError("a cell is quoted and not listed: every quoted cell is a listed one")
    rest = tuple(range(1, has.ndim))
    count = int(label.max()) + 1
    seen, there = (np.bincount(label, a.sum(rest), minlength=count) for a in (has, all_))
    if not (there > 0).all():
        raise ValueError(f"window {int(np.argmin(there))} lists nothing: number windows from 0 on")
    return Coverage(seen / there, least)


def gap_regression(gap: ArrayLike, error: ArrayLike, blocks: ArrayLike | None = None) -> Regression:
    """Section 7.2: the representer's error on the duality gap, blocked, with HAC errors.

    Args:
        gap: ``(N,)`` DualGap of each window of low coverage.
        error: ``(N,)`` what the kernel solution misses there.
        blocks: ``(N,)`` runs or time blocks; dependence is within blocks only.

    Returns:
        The slope is the paper's α, the intercept its β.
    """
    return hac_regression(gap, error, blocks=blocks)
