"""Text of the report: title, headline numbers, and details of the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from arbiter.audit.certificate import Certificate
from arbiter.conventions import DAYS_PER_YEAR
from arbiter.fitting.verdict import FitQuality
from arbiter.quotes import Quotes
from arbiter.report.curves import Readings
from arbiter.report.number_format import (
    ABSENT,
    format_count,
    format_days,
    format_number,
    format_percent,
    format_significant,
    format_timestamp,
)

_HEADLINE_KEYS = {
    "status", "expiries", "quotes", "excluded", "inside_bid_ask", "inside_bid_ask_held_out",
    "iv_rmse_bp_2sd", "vix", "vix_surface", "vix_error", "certificate", "warnings", "notes",
    "method", "operator", "vix_market", "verdict", "score", "expiries_left_out",
}  # fmt: skip
_METHOD_TITLES = {"fit": "Fit", "operator": "Operator, one pass", "both": "Operator, then fit"}
_DETAIL_TITLES = {
    "as_of": "as of",
    "iterations": "iterations",
    "seconds": "seconds",
    "underlying": "underlying",
    "source": "source",
    "layout": "layout of the source",
    "roughness": "roughness weights",
    "command": "command",
    "options": "options",
    "versions": "versions",
}


@dataclass(frozen=True)
class Card:
    """A headline number: title, formatted value, note, plain value and colour."""

    title: str
    value: str
    note: str = ""
    exact: Any = None
    tone: str = ""


def page_title(summary: Mapping[str, Any], quotes: Quotes) -> str:
    """The title of the page: the underlying's volatility surface."""
    name = summary.get("underlying") or quotes.info.get("underlying")
    return f"{name} volatility surface" if name else "Volatility surface"


def page_subtitle(summary: Mapping[str, Any], readings: Readings) -> str:
    """The subtitle: time of the quotes, source, expiries."""
    quotes = readings.all_quotes
    stamp = summary.get("as_of") or quotes.as_of or getattr(readings.surface, "as_of", None)
    source = summary.get("source") or quotes.info.get("source")
    first, last = DAYS_PER_YEAR * readings.T[[0, -1]]
    reach = (
        format_days(float(first))
        if first == last
        else f"{format_days(float(first))} to {format_days(float(last))}"
    )
    parts = [f"As of {format_timestamp(stamp)}" if stamp else "", str(source or "")]
    parts.append(f"{format_count(readings.T.size, 'expiry', 'expiries')}, {reach}")
    return " · ".join(part for part in parts if part)


def build_cards(
    summary: Mapping[str, Any],
    readings: Readings,
    certificate: Certificate | None = None,
    index: pl.DataFrame | None = None,
) -> list[Card]:
    """The headline cards in the order of the page.

    Args:
        summary: What ``fit.json`` holds.
        readings: The surface evaluated at its quotes.
        certificate: The certificate of the surface; without it the summary's verdict is used.
        index: Term structure of the index, from :mod:`arbiter.vix.replication`, or None.
    """
    verdict = summary.get("certificate") or {}
    passed = verdict.get("passed") if certificate is None else certificate.passed
    nas = verdict.get("nas") if certificate is None else certificate.nas
    findings = verdict.get("findings") if certificate is None else certificate.findings.height
    checked = "" if certificate is None else f" · {sum(certificate.checked.values()):,} checks"
    outcome = {True: "Passed", False: format_count(findings, "finding"), None: "Not made"}[passed]
    held = summary.get("inside_bid_ask_held_out")
    unseen = "none held out" if "inside_bid_ask_held_out" in summary else ""
    quality = (summary.get("verdict") or {}).get("quality", FitQuality.EXPLAINED)
    return [
        Card(
            "No-arbitrage certificate",
            outcome,
            "" if nas is None else f"NAS {nas:.12g}{checked}",
            nas,
            {True: "good", False: "bad", None: ""}[passed],
        ),
        Card(
            "Inside bid-ask",
            format_percent(summary.get("inside_bid_ask")),
            unseen if held is None else f"{format_percent(held)} of those held out",
            summary.get("inside_bid_ask"),
            "" if quality == FitQuality.EXPLAINED else "bad",
        ),
        Card(
            "IV error within 2 s.d.",
            _append_unit(format_number(summary.get("iv_rmse_bp_2sd")), "bp"),
            "RMSE against the mid",
            summary.get("iv_rmse_bp_2sd"),
        ),
        _index_card(summary, readings, index),
        Card(
            "Quotes used",
            format_number(summary.get("quotes", len(readings.all_quotes)), 0),
            f"on {format_count(summary.get('expiries', readings.T.size), 'expiry', 'expiries')}, "
            f"{format_number(summary.get('excluded', readings.all_quotes.exclusions.height), 0)} "
            "excluded",
            summary.get("quotes", len(readings.all_quotes)),
        ),
        _method_card(summary),
        *_domain_cards(summary),
        *_vix_cards(summary),
    ]


def _vix_cards(summary: Mapping[str, Any]) -> list[Card]:
    """The card of the VIX fit; none where no VIX was fitted."""
    market = summary.get("vix_market")
    if not market:
        return []
    share, dates = market.get("inside_bid_ask"), len(market.get("dates") or [])
    error = market.get("largest_future_error")
    note = "" if error is None else f"futures within {format_number(error, 3)}"
    if share is None:
        return [Card("VIX futures", format_count(dates, "date"), note, dates)]
    options = f"{format_count(market.get('quotes'), 'option')} on {format_count(dates, 'date')}"
    return [Card("VIX inside bid-ask", format_percent(share), f"{options}, {note}", share)]


def _method_card(summary: Mapping[str, Any]) -> Card:
    """The card of the method: status, steps and seconds."""
    method = str(summary.get("method") or "fit")
    status = str(summary.get("status", ABSENT)).replace("_", " ")
    return Card(_METHOD_TITLES.get(method, method), status, _format_effort(summary))


def _domain_cards(summary: Mapping[str, Any]) -> list[Card]:
    """The card of the operator's domain check; none where no operator was used."""
    operator = summary.get("operator")
    if not operator:
        return []
    domain = operator.get("domain") or {}
    inside, alarms = domain.get("inside"), domain.get("alarms") or []
    value = "Inside" if inside else format_count(len(alarms), "alarm")
    names = ", ".join(str(alarm["name"]).replace("_", " ") for alarm in alarms)
    return [
        Card(
            "Operator's domain",
            value,
            names
            or f"operator alone {format_percent(operator.get('inside_bid_ask'))} inside bid-ask",
            inside,
            "good" if inside else "bad",
        )
    ]


def _format_effort(summary: Mapping[str, Any]) -> str:
    steps, seconds = summary.get("iterations"), summary.get("seconds")
    parts = [format_count(steps, "step")] if steps else []
    return ", ".join(parts if seconds is None else [*parts, f"{format_significant(seconds)} s"])


def _append_unit(text: str, unit: str) -> str:
    return text if text == ABSENT else f"{text} {unit}"


def _index_card(summary: Mapping[str, Any], readings: Readings, table: pl.DataFrame | None) -> Card:
    """The card of the 30-day index: by the rule on quotes and on the surface, and exact."""
    exact, error = summary.get("vix_surface"), readings.index_error(summary)
    interval = (
        "" if error is None or exact is None else f"\u00a0±\u00a0{format_number(2.0 * error)}"
    )
    rule = summary.get("vix")
    if rule is None:
        return Card("30-day index, exact", format_number(exact), interval.strip(), exact)
    same = ""
    if table is not None and {"days", "listed"} <= set(table.columns):
        listed = table.filter(pl.col("days") == 30.0)["listed"].drop_nulls()
        same = f"rule on the surface {format_number(listed[0])}, " if listed.len() else ""
    return Card(
        "30-day index by its rule",
        format_number(rule),
        f"{same}exact {format_number(exact)}{interval}",
        rule,
    )


def run_details(summary: Mapping[str, Any], quotes: Quotes) -> list[tuple[str, str]]:
    """Name and text of every other field of the summary and of the quotes' info."""
    rest = {name: value for name, value in summary.items() if name not in _HEADLINE_KEYS}
    known = [name for name in _DETAIL_TITLES if name in rest]
    others = sorted(name for name in rest if name not in _DETAIL_TITLES)
    details = [
        (_DETAIL_TITLES.get(n, n.replace("_", " ")), _format_value(rest[n]))
        for n in [*known, *others]
    ]
    operator = summary.get("operator") or {}
    details += [
        (f"operator: {n.replace('_', ' ')}", _format_value(v))
        for n, v in _operator_details(operator)
    ]
    info = {name: value for name, value in quotes.info.items() if name not in summary}
    details += [(f"quotes: {name}", _format_value(value)) for name, value in sorted(info.items())]
    return [(name, text) for name, text in details if text]


def _operator_details(operator: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Fields of the operator's summary, with the features and alarms of its domain check."""
    own = [(name, value) for name, value in operator.items() if name != "domain"]
    domain = operator.get("domain") or {}
    traits = [("traits", domain["traits"])] if "traits" in domain else []
    return own + traits + [(f"alarm {i}", a["sentence"]) for i, a in _number_alarms(domain)]


def _number_alarms(domain: Mapping[str, Any]) -> Iterable[tuple[int, Any]]:
    return enumerate(domain.get("alarms") or [], 1)


def _format_value(value: Any) -> str:
    """A plain value as one line of text; mappings as name = value."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name} = {_format_value(inner) or ABSENT}" for name, inner in value.items()
        )
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Iterable):
        return ", ".join(_format_value(inner) for inner in value)
    return json.dumps(value, default=str)
