"""Figures of metrics, errors, stress and training; axis limits are the same for every run.

Values outside the limits are drawn at the border with their number, so that runs can be compared
side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arbiter_lab.protocol.results_file import Runs
from arbiter_lab.reproduction import claims
from arbiter_lab.reproduction.metrics_stage import MATURITY_EDGES_YEARS, MONEYNESS_EDGES_SD
from arbiter_lab.reproduction.models import SMALL, label_of
from arbiter_lab.reproduction.profiles import MATCHED
from arbiter_lab.reproduction.stages import Facts

BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#00795c", "#8a4f9e", "#66707a"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, "#c79000", "#56b4e9", "#1c2126", "#cc79a7")
FIGURE_WIDTH_INCHES, FIGURE_HEIGHT_INCHES = 8.0, 4.2
_ERROR_LIMITS_BP = (1.0, 1000.0)  # basis points
_SCORE_LIMITS = (-0.2, 1.0)


def draw_core_metrics(runs: Runs) -> Figure:
    """Draw NAS, CNAS and NI with their intervals, and the paper's claims."""
    figure, axes = panel(FIGURE_WIDTH_INCHES, FIGURE_HEIGHT_INCHES)
    names = [n for n in ("operator", SMALL) if n in runs]
    for place, what in enumerate(("NAS", "CNAS", "NI", "NI_residual")):
        for shift, name in enumerate(names):
            _draw_value_with_interval(
                axes, place + 0.36 * (shift - 1.0), runs[name], what, COLOURS[shift]
            )
        claim = claims.find_table_1_claim(what)
        if claim is not None:
            axes.plot(place + 0.36, claim.value, "D", color=GREY, ms=6)
            axes.annotate(f"{claim.value:.4g}", (place + 0.36, claim.value), fontsize=8,
                          textcoords="offset points", xytext=(0, -14), ha="center")  # fmt: skip
    axes.axhline(1.0, ls="--", color=GREY, lw=1)
    axes.set_xticks(range(4), ["NAS", "CNAS", "NI (section 5.2;\nperfect is 0)", "NI, residual"])
    axes.set(ylim=(_SCORE_LIMITS[0] - 0.05, 1.1), xlim=(-0.5, 3.5), ylabel="score")
    ours = [(label_of(n), COLOURS[i], "o") for i, n in enumerate(names)]
    _legend(axes, [*ours, ("paper's claim", GREY, "D")])
    axes.set_title("Core metrics, 95 % intervals")
    return figure


def draw_errors(runs: Runs) -> Figure:
    """Draw the IV RMSE of all models on the same days."""
    shown = [
        n for n, run in runs.items()
        if run.get("iv_rmse_bp") is not None and run["about"]["kind"] not in ("sweep", "budget")
    ]  # fmt: skip
    shown.sort(key=lambda n: runs[n]["iv_rmse_bp"])
    figure, axes = panel(FIGURE_WIDTH_INCHES, 1.2 + 0.24 * len(shown))
    for place, name in enumerate(shown):
        run = runs[name]
        colour = BLUE if run["about"].get("promises") else VERMILION
        low, high = run["intervals"].get("iv_rmse_bp", (run["iv_rmse_bp"],) * 2)
        value = float(np.clip(run["iv_rmse_bp"], *_ERROR_LIMITS_BP))
        axes.plot([low, high], [place, place], color=colour, lw=2)
        axes.plot(value, place, "o", color=colour, ms=5)
        axes.text(
            max(value, high) * 1.06, place, f"{run['iv_rmse_bp']:.2f}", va="center", fontsize=8
        )
    axes.set_yticks(range(len(shown)), [label_of(n) for n in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=_ERROR_LIMITS_BP, xlabel="IV RMSE against the oracle, basis points")
    _legend(axes, [("free of arbitrage by construction", BLUE, "o"), ("not", VERMILION, "o")])
    axes.set_title("Error out of sample, 95 % HAC intervals")
    return figure


def draw_spectral_guard(trained: Facts) -> Figure:
    """Draw the Lipschitz bound before and after Q-Align, projection distance step by step."""
    run = trained["runs"][SMALL]
    figure, axes = panel(FIGURE_WIDTH_INCHES, FIGURE_HEIGHT_INCHES)
    seen = run["measured"]
    for name, colour, size in (("lambda_lip_before", VERMILION, 8), ("lambda_lip_after", BLUE, 4)):
        points = [(s, v) for s, v in zip(seen["step"], seen[name], strict=True) if v is not None]
        if points:  # the larger marks show around the others, where the two agree
            axes.plot(*zip(*points, strict=True), "o-", color=colour, ms=size, lw=1.2, label=name)
    axes.set(yscale="log", ylim=(1e-1, 1e12), xlim=(0, run["steps"]), xlabel="step")
    axes.set_ylabel("certified Lipschitz bound")
    other = axes.twinx()
    distance = np.array([np.nan if v is None else v for v in run["journal"]["projection_distance"]])
    steps = np.linspace(1, run["steps"], distance.size)
    other.plot(steps, distance, color=GREY, lw=0.8, alpha=0.8)
    other.axhline(float(np.nanmean(distance)), ls="--", color=GREY, lw=1)
    other.set_yscale("symlog", linthresh=1.0)
    other.set(ylim=(0.0, 1e5), ylabel="distance of the guard's projection (grey)")
    axes.legend(loc="upper right", fontsize=8, frameon=False)
    axes.set_title(f"Q-Align and Spec-Guard, small width: {run['spec_guard_hits']:,} hits")
    return figure


def draw_stress(found: Facts) -> Figure:
    """Draw NAS and error along every axis of stress."""
    axes_of = found["axes"]
    figure = Figure(figsize=(11.0, 4.0 + 2.0), layout="constrained")
    grid = figure.subplots(2, len(axes_of), sharey="row")
    for column, (name, about) in enumerate(axes_of.items()):
        top, bottom = grid[0, column], grid[1, column]
        x = np.arange(len(about["levels"]))
        for place, (model, cells) in enumerate(about["models"].items()):
            again, colour = divmod(place, len(COLOURS))
            style: dict[str, Any] = {"color": COLOURS[colour], "ls": "--" if again else "-"}
            style |= {"marker": "o", "ms": 3, "lw": 1.2}
            score = np.array(cells["nas"], dtype=float)
            error = np.array(
                [[np.nan if v is None else v for v in row] for row in cells["rmse_bp"]], dtype=float
            )
            top.plot(x, score.mean(1), label=label_of(model), **style)
            top.fill_between(x, score.min(1), score.max(1), color=COLOURS[colour], alpha=0.12, lw=0)
            spread = np.array(cells["spread_bp"], dtype=float)
            ratio = np.ma.median(np.ma.masked_invalid(error / spread), axis=1)  # type: ignore[no-untyped-call]
            bottom.plot(x, np.ma.clip(ratio, 1e-2, 1e2).filled(np.nan), **style)
        top.axhline(0.9, ls="--", color=VERMILION, lw=1)
        bottom.axhline(1.0, ls="--", color=VERMILION, lw=1)
        top.set(ylim=(-0.05, 1.08), title=name)
        bottom.set(yscale="log", ylim=(1e-2, 1e2), xlabel=about["unit"])
        for axes in (top, bottom):
            axes.set_xticks(x, [f"{v:g}" for v in about["levels"]], fontsize=7)
            style_axes(axes)
    grid[0, 0].set_ylabel("NAS (mean, range)")
    grid[1, 0].set_ylabel("RMSE over spread, median")
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8,
        frameon=False,
    )  # fmt: skip
    figure.suptitle("Stress to failure: dashed lines are the criteria of failure", fontsize=11)
    return figure


def draw_effective_dimension(monitors: Facts) -> Figure:
    """Draw d90, d95 and d99 of inputs and features, as the paper has them and centred."""
    figure, axes = panel(FIGURE_WIDTH_INCHES, FIGURE_HEIGHT_INCHES)
    groups = list(monitors["dimensions"].items())
    width = 0.8 / (2 * len(groups))
    for place, (name, part) in enumerate(groups):
        suffix = "" if name == "inputs" else "_features"
        for kind, (more, alpha) in enumerate((("", 1.0), ("_centred", 0.45))):
            values = [part.get(f"d{share}{suffix}{more}") or 0 for share in (90, 95, 99)]
            x = np.arange(3) + (2 * place + kind - len(groups) + 0.5) * width
            axes.bar(x, values, 0.92 * width, color=COLOURS[place], alpha=alpha)
            for at, value in zip(x, values, strict=True):
                axes.text(at, min(value, 38.0) + 0.4, f"{value:g}", ha="center", fontsize=8)
    for place, claim in enumerate(claims.DIMENSIONS):
        axes.plot([place - 0.45, place + 0.45], [claim.value] * 2, color=GREY, ls="--", lw=1)
    axes.set_xticks(range(3), ["90 %", "95 %", "99 %"])
    axes.set(ylim=(0, 40), ylabel="directions", xlabel="share of the spectrum (pale: centred)")
    titles = [(n if n == "inputs" else f"features, {label_of(n)}") for n, _ in groups]
    _legend(axes, [*((t, COLOURS[i], "s") for i, t in enumerate(titles)), ("paper", GREY, "_")])
    axes.set_title("Effective dimension")
    return figure


def draw_switch_rates(monitors: Facts) -> Figure:
    """Draw the switch rate of the monitor A1 by block."""
    figure, axes = panel(6.5, FIGURE_HEIGHT_INCHES)
    found, claim = monitors["A1"], claims.MONITORS[0]
    axes.bar(range(len(found["by_block"])), found["by_block"], 0.6, color=BLUE)
    axes.axhline(found["rate"], color=BLUE, ls="--", lw=1.2, label=f"mean {found['rate']:.3f}")
    axes.axhspan(*found["interval"], color=BLUE, alpha=0.12, lw=0)
    axes.axhline(claim.value, color=GREY, ls=":", lw=1.5, label=f"paper {claim.value:g}")
    blocks = [f"block {i + 3}\n{n} windows" for i, n in enumerate(found["in_block"])]
    axes.set_xticks(range(len(blocks)), blocks)
    axes.set(ylim=(0.0, 1.15), ylabel="Novikov holds, Kazamaki preferred")
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    axes.set_title("A1: switch rate by block")
    return figure


def draw_gap_and_representer(monitors: Facts) -> Figure:
    """Draw the representer's error against the duality gap, by window (section 7.2)."""
    figure, axes = panel(6.5, FIGURE_HEIGHT_INCHES)
    found = monitors["regression"]
    gaps, errors = np.array(found.get("gap", [])), 1e4 * np.array(found.get("error", []))
    for place, kept in enumerate(sorted(set(found.get("kept", [])), reverse=True)):
        here = np.array(found["kept"]) == kept
        axes.plot(gaps[here], errors[here], "o", ms=4, color=COLOURS[place % len(COLOURS)],
                  label=f"{100 * kept:.0f} % of the quotes")  # fmt: skip
    if gaps.size and not found.get("reason"):
        x = np.geomspace(gaps.min(), gaps.max(), 50)
        line = 1e4 * (found["slope"] * x + found["intercept"])
        low, high = found["slope_interval"]
        axes.plot(x, np.maximum(line, 1e-9), color=GREY, lw=1.2,
                  label=f"slope {found['slope']:.2g} [{low:.2g}, {high:.2g}]")  # fmt: skip
        axes.legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    axes.set(xscale="log", yscale="log", xlim=(1e-2, 1e2), ylim=_ERROR_LIMITS_BP)
    axes.set(xlabel="DualGap of the window", ylabel="error of the representer, basis points")
    axes.set_title("Windows of controlled coverage")
    return figure


def draw_ablations(runs: Runs) -> Figure:
    """Draw the relative changes of ablations against the base, ours and the paper's."""
    names = [
        n for n, run in runs.items()
        if run["about"]["kind"] == "ablation" and not run["about"].get("missing")
    ]  # fmt: skip
    figure = Figure(figsize=(10.0, 1.4 + 0.3 * max(len(names), 3)), layout="constrained")
    metrics = ("NAS", "CNAS", "NI_residual", "DualGap", "iv_rmse_bp")
    columns = figure.subplots(1, len(metrics), sharey=True)
    for axes, what in zip(columns, metrics, strict=True):
        for place, name in enumerate(names):
            plain = name.removeprefix(f"{SMALL}_")
            base = runs[SMALL if runs[name]["about"]["width"] == SMALL else MATCHED]
            here, there = runs[name].get(what), base.get(what)
            if here is not None and there:
                value = 100.0 * (here / there - 1.0)
                axes.barh(place, float(np.clip(value, -110, 110)), 0.6, color=BLUE)
                if abs(value) > 110:
                    axes.text(0.0, place, f"{value:+.0f} %", fontsize=7, va="center")
            said = {c.what: c for c in claims.ABLATIONS.get(plain, ())}.get(what)
            origin = claims.find_table_1_claim(what)
            if said is not None and origin is not None:
                off = float(np.clip(100.0 * (said.value / origin.value - 1.0), -110, 110))
                axes.plot(off, place, "D", color=GREY, ms=5)
        axes.axvline(0.0, color=GREY, lw=0.8)
        axes.set(xlim=(-115, 115), xlabel="change, %", title=what)
        style_axes(axes)
    columns[0].set_yticks(range(len(names)), [label_of(n) for n in names], fontsize=8)
    columns[0].invert_yaxis()
    figure.suptitle("Ablations against the base of the same width (diamonds: paper)", fontsize=11)
    return figure


def draw_error_cells(
    measured: Facts, names: tuple[str, ...] = ("operator", "fit", "svi", SMALL)
) -> Figure:
    """Draw the error by maturity and moneyness."""
    shown = [n for n in names if n in measured["errors_by_cell"]]
    figure = Figure(figsize=(3.3 * len(shown) + 0.8, 4.0), layout="constrained")
    columns = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    image = None
    for axes, name in zip(columns, shown, strict=True):
        table = np.array(
            [[np.nan if v is None else v for v in row] for row in measured["errors_by_cell"][name]],
            dtype=float,
        )
        image = axes.imshow(np.log10(table), vmin=0.0, vmax=3.0, cmap="viridis", aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            if np.isfinite(value):
                colour = "white" if value < 100.0 else "black"
                axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=6,
                          color=colour)  # fmt: skip
        edges = [f"<{MONEYNESS_EDGES_SD[0]:g}", *(f"{e:g}" for e in MONEYNESS_EDGES_SD)]
        axes.set_xticks(range(len(edges)), edges, fontsize=7)
        axes.set(title=label_of(name), xlabel="deviations, from")
    days = [
        f"<{365 * MATURITY_EDGES_YEARS[0]:.0f}",
        *(f"{365 * e:.0f}" for e in MATURITY_EDGES_YEARS),
    ]
    columns[0].set_yticks(range(len(days)), days, fontsize=7)
    columns[0].set_ylabel("days to expiry, from")
    if image is not None:
        bar = figure.colorbar(image, ax=list(columns), shrink=0.85)
        bar.set_ticks([0, 1, 2, 3], labels=["1", "10", "100", "1000"])
        bar.set_label("IV RMSE, basis points")
    return figure


def draw_interval_calibration(sweeps: Facts, measured: Facts) -> Figure:
    """Draw the coverage of intervals: of means of days, and of models' own standard errors."""
    figure = Figure(figsize=(9.5, FIGURE_HEIGHT_INCHES), layout="constrained")
    left, right = figure.subplots(1, 2)
    found = sweeps["interval_coverage"]
    for place, method in enumerate(("paper", "automatic", "cosine")):
        left.plot(found["persistence"], found[method], "o-", color=COLOURS[place], label=method)
    left.axhline(found["level"], color=GREY, ls="--", lw=1)
    left.set(ylim=(0.0, 1.02), xlim=(-0.05, 0.95), xlabel="persistence of the days",
             ylabel="share that holds the mean")  # fmt: skip
    left.set_title(f"95 % intervals, AR(1) of {found['days']} days", fontsize=10)
    left.legend(fontsize=8, frameon=False, loc="lower left")
    right.plot([0, 1], [0, 1], color=GREY, ls="--", lw=1)
    place = 0
    for name, part in measured["models"].items():
        if "own_errors" in part and part["own_errors"]["within"][0] is not None:
            own = part["own_errors"]
            right.plot(own["nominal"], own["within"], "o-", color=COLOURS[place], ms=4,
                       label=label_of(name))  # fmt: skip
            place += 1
    right.set(ylim=(0.0, 1.02), xlim=(0.4, 1.02), xlabel="nominal level",
              ylabel="share of points within")  # fmt: skip
    right.set_title("Standard errors that surfaces state of themselves", fontsize=10)
    right.legend(fontsize=8, frameon=False, loc="lower right")
    for axes in (left, right):
        style_axes(axes)
    return figure


def draw_lipschitz_cost(sweeps: Facts) -> Figure:
    """Draw the error against the certified Lipschitz constant, over budgets of norms."""
    figure, axes = panel(6.5, FIGURE_HEIGHT_INCHES)
    measured = [
        point
        for point in sweeps["lipschitz"]
        if point["lipschitz"] is not None and point["test"] is not None
    ]
    for place, point in enumerate(sorted(measured, key=lambda point: point["lipschitz"])):
        colour = BLUE if point["aligned"] else VERMILION
        x, y = point["lipschitz"], float(np.clip(point["test"], *_ERROR_LIMITS_BP))
        axes.plot(x, y, "o", color=colour, ms=6)
        name = f"budget {point['budget']:g}" if point["aligned"] else "no Q-Align"
        away = (14, -20, 30, -36)[place % 4]  # neighbours may lie on one another
        axes.annotate(
            name, (x, y), textcoords="offset points", xytext=(0, away), fontsize=8, ha="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.6},
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(1e0, 1e12), ylim=_ERROR_LIMITS_BP)
    axes.set(xlabel="certified Lipschitz bound", ylabel="IV RMSE out of sample, basis points")
    axes.set_title("What a Lipschitz constant costs, small width")
    return figure


def panel(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure with one pair of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    style_axes(axes)
    return figure, axes


def style_axes(axes: Axes) -> None:
    """Apply the common style to axes."""
    axes.grid(color="#e3e6e9", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)


def _draw_value_with_interval(
    axes: Axes, place: float, run: Mapping[str, Any], what: str, colour: str
) -> None:
    value = run.get(what)
    if value is None:
        return
    low, high = run["intervals"].get(what, (value, value))
    axes.plot([place, place], [low, high], color=colour, lw=3, alpha=0.5)
    shown = float(np.clip(value, *_SCORE_LIMITS))
    axes.plot(place, shown, "o" if shown == value else "v", color=colour, ms=6)
    below = -14 if shown > _SCORE_LIMITS[0] else 8
    axes.annotate(f"{value:.4g}", (place, shown), textcoords="offset points", xytext=(0, below),
                  fontsize=8, ha="center")  # fmt: skip


def _legend(axes: Axes, entries: list[tuple[str, str, str]]) -> None:
    for text, colour, marker in entries:
        axes.plot([], [], marker, color=colour, label=text)
    axes.legend(fontsize=8, frameon=False, loc="best")
