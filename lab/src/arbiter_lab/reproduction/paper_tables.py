"""Tables that judge the paper's numbers: Table 1, ablations, training routes and monitors.

The column ``verdict`` holds one of the four phrases of `Verdict`, or a dash where the paper has no
claim. A short reason stands in the column after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arbiter_lab.protocol.results_file import Runs
from arbiter_lab.reproduction import claims
from arbiter_lab.reproduction.models import SMALL, label_of
from arbiter_lab.reproduction.number_format import (
    DASH,
    format_change,
    format_five_digits,
    format_interval,
    format_percent,
    format_score,
    format_three_digits,
    format_with_interval,
)
from arbiter_lab.reproduction.profiles import MATCHED
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.reproduction.text_tables import TextTable
from arbiter_lab.reproduction.verdicts import (
    ClaimVerdict,
    Judgement,
    describe_ablation,
    judge_claim,
    judge_collapse,
)

_NO_TESTS: Facts = {"tests": {}, "left_out": {}}
_NO_CLAIM = (DASH, "")
_ROUTE_MODELS = {
    "Adversarial (ours)": (SMALL, "operator"),
    "MFM (matched budget)": (f"{SMALL}_mfm", "mfm"),
}
_ROUTE_BASES = {f"{SMALL}_mfm": SMALL, "mfm": MATCHED}
_ROUTE_METRICS = {"relative_entropy": "relative entropy", "cvar_alignment": "CVaR error"}


def tabulate_paper_table_1(runs: Runs) -> TextTable:
    """Return Table 1 of the paper with ours: the operator and the small width."""
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
                    *judge_claim(claim, run),
                )
            )
    return TextTable(
        "table1",
        "The paper's Table 1, and ours",
        ("metric", "paper's claim", "model", "ours", "95 % interval", "with the paper's lag",
         "verdict", "reason"),
        rows,
        "The paper's model, data and settings are not published. Our values have the same "
        "definitions on another market, so a different number alone is no contradiction. A NAS of "
        "one is a theorem here; it is checked, not estimated. Intervals are of the cosine method. "
        "The paper's lag is too short for persistent days.",
    )  # fmt: skip


def tabulate_ablations(runs: Runs, tests: Facts) -> TextTable:
    """Return the error without each part, at full size where a checkpoint exists, and small."""
    rows = []
    for name, run in runs.items():
        about = run["about"]
        if about["kind"] != "ablation" or about.get("missing"):
            continue
        plain = name.removeprefix(f"{SMALL}_")
        origin = SMALL if about["width"] == SMALL else MATCHED
        printed = {claim.what: claim for claim in claims.ABLATIONS.get(plain, ())}
        rows.append(
            (
                label_of(name),
                format_with_interval(run, "iv_rmse_bp", 2),
                format_change(run, runs[origin], "iv_rmse_bp"),
                *(
                    f"{_format_metric(run, what)} (paper "
                    f"{printed[what].text if what in printed else DASH})"
                    for what in ("NAS", "CNAS", "NI", "DualGap", "SurfaceWasserstein", "Stability")
                ),
                describe_ablation(tests.get(origin, _NO_TESTS), name),
                *(judge_collapse(printed["NAS"], run) if "NAS" in printed else _NO_CLAIM),
            )
        )
    return TextTable(
        "ablations",
        "Ablations",
        ("without", "IV RMSE, bp", "change", "NAS", "CNAS", "NI", "DualGap", "Wasserstein",
         "Stability", "against the base", "verdict", "reason"),
        rows,
        "Change is relative to the base of the same width. The paper's values are of its own base "
        "(NAS 0.9866). The verdict is on the paper's claim that NAS collapses.",
    )  # fmt: skip


def tabulate_training_routes(runs: Runs) -> TextTable:
    """Return Table 2 of the paper, which has marks, with our numbers."""
    rows = []
    for title, entropy, cvar, note, line in claims.ROUTES:
        marks = f"{entropy}, {cvar} (line {line})"
        for name in _ROUTE_MODELS.get(title, ()):
            run = runs.get(name)
            numbers = (DASH, DASH)
            if run is not None and not run["about"].get("missing"):
                numbers = (
                    format_with_interval(run, "relative_entropy", 5),
                    format_with_interval(run, "cvar_alignment", 5),
                )
            rows.append((title, marks, label_of(name), *numbers, *_judge_route(name, runs)))
        if title not in _ROUTE_MODELS:
            placeholder = Judgement(ClaimVerdict.UNTESTABLE, f"the paper's note: {note}")
            rows.append((title, marks, DASH, DASH, DASH, *placeholder))
    return TextTable(
        "table2",
        "The paper's Table 2: training routes",
        ("route", "paper: entropy, CVaR", "model", "relative entropy [95 %]",
         "CVaR error [95 %]", "verdict", "reason"),
        rows,
        "The paper gives marks without numbers. Two routes count as equal where both intervals "
        "overlap; each width is compared with the adversarial route of the same budget.",
    )  # fmt: skip


def _judge_route(name: str, runs: Runs) -> Judgement:
    """Judge whether a route is about as good as the adversarial one of the same budget."""
    run, base = runs.get(name), runs.get(_ROUTE_BASES.get(name, ""))
    if run is None or run["about"].get("missing"):
        reason = "it was not run" if run is None else run["reason"]["NAS"]
        return Judgement(ClaimVerdict.UNTESTABLE, f"not measured: {reason}")
    if name not in _ROUTE_BASES:
        return Judgement(ClaimVerdict.UNTESTABLE, "the paper gives a mark without a number")
    if base is None or base["about"].get("missing"):
        return Judgement(ClaimVerdict.UNTESTABLE, "the adversarial route was not measured")
    apart = []
    for what, label in _ROUTE_METRICS.items():
        if run.get(what) is None or base.get(what) is None:
            return Judgement(ClaimVerdict.UNTESTABLE, f"{label} was not measured")
        low, high = run["intervals"].get(what, (run[what], run[what]))
        base_low, base_high = base["intervals"].get(what, (base[what], base[what]))
        if low > base_high or high < base_low:
            apart.append(f"{label} {'higher' if low > base_high else 'lower'}")
    if not apart:
        return Judgement(ClaimVerdict.HOLDS, "both intervals overlap")
    return Judgement(ClaimVerdict.FAILS, f"{', '.join(apart)} than the adversarial route's")


def tabulate_monitors(runs: Runs, found: Facts) -> TextTable:
    """Return the monitors A1 to A4, the regression and dimensions, with the paper's numbers."""
    rate, slope = claims.MONITORS
    a1, regression = found["A1"], found["regression"]
    run = next(iter(runs.values()))
    rows = [
        (
            "A1 switch rate", rate.text, f"{a1['rate']:.3f} [{a1['interval'][0]:.3f}, "
            f"{a1['interval'][1]:.3f}], {a1['windows']} windows",
            *judge_claim(rate, run),
        ),
        *(
            ("A2 local order", DASH, f"{name}: lowest {part['lowest']:.2f}, "
             f"{format_percent(part['share_below'])} of patches below", *_NO_CLAIM)
            for name, part in found["A2"].items()
        ),
        *(
            ("A3 memory χ", DASH, f"{label_of(model)}, {scan}: χ {part['chi']:.2f}, rank "
             f"{part['rank']:.1f}", *_NO_CLAIM)
            for model, scans in found["A3"].items() for scan, part in scans.items()
        ),
        (
            "A4 coverage", "min 0.802, mean 0.919",
            f"min {run['coverage_min']:.3f}, mean {run['coverage_mean']:.3f}",
            *_judge_coverage(run["coverage_min"]),
        ),
        ("gap and representer, slope", slope.text, *_describe_slope(regression)),
        *(
            (f"effective dimension, {name}", "d90 1, d95 1, d99 2", _format_dimensions(part),
             *_judge_dimensions(part))
            for name, part in found["dimensions"].items()
        ),
    ]  # fmt: skip
    return TextTable(
        "monitors",
        "Monitors and diagnostics",
        ("what", "paper", "ours", "verdict", "reason"),
        rows,
    )


def _judge_coverage(lowest: float) -> Judgement:
    """Judge assumption A4: no window has a coverage below 0.75."""
    if lowest >= 0.75:
        return Judgement(ClaimVerdict.HOLDS, "no window below 0.75")
    return Judgement(ClaimVerdict.FAILS, "a window below 0.75")


def _describe_slope(regression: Facts) -> tuple[str, str, str]:
    """Return the slope as text, and whether the representer's error rises with the gap."""
    if regression.get("reason"):
        missing = Judgement(ClaimVerdict.UNTESTABLE, f"not measured: {regression['reason']}")
        return (DASH, *missing)
    low, high = regression["slope_interval"]
    text = f"{regression['slope']:.3g} [{low:.3g}, {high:.3g}], {regression['count']} points"
    units = "the paper does not give its units"
    if low > 0.0:
        return (text, *Judgement(ClaimVerdict.HOLDS, f"a positive slope; {units}"))
    return (text, *Judgement(ClaimVerdict.FAILS, f"no positive slope is shown; {units}"))


def _judge_dimensions(part: Facts) -> Judgement:
    """Judge the paper's effective dimensions, whose spectrum is not centred."""
    ours = {name.removesuffix("_features"): value for name, value in part.items()}
    same = all(ours.get(claim.what) == claim.value for claim in claims.DIMENSIONS)
    counts_mean = "the paper's spectrum counts the mean"
    if same:
        return Judgement(ClaimVerdict.CORRECTED, f"the same; {counts_mean}")
    return Judgement(ClaimVerdict.FAILS, f"ours differ; {counts_mean}")


def _format_dimensions(part: Facts) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in part.items() if value is not None)


def _format_metric(run: Mapping[str, Any], what: str) -> str:
    value = run.get(what)
    return format_score(value) if what in ("NAS", "CNAS") else format_three_digits(value)
