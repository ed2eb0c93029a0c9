"""Tables of `arbiter evaluate` in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbiter.cli.exit_codes import print_written

if TYPE_CHECKING:
    from rich.table import Table


def print_results(facts: dict[str, Any], written: list[Path]) -> None:
    """Print the tables of an evaluation, and the files written."""
    from rich.console import Console

    console = Console()
    if "chains" in facts:
        for table in _chain_tables(facts["chains"]):
            console.print(table)
        if facts["summary"]["methods"]:
            console.print(_summary_table(facts["summary"]["methods"]))
        if facts["summary"]["paired"]:
            console.print(_paired_table(facts["summary"]["paired"], "chain"))
        for row in facts["chains"]:
            if "error" in row:
                what = f"{row['chain']} {row.get('method', '')}".strip()
                console.print(f"Error: {what}: {row['error']}", highlight=False, markup=False)
    else:
        noise = f"{facts['quotes']:,} quotes with {facts['noise_bp']:.1f} bp of noise"
        title = f"{facts['bench']}: {facts['surfaces']:,} surfaces, {noise}"
        console.print(_method_table(facts["methods"], title))
        tables = [_surface_table(facts["methods"])]
        if len(next(iter(facts["methods"].values()))["by_family"]) > 1:
            tables.insert(0, _family_table(facts["methods"]))
        if facts["paired"]:
            tables.append(_paired_table(facts["paired"], "surface"))
        for table in tables:
            console.print(table)
    for path in written:
        print_written(console, path)


def _make_table(title: str, heads: tuple[str, ...], words: int = 1) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    # few lines, so that eight columns of numbers fit into a narrow terminal
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < words else "right", no_wrap=True)
    return table


def _method_table(found: dict[str, Any], title: str) -> Table:
    heads = ("bp", "RMSE", "no quote", "MAE", "max", "inside", "NAS<1", "VIX", "ms")
    table = _make_table(title, heads)
    for name, s in found.items():
        nas = f"{s['surfaces'] - s['nas_one']:,}"
        each = None if s["seconds_each"] is None else 1e3 * s["seconds_each"]
        numbers = (s["rmse_bp"], s["rmse_unquoted_bp"], s["mae_bp"])
        table.add_row(
            name, *map(_format_fixed, numbers), _format_fixed(s["max_bp"], 0),
            f"{s['inside_bid_ask']:.1%}",
            nas, _format_fixed(s["vix_rmse"], 3), _format_fixed(each, 1),
        )  # fmt: skip
    return table


def _family_table(found: dict[str, Any]) -> Table:
    families = list(next(iter(found.values()))["by_family"])
    table = _make_table("By family (no quote)", ("bp", *families))
    for name, s in found.items():
        cells = [s["by_family"][family] for family in families]
        table.add_row(
            name,
            *(
                f"{_format_fixed(c['rmse_bp'])} ({_format_fixed(c['rmse_unquoted_bp'])})"
                for c in cells
            ),
        )
    return table


def _surface_table(found: dict[str, Any]) -> Table:
    heads = ("bp", "mean", "median", "worst", "which", "/fit", "alarms", "failed")
    table = _make_table("RMSE of a surface", heads)
    for name, s in found.items():
        worst = s["worst"]
        sizes = (s["mean_surface_rmse_bp"], s["median_surface_rmse_bp"])
        table.add_row(
            name, *map(_format_fixed, sizes), _format_fixed(worst["rmse_bp"], 1),
            _name_worst(worst), _format_fixed(s["ratio_to_fit"]), _format_fixed(s["alarms"], 0),
            f"{s['refused']:,}",
        )  # fmt: skip
    return table


def _paired_table(pairs: list[dict[str, Any]], unit: str) -> Table:
    """Differences of errors on the same surfaces: negative where the first method is better."""
    heads = ("bp", "against", "difference", "95 % interval", "p", "better on")
    table = _make_table(f"Paired by {unit}, mean of RMSE", heads, words=2)
    for pair in pairs:
        low, high = (_format_fixed(pair[key]) for key in ("low_bp", "high_bp"))
        p, better = pair["p_value"], pair["better"]
        table.add_row(
            pair["method"], pair["against"], _format_fixed(pair["difference_bp"]),
            f"{low} to {high}", "–" if p is None else f"{p:.1g}",
            "–" if better is None else f"{better:.0%}",
        )  # fmt: skip
    return table


def _name_worst(worst: dict[str, Any]) -> str:
    name, family = worst["name"], worst["family"]
    return str(name) if family in name else f"{name}, {family}"


def _chain_tables(rows: list[dict[str, Any]]) -> Iterator[Table]:
    """A table per chain: names of chains are long, and terminals narrow."""
    heads = ("", "inside", "bp 2sd", "half-spr", "VIX gap", "NAS", "steps", "s")
    for chain in dict.fromkeys(row["chain"] for row in rows):
        scored = [row for row in rows if row["chain"] == chain and "error" not in row]
        if not scored:
            continue
        count, index = f"{scored[0]['quotes']:,} quotes", _format_fixed(scored[0]["vix"])
        table = _make_table(f"{chain}: {count}, VIX by the index rule {index}", heads)
        for row in scored:
            steps = "–" if row["steps"] is None else f"{row['steps']}"
            table.add_row(
                row["method"], f"{row['inside_bid_ask']:.1%}", _format_fixed(row["iv_rmse_bp"], 1),
                _format_fixed(row["median_half_spreads"]), _format_fixed(row["vix_gap"], 3),
                _format_nas(row["nas"]), steps, _format_fixed(row["seconds"]),
            )  # fmt: skip
        yield table


def _summary_table(methods: dict[str, Any]) -> Table:
    """Means over chains, and over those with expiries of the same day."""
    heads = (
        "",
        "chains",
        "bp 2sd",
        "half-spr",
        "inside",
        "alarms",
        "same day",
        "bp 2sd",
        "half-spr",
    )
    table = _make_table("Means over chains", heads)
    for name, s in methods.items():
        day = s["same_day"]
        miss = _format_fixed(day["mean_iv_rmse_bp"])
        table.add_row(
            name, f"{s['chains']}", _format_fixed(s["mean_iv_rmse_bp"]),
            _format_fixed(s["mean_median_half_spreads"]), f"{s['mean_inside_bid_ask']:.1%}",
            _format_fixed(s["alarms"], 0), f"{day['chains']}", miss,
            _format_fixed(day["mean_median_half_spreads"]),
        )  # fmt: skip
    return table


def _format_nas(nas: float) -> str:
    """Four digits, rounded down: what is not one does not look like one."""
    return "1" if nas == 1.0 else f"{math.floor(1e4 * nas) / 1e4:.4f}"


def _format_fixed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
