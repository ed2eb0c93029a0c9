"""Verdicts on claims of the paper, in four fixed phrases, and the words of paired tests."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from arbiter_lab.metrics.catalogue import DEFINITIONS
from arbiter_lab.reproduction.claims import Claim

SIGNIFICANCE_LEVEL = 0.01
"""Level at which a difference counts, after Holm's correction."""


class ClaimVerdict(StrEnum):
    """The four verdicts on a claim of the paper; tables and pages print nothing else."""

    HOLDS = "holds"
    CORRECTED = "holds in a corrected form"
    FAILS = "does not hold"
    UNTESTABLE = "cannot be tested"


class Judgement(NamedTuple):
    """A verdict with a short reason; tables print them in columns of their own.

    Attributes:
        verdict: One of the four.
        reason: A phrase without a full stop; may be empty.
    """

    verdict: ClaimVerdict
    reason: str = ""


def judge_claim(claim: Claim, run: Mapping[str, Any]) -> Judgement:
    """Compare a number of the paper with ours.

    Args:
        claim: The paper's number.
        run: A run of the results.

    Returns:
        ``CORRECTED`` where ours is the best possible value and the paper's is not. A claim that
        states why it is untestable gets ``UNTESTABLE``, with our number's position as the reason.
    """
    value = run.get(claim.what)
    if value is None:
        reason = run["reason"].get(claim.what, "no such number")
        return Judgement(ClaimVerdict.UNTESTABLE, f"not measured: {reason}")
    low, high = run["intervals"].get(claim.what, (value, value))
    definition = DEFINITIONS.get(claim.what)
    inside = low <= claim.value <= high
    position = "our interval contains the paper's value"
    if not inside:
        position = f"ours is {'above' if value > claim.value else 'below'} the paper's"
    if claim.untestable:
        return Judgement(ClaimVerdict.UNTESTABLE, f"{claim.untestable}; {position}")
    if inside:
        return Judgement(ClaimVerdict.HOLDS, position)
    if definition is None or definition.better == "neither":
        return Judgement(ClaimVerdict.FAILS, position)
    if definition.perfect == value:
        return Judgement(ClaimVerdict.CORRECTED, "ours is the best possible value")
    ahead = value > claim.value if definition.better == "higher" else value < claim.value
    return Judgement(
        ClaimVerdict.FAILS, f"ours is {'better' if ahead else 'worse'} than the paper's"
    )


def judge_collapse(claim: Claim, run: Mapping[str, Any]) -> Judgement:
    """Judge the claim that a score collapses to the paper's value without a part.

    Args:
        claim: The score that the paper reports without the part.
        run: Our run without the part.
    """
    value = run.get(claim.what)
    if value is None:
        return Judgement(ClaimVerdict.UNTESTABLE, f"{claim.what} was not measured")
    if value <= claim.value:
        return Judgement(ClaimVerdict.HOLDS, f"{claim.what} falls as far")
    if value == 1.0:
        return Judgement(ClaimVerdict.FAILS, f"no collapse: the decoder keeps {claim.what} at one")
    return Judgement(ClaimVerdict.FAILS, f"{claim.what} stays above the paper's")


def describe_paired_test(tests: Mapping[str, Any], name: str) -> str:
    """Return what the paired tests show of the first model against another.

    A difference counts at 1 % after Holm's correction where both tests agree. The test of the mean
    has the cosine variance. The sign flips do not count where too few blocks are left to reject.
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


def is_significant(test: Mapping[str, Any]) -> bool:
    """Return whether both tests reject at 1 % after Holm; the mean's alone with few blocks."""
    flips = test["holm_flip_p_value"] if can_flips_reject(test) else 0.0
    return bool(max(test["holm_p_value"], flips) < SIGNIFICANCE_LEVEL)


def can_flips_reject(test: Mapping[str, Any]) -> bool:
    """Return whether there are blocks enough for the sign flips to reject at 1 %."""
    return bool(2.0 ** (1 - test["blocks"]) < SIGNIFICANCE_LEVEL)


def format_p_values(test: Mapping[str, Any]) -> str:
    """Return the adjusted p-values of both tests as text."""
    mean = f"Holm p {format_p_value(test['holm_p_value'])}"
    if not can_flips_reject(test):
        return f"{mean}; {test['blocks']} blocks are too few for flips"
    return f"{mean}, flips {format_p_value(test['holm_flip_p_value'])}"


def format_p_value(p: float) -> str:
    """Return a p-value as text; very small ones as a bound."""
    return "< 1e-6" if p < 1e-6 else f"= {p:.2g}"


def describe_ablation(tests: Mapping[str, Any], name: str) -> str:
    """Return what taking a part away does to the error, by the same paired tests."""
    test = tests["tests"].get(name)
    if test is None:
        return f"not tested: {tests['left_out'].get(name, 'it is missing')}"
    if not is_significant(test):
        return f"no difference shown at 1 % ({format_p_values(test)})"
    worse = test["difference"]["mean"] < 0.0
    return f"{'worse' if worse else 'better'} ({format_p_values(test)})"
