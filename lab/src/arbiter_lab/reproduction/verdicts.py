"""Whether a claim of the paper holds here, in words."""

from __future__ import annotations

from typing import Any

from arbiter_lab.metrics.catalogue import DEFINITIONS
from arbiter_lab.reproduction.claims import Claim

SIGNIFICANCE_LEVEL = 0.01
"""At which a difference counts, after Holm."""

_SCALE_CAVEATS = {
    "DualGap": "the objective is not the paper's: sizes do not compare",
    "SurfaceWasserstein": "another market",
    "GenGap_p95": "another market; the paper does not say what its prices are divided by",
}


def judge_claim(claim: Claim, run: dict[str, Any]) -> str:
    """What our number says of the paper's.

    Args:
        claim: The paper's.
        run: A run of the results.
    """
    value = run.get(claim.what)
    if value is None:
        return f"not measured: {run['reason'].get(claim.what, 'no such number')}"
    low, high = run["intervals"].get(claim.what, (value, value))
    definition = DEFINITIONS.get(claim.what)
    better = None if definition is None else definition.better
    if low <= claim.value <= high:
        return "our interval holds the paper's value"
    if better not in ("higher", "lower"):
        return f"another number, {'above' if value > claim.value else 'below'} the paper's"
    ahead = value > claim.value if better == "higher" else value < claim.value
    by = "better than the paper's" if ahead else "worse than the paper's"
    if definition is not None and definition.perfect == value:
        return f"{by}; it is the best possible"
    return f"{by} ({_SCALE_CAVEATS[claim.what]})" if claim.what in _SCALE_CAVEATS else by


def describe_paired_test(tests: dict[str, Any], name: str) -> str:
    """What the paired tests say of the first model against another, at 1 % after Holm.

    Both must agree, that of the mean with the cosine variance and the sign flips; the flips have no
    say where days are so persistent that their few blocks could not reject anything.
    """
    test = tests["tests"].get(name)
    if test is None:
        return f"not tested: {tests['left_out'].get(name, 'it is missing')}"
    if not is_significant(test):
        return f"no difference shown at 1 % ({format_p_values(test)})"
    return (
        f"{'lower' if test['difference']['mean'] < 0.0 else 'higher'} error "
        f"({format_p_values(test)})"
    )


def is_significant(test: dict[str, Any]) -> bool:
    """Whether both tests reject at 1 % after Holm; the mean's alone where flips have no say."""
    flips = test["holm_flip_p_value"] if can_flips_reject(test) else 0.0
    return bool(max(test["holm_p_value"], flips) < SIGNIFICANCE_LEVEL)


def can_flips_reject(test: dict[str, Any]) -> bool:
    """Whether there are blocks enough for the sign flips to reject at 1 %."""
    return bool(2.0 ** (1 - test["blocks"]) < SIGNIFICANCE_LEVEL)


def format_p_values(test: dict[str, Any]) -> str:
    """Adjusted p-values of both tests."""
    mean = f"Holm p {format_p_value(test['holm_p_value'])}"
    if not can_flips_reject(test):
        return f"{mean}; {test['blocks']} blocks are too few for flips"
    return f"{mean}, flips {format_p_value(test['holm_flip_p_value'])}"


def format_p_value(p: float) -> str:
    """A p-value; very small ones by their bound."""
    return "< 1e-6" if p < 1e-6 else f"= {p:.2g}"


def describe_ablation(tests: dict[str, Any], name: str, keeps_nas: bool) -> str:
    """What taking a part away does to the error, by the same paired tests."""
    test = tests["tests"].get(name)
    if test is None:
        return f"not tested: {tests['left_out'].get(name, 'it is missing')}"
    words = f"no difference from the base shown at 1 % ({format_p_values(test)})"
    if is_significant(test):
        worse = test["difference"]["mean"] < 0.0
        words = f"{'worse' if worse else 'better'} than the base ({format_p_values(test)})"
    return f"{words}; no collapse of NAS, which the decoder keeps at one" if keeps_nas else words
