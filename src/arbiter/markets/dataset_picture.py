"""A picture of three days of a dataset: quotes with bid and ask, and the exact smiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arbiter.conventions import DAYS_PER_YEAR
from arbiter.files import open_whole
from arbiter.markets.dataset import Dataset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TARGET_MATURITIES = np.array([7.0, 30.0, 91.0, 365.0]) / DAYS_PER_YEAR
_SHOWN_DEVIATIONS = (-5.5, 3.0)  # deviations shown


def pick_three_days(dataset: Dataset) -> list[int]:
    """Numbers of the days with the lowest, the median and the highest 30-day volatility."""
    order = np.argsort(dataset.days["vix"].to_numpy(), kind="stable")
    return [int(order[i]) for i in (0, order.size // 2, order.size - 1)]


def draw_three_days(dataset: Dataset, path: Path) -> None:
    """Write the picture as a PNG."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(16.0, 5.4), layout="constrained")
    try:
        names = ("calmest", "median", "most stressed")
        for ax, day, name in zip(axes, pick_three_days(dataset), names, strict=True):
            _draw_smiles(ax, dataset, day, name)
        axes[0].set_ylabel("implied volatility, %")
        bars = "bars: bid to ask; lines: oracle; grey dots: the oracle where nobody bids"
        figure.suptitle(f"Three days of {len(dataset):,}: {bars}", fontsize=11)
        with open_whole(path) as file:
            figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
    finally:
        plt.close(figure)


def _draw_smiles(ax: Axes, dataset: Dataset, day: int, name: str) -> None:
    import matplotlib.pyplot as plt

    quotes = dataset.quotes(day)
    market, state = dataset.oracle(day)
    table = dataset.table(day)
    near = np.abs(np.log(quotes.maturities[None] / _TARGET_MATURITIES[:, None])).argmin(1)
    chosen = np.unique(near)
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.85, chosen.size))
    times = quotes.maturities[chosen]
    widths = np.sqrt(market.log_variance(times, state))
    grid = np.linspace(*_SHOWN_DEVIATIONS, 121)
    curves = 100.0 * market.iv(np.multiply.outer(widths, grid), times[:, None], state)
    for i, colour, width, exact in zip(chosen, colours, widths, curves, strict=True):
        own = (quotes.expiry == i) & (quotes.k >= _SHOWN_DEVIATIONS[0] * width)
        own &= quotes.k <= _SHOWN_DEVIATIONS[1] * width
        k, low, high = quotes.k[own], 100.0 * quotes.iv_bid[own], 100.0 * quotes.iv_ask[own]
        low = np.where(np.isfinite(low), low, 0.0)
        z = k / width
        ax.vlines(z, low, high, color=colour, alpha=0.55, linewidth=1.6)
        ax.plot(grid, exact, color=colour, linewidth=1.2, label=quotes.labels[i])
        silent = table.filter(
            (table["T"] - quotes.maturities[i]).abs() < 1e-12,
            table["reason"].is_not_null(),
            table["iv"].is_not_null(),
        )
        at = np.log(silent["strike"].to_numpy() / quotes.forwards[i]) / width
        shown = (at >= _SHOWN_DEVIATIONS[0]) & (at <= _SHOWN_DEVIATIONS[1])
        ax.plot(at[shown], 100.0 * silent["iv"].to_numpy()[shown], ".", color="grey", markersize=3)
    row = dataset.days.row(day, named=True)
    ax.set_ylim(bottom=0.0)
    ax.set(
        title=f"{name}: {row['as_of']:%Y-%m-%d}, 30-day volatility {row['vix']:.1f} %, "
        f"coverage {row['coverage']:.0%}",
        xlabel="log-moneyness in standard deviations",
    )
    ax.title.set_fontsize(10)
    ax.legend(fontsize=8, frameon=False)
    ax.grid(alpha=0.25)
