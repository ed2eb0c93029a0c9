"""The table of headlines: is any surface arbitraged, and which model has the lowest error."""

from __future__ import annotations

from collections.abc import Mapping

from arbiter_lab.protocol.results_file import Runs
from arbiter_lab.reproduction.models import SMALL, label_of
from arbiter_lab.reproduction.number_format import DASH, format_fixed, format_score
from arbiter_lab.reproduction.profiles import MATCHED
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.reproduction.text_tables import TextTable
from arbiter_lab.reproduction.verdicts import ClaimVerdict, Judgement, is_significant

_COMPARED_MODELS = ("operator", "refine", MATCHED, SMALL)


def tabulate_headlines(runs: Runs, facts: Mapping[str, Facts]) -> TextTable:
    """Return the headline claims with their verdicts in this run."""
    rows = [_summarise_nas_on_days(runs), _summarise_nas_under_stress(runs, facts["stress"])]
    told = facts["measure"]["pairs"]
    rows += [
        _compare_with_baselines(runs, base, told[base]) for base in _COMPARED_MODELS if base in told
    ]
    return TextTable(
        "headlines",
        "What was to be shown",
        ("claim", "found", "verdict", "reason"),
        rows,
        "A baseline is every model that is neither the operator, nor a fit of ours, nor an "
        "ablation. “Shown” means that both paired tests have an adjusted p below 1 %. Where blocks "
        "are too few for flips, the test of the mean decides alone. A claim against all baselines "
        "holds in a corrected form where some are shown and none is reversed.",
    )


def _summarise_nas_on_days(runs: Runs) -> tuple[str, str, str, str]:
    ours = {n: run for n, run in runs.items() if run["about"].get("promises")}
    least = {
        name: min(run[what] for what in ("NAS", "NAS_inequalities") if run.get(what) is not None)
        for name, run in ours.items()
        if run.get("NAS") is not None
    }
    lowest = format_score(min(least.values())) if least else DASH
    return (
        "NAS = 1 for every model with the decoder, on every day",
        f"lowest {lowest} of {len(least)} models, by panels and by the audit of inequalities",
        *_judge_scores(least),
    )


def _summarise_nas_under_stress(runs: Runs, found: Facts) -> tuple[str, str, str, str]:
    least: dict[str, float] = {}
    for part in found["axes"].values():
        for name, cells in part["models"].items():
            if runs.get(name, {"about": {}})["about"].get("promises"):
                here = min(min(row) for row in cells["nas"])
                least[name] = min(here, least.get(name, 1.0))
    lowest = format_score(min(least.values())) if least else DASH
    return (
        "NAS = 1 at every level of stress",
        f"lowest {lowest} over {len(found['axes'])} axes, {len(least)} models",
        *_judge_scores(least),
    )


def _compare_with_baselines(runs: Runs, base: str, found: Facts) -> tuple[str, str, str, str]:
    """Judge whether a model's error is below that of every baseline compared with it."""
    against = {
        name: found["tests"].get(name)
        for name in (*found["tests"], *found["left_out"])
        if runs[name]["about"]["kind"] in ("peer", "baseline")
    }
    better = [
        n for n, t in against.items() if t and is_significant(t) and t["difference"]["mean"] < 0.0
    ]
    worse = [
        n for n, t in against.items() if t and is_significant(t) and t["difference"]["mean"] > 0.0
    ]
    open_ = [n for n in against if n not in (*better, *worse)]
    error = format_fixed(runs[base].get("iv_rmse_bp"), 2)
    parts = (("below", better), ("above", worse), ("not shown against", open_))
    reason = "; ".join(
        f"{word} {', '.join(map(label_of, names))}" for word, names in parts if names
    )
    if not against:
        judgement = Judgement(ClaimVerdict.UNTESTABLE, "nothing was compared")
    elif len(better) == len(against):
        judgement = Judgement(ClaimVerdict.HOLDS)
    else:
        partly = bool(better) and not worse
        judgement = Judgement(ClaimVerdict.CORRECTED if partly else ClaimVerdict.FAILS, reason)
    return (
        f"IV RMSE of {label_of(base)} below every baseline's",
        f"{error} bp; {len(better)} of {len(against)} shown",
        *judgement,
    )


def _judge_scores(least: Mapping[str, float]) -> Judgement:
    """Judge the claim that the lowest NAS of every model is one."""
    if not least:
        return Judgement(ClaimVerdict.UNTESTABLE, "nothing was measured")
    below = [label_of(name) for name, value in least.items() if value < 1.0]
    if below:
        return Judgement(ClaimVerdict.FAILS, f"below one: {', '.join(below)}")
    return Judgement(ClaimVerdict.HOLDS)
