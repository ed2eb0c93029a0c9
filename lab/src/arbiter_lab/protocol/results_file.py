"""The results file: every run with the field names of the paper's reproducibility appendix.

A bare name is the definition of the paper's section 5; a variant has a suffix
(:mod:`arbiter_lab.metrics.catalogue`). The reason of a null is under the same name in ``reason``.
An interval contains its estimate. The file holds no times, so a run repeated on the same machine
writes the same bytes; times are in ``replicate.json`` (:mod:`arbiter_lab.protocol.machine`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from arbiter.files import require_version, write_whole
from arbiter_lab.metrics.catalogue import DEFINITIONS
from arbiter_lab.metrics.metric import Metric, metrics_to_dict

Runs = Mapping[str, dict[str, Any]]
"""Runs of a results file by name; each holds its fields, ``reason``, ``intervals``, ``about``."""

RESULTS_FILE = "results.json"
FORMAT, VERSION = "arbiter-results", 1

FIELDS = (
    "NAS",
    "NI",
    "CNAS",
    "DualGap",
    "Stability",
    "SurfaceWasserstein",
    "GenGap_p95",
    "spec_guard_hits",
    "projection_distance",
    "max_rho_dt",
    "ratio_log",
    "enter_representer_at_step",
    "coverage_min",
    "coverage_mean",
    "coverage_at_trigger",
    "mfm_mse",
    "martingale_residual",
    "novik_to_kazamaki_rate",
    "lambda_lip_before",
    "lambda_lip_after",
    "filter_rate",
    "cnas_frozen_drop",
)
"""Fields of the paper's appendix, in its order; every run has all of them."""

_COUNT_FIELDS = ("spec_guard_hits", "enter_representer_at_step")
_SHARE_RANGE, _SIZE_RANGE = (0.0, 1.0), (0.0, math.inf)
_FIELD_RANGES = {
    **{name: (d.low, d.high) for name, d in DEFINITIONS.items()},
    **dict.fromkeys(_COUNT_FIELDS, _SIZE_RANGE),
    **dict.fromkeys(("projection_distance", "max_rho_dt", "mfm_mse"), _SIZE_RANGE),
    **dict.fromkeys(("lambda_lip_before", "lambda_lip_after"), _SIZE_RANGE),
    **dict.fromkeys(("coverage_min", "coverage_mean", "coverage_at_trigger"), _SHARE_RANGE),
    **dict.fromkeys(("novik_to_kazamaki_rate", "filter_rate"), _SHARE_RANGE),
}
_RUN_PARTS = ("reason", "intervals", "about")
_TIME_NAME_PATTERN = re.compile(
    r"(^|_)(seconds?|minutes|hours|ms|time|times|wall|elapsed|duration|timestamp|clock)(_|$)"
)
_MAX_PROBLEMS_SHOWN = 8  # problems that an error names


class RecordError(ValueError):
    """A results file or a run that does not follow the schema.

    Attributes:
        problems: One sentence per problem.
    """

    def __init__(self, where: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        shown = "\n".join(f"  {problem}" for problem in self.problems[:_MAX_PROBLEMS_SHOWN])
        more = len(self.problems) - _MAX_PROBLEMS_SHOWN
        rest = f"\n  and {more} more" if more > 0 else ""
        super().__init__(f"{where}: {len(self.problems)} problems\n{shown}{rest}")


class Difference(NamedTuple):
    """A number that a second run does not repeat.

    Attributes:
        run: Name of the run.
        name: Name of the field.
        first: Value in the first results; None for null.
        second: Value in the second results; None for null, or if the run or field is absent.
    """

    run: str
    name: str
    first: float | None
    second: float | None


def as_run(
    metrics: Iterable[Metric],
    *,
    missing: Mapping[str, str] | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build one run of the results file and check it.

    Args:
        metrics: All measured metrics, fields of the appendix and others of the catalogue.
        missing: For each field of the appendix that was not measured, the reason.
        intervals: The two ends by name; each interval contains its estimate.
        about: Plain JSON values that describe the run: kind, seed, configuration. No times.

    Raises:
        RecordError: If the run breaks the schema; it lists every problem.

    Example:
        >>> why = dict.fromkeys(FIELDS[1:], "a fit has no training")
        >>> as_run([Metric("NAS", 1.0)], missing=why)["NI"] is None
        True
    """
    values = metrics_to_dict(metrics)
    reasons = values.pop("reason")
    for name, why in (missing or {}).items():
        if name in values:
            raise RecordError("run", [f"{name} is {values[name]!r} and missing: drop one of them"])
        values[name], reasons[name] = None, why
    for name in _COUNT_FIELDS:
        if values.get(name) is not None and float(values[name]).is_integer():
            values[name] = int(values[name])
    others = sorted(set(values) - set(FIELDS))
    run = {name: values[name] for name in (*FIELDS, *others) if name in values}
    run["reason"] = dict(sorted(reasons.items()))
    run["intervals"] = {name: list(ends) for name, ends in sorted((intervals or {}).items())}
    run["about"] = dict(about or {})
    check_run("run", run)
    return run


def check_run(name: str, run: object) -> None:
    """Refuse a run that does not follow the schema.

    Raises:
        RecordError: With every problem, each with field, value and remedy.
    """
    problems = list(_find_problems(run))
    if problems:
        raise RecordError(name, problems)


def write_results(path: str | PathLike[str], runs: Runs) -> Path:
    """Check all runs, then write them in one atomic step.

    Raises:
        RecordError: If a run does not follow the schema; nothing is written then.
    """
    if not runs:
        raise RecordError(str(path), ["there are no runs: give at least one"])
    for name, run in runs.items():
        check_run(name, run)
    whole = {"format": FORMAT, "version": VERSION, "fields": list(FIELDS), "runs": dict(runs)}
    text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
    return write_whole(path, text + "\n")


def read_results(path: str | PathLike[str]) -> dict[str, dict[str, Any]]:
    """Read the runs of a results file by name and check each.

    Raises:
        RecordError: If the file has another format, or a run does not follow the schema.
    """
    try:
        whole = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(str(path), [f"it is not JSON: {error}"]) from error
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise RecordError(str(path), [f"it does not say that its format is {FORMAT!r}"])
    require_version(path, whole.get("version"), VERSION, ValueError)
    runs = whole.get("runs")
    if not isinstance(runs, dict) or not runs:
        raise RecordError(str(path), ["it has no runs"])
    for name, run in runs.items():
        check_run(f"{path}, run {name!r}", run)
    return runs


def find_differences(first: Runs, second: Runs) -> list[Difference]:
    """Return the numbers of the first results that the second do not repeat.

    Where the first results have an interval, the second number must lie in it. Elsewhere the two
    numbers must be equal.
    """
    found = []
    for run, values in first.items():
        other = second.get(run, {})
        for name, value in values.items():
            if name in _RUN_PARTS:
                continue
            again = other.get(name)
            low, high = values["intervals"].get(name, (value, value))
            same = value == again if value is None or again is None else low <= again <= high
            if not same or name not in other:
                found.append(Difference(run, name, value, again))
    return found


def _find_problems(run: object) -> Iterator[str]:
    if not isinstance(run, Mapping):
        yield f"it is {type(run).__name__}: a run is a mapping of names to values"
        return
    reasons, intervals, about = (run.get(part, {}) for part in _RUN_PARTS)
    for part, value in zip(_RUN_PARTS, (reasons, intervals, about), strict=True):
        if not isinstance(value, Mapping):
            yield f"{part} is {value!r}: give a mapping"
            return
    for name in FIELDS:
        if name not in run:
            yield f"{name} is absent: give its value, or null and a reason"
    for name, value in run.items():
        if name not in _RUN_PARTS:
            yield from _value_problems(name, value, reasons)
    for name in reasons:
        if name not in run:
            yield f"reason names {name!r}, which the run does not have: drop it"
    for name, ends in intervals.items():
        yield from _interval_problems(name, ends, run.get(name))
    yield from _about_problems("about", about)


def _value_problems(name: str, value: object, reasons: Mapping[str, object]) -> Iterator[str]:
    if _TIME_NAME_PATTERN.search(name):
        yield f"{name} is a time: times belong to replicate.json"
        return
    if not _is_known_name(name):
        near = get_close_matches(name, (*FIELDS, *DEFINITIONS), 1)
        hint = f"is it {near[0]}?" if near else "a variant is a field, _ and a suffix"
        yield f"{name} is no field, no metric of the catalogue and no variant of one: {hint}"
        return
    why = reasons.get(name)
    if value is None:
        if not (isinstance(why, str) and why.strip()):
            yield f"{name} is null without a reason: say in reason why it was not measured"
        return
    if why is not None:
        yield f"{name} is {value!r} and has a reason to be null: drop the reason"
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        yield f"{name} is {value!r}: give a finite number, or null and a reason"
        return
    if name in _COUNT_FIELDS and not isinstance(value, Integral):
        yield f"{name} is {value!r}: it is a whole number"
    low, high = _FIELD_RANGES.get(name, (-math.inf, math.inf))
    if not low <= float(value) <= high:
        yield f"{name} is {value!r}, outside [{low:g}, {high:g}], where its definition puts it"


def _interval_problems(name: str, ends: object, value: object) -> Iterator[str]:
    pair = ends if isinstance(ends, list | tuple) and len(ends) == 2 else None
    if pair is None or not all(isinstance(e, Real) and math.isfinite(e) for e in pair):
        yield f"the interval of {name} is {ends!r}: give two finite ends"
    elif value is None:
        yield f"{name} has an interval and no value: drop it"
    elif isinstance(value, Real) and not pair[0] <= value <= pair[1]:
        yield f"{name} is {value!r}, outside its own interval [{pair[0]!r}, {pair[1]!r}]"


def _about_problems(where: str, value: object) -> Iterator[str]:
    """Yield a sentence for each key that names a time and each value that is not plain JSON."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield f"{where} has the key {key!r}: keys are text"
            elif _TIME_NAME_PATTERN.search(key):
                yield f"{where}.{key} is a time: times belong to replicate.json"
            else:
                yield from _about_problems(f"{where}.{key}", inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _about_problems(f"{where}[{place}]", inner)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{where} is {value!r}: JSON has finite numbers only"
    elif value is not None and not isinstance(value, str | bool | int | float):
        yield f"{where} is {type(value).__name__}: give plain JSON values"


def _is_known_name(name: str) -> bool:
    plain = name.removeprefix("worst_day_")
    if plain in FIELDS or plain in DEFINITIONS:
        return True
    stems = (*FIELDS, *DEFINITIONS)
    return any(re.fullmatch(rf"{stem}_[a-z0-9_]+", plain) for stem in stems)
