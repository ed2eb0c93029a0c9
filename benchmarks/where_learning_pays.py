"""Errors of the prior, the operator and the fit by coverage and by spread: where learning pays.

    python -m benchmarks.where_learning_pays [--count 30] [--out FOLDER]

Surfaces are the first of the unseen and of the Heston benchmark, quoted anew: a share of the listed
strikes, six a slice at least, and a bid-ask spread that is the same share of volatility at every
strike. The mid is the truth plus half-spread × uniform(−1, 1). Draws are the same in every cell,
and fewer quotes are some of the more.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from arbiter.cli.console_log import show_only_notices
from arbiter.files import open_whole, write_whole
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.known_surface import Case, quotes_from_volatilities
from arbiter_lab.evaluation.methods import load_operator, select_methods
from arbiter_lab.evaluation.run_methods import evaluate
from arbiter_lab.evaluation.stored_surfaces import load_unseen_surfaces

COVERAGES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the listed strikes; zero is six a slice
SPREADS = (0.001, 0.005, 0.02, 0.07, 0.2)  # ask minus bid over volatility
MIN_QUOTES_PER_SLICE = 6
METHODS = ("prior", "operator", "fit")
SEED = 20_261_120
Row = dict[str, Any]


def requote(case: Case, coverage: float, spread: float, seed: int) -> Case:
    """Return a case with other quotes on the same truth."""
    rng = np.random.default_rng((SEED, seed))
    noise, chance = rng.uniform(-1.0, 1.0, case.iv.shape), rng.uniform(size=case.iv.shape)
    rank = np.argsort(np.argsort(np.where(case.listed, chance, np.inf), axis=1), axis=1)
    kept = np.maximum(np.rint(coverage * case.listed.sum(1)), MIN_QUOTES_PER_SLICE)
    quoted = case.listed & (rank < kept[:, None])
    half = 0.5 * spread * case.iv
    quotes = quotes_from_volatilities(case.T, case.k, case.iv + half * noise, half, quoted)
    return replace(case, quotes=quotes, quoted=quoted)


def run(
    markets: dict[str, list[Case]],
    coverages: Sequence[float] = COVERAGES,
    spreads: Sequence[float] = SPREADS,
) -> list[Row]:
    """Return one row for each market, coverage and spread.

    Args:
        markets: Cases of each market, by its name.
        coverages: Shares of the listed strikes.
        spreads: Ask minus bid, over volatility.
    """
    methods = select_methods(METHODS, load_operator())
    rows: list[Row] = []
    for market, cases in markets.items():
        for coverage in coverages:
            for spread in spreads:
                given = [requote(case, coverage, spread, i) for i, case in enumerate(cases)]
                found = evaluate(given, methods).to_dict()
                pair = next(p for p in found["paired"] if p["method"] == "operator")
                errors = {name: s["rmse_bp"] for name, s in found["methods"].items()}
                paired = {name: pair[name] for name in ("difference_bp", "p_value", "better")}
                alarms = found["methods"]["operator"]["alarms"]
                about = {"market": market, "coverage": coverage, "spread": spread}
                rows.append(about | errors | paired | {"alarms": alarms})
    return rows


def table(rows: list[Row]) -> Table:
    """Return the rows as a table; the difference is the operator's mean error less the prior's."""
    found = Table(box=MARKDOWN)
    heads = ("market", "coverage", "spread", *METHODS, "operator − prior", "p", "better", "alarms")
    for place, head in enumerate(heads):
        found.add_column(head, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        p = row["p_value"]
        found.add_row(
            row["market"], _name_coverage(row["coverage"]), f"{row['spread']:.1%}",
            *(f"{row[name]:.2f}" for name in METHODS), f"{row['difference_bp']:+.2f}",
            "–" if p is None else f"{p:.1g}", f"{row['better']:.0%}", f"{row['alarms']}",
        )  # fmt: skip
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw the operator's error over the prior's and over the fit's, a row of panels a market."""
    markets = list(dict.fromkeys(row["market"] for row in rows))
    figure = Figure(figsize=(11.0, 4.2 * len(markets)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(markets), 2, squeeze=False)
    for panels, market in zip(grid, markets, strict=True):
        own = [row for row in rows if row["market"] == market]
        for ax, other in zip(panels, ("prior", "fit"), strict=True):
            _draw_ratios(ax, own, other)
            ax.set_title(f"{market}: error of the operator over that of the {other}")
    with open_whole(path) as file:
        figure.savefig(file, format="png", dpi=110)


def _draw_ratios(ax: Axes, rows: list[Row], other: str) -> None:
    coverages = list(dict.fromkeys(row["coverage"] for row in rows))
    spreads = list(dict.fromkeys(row["spread"] for row in rows))
    ratio = np.array([row["operator"] / row[other] for row in rows])
    ratio = ratio.reshape(len(coverages), len(spreads))
    ax.imshow(np.log(ratio), cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -1.0, 1.0), aspect="auto")
    for (i, j), value in np.ndenumerate(ratio):
        ink = "white" if abs(np.log(value)) > 0.6 else "black"
        ax.text(j, i, f"{value:.2f}", ha="center", va="center", color=ink)
    ax.set_xticks(range(len(spreads)), [f"{spread:.1%}" for spread in spreads])
    ax.set_yticks(range(len(coverages)), [_name_coverage(share) for share in coverages])
    ax.set(xlabel="bid-ask spread over volatility", ylabel="strikes with a quote")


def _name_coverage(share: float) -> str:
    return f"{share:.0%}" if share > 0.0 else f"{MIN_QUOTES_PER_SLICE} a slice"


def main() -> None:
    """Read the command line, measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="surfaces of each market")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the results")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    markets = {
        "unseen": load_unseen_surfaces(args.count),
        "Heston": [heston_case(seed) for seed in range(args.count)],
    }
    with show_only_notices():  # alarms are counted in the table
        rows = run(markets)
    Console(width=120).print(table(rows))
    write_whole(args.out / "where_learning_pays.json", json.dumps(rows, indent=1) + "\n")
    plot(rows, args.out / "where_learning_pays.png")


if __name__ == "__main__":
    main()
