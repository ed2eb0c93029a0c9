"""Definitions of the metrics: direction, range, and the score of a perfect model.

Tables and figures use them; docs/metrics/ explains each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

_INFINITE = math.inf


@dataclass(frozen=True)
class Definition:
    """The definition of a metric.

    Attributes:
        name: Name in the results.
        better: Better direction; "neither" where the paper's formula and its words disagree.
        low: Smallest value.
        high: Largest value.
        perfect: Score of the exact prices; None where it depends on the data.
        section: Section of the paper; empty for metrics that are not the paper's.
        page: Page in docs/metrics/, without its suffix.
    """

    name: str
    better: Literal["higher", "lower", "neither"]
    low: float
    high: float
    perfect: float | None
    section: str
    page: str


def _list_definitions() -> list[Definition]:
    points = ("", "_quoted", "_unquoted")
    errors = [f"iv_{what}_bp{on}" for what in ("rmse", "mae", "max") for on in points]
    spectra = ("", "_centred", "_features", "_features_centred")
    return [
        *[Definition(name, "lower", 0.0, _INFINITE, 0.0, "", "iv-error") for name in errors],
        Definition("inside_bid_ask", "higher", 0.0, 1.0, None, "", "inside-bid-ask"),
        Definition("inside_bid_ask_unseen", "higher", 0.0, 1.0, None, "", "inside-bid-ask"),
        *[
            Definition(f"vix_{what}", "lower", 0.0, _INFINITE, 0.0, "", "vix-error")
            for what in ("rmse", "mae", "max")
        ],
        Definition("relative_entropy", "lower", 0.0, _INFINITE, 0.0, "6.4", "density-error"),
        Definition("cvar_alignment", "lower", 0.0, _INFINITE, 0.0, "6.4", "density-error"),
        Definition("NAS", "higher", 0.0, 1.0, 1.0, "5.2", "nas"),
        Definition("NAS_as_printed", "neither", -_INFINITE, 1.0, None, "5.2", "nas"),
        Definition("NAS_inequalities", "higher", 0.0, 1.0, 1.0, "2.3", "nas"),
        Definition("CNAS", "higher", 0.0, 1.0, 1.0, "5.2", "cnas"),
        Definition("CNAS_as_printed", "neither", 0.0, 1.0, None, "5.2", "cnas"),
        Definition("CNAS_convolved", "higher", 0.0, 1.0, 1.0, "2.3", "cnas"),
        Definition("cnas_frozen_drop", "lower", -1.0, 1.0, 0.0, "2.3, 6.3", "cnas"),
        Definition("NI", "neither", -_INFINITE, 1.0, 0.0, "5.2", "ni"),
        Definition("NI_residual", "higher", -_INFINITE, 1.0, 1.0, "5.2", "ni"),
        Definition("NI_invariance", "higher", -_INFINITE, 1.0, 1.0, "2.3", "ni"),
        Definition("DualGap", "lower", 0.0, _INFINITE, 0.0, "2.3, 5.2", "dual-gap"),
        Definition("ratio_log", "lower", 0.0, _INFINITE, 0.0, "appendix", "dual-gap"),
        Definition("Stability", "higher", 0.0, 1.0, 1.0, "5.2", "stability"),
        Definition("Stability_windows", "higher", 0.0, 1.0, 1.0, "2.3", "stability"),
        Definition(
            "SurfaceWasserstein", "lower", 0.0, math.sqrt(2.0), 0.0, "5.2", "surface-wasserstein"
        ),
        Definition(
            "SurfaceWasserstein_quantile", "lower", 0.0, _INFINITE, 0.0, "2.3",
            "surface-wasserstein",
        ),
        Definition("GenGap_p95", "lower", 0.0, _INFINITE, 0.0, "5.2", "gen-gap"),
        Definition("GenGap_p95_score", "lower", 0.0, 1.0, 0.0, "2.3", "gen-gap"),
        *[
            Definition(
                f"d{share}{of}", "neither", 1.0, _INFINITE, None,
                "2.3, 7.3" if "features" in of else "5.2", "effective-dimension",
            )
            for of in spectra
            for share in (90, 95, 99)
        ],
    ]  # fmt: skip


DEFINITIONS = {definition.name: definition for definition in _list_definitions()}
