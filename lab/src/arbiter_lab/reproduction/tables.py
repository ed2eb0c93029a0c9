"""The tables: the paper's value, ours, its interval, and a verdict in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arbiter_lab.protocol.results_file import Runs
from arbiter_lab.reproduction import claims
from arbiter_lab.reproduction.headlines import tabulate_headlines
from arbiter_lab.reproduction.models import SMALL, label_of
from arbiter_lab.reproduction.number_format import (
    DASH,
    format_change,
    format_five_digits,
    format_fixed,
    format_interval,
    format_percent,
    format_score,
    format_three_digits,
    format_with_interval,
)
from arbiter_lab.reproduction.profiles import MATCHED
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.reproduction.text_tables import TextTable
from arbiter_lab.reproduction.verdicts import describe_ablation, describe_paired_test, judge_claim

_NO_TESTS: Facts = {"tests": {}, "left_out": {}}


def make_tables(runs: Runs, facts: Mapping[str, Facts]) -> list[TextTable]:
    """All tables, in the order of the report.

    Args:
        runs: Of the results.
        facts: Of every stage.
    """
    return [
        tabulate_headlines(runs, facts),
        tabulate_models(runs),
        tabulate_paired_tests(facts["measure"]),
        tabulate_paper_table_1(runs),
        tabulate_ablations(runs, facts["measure"]["pairs"]),
        tabulate_training_routes(runs),
        tabulate_stress(facts["stress"]),
        tabulate_external(runs, facts["external"]),
        tabulate_chains(facts["external"]["chains"]),
        tabulate_monitors(runs, facts["monitors"]),
        tabulate_sweeps(facts["sweeps"]),
        tabulate_missing(runs),
    ]


def tabulate_models(runs: Runs) -> TextTable:
    """Errors against the oracle first, then what the paper scores."""
    rows = []
    for name, run in runs.items():
        if run["about"].get("missing") or run["about"]["kind"] in ("sweep", "budget"):
            continue
        rows.append(
            (
                label_of(name),
                format_with_interval(run, "iv_rmse_bp", 2),
                format_fixed(run.get("iv_rmse_bp_unquoted"), 2),
                format_fixed(run.get("iv_mae_bp"), 2),
                format_fixed(run.get("iv_max_bp"), 0),
                format_fixed(run.get("worst_day_iv_rmse_bp"), 2),
                format_percent(run.get("inside_bid_ask")),
                format_percent(run.get("inside_bid_ask_unseen")),
                format_fixed(run.get("vix_rmse"), 3),
                format_score(run.get("NAS")),
                format_score(run.get("NAS_inequalities")),
                format_three_digits(run.get("SurfaceWasserstein")),
                format_three_digits(run.get("relative_entropy")),
                format_three_digits(run.get("cvar_alignment")),
            )
        )
    return TextTable(
        "models",
        "All models on the same days, out of sample",
        ("model", "IV RMSE, bp [95 %]", "no quote", "MAE", "max", "worst day", "inside bid-ask",
         "unseen", "VIX RMSE", "NAS", "NAS (audit)", "Wasserstein", "rel. entropy", "CVaR"),
        rows,
        "Errors of implied volatility against the oracle, in basis points, all listed points; "
        "“no quote” counts the points that no model was shown; “unseen” is the share inside of a "
        "fifth of the quotes that were hidden. “Small” marks the width that is trained from "
        "scratch in this run. A dash means not defined; results.json has the reason.",
    )  # fmt: skip


def tabulate_paired_tests(measured: Facts) -> TextTable:
    """Differences of the daily error, tested on the same days."""
    rows = []
    for base, tests in measured["pairs"].items():
        for name in (*tests["tests"], *tests["left_out"]):
            test = tests["tests"].get(name)
            difference, days = DASH, DASH
            if test is not None:
                d = test["difference"]
                difference = f"{d['mean']:+.2f} [{d['low']:+.2f}, {d['high']:+.2f}]"
                days = format_percent(test["lower"])
            rows.append(
                (
                    label_of(base),
                    label_of(name),
                    difference,
                    days,
                    describe_paired_test(tests, name),
                )
            )
    return TextTable(
        "pairs",
        "Paired tests of the daily IV RMSE",
        ("first", "second", "first less second, bp [95 %]", "days first is lower",
         "the first has"),
        rows,
        "Mean difference over the days out of sample with the cosine interval. A difference counts "
        "where the test of the mean and the sign flips both reject at 1 %, p-values adjusted by "
        "Holm within each first model's family; flips have no say where blocks are too few.",
    )  # fmt: skip


def tabulate_paper_table_1(runs: Runs) -> TextTable:
    """Table 1 of the paper, ours beside it: the shipped operator and the small width."""
    rows = []
    for claim in claims.TABLE_1:
        for name in ("operator", SMALL):
            run = runs.get(name)
            if run is None:
                continue
            rows.append(
                (
                    claim.what,
                    claim.text + (f" ({claim.note})" if claim.note else ""),
                    label_of(name),
                    format_five_digits(run.get(claim.what)),
                    format_interval(run, claim.what),
                    format_interval(run, claim.what, papers=True),
                    judge_claim(claim, run),
                )
            )
    return TextTable(
        "table1",
        "The paper's Table 1, and ours",
        ("metric", "paper's claim", "model", "ours", "95 % interval", "with the paper's lag",
         "verdict"),
        rows,
        "The paper's model, data and settings are not published: values are of the same "
        "definitions on another market, and a different number is no contradiction by itself. A "
        "NAS of one is a theorem here, checked and not estimated. Intervals are of the cosine "
        "method; the paper's lag is too short for persistent days.",
    )  # fmt: skip


def tabulate_ablations(runs: Runs, tests: Facts) -> TextTable:
    """What each part is worth, at full size where a checkpoint is there, at small width always."""
    rows = []
    for name, run in runs.items():
        about = run["about"]
        if about["kind"] != "ablation" or about.get("missing"):
            continue
        plain = name.removeprefix(f"{SMALL}_")
        origin = SMALL if about["width"] == SMALL else MATCHED
        base = runs[origin]
        said = {claim.what: claim for claim in claims.ABLATIONS.get(plain, ())}
        rows.append(
            (
                label_of(name),
                format_with_interval(run, "iv_rmse_bp", 2),
                format_change(run, base, "iv_rmse_bp"),
                *(
                    f"{_format_metric(run, what)} (paper "
                    f"{said[what].text if what in said else DASH})"
                    for what in ("NAS", "CNAS", "NI", "DualGap", "SurfaceWasserstein", "Stability")
                ),
                describe_ablation(
                    tests.get(origin, _NO_TESTS), name, "NAS" in said and run.get("NAS") == 1.0
                ),
            )
        )
    return TextTable(
        "ablations",
        "Ablations",
        ("without", "IV RMSE, bp", "change", "NAS", "CNAS", "NI", "DualGap", "Wasserstein",
         "Stability", "verdict"),
        rows,
        "Change is relative to the base of the same width. The paper's values are of its own base "
        "(NAS 0.9866).",
    )  # fmt: skip


def tabulate_training_routes(runs: Runs) -> TextTable:
    """Table 2 of the paper: marks there, numbers here."""
    ours = {
        "Adversarial (ours)": (SMALL, "operator"),
        "MFM (matched budget)": (f"{SMALL}_mfm", "mfm"),
    }
    rows = []
    for title, entropy, cvar, note, line in claims.ROUTES:
        for name in ours.get(title, ()):
            run = runs.get(name)
            if run is None or run["about"].get("missing"):
                why = DASH if run is None else run["reason"]["NAS"]
                rows.append((title, f"{entropy}, {cvar} (line {line})", label_of(name), why, DASH))
            else:
                rows.append(
                    (
                        title, f"{entropy}, {cvar} (line {line})", label_of(name),
                        format_with_interval(run, "relative_entropy", 5),
                        format_with_interval(run, "cvar_alignment", 5),
                    )
                )  # fmt: skip
        if title not in ours:
            rows.append((title, f"{entropy}, {cvar} (line {line})", DASH, note, DASH))
    return TextTable(
        "table2",
        "The paper's Table 2: training routes",
        ("route", "paper: entropy, CVaR", "model", "relative entropy [95 %]", "CVaR error [95 %]"),
        rows,
        "The paper gives marks without numbers.",
    )


def tabulate_stress(found: Facts) -> TextTable:
    """Levels at which half of the cases fail."""
    rows = []
    for axis, about in found["axes"].items():
        for model, cells in about["models"].items():
            rows.append(
                (
                    f"{axis} ({about['unit']})",
                    label_of(model),
                    _format_threshold(cells["threshold_by_score"]),
                    _format_threshold(cells["threshold_by_error"]),
                    format_score(min(min(row) for row in cells["nas"])),
                )
            )
    claim = claims.STRESS[0]
    return TextTable(
        "stress",
        "Stress to failure",
        ("axis", "model", "fails by NAS < 0.9 at", "fails by error above the spread at",
         "lowest NAS"),
        rows,
        f"Level at which half of {found['cases']} markets fail, with its exact 95 % interval where "
        f"six or more were tried. The paper has one axis of undefined strength and a threshold of "
        f"{claim.value:g} (line {claim.line}), where it reports a NAS of 0.979, above its own "
        "criterion of failure.",
    )  # fmt: skip


def tabulate_external(runs: Runs, found: Facts) -> TextTable:
    """The same models elsewhere, nothing chosen again."""
    where = [
        *(
            (f"timeline {n}", part["models"], "iv_rmse_bp")
            for n, part in found["timelines"].items()
        ),
        *((n, part["models"], "rmse_bp") for n, part in found["benchmarks"].items()),
    ]
    names = list(where[0][1]) if where else []
    claim = claims.EXTERNAL[0]
    rows = [
        (
            label_of(name),
            *(format_fixed(part[name][key], 2) for _, part, key in where),
            format_five_digits(runs[name].get("cnas_frozen_drop")) if name in runs else DASH,
        )
        for name in names
    ]
    return TextTable(
        "external",
        "External validity: IV RMSE in basis points with everything frozen",
        ("model", *(title for title, _, _ in where), "cnas_frozen_drop"),
        rows,
        f"The paper's drop of CNAS over later windows is {claim.value:g} (line {claim.line}); the "
        "four windows that it lists have a mean above its base, which is a rise.",
    )


def tabulate_chains(found: Facts) -> TextTable:
    """Listed chains, where the truth is not known."""
    rows = []
    for row in found["rows"]:
        if "error" in row:
            rows.append((row["chain"], row.get("method", DASH), *[DASH] * 4, str(row["error"])))
        else:
            rows.append(
                (
                    row["chain"], label_of(row["method"]), f"{row['quotes']:,}",
                    format_percent(row["inside_bid_ask"]), format_fixed(row["iv_rmse_bp"], 1),
                    format_fixed(row["vix_gap"], 3), format_score(row["nas"]),
                )
            )  # fmt: skip
    return TextTable(
        "chains",
        "Listed chains",
        ("chain", "model", "quotes", "inside bid-ask", "IV RMSE, bp within 2 sd", "VIX gap", "NAS"),
        rows,
        found["reason"] or "The truth is not known: errors are against mid quotes.",
    )


def tabulate_monitors(runs: Runs, found: Facts) -> TextTable:
    """A1 to A4 and the regression, with the paper's numbers."""
    rate, slope = claims.MONITORS
    a1, regression = found["A1"], found["regression"]
    run = next(iter(runs.values()))
    rows = [
        (
            "A1 switch rate", rate.text, f"{a1['rate']:.3f} [{a1['interval'][0]:.3f}, "
            f"{a1['interval'][1]:.3f}], {a1['windows']} windows",
            judge_claim(rate, run) + "; the paper does not define its statistic",
        ),
        *(
            ("A2 local order", DASH, f"{name}: lowest {part['lowest']:.2f}, "
             f"{format_percent(part['share_below'])} of patches below", "")
            for name, part in found["A2"].items()
        ),
        *(
            ("A3 memory χ", DASH, f"{label_of(model)}, {scan}: χ {part['chi']:.2f}, rank "
             f"{part['rank']:.1f}", "")
            for model, scans in found["A3"].items() for scan, part in scans.items()
        ),
        (
            "A4 coverage", "min 0.802, mean 0.919",
            f"min {run['coverage_min']:.3f}, mean {run['coverage_mean']:.3f}",
            "no window below 0.75" if run["coverage_min"] >= 0.75 else "a window below 0.75",
        ),
        ("gap and representer, slope", slope.text, *_format_regression_slope(regression)),
        *(
            (f"effective dimension, {name}", "d90 1, d95 1, d99 2", _format_dimensions(part), "")
            for name, part in found["dimensions"].items()
        ),
    ]  # fmt: skip
    return TextTable(
        "monitors", "Monitors and diagnostics", ("what", "paper", "ours", "verdict"), rows
    )


def tabulate_sweeps(found: Facts) -> TextTable:
    """The sweep, and what each fold would choose."""
    rows = [
        (
            name, str(row["seed"]), f"{row['lr']:g}", format_fixed(row["validate"], 2),
            format_fixed(row["test"], 2), format_fixed(row["heldout_rmse_bp"], 1),
            format_five_digits(row["DualGap"]),
            row["ended"],
            ", ".join(str(f["fold"]) for f in found["folds"] if f["chosen"] == name) or DASH,
        )
        for name, row in found["runs"].items()
    ]  # fmt: skip
    parts = found["stability_parts"]
    share = found["stability"]["Stability"]
    ends = share["interval"]
    return TextTable(
        "sweeps",
        "Sweep over seeds and learning rates, small width",
        ("run", "seed", "rate", "validation, bp", "test, bp", "held-out laws, bp", "DualGap",
         "ended", "chosen in folds"),
        rows,
        f"Stability {share['value']:.3f} [{ends[0]:.3f}, {ends[1]:.3f}] of {len(share['runs'])} "
        f"runs: safe spectrum {format_percent(parts['safe'])}, martingale test passed "
        f"{format_percent(parts['martingale'])}, ended by the stopping rule "
        f"{format_percent(parts['converged'])}"
        f", diverged {len(found['diverged'])}. The paper has 1.000.",
    )  # fmt: skip


def tabulate_missing(runs: Runs) -> TextTable:
    """Models that are not there."""
    rows = [
        (label_of(name), run["about"]["width"] or DASH, run["reason"]["NAS"])
        for name, run in runs.items()
        if run["about"].get("missing")
    ]
    note = "" if rows else "Nothing is missing: every model was there."
    return TextTable("missing", "Not measured", ("model", "width", "reason"), rows, note)


def _format_metric(run: Mapping[str, Any], what: str) -> str:
    value = run.get(what)
    return format_score(value) if what in ("NAS", "CNAS") else format_three_digits(value)


def _format_threshold(found: Facts) -> str:
    if found["estimate"] is None:
        return str(found["reason"])
    low, high = (DASH if found[end] is None else f"{found[end]:g}" for end in ("low", "high"))
    return f"{found['estimate']:.3g} [{low}, {high}]"


def _format_regression_slope(regression: Facts) -> tuple[str, str]:
    if regression.get("reason"):
        return DASH, f"not measured: {regression['reason']}"
    low, high = regression["slope_interval"]
    text = f"{regression['slope']:.3g} [{low:.3g}, {high:.3g}], {regression['count']} points"
    shown = "positive" if low > 0.0 else "not shown to be positive"
    return text, f"{shown}; in other units than the paper's, which it does not give"


def _format_dimensions(part: Facts) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in part.items() if value is not None)
