"""The tables of the page: expiries, worst quotes, index, certificate, exclusions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.audit.certificate import Certificate
from arbiter.conventions import DAYS_PER_YEAR, INDEX_POINTS
from arbiter.maturity_scores import describe_asks
from arbiter.quotes import Ending, Quotes
from arbiter.report.curves import Readings
from arbiter.report.number_format import (
    ABSENT,
    format_count,
    format_number,
    format_percent,
    format_significant,
)
from arbiter.timing.clock import Clock

MAX_EXCLUDED_ROWS = 300  # of excluded quotes; the rest is counted
MAX_FINDINGS = 50
_MAX_WORST_QUOTES = 12


@dataclass(frozen=True)
class Table:
    """A table of texts; ``align`` has one letter per column, ``l`` or ``r``."""

    columns: list[str]
    rows: list[list[str]]
    align: str
    foot: str = ""


def index_table(table: pl.DataFrame | None) -> Table | None:
    """One row per horizon of the index, with the columns that have values; None without a table."""
    if table is None:
        return None
    titles = {
        "days": ("Days", 0), "exact": ("Exact", 3), "listed": ("Rule on the surface", 3),
        "interpolation": ("Interpolation", 3), "gap": ("Strike gap", 3),
        "quoted": ("Rule on the quotes", 3), "forward_volatility": ("30-day forward", 3),
        "forward_variance": ("Forward variance", 5),
    }  # fmt: skip
    names = [n for n in titles if n in table.columns and table[n].null_count() < table.height]
    rows = [
        [format_number(row[name], titles[name][1]) for name in names]
        for row in table.iter_rows(named=True)
    ]
    return Table([titles[name][0] for name in names], rows, "r" * len(names))


def expiry_table(readings: Readings, forwards: pl.DataFrame | None) -> Table:
    """One row per expiry: its quotes, its fit and the errors of put-call parity."""
    quotes = readings.quotes
    parity = _parity_errors(quotes, forwards)
    swap = INDEX_POINTS * np.sqrt(readings.surface.variance_swap(readings.T))
    total = np.diff(readings.quote_offsets)
    days, rate = DAYS_PER_YEAR * readings.T, -100.0 * np.log(quotes.discounts) / readings.T
    columns = {
        "Expiry": list(quotes.labels),
        "Days": [format_number(d, 2 if d < 100.0 else 1) for d in days],
        "Quotes": [format_number(n, 0) for n in total],
        "Inside": [format_percent(share, 1) for share in readings.share_inside],
        "Modes": [format_number(n, 0) for n in readings.modes],
        "ATM IV %": [format_number(100.0 * iv) for iv in readings.atm],
        "Var. swap %": [format_number(vol) for vol in swap],
    }
    if readings.in_currency:
        columns |= {
            "Forward": [format_number(forward) for forward in quotes.forwards],
            "s.e. ": [format_number(row[0], 3) for row in parity],
            "Discount": [format_number(discount, 6) for discount in quotes.discounts],
            "s.e.": [format_number(row[1], 6) for row in parity],
            "Rate %": [format_number(r) for r in rate],
            "Pairs": [format_number(row[2], 0) for row in parity],
        }
    known = {name: cells for name, cells in columns.items() if set(cells) != {ABSENT}}
    rows = [list(row) for row in zip(*known.values(), strict=True)]
    return Table([name.strip() for name in known], rows, "l" + "r" * (len(known) - 1))


def score_table(score: Mapping[str, Any] | None) -> Table | None:
    """One row per bucket of maturity that has quotes, and one of all; None without a score."""
    if not score:
        return None
    rows = [
        [
            name,
            format_number(part["quotes"], 0),
            format_number(part["expiries"], 0),
            format_percent(part["inside_bid_ask"]),
            format_number(part["worst_half_spreads"]),
            format_percent(part["slices_without_violation"], 1),
            format_number(part["rms_half_spreads"]),
        ]
        for name, part in [*score["buckets"].items(), ("all", score)]
        if part["quotes"]
    ]
    foot = (
        "Calendar days to expiry; every fitted expiry counts. Worst: largest distance outside "
        "bid-ask. RMS: of model − mid. Both in half-spreads. "
        f"{describe_asks(score['one_sided'])}."
    )
    columns = ["Expiry", "Quotes", "Expiries", "Inside", "Worst", "No violation", "RMS"]
    return Table(columns, rows, "lrrrrrr", foot)


def event_table(clock: Mapping[str, Any] | None) -> Table | None:
    """One row per scheduled event, with its implied move; None without a clock."""
    if not clock:
        return None
    rows = []
    for event in Clock.from_dict(clock).events:
        ends = event.move_range
        move, *span = (_format_move(x) for x in (event.move, *(ends or ())))
        when = str(event.moment).replace("T", " ")
        rows.append([event.name, when, move, " to ".join(span) or "given"])
    weights = ", ".join(
        f"{name} {format_number(clock[name], 3)}" for name in ("overnight", "weekend", "holiday")
    )
    foot = (
        "The implied move is the standard deviation of the jump. What a minute counts, beside one "
        f"of a session: {weights}."
    )
    columns = ["Event", "New York", "Implied move", "With two standard errors"]
    return Table(columns, rows, "llrr", foot)


def _format_move(move: float | None) -> str:
    return ABSENT if move is None else f"{format_number(100.0 * move)}\u00a0%"


def _parity_errors(quotes: Quotes, forwards: pl.DataFrame | None) -> list[tuple[Any, Any, Any]]:
    """Standard errors and pairs of each expiry, from the parity table or from the quotes."""
    size = quotes.maturities.size
    errors = [
        [None] * size if values is None else values.tolist()
        for values in (quotes.forward_errors, quotes.discount_errors)
    ]
    own = list(zip(*errors, [None] * size, strict=True))
    if forwards is None:
        return own
    table = {
        row["label"]: (row.get("forward_error"), row.get("discount_error"), row.get("pairs"))
        for row in forwards.iter_rows(named=True)
    }
    return [table.get(label, own[i]) for i, label in enumerate(quotes.labels)]


def inside_text(readings: Readings) -> str:
    """A sentence that counts the quotes inside bid-ask."""
    inside, total = int(readings.inside.sum()), len(readings.quotes)
    return (
        f"{format_number(inside, 0)} of {format_number(total, 0)} quotes "
        f"({format_percent(inside / total)})"
    )


def modes_text(readings: Readings) -> str:
    """A sentence that counts the densities with a single mode."""
    single, total = int((readings.modes == 1).sum()), readings.T.size
    if single == total:
        return "Every density has a single mode." if total > 1 else "The density has a single mode."
    mean = format_number(readings.modes.mean())
    return f"{single} of {total} densities have a single mode; on average they have {mean}."


def worst_quotes_table(readings: Readings) -> Table:
    """The quotes farthest outside their bid-ask, worst first."""
    quotes = readings.quotes
    outside = np.flatnonzero(~readings.inside)
    order = outside[np.argsort(-np.abs(readings.residual[outside]), kind="stable")][
        :_MAX_WORST_QUOTES
    ]
    strike = quotes.forwards[quotes.expiry] * np.exp(quotes.k)
    digits = _strike_digits(strike[order]) if readings.in_currency else 4
    rows = [
        [
            quotes.labels[quotes.expiry[i]],
            format_number(strike[i], digits),
            "call" if quotes.k[i] >= 0.0 else "put",
            format_number(quotes.k[i], 4),
            format_number(100.0 * quotes.iv_bid[i]),
            format_number(100.0 * quotes.iv_ask[i]),
            format_number(100.0 * readings.iv[i]),
            format_number(readings.residual[i]),
        ]
        for i in order
    ]
    strike_name = "Strike" if readings.in_currency else "K/F"
    columns = [
        "Expiry",
        strike_name,
        "Side",
        "k",
        "Bid IV %",
        "Ask IV %",
        "Fitted IV %",
        "Residual",
    ]
    left = outside.size - len(rows)
    foot = f"{format_count(left, 'more quote')} outside bid-ask not shown." if left else ""
    return Table(columns, rows, "lrlrrrrr", foot)


def _strike_digits(strikes: NDArray[np.float64]) -> int:
    """Number of decimals that the strikes need."""
    return 0 if np.allclose(strikes, np.round(strikes), rtol=0.0, atol=1e-6) else 2


def family_table(certificate: Certificate) -> Table:
    """One row per family of inequalities: number checked and smallest margin."""
    rows = [
        [
            name.replace("_", " "),
            format_number(n, 0),
            format_significant(certificate.margins.get(name), 3),
        ]
        for name, n in certificate.checked.items()
    ]
    return Table(["Inequalities", "Checked", "Smallest margin"], rows, "lrr")


def findings_table(certificate: Certificate) -> Table:
    """The certificate's findings, largest first."""
    shown = certificate.findings.head(MAX_FINDINGS)
    rows = [
        [
            str(row["family"]),
            format_significant(row["T"], 5),
            format_significant(row["k"], 4),
            format_significant(row["size"], 3),
            format_significant(row["size_iv"], 3),
            "yes" if row["material"] else "no",
            str(row["legs"]),
        ]
        for row in shown.iter_rows(named=True)
    ]
    left = certificate.findings.height - len(rows)
    foot = (
        f"{format_count(left, 'more finding')} not shown; certificate.json has them all."
        if left
        else ""
    )
    columns = ["Family", "T", "k", "Size", "Size in IV", "Material", "Portfolio"]
    return Table(columns, rows, "lrrrrll", foot)


def exclusions_table(quotes: Quotes) -> Table:
    """One row per reason of exclusion: number of quotes and meaning."""
    table = quotes.counts()
    rows = [
        [str(reason), format_number(n, 0), str(meaning)]
        for reason, n, meaning in table.select("reason", "quotes", "meaning").iter_rows()
    ]
    return Table(["Reason", "Quotes", "Meaning"], rows, "lrl")


def endings_table(quotes: Quotes) -> Table:
    """One row per listed expiry that is not used: its ending and the reason."""
    rows = [
        [one.label, str(one.ending), format_number(one.quotes, 0), one.why]
        for one in quotes.endings
        if one.ending is not Ending.USED
    ]
    return Table(["Expiry", "Ending", "Usable quotes", "Reason"], rows, "llrl")


def exclusions_by_expiry_table(quotes: Quotes) -> Table:
    """One row per expiry: quotes used, and quotes left out by reason."""
    table = quotes.exclusions
    reasons = [str(reason) for reason in quotes.counts()["reason"]]
    used = {
        (label, float(T)): int(n)
        for label, T, n in zip(
            quotes.labels, quotes.maturities, np.bincount(quotes.expiry), strict=True
        )
    }
    counted = table.group_by("expiry", "T", "reason").len().iter_rows()
    cells: dict[tuple[str, Any], dict[str, int]] = {key: {} for key in used}
    for expiry, T, reason, n in counted:
        cells.setdefault((str(expiry), T), {})[str(reason)] = n
    order = sorted(cells, key=lambda key: (key[1] is None, key[1] or 0.0, key[0]))
    rows = [
        [key[0], format_number(used.get(key, 0), 0)]
        + [
            format_number(cells[key][reason], 0) if reason in cells[key] else "·"
            for reason in reasons
        ]
        for key in order
    ]
    return Table(["Expiry", "used", *reasons], rows, "l" + "r" * (1 + len(reasons)))


def excluded_rows_table(quotes: Quotes) -> Table:
    """The excluded quotes, one row each, up to the number that a page shows."""
    table = quotes.exclusions
    rows = [
        [
            format_number(row["row"], 0),
            ABSENT if row["expiry"] is None else str(row["expiry"]),
            format_number(row["strike"], 2 if (row["strike"] or 0.0) > 10.0 else 4),
            str(row["side"] or ABSENT),
            format_significant(row["bid"], 6),
            format_significant(row["ask"], 6),
            str(row["reason"]),
        ]
        for row in table.head(MAX_EXCLUDED_ROWS).iter_rows(named=True)
    ]
    left = table.height - len(rows)
    foot = (
        f"{format_count(left, 'more row')} not shown; quotes.exclusions has them all."
        if left
        else ""
    )
    columns = ["Row", "Expiry", "Strike", "Side", "Bid", "Ask", "Reason"]
    return Table(columns, rows, "rlrlrrl", foot)
