"""Stage ``days``: the simulated timelines on which models are scored, cut into folds.

Strikes and maturities follow an exchange's listing rules, so they differ between days. Price panels
are on one grid of moneyness and maturity, the same every day, inside the listed range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.markets.dataset import Dataset, Plan, write_dataset
from arbiter.markets.frictions import Frictions
from arbiter.markets.listing import SPARSE_LISTING
from arbiter.markets.snapshots import Venue
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.quotes import Quotes
from arbiter_lab.metrics.marginals import InvertedMarginals
from arbiter_lab.protocol.folds import Fold, make_blocked_folds
from arbiter_lab.protocol.leakage import Leak, find_leaks
from arbiter_lab.protocol.monitors import Coverage, compute_coverage
from arbiter_lab.reproduction.profiles import Profile
from arbiter_lab.reproduction.stages import Facts, StageContext

Mask = NDArray[np.bool_]

KAPPA = np.exp(np.linspace(-0.30, 0.16, 24))
MATURITIES = np.array([14.0, 30.0, 60.0, 91.0, 182.0, 273.0, 365.0, 548.0]) / DAYS_PER_YEAR
LAW_MATURITIES = MATURITIES[[1, 3, 4, 6]]
"""Maturities at which laws are compared: a month, a quarter, half a year, a year."""

VENUE = Venue(listing=SPARSE_LISTING, frictions=Frictions(coverage=0.95, missing=0.03))
STEPS_PER_DAY = 1.0


@dataclass(frozen=True, eq=False)
class Days:
    """All D days of a timeline with up to P listed strikes each, padded with NaN.

    Attributes:
        quotes: Quotes of each day, the input of the models.
        k: ``(D, P)`` log-moneyness; NaN past the last listed strike of a day.
        T: ``(D, P)`` years.
        iv: ``(D, P)`` exact volatilities; NaN too where the exact price is below resolution.
        quoted: ``(D, P)`` which strikes have a quote that passed the cleaning.
        vix: ``(D,)`` exact index points.
        states: ``(D, n)`` states of the market.
        market: The oracle that prices exactly.
    """

    quotes: tuple[Quotes, ...]
    k: Array
    T: Array
    iv: Array
    quoted: Mask
    vix: Array
    states: Array
    market: LiftedHeston

    def __len__(self) -> int:
        return len(self.quotes)

    @property
    def listed(self) -> Mask:
        """``(D, P)`` whether a strike is listed."""
        return np.isfinite(self.k)

    @cached_property
    def deviations(self) -> Array:
        """``(D, P)`` log-moneyness in standard deviations of the log contract."""
        found = np.full(self.k.shape, np.nan)
        for day, there in enumerate(self.listed):
            total = self.market.log_variance(self.T[day, there], self.states[day])
            found[day, there] = self.k[day, there] / np.sqrt(total)
        return found

    @cached_property
    def calls(self) -> Array:
        """``(D, L, S)`` exact calls in forward units on the grid."""
        k = np.broadcast_to(np.log(KAPPA), (MATURITIES.size, KAPPA.size))
        strikes = np.broadcast_to(k, (len(self), *k.shape))
        price = self.market.days(self.states, strikes, MATURITIES)
        return np.asarray(price + np.maximum(1.0 - KAPPA, 0.0))

    @cached_property
    def laws(self) -> tuple[InvertedMarginals, ...]:
        """Exact marginals of each day; they cache their values for all models."""
        return tuple(InvertedMarginals(self.market, state) for state in self.states)


def read_days(folder: str | PathLike[str]) -> Days:
    """Read the days of a dataset folder."""
    data = Dataset(Path(folder))
    count = len(data)
    tables = [data.table(day) for day in range(count)]
    most = max(table.height for table in tables)
    k, T, iv = (np.full((count, most), np.nan) for _ in range(3))
    quoted = np.zeros((count, most), dtype=np.bool_)
    for day, table in enumerate(tables):
        size = table.height
        k[day, :size] = np.log(table["strike"].to_numpy() / table["forward"].to_numpy())
        T[day, :size] = table["T"].to_numpy()
        iv[day, :size] = table["iv"].fill_null(np.nan).to_numpy()
        quoted[day, :size] = table["reason"].is_null().to_numpy()
    market = data.oracle(0)[0]
    states = np.array(data.days["state"].to_list())
    quotes = tuple(data.quotes(day) for day in range(count))
    return Days(quotes, k, T, iv, quoted, data.days["vix"].to_numpy(), states, market)


def make_folds(profile: Profile) -> list[Fold]:
    """Return the folds of a profile; a window out of sample is one block long."""
    return make_blocked_folds(profile.days, profile.blocks, embargo=profile.embargo)


def first_fold(profile: Profile) -> Fold:
    """Return the first fold, whose windows are scored: it has the most days out of sample."""
    return make_folds(profile)[0]


def make_days(context: StageContext) -> Facts:
    """Write the timelines, cut them into folds and check them for leaks.

    Raises:
        ValueError: If information leaks between the parts of a fold.
    """
    profile = context.profile
    plans = {profile.market: profile.days} | dict.fromkeys(
        (name for name in profile.elsewhere if name != profile.market), profile.elsewhere_days
    )
    done, total = 0, sum(plans.values())
    for name, count in plans.items():
        plan = Plan(count, profile.seed, name, steps_per_day=STEPS_PER_DAY, venue=VENUE)
        write_dataset(plan, context.folder / name, _make_progress_callback(context, done, total))
        done += count
    days = read_days(context.folder / profile.market)
    folds = make_folds(profile)
    leaks = [str(leak) for fold in folds for leak in find_fold_leaks(fold, days)]
    if leaks:
        raise ValueError(f"days leak into each other: {'; '.join(leaks[:5])}")
    fold = first_fold(profile)
    seen = measure_coverage(days, fold.windows)
    listed = int(days.listed.sum())
    return {
        "market": profile.market,
        "timelines": plans,
        "folds": [one.to_dict() for one in folds],
        "leaks": leaks,
        "listed": listed,
        "quotes": int(days.quoted.sum()),
        "filter_rate": 1.0 - int(days.quoted.sum()) / listed,
        "coverage_windows": seen.windows,
        "noise_bp": _noise(days),
        "vix": days.vix,
        "digests": [digest(quotes) for quotes in days.quotes],
    }


def find_fold_leaks(fold: Fold, days: Days) -> list[Leak]:
    """Return the leaks from a fold's later parts to its earlier ones.

    Quotes are known on their day; the learning rate is chosen on validation days; no preprocessing
    is fitted on any day.
    """
    last = np.arange(len(days))
    return find_leaks(
        fold,
        reaches={"quotes": last},
        chosen_on={"learning rate": fold.validate},
        contents=[digest(quotes) for quotes in days.quotes],
    )


def measure_coverage(days: Days, windows: Sequence[NDArray[np.int64]]) -> Coverage:
    """Return the share of listed strikes that are quoted, by window (monitor A4)."""
    every = np.concatenate(windows)
    label = np.repeat(np.arange(len(windows)), [window.size for window in windows])
    return compute_coverage(days.quoted[every], days.listed[every], label)


def digest(quotes: Quotes) -> str:
    """Return the first 16 hexadecimal digits of the hash of a day's quotes."""
    found = hashlib.sha256()
    for column in (quotes.T, quotes.k, quotes.bid, quotes.ask):
        found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()[:16]


def _noise(days: Days) -> float:
    """Root mean square of quoted mid minus exact volatility on five days, in basis points."""
    off = [
        0.5 * (q.iv_bid + q.iv_ask) - days.market.iv(q.k, q.T, state)
        for q, state in list(zip(days.quotes, days.states, strict=True))[:5]
    ]
    some = np.concatenate(off)
    return float(1e4 * np.sqrt(np.nanmean(some**2)))


def _make_progress_callback(context: StageContext, done: int, total: int) -> Callable[[int], Any]:
    return lambda count: context.tell("days", done + count, total)
