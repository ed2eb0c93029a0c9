"""Whether a claim of the paper holds here, in words."""

from __future__ import annotations

from typing import Any

from arbiter.metrics.catalogue import DEFINITIONS
from arbiter.reproduction.claims import Claim

_SCALES = {
    "DualGap": "the objective is not the paper's: sizes do not compare",
    "SurfaceWasserstein": "another market",
    "GenGap_p95": "another market; the paper does not say what its prices are divided by",
}


def verdict(claim: Claim, run: dict[str, Any]) -> str:
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
    return f"{by} ({_SCALES[claim.what]})" if claim.what in _SCALES else by


def family(tests: dict[str, Any], name: str) -> str:
    """What a paired test says of the first model against another, at 1 % after Holm."""
    test = tests["tests"].get(name)
    if test is None:
        return f"not tested: {tests['left_out'].get(name, 'it is missing')}"
    mean, p = test["difference"]["mean"], test["holm_p_value"]
    if p >= 0.01:
        return f"no difference shown at 1 % (Holm p {p_text(p)})"
    return f"{'lower' if mean < 0.0 else 'higher'} error (Holm p {p_text(p)})"


def p_text(p: float) -> str:
    """A p-value; very small ones by their bound."""
    return "< 1e-6" if p < 1e-6 else f"= {p:.2g}"


def ablation(tests: dict[str, Any], name: str, keeps_nas: bool) -> str:
    """What taking a part away does to the error, by the same paired test."""
    test = tests["tests"].get(name)
    if test is None:
        return f"not tested: {tests['left_out'].get(name, 'it is missing')}"
    worse, p = test["difference"]["mean"] < 0.0, test["holm_p_value"]
    words = f"no difference from the base shown at 1 % (Holm p {p_text(p)})"
    if p < 0.01:
        words = f"{'worse' if worse else 'better'} than the base (Holm p {p_text(p)})"
    return f"{words}; no collapse of NAS, which the decoder keeps at one" if keeps_nas else words
