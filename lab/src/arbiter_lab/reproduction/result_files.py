"""Writes results, tables, figures, ledger and report: pure functions of the stages' facts."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from arbiter.files import write_whole
from arbiter_lab.protocol.results_file import RESULTS_FILE, Runs, write_results
from arbiter_lab.reproduction.page import render
from arbiter_lab.reproduction.result_records import build_runs
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.reproduction.sweep_stage import format_ledger
from arbiter_lab.reproduction.tables import make_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACT_STAGES = ("days", "train", "measure", "sweeps", "stress", "external", "monitors", "portrait")
DPI = 110

CAPTIONS = {
    "errors": "Errors of all models on the same days out of sample.",
    "core-metrics": "NAS, CNAS and NI with their intervals (the paper's core metrics).",
    "error-by-cell": "Error by maturity and moneyness, basis points.",
    "pricing-curves": "Calls of three legs along maturities; they rise in T, as they must.",
    "iv-contours": "Contours and slices of implied volatility.",
    "iv-surface": "The same in three dimensions.",
    "spectral-guard": "The Lipschitz bound before and after Q-Align, and the guard's distance.",
    "stress-to-fail": "NAS and error along six axes of stress.",
    "effective-dimension": "Directions that hold 90, 95 and 99 % of a spectrum.",
    "a1-switch-rate": "The monitor A1 by block.",
    "gap-and-representer": "Section 7.2: the representer's error against the duality gap.",
    "ablations": "What each part is worth.",
    "interval-calibration": "Whether intervals hold what they say.",
    "lipschitz-cost": "What a certified Lipschitz constant costs.",
}
"""Captions of the figures by name, in the order of the report."""


def write_all_results(context: StageContext) -> None:
    """Write the results file, the ledger, tables, figures and the report."""
    out, tell = context.out, context.tell
    facts = {name: context.read_facts(name) for name in FACT_STAGES}
    tell("results", 0, 4)
    found = build_runs(context)
    write_results(out / RESULTS_FILE, found)
    write_whole(out / "sweeps.csv", format_ledger(context))
    tell("results", 1, 4)
    grids = make_tables(found, facts)
    place = out / "tables"
    place.mkdir(exist_ok=True)
    for grid in grids:
        write_whole(place / f"{grid.name}.md", grid.markdown())
        write_whole(place / f"{grid.name}.tex", grid.latex())
    tell("results", 2, 4)
    pictures = {name: draw() for name, draw in make_figure_renderers(found, facts).items()}
    place = out / "figures"
    place.mkdir(exist_ok=True)
    for name, content in pictures.items():
        write_whole(place / f"{name}.png", content)
    tell("results", 3, 4)
    page = render(context.profile, found, facts, grids, pictures, CAPTIONS)
    write_whole(out / "report.html", page)
    tell("results", 4, 4)


def make_figure_renderers(
    found: Runs, facts: Mapping[str, Facts]
) -> dict[str, Callable[[], bytes]]:
    """Return for every figure, by name, a function that draws it as PNG bytes."""
    from arbiter_lab.reproduction import figures, surface_figures

    portrait, monitors, sweeps = facts["portrait"], facts["monitors"], facts["sweeps"]
    made: dict[str, Callable[[], Figure]] = {
        "errors": lambda: figures.draw_errors(found),
        "core-metrics": lambda: figures.draw_core_metrics(found),
        "error-by-cell": lambda: figures.draw_error_cells(facts["measure"]),
        "pricing-curves": lambda: surface_figures.draw_pricing_curves(portrait),
        "iv-contours": lambda: surface_figures.draw_surface_contours(portrait),
        "iv-surface": lambda: surface_figures.draw_surface_3d(portrait),
        "spectral-guard": lambda: figures.draw_spectral_guard(facts["train"]),
        "stress-to-fail": lambda: figures.draw_stress(facts["stress"]),
        "effective-dimension": lambda: figures.draw_effective_dimension(monitors),
        "a1-switch-rate": lambda: figures.draw_switch_rates(monitors),
        "gap-and-representer": lambda: figures.draw_gap_and_representer(monitors),
        "ablations": lambda: figures.draw_ablations(found),
        "interval-calibration": lambda: figures.draw_interval_calibration(sweeps, facts["measure"]),
        "lipschitz-cost": lambda: figures.draw_lipschitz_cost(sweeps),
    }
    return {name: _make_png_renderer(draw) for name, draw in made.items()}


def _make_png_renderer(draw: Callable[[], Figure]) -> Callable[[], bytes]:
    def content() -> bytes:
        file = io.BytesIO()
        # no version of the library in the file: the same figure has the same bytes
        draw().savefig(file, format="png", dpi=DPI, metadata={"Software": None})
        return file.getvalue()

    return content
