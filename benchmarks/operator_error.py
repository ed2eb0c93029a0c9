"""How often one and two standard errors of the operator's volatility hold the truth.

*Held-out laws* are of the training universe, from a seed that neither training nor any calibration
drew; *Heston* and *Heston, hard* are the benchmark's surfaces, *unseen* those of the evaluation,
whose laws lie outside the training prior. Every listed strike counts, quoted or not.

    python -m benchmarks.operator_error [--weights FILE] [--laws N] [--chains N] [--heston N]
        [--unseen N] [--cache DIR]
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table as PrintedTable

from arbiter.conventions import Array
from arbiter.operators.pretrained import Operator
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.stored_surfaces import load_unseen_surfaces
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.law_pool import make_laws
from benchmarks.operator_domain import Table, training_tables

SEED = 31_415_926


def score_laws(operator: Operator, drawn: Sequence[tuple[Table, Batch, int]]) -> list[Array]:
    """``(N,)`` errors of volatility in standard errors, of each chain of the training universe."""
    scores = []
    surfaces = operator.many([table.quotes() for table, _, _ in drawn])
    for surface, (_, batch, row) in zip(surfaces, drawn, strict=True):
        place = np.nonzero(batch.target[row].numpy())
        truth, k = (x[row].double().numpy()[place] for x in (batch.target_iv, batch.target_k))
        T = surface.maturities[place[0]]
        scores.append((surface.iv(k, T) - truth) / surface.iv_error(k, T))
    return scores


def score_cases(operator: Operator, cases: Sequence[Case]) -> list[Array]:
    """The same of surfaces with a known truth."""
    scores = []
    for case, surface in zip(cases, operator.many([one.quotes for one in cases]), strict=True):
        at: NDArray[np.bool_] = case.listed
        k, T = case.k[at], np.broadcast_to(case.T[:, None], at.shape)[at]
        scores.append((surface.iv(k, T) - case.iv[at]) / surface.iv_error(k, T))
    return scores


def covered(scores: Sequence[Array]) -> tuple[float, float]:
    """Shares of points within one and within two errors; what is no number is outside."""
    every = np.abs(np.nan_to_num(np.concatenate(scores), nan=np.inf))
    return float(np.mean(every <= 1.0)), float(np.mean(every <= 2.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--laws", type=int, default=200)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--heston", type=int, default=50)
    parser.add_argument("--unseen", type=int, default=300)
    parser.add_argument("--cache", type=Path, default=Path("evaluation/surfaces"))
    given = parser.parse_args()
    logging.getLogger("arbiter").setLevel(logging.ERROR)
    operator = Operator.pretrained() if given.weights is None else Operator.load(given.weights)
    drawn = training_tables(make_laws(given.laws, SEED), given.chains, SEED)
    rows = {
        "held-out laws": score_laws(operator, drawn),
        "Heston": score_cases(operator, [heston_case(i) for i in range(given.heston)]),
        "Heston, hard": score_cases(operator, [heston_case(i, True) for i in range(given.heston)]),
        "unseen": score_cases(operator, load_unseen_surfaces(given.unseen, given.cache)),
    }
    table = PrintedTable("surfaces", "number", "within one error", "within two", box=MARKDOWN)
    for name, scores in rows.items():
        one, two = covered(scores)
        table.add_row(name, f"{len(scores):,}", f"{100.0 * one:.1f} %", f"{100.0 * two:.1f} %")
    Console().print(table)


if __name__ == "__main__":
    main()
