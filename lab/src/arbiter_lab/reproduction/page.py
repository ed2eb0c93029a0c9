"""The HTML report: one self-contained page with every table and figure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from arbiter_lab.reproduction.models import SMALL
from arbiter_lab.reproduction.number_format import format_fixed, format_score
from arbiter_lab.reproduction.profiles import Profile
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.reproduction.text_tables import TextTable

SECTIONS = (
    ("What was to be shown", (), ("headlines",)),
    ("Models", ("errors", "error-by-cell"), ("models", "pairs")),
    ("The paper's Table 1", ("core-metrics", "pricing-curves", "iv-contours", "iv-surface"),
     ("table1", "table2")),
    ("Ablations", ("ablations", "spectral-guard", "lipschitz-cost"), ("ablations",)),
    ("Stress to failure", ("stress-to-fail",), ("stress",)),
    ("External validity", (), ("external", "chains")),
    ("Monitors", ("a1-switch-rate", "gap-and-representer", "effective-dimension"),
     ("monitors",)),
    ("Sweep and intervals", ("interval-calibration",), ("sweeps",)),
    ("Not measured", (), ("missing",)),
)  # fmt: skip


def render(
    profile: Profile,
    runs: Mapping[str, dict[str, Any]],
    facts: Mapping[str, Facts],
    grids: Sequence[TextTable],
    pictures: Mapping[str, bytes],
    captions: Mapping[str, str],
) -> str:
    """Return the page as HTML text; the same arguments give the same bytes."""
    by_name = {grid.name: grid for grid in grids}
    sections = [
        {
            "title": title,
            "anchor": title.lower().replace(" ", "-").replace("'", ""),
            "figures": [
                {"name": name, "caption": captions[name], "data": _encode_png(pictures[name])}
                for name in names
            ],
            "tables": [by_name[name] for name in shown if by_name[name].rows],
        }
        for title, names, shown in SECTIONS
    ]
    text: str = _template().render(
        profile=profile.name,
        lead=collect_headline_numbers(runs, facts),
        sections=[s for s in sections if s["figures"] or s["tables"]],
        days=facts["measure"]["days"],
    )
    return text


def collect_headline_numbers(
    runs: Mapping[str, dict[str, Any]], facts: Mapping[str, Facts]
) -> list[tuple[str, str]]:
    """Return the headline numbers of the page: a formatted number and its description each."""
    best = runs["operator"]
    ours = [run for run in runs.values() if run["about"].get("promises")]
    clean = sum(run.get("NAS") == 1.0 for run in ours)
    absent = sum(1 for run in runs.values() if run["about"].get("missing"))
    small = runs.get(SMALL, {})
    return [
        (
            f"{format_fixed(best['iv_rmse_bp'], 2)} bp",
            "IV RMSE of the operator, out of sample",
        ),
        (
            f"{format_fixed(small.get('iv_rmse_bp'), 1)} bp",
            "of the small width, trained in this run",
        ),
        (format_score(best["NAS"]), "NAS of the operator (the paper: 0.9866)"),
        (f"{clean} of {len(ours)}", "models with guarantees have a NAS of one on every day"),
        (f"{facts['days']['noise_bp']:.1f} bp", "noise of the quotes"),
        (str(absent), "models are missing, each with its reason"),
    ]


def _encode_png(content: bytes) -> str:
    return f"data:image/png;base64,{b64encode(content).decode()}"


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("arbiter_lab.reproduction").joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source)
