"""Numbers of the paper, transcribed: values, their intervals, and the line of its source.

Nothing here was measured by us. Lines are those of ``arbiter.tex``. Where the text and a table give
different values, both are here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A number of the paper.

    Attributes:
        what: Name of the metric in the results.
        value: The printed value.
        low: Lower end of the printed interval, or None.
        high: Upper end, or None.
        line: Line of ``arbiter.tex``.
        where: Section, table or figure.
        note: A fault of the printed number, or empty.
        untestable: Why a different number of ours decides nothing; empty where it does.
    """

    what: str
    value: float
    low: float | None
    high: float | None
    line: int
    where: str
    note: str = ""
    untestable: str = ""

    @property
    def text(self) -> str:
        """The value as tables show it, with its interval."""
        value = f"{self.value:g}"
        return value if self.low is None else f"{value} [{self.low:g}, {self.high:g}]"


_OUTSIDE_OWN_INTERVAL = "lies outside its own interval"
_NO_MARKET = "the paper's market is not published"
_NO_NETWORK = "the paper's network is not published"
_NO_OBJECTIVE = "the paper's objective is not published"

TABLE_1 = (
    Claim("NAS", 0.9866, 0.98653, 0.98664, 1054, "Table 1"),
    Claim("CNAS", 0.99022, 0.99018, 0.99027, 1055, "Table 1"),
    Claim("NI", 0.67757, 0.67733, 0.67768, 1056, "Table 1", "a perfect model has 0"),
    Claim("Stability", 1.0, 1.0, 1.0, 1057, "Table 1", "an interval of width zero"),
    Claim(
        "DualGap",
        0.06034,
        0.05833,
        0.05891,
        1058,
        "Table 1",
        _OUTSIDE_OWN_INTERVAL,
        _NO_OBJECTIVE,
    ),
    Claim("SurfaceWasserstein", 0.08727, 0.08703, 0.08746, 1059, "Table 1", untestable=_NO_MARKET),
    Claim(
        "GenGap_p95",
        0.24875,
        0.24982,
        0.25079,
        1060,
        "Table 1",
        f"{_OUTSIDE_OWN_INTERVAL}; 0.25031 in text",
        f"{_NO_MARKET}, nor what its prices are divided by",
    ),
    Claim("spec_guard_hits", 69, None, None, 1062, "Table 1", untestable=_NO_NETWORK),
    Claim("projection_distance", 53.32, None, None, 1063, "Table 1", untestable=_NO_NETWORK),
    Claim("lambda_lip_before", 1299.27, None, None, 1064, "Table 1", untestable=_NO_NETWORK),
    Claim("lambda_lip_after", 0.70, None, None, 1064, "Table 1", untestable=_NO_NETWORK),
    Claim("coverage_min", 0.802, None, None, 1065, "Table 1", untestable=_NO_MARKET),
    Claim("coverage_mean", 0.919, None, None, 1065, "Table 1", untestable=_NO_MARKET),
)
"""Test values of Table 1."""

TABLE_1_VALIDATION = (
    Claim("NAS", 0.9866, None, None, 1054, "Table 1, Val"),
    Claim("CNAS", 0.99022, None, None, 1055, "Table 1, Val"),
    Claim("NI", 0.67754, None, None, 1056, "Table 1, Val"),
    Claim("Stability", 1.0, None, None, 1057, "Table 1, Val"),
    Claim("DualGap", 0.05864, None, None, 1058, "Table 1, Val"),
    Claim("SurfaceWasserstein", 0.08721, None, None, 1059, "Table 1, Val"),
    Claim("GenGap_p95", 0.25035, None, None, 1060, "Table 1, Val"),
)
"""Validation values of Table 1."""

ROUTES = (
    ("Adversarial (ours)", "✓", "✓", "SN only; Spec-Guard on", 1079),
    ("MFM (matched budget)", "≈", "≈", "Residual curves logged", 1080),
    ("SPX–VIX–VVIX (ext.)", "✓", "✓", "Placeholder in arXiv version", 1081),
)
"""Table 2: relative entropy and CVaR alignment by route, marks without numbers."""

ABLATIONS = {
    "gate_off": (
        Claim("NAS", 0.8918, None, None, 1025, "6.2"),
        Claim("CNAS", 0.9039, None, None, 1025, "6.2"),
        Claim("NI", 0.5192, None, None, 1025, "6.2"),
        Claim("DualGap", 0.221, None, None, 1025, "6.2"),
        Claim("SurfaceWasserstein", 0.299, None, None, 1025, "6.2"),
    ),
    "rank_half": (
        Claim("NAS", 0.0079, None, None, 1026, "6.2"),
        Claim("CNAS", 0.0047, None, None, 1026, "6.2"),
        Claim("NI", -0.527, None, None, 1026, "6.2", "outside [0, 1], where section 5 puts it"),
        Claim("Stability", 0.0, None, None, 1026, "6.2"),
    ),
    "guard_off": (
        Claim("NAS", 0.5551, None, None, 1027, "6.2"),
        Claim("CNAS", 0.5824, None, None, 1027, "6.2"),
        Claim("Stability", 0.0, None, None, 1027, "6.2"),
        Claim("SurfaceWasserstein", 0.590, None, None, 1027, "6.2"),
    ),
}
"""By name of the ablation, section 6.2."""

STRESS = (
    Claim("threshold", 2.0, None, None, 987, "6.1", "also called preset in the caption (994)"),
    Claim("NAS", 0.979, None, None, 987, "6.1", "at 2.0; section 5.4 calls failure a NAS of 0.9"),
)
"""Stress to failure: one axis of undefined distortion strength."""

DIMENSIONS = (
    Claim("d90", 1, None, None, 999, "6.1"),
    Claim("d95", 1, None, None, 999, "6.1"),
    Claim("d99", 2, None, None, 999, "6.1"),
)

MONITORS = (
    Claim(
        "novik_to_kazamaki_rate",
        0.9175,
        0.9020,
        0.9330,
        1010,
        "6.1",
        untestable="the paper does not define its statistic",
    ),
    Claim("representer_slope", 0.47, 0.41, 0.53, 1176, "7.2"),
)

EXTERNAL = (
    Claim("cnas_frozen_drop", 3.87e-4, None, None, 1040, "6.3"),
    Claim("CNAS_window_1", 0.99008, None, None, 1040, "6.3"),
    Claim("CNAS_window_2", 0.99013, None, None, 1040, "6.3"),
    Claim("CNAS_window_3", 0.99063, None, None, 1040, "6.3"),
    Claim(
        "CNAS_window_4", 0.99103, None, None, 1040, "6.3",
        "the windows' mean is 0.99047, above 0.99022: a rise, not a drop",
    ),
)  # fmt: skip
"""Frozen hyper-parameters, section 6.3."""

CONTRACTION = (
    Claim("contraction_ratio", 5.39e-4, None, None, 1115, "7.1"),
    Claim("safety_log", 7.53, None, None, 1120, "7.1"),
    Claim("headroom", 0.30, None, None, 1127, "7.1"),
)
"""Section 7.1, of the Lipschitz surrogate."""


def find_table_1_claim(what: str) -> Claim | None:
    """Return the test value of Table 1 by name, or None."""
    return next((claim for claim in TABLE_1 if claim.what == what), None)
