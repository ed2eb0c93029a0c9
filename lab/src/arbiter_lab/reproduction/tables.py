"""All tables of a run: errors, paired tests, stress, external validity, listed chains, sweeps."""

from __future__ import annotations

from collections.abc import Mapping

from arbiter_lab.protocol.results_file import Runs
from arbiter_lab.reproduction import claims
from arbiter_lab.reproduction.headlines import tabulate_headlines
from arbiter_lab.reproduction.models import label_of
from arbiter_lab.reproduction.number_format import (
    DASH,
    format_five_digits,
    format_fixed,
    format_percent,
    format_score,
    format_three_digits,
    format_with_interval,
)
from arbiter_lab.reproduction.paper_tables import (
    tabulate_ablations,
    tabulate_monitors,
    tabulate_paper_table_1,
    tabulate_training_routes,
)
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.reproduction.text_tables import TextTable
from arbiter_lab.reproduction.verdicts import describe_paired_test


def make_tables(runs: Runs, facts: Mapping[str, Facts]) -> list[TextTable]:
    """Return all tables, in the order of the report.

    Args:
        runs: Runs of the results.
        facts: Facts of every stage, by its name.
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
    """Return the errors of all models against the oracle, then the paper's scores."""
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
        "Errors of implied volatility against the oracle, in basis points, on all listed points. "
        "“No quote” counts the points that no model was shown. “Unseen” is the share inside "
        "bid-ask of a fifth of the quotes, which were hidden. “Small” marks the width that is "
        "trained from scratch in this run. A dash means not defined; results.json has the reason.",
    )  # fmt: skip


def tabulate_paired_tests(measured: Facts) -> TextTable:
    """Return the differences of the daily error, tested on the same days."""
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
        "where the test of the mean and the sign flips both reject at 1 %. Holm adjusts p-values "
        "within each first model's family. Flips do not count where blocks are too few.",
    )  # fmt: skip


def tabulate_stress(found: Facts) -> TextTable:
    """Return the levels of stress at which half of the cases fail."""
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
        "six or more were tried. The paper has one axis of undefined strength and a threshold of "
        f"{claim.value:g} (line {claim.line}). It reports a NAS of 0.979 there, which is above its "
        "own criterion of failure.",
    )  # fmt: skip


def tabulate_external(runs: Runs, found: Facts) -> TextTable:
    """Return the errors of the frozen models on other timelines and benchmarks."""
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
        f"The paper's drop of CNAS over later windows is {claim.value:g} (line {claim.line}). The "
        "four windows that it lists have a mean above its base, which is a rise.",
    )


def tabulate_chains(found: Facts) -> TextTable:
    """Return the models' fits of listed chains, against mid quotes."""
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


def tabulate_sweeps(found: Facts) -> TextTable:
    """Return the sweep over seeds and rates, and the run that each fold chooses."""
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
    """Return the models that were not measured, with their reasons."""
    rows = [
        (label_of(name), run["about"]["width"] or DASH, run["reason"]["NAS"])
        for name, run in runs.items()
        if run["about"].get("missing")
    ]
    note = "" if rows else "Nothing is missing: every model was there."
    return TextTable("missing", "Not measured", ("model", "width", "reason"), rows, note)


def _format_threshold(found: Facts) -> str:
    if found["estimate"] is None:
        return str(found["reason"])
    low, high = (DASH if found[end] is None else f"{found[end]:g}" for end in ("low", "high"))
    return f"{found['estimate']:.3g} [{low}, {high}]"
