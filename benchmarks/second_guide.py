"""What Heston's market as a second guide does to a refinement, where it is true and where not.

Errors of volatility against the oracle, root mean squares over surfaces: of the operator, of a
refinement that leans on it alone, and of one that may lean on Heston's market as well. The unseen
surfaces are no Heston markets; *sparse* are these with the quotes of the hard benchmark,
half-spreads of 1.5 % to 6 % of volatility and a quarter of the strikes, six a slice at least.

    python -m benchmarks.second_guide [--heston 50] [--unseen 300] [--cache DIR] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from arbiter.operators.pretrained import Operator
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import (
    KEPT_SHARE_HARD,
    MIN_QUOTES_PER_SLICE,
    half_spread,
    heston_case,
)
from arbiter_lab.evaluation.known_surface import Case, quotes_from_volatilities
from arbiter_lab.evaluation.stored_surfaces import load_unseen_surfaces

_SEED = 20_261_116


def sparse(case: Case, number: int) -> Case:
    """The surface with quotes as those of a hard one."""
    rng = np.random.default_rng([_SEED, number])
    iv = np.where(case.listed, case.iv, 1.0)
    half = half_spread(case.deviations, iv, hard=True)
    order = np.where(case.listed, rng.uniform(size=iv.shape), np.inf)
    least = np.sort(order, axis=1)[:, MIN_QUOTES_PER_SLICE - 1 : MIN_QUOTES_PER_SLICE]
    quoted = case.listed & ((order < KEPT_SHARE_HARD) | (order <= least))
    mid = iv + half * rng.uniform(-1.0, 1.0, iv.shape)
    return replace(
        case, quotes=quotes_from_volatilities(case.T, case.k, mid, half, quoted), quoted=quoted
    )


def squares(surface: Surface, case: Case) -> float:
    """Mean square of the errors at all listed strikes, in squared basis points."""
    found = surface.iv(np.where(case.listed, case.k, 0.0), case.T[:, None])
    return float(np.mean((1e4 * (found - case.iv)[case.listed]) ** 2))


def row(name: str, cases: Sequence[Case], operator: Operator) -> dict[str, Any]:
    """Root mean squares over the cases, and how often Heston's market had most of the weight."""
    errors, weights = [], []
    for case in track(cases, name, transient=True):
        guide = operator(case.quotes)
        alone = operator.refine(case.quotes, guide, heston=False)
        both = operator.refine(case.quotes, guide)
        errors.append([squares(one, case) for one in (guide, alone, both)])
        weights.append(both.info.get("heston", {"weight": 0.0})["weight"])
    found = np.sqrt(np.mean(errors, axis=0)).tolist()
    return {
        "surfaces": name,
        "count": len(cases),
        "operator_bp": found[0],
        "refined_bp": found[1],
        "refined_heston_bp": found[2],
        "mostly_heston": float(np.mean(np.array(weights) > 0.5)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heston", type=int, default=50)
    parser.add_argument("--unseen", type=int, default=300)
    parser.add_argument("--cache", type=Path, default=Path("evaluation/surfaces"))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    operator, unseen = Operator.pretrained(), load_unseen_surfaces(chosen.unseen, chosen.cache)
    rows = [
        row("Heston", [heston_case(i) for i in range(chosen.heston)], operator),
        row("Heston, hard", [heston_case(i, hard=True) for i in range(chosen.heston)], operator),
        row("unseen", unseen, operator),
        row("unseen, sparse", [sparse(case, i) for i, case in enumerate(unseen)], operator),
    ]
    table = Table("surfaces", "", "operator", "refined", "with Heston's", "mostly Heston's")
    for one in rows:
        errors = (f"{one[key]:.2f}" for key in ("operator_bp", "refined_bp", "refined_heston_bp"))
        table.add_row(one["surfaces"], str(one["count"]), *errors, f"{one['mostly_heston']:.1%}")
    Console().print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
