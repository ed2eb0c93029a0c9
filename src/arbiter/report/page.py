"""The report as one self-contained HTML file: template, figures, tables and plotly itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from jinja2.utils import htmlsafe_json_dumps
from plotly.offline import get_plotlyjs

from arbiter.conventions import DAYS_PER_YEAR
from arbiter.files import write_whole
from arbiter.report import headline, tables, vix_panels
from arbiter.report.contact_sheet import draw_smiles
from arbiter.report.curves import Readings, ReportedSurface
from arbiter.report.figures import build_figures
from arbiter.report.number_format import round_for_json
from arbiter.report.plot_style import maturity_colours
from arbiter.report.smile_panels import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from arbiter.report.vix_curves import VixReadings

if TYPE_CHECKING:
    import polars as pl

    from arbiter.audit.certificate import Certificate
    from arbiter.fitting.vix_comparison import JointComparison
    from arbiter.quotes import Quotes


def write_report(  # noqa: PLR0913 - one argument for each part of the page
    path: str | PathLike[str],
    surface: ReportedSurface,
    quotes: Quotes,
    *,
    summary: Mapping[str, Any],
    certificate: Certificate | None = None,
    term_structure: pl.DataFrame | None = None,
    forwards: pl.DataFrame | None = None,
    agreement: JointComparison | None = None,
) -> Path:
    """Write what a fit produced as one HTML file that opens without a network.

    The page is a function of the arguments alone: the same ones give the same bytes. It is
    written to a temporary file beside ``path`` and renamed, so that an error leaves an older
    page as it was.

    Args:
        path: Where the page goes.
        surface: The fitted surface. Standard errors are drawn if it has ``iv_error(k, T)`` and
            ``vix_error()``.
        quotes: The quotes it was fitted to, with their exclusions.
        summary: What ``fit.json`` holds; keys that are absent are left out of the page.
        certificate: The certificate of the surface; without it only the summary's verdict.
        term_structure: The index at several horizons, from ``arbiter.vix.replication``. Its
            columns ``quoted`` and ``listed`` (index points) are drawn over ``days``; the table
            shows those columns that it knows.
        forwards: Parity results: ``label``, ``forward_error``, ``discount_error``, ``pairs``.
        agreement: Index and VIX apart and together, where the surface was fitted to both. A
            surface with VIX slices has their panels without it too, but no quotes in them.

    Returns:
        The path that was written.

    Raises:
        ValueError: If there are no quotes to report on.
    """
    return write_page(
        path,
        Readings.of(surface, quotes, agreement),
        summary=summary,
        certificate=certificate,
        term_structure=term_structure,
        forwards=forwards,
    )


def write_page(
    path: str | PathLike[str],
    readings: Readings,
    *,
    summary: Mapping[str, Any],
    certificate: Certificate | None = None,
    term_structure: pl.DataFrame | None = None,
    forwards: pl.DataFrame | None = None,
) -> Path:
    """Write the page of :func:`write_report` from a surface that is evaluated already."""
    quotes, vix = readings.all_quotes, readings.vix
    notes = [*(summary.get("notes") or []), *readings.notes]
    drawn = {} if vix is None else vix_panels.build_vix_figures(vix)
    payload = {
        "figures": build_figures(readings, summary, term_structure) | drawn,
        "smiles": smile_payload(readings),
        "currency": readings.in_currency,
    }
    proof = None if certificate is None else certificate.structural
    text: str = _page_template().render(
        title=headline.page_title(summary, quotes),
        subtitle=headline.page_subtitle(summary, readings),
        run=summary.get("run"),
        cards=headline.build_cards(summary, readings, certificate, term_structure),
        warnings=list(summary.get("warnings") or []),
        notes=list(dict.fromkeys(notes)),
        drawings=draw_smiles(readings),
        labels=readings.quotes.labels,
        payload=_script_safe_json(payload),
        worst=tables.worst_quotes_table(readings),
        inside_text=tables.inside_text(readings),
        modes_text=tables.modes_text(readings),
        currency=readings.in_currency,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        top=TOP,
        bottom=BOTTOM,
        band=readings.smile_error is not None,
        index=tables.index_table(term_structure),
        vix=None if vix is None else _vix_context(vix),
        expiries=tables.expiry_table(readings, forwards),
        score=tables.score_table(summary.get("score")),
        events=tables.event_table(summary.get("clock")),
        certificate=certificate,
        verdict=summary.get("certificate"),
        families=None if certificate is None else tables.family_table(certificate),
        findings=None if certificate is None else tables.findings_table(certificate),
        proof=proof,
        excluded=quotes.exclusions.height,
        exclusions=tables.exclusions_table(quotes),
        endings=tables.endings_table(quotes),
        exclusions_by_expiry=tables.exclusions_by_expiry_table(quotes),
        excluded_rows=tables.excluded_rows_table(quotes),
        details=headline.run_details(summary, quotes),
        plotly=get_plotlyjs(),
        style=_read_asset("page.css"),
        script=_read_asset("page.js"),
    )
    return write_whole(path, text)


def _vix_context(vix: VixReadings) -> dict[str, Any]:
    """Variables of the template for the VIX panels."""
    return {
        "drawings": vix_panels.draw_vix_smiles(vix),
        "table": vix_panels.coupling_table(vix),
        "text": vix_panels.coupling_text(vix),
        "coupling": vix.agreement is not None,
    }


def smile_payload(readings: Readings) -> list[dict[str, Any]]:
    """One dictionary per expiry: its quotes in percent, their residuals, and the fitted smile."""
    quotes = readings.quotes
    strike = quotes.forwards[quotes.expiry] * np.exp(quotes.k)
    strike = round_for_json(strike, 3 if readings.in_currency else 6)
    columns = {
        "bid": round_for_json(100.0 * quotes.iv_bid, 3),
        "mid": round_for_json(100.0 * quotes.iv_mid, 3),
        "ask": round_for_json(100.0 * quotes.iv_ask, 3),
        "fit": round_for_json(100.0 * readings.iv, 3),
        "residual": round_for_json(readings.residual, 3),
    }
    inside = readings.inside.astype(int).tolist()
    curve_k, curve_iv = (
        round_for_json(readings.smile_k, 5),
        round_for_json(100.0 * readings.smile_iv, 3),
    )
    error = readings.smile_error
    curve_error = None if error is None else round_for_json(100.0 * error, 4)
    colours = maturity_colours(readings.maturity_shade)
    between = readings.quoted_points
    result = []
    for i, label in enumerate(quotes.labels):
        part = slice(int(readings.quote_offsets[i]), int(readings.quote_offsets[i + 1]))
        result.append(
            {
                "label": label,
                "T": round(float(readings.T[i]), 8),
                "days": round(float(DAYS_PER_YEAR * readings.T[i]), 2),
                "forward": float(quotes.forwards[i]),
                "atm": round(float(readings.atm[i]), 6),
                "colour": colours[i],
                "range": round_for_json(100.0 * readings.smile_range[i], 3),
                "strike": strike[part],
                "inside": inside[part],
                **{name: values[part] for name, values in columns.items()},
                "curve": {
                    "k": curve_k[i],
                    "iv": curve_iv[i],
                    "error": None if curve_error is None else curve_error[i],
                    "from": between.start,
                    "to": between.stop,
                },
            }
        )
    return result


def _script_safe_json(payload: Mapping[str, object]) -> str:
    """``payload`` as JSON with every ``<`` escaped, so that it cannot end its script element."""
    return htmlsafe_json_dumps(payload, separators=(",", ":"), allow_nan=False)


def _read_asset(name: str) -> str:
    """The text of the file ``name`` in this package."""
    return files("arbiter.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _page_template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_read_asset("page.html.j2"))
