"""What a certified Lipschitz constant costs in accuracy: one operator per budget, one table.

For each checkpoint: the budget of its maps, the constant before the last Q-Align projection (where
the checkpoint says it) and after it, for every chain at once; the constant at the strikes and
maturities of given chains, for all quotes and for quotes within a radius of theirs (medians); and
the errors of its surfaces, on the unseen surfaces and on the Heston benchmark.

    python -m benchmarks.lipschitz_cost FILE... [--unseen 2000] [--heston 50] [--cache DIR]
        [--json PATH] [--plot PATH] [--markdown]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter
from rich.box import MARKDOWN, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from arbiter.files import open_whole
from arbiter.operators.network.config import Config
from arbiter.operators.pretrained import Operator
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.lipschitz import constant
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.methods import select_methods
from arbiter_lab.evaluation.run_methods import evaluate
from arbiter_lab.evaluation.stored_surfaces import load_unseen_surfaces
from arbiter_lab.stability.local_lipschitz import constant_at

Row = dict[str, Any]

RADIUS = 0.05  # of log-volatility: a move of every quote by up to 5 %
CHAINS = 6  # whose own constants are taken
_BEFORE = ("lambda_lip_before", "lipschitz_before")
COLUMNS: list[tuple[str, str, str]] = [
    ("operator", "name", "s"),
    ("budget", "budget", "g"),
    ("before", "before", ".3g"),
    ("constant", "constant", ".3g"),
    ("at chains", "at_chains", ".3g"),
    ("within 5 %", "within_radius", ".3g"),
    ("unseen bp", "unseen_bp", ".2f"),
    ("unquoted bp", "unseen_unquoted_bp", ".2f"),
    ("Heston bp", "heston_bp", ".2f"),
    ("hard bp", "heston_hard_bp", ".2f"),
]


def load(path: Path) -> tuple[Operator, Network, dict[str, Any]]:
    """The operator, its network in double precision, and what the checkpoint says of itself."""
    tensors, info = checkpoint.load(path)
    network = Network(Config(**info["config"]))
    network.load_state_dict(tensors)
    return Operator.load(path), network.double().eval().requires_grad_(False), info


def constants(network: Network, info: dict[str, Any], cases: Sequence[Case]) -> Row:
    """The constant of every chain, and those of some chains."""
    known = info.get("metrics", {})
    before = next((known[name] for name in _BEFORE if known.get(name) is not None), None)
    chains = [scaled(pad_chains([case.quotes])) for case in cases[:CHAINS]]
    row: Row = {"before": before, "constant": constant(network).value}
    for name, radius in (("at_chains", math.inf), ("within_radius", RADIUS)):
        found = torch.cat([constant_at(network, chain, radius) for chain in chains])
        row[name] = float(found.median())
    return row


def errors(operator: Operator, benches: dict[str, Sequence[Case]]) -> Row:
    """RMSE of the operator's surfaces on each benchmark."""
    row: Row = {}
    for name, cases in benches.items():
        found = evaluate(cases, select_methods(["operator"], operator)).to_dict()["methods"][
            "operator"
        ]
        row[f"{name}_bp"] = found["rmse_bp"]
        row[f"{name}_unquoted_bp"] = found["rmse_unquoted_bp"]
        row[f"{name}_nas_one"] = found["nas_one"] == found["surfaces"]
    return row


def run(paths: Sequence[Path], benches: dict[str, Sequence[Case]]) -> list[Row]:
    """A row per checkpoint, the smallest constant first."""
    rows = []
    for path in paths:
        operator, network, info = load(path)
        row: Row = {
            "name": path.stem,
            "budget": network.config.budget,
            "aligned": network.config.align,
        }
        row |= constants(network, info, benches["unseen"]) | errors(operator, benches)
        rows.append(row)
    return sorted(rows, key=lambda row: float(row["constant"]))


def table(rows: Sequence[Row], markdown: bool = False) -> Table:
    """The rows as a table."""
    made = Table(box=MARKDOWN if markdown else SIMPLE_HEAD)
    for heading, _, form in COLUMNS:
        made.add_column(heading, justify="left" if form == "s" else "right")
    for row in rows:
        cells = [(row.get(key), form) for _, key, form in COLUMNS]
        made.add_row(*("–" if value is None else format(value, form) for value, form in cells))
    return made


def plot(rows: Sequence[Row], path: Path) -> Figure:
    """Errors against the constant of every chain, and against that near a chain's quotes."""
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    lines = (
        ("unseen", "unseen_bp", "#0072b2", "o"),
        ("Heston", "heston_bp", "#00795c", "s"),
        ("Heston, hard", "heston_hard_bp", "#d55e00", "^"),
    )
    for ax, key, title in (
        (left, "constant", "for every chain"),
        (right, "within_radius", f"at a chain, for quotes within {RADIUS:.0%}"),
    ):
        order = sorted(rows, key=lambda row: float(row[key]))
        for name, bench, colour, mark in lines:
            known = [row for row in order if row.get(bench) is not None]
            x, y = [row[key] for row in known], [row[bench] for row in known]
            ax.plot(x, y, color=colour, marker=mark, label=name)
        for row in order:
            if row.get("heston_hard_bp") is not None:
                at = (row[key], row["heston_hard_bp"])
                ax.annotate(
                    f"{row['budget']:g}" if row["aligned"] else "free",
                    at,
                    (0, 7),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.margins(y=0.12)
        ax.yaxis.set_major_locator(FixedLocator([2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150]))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set(xlabel=f"certified Lipschitz constant, {title}")
        ax.grid(alpha=0.25)
    left.set(ylabel="RMSE of volatility, basis points")
    left.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.86), ncols=3)
    figure.suptitle("What the certificate costs; numbers are budgets of the maps")
    with open_whole(path) as file:
        figure.savefig(file, format="png", dpi=120)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--unseen", type=int, default=2_000)
    parser.add_argument("--heston", type=int, default=50)
    parser.add_argument("--cache", type=Path, default=Path("evaluation/surfaces"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    benches: dict[str, Sequence[Case]] = {
        "unseen": load_unseen_surfaces(chosen.unseen, chosen.cache),
        "heston": [heston_case(seed) for seed in range(chosen.heston)],
        "heston_hard": [heston_case(seed, hard=True) for seed in range(chosen.heston)],
    }
    rows = run(chosen.checkpoints, benches)
    Console(width=120).print(table(rows, chosen.markdown))
    if chosen.json:
        chosen.json.write_text(json.dumps({"radius": RADIUS, "rows": rows}, indent=1) + "\n")
    if chosen.plot:
        plot(rows, chosen.plot)


if __name__ == "__main__":
    main()
