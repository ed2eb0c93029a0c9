"""The shipped operator on real SPX chains, zero-shot, and the fit that refines it.

It was never trained on them; what the universe contains was widened after looking at them.
LIMITS is the one place with thresholds. OPEN names the ones that today's weights do not meet: a
test fails when one of them is met, so that it is taken out.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from arbiter.chains import Chain, read_chain
from arbiter.fitting import fit
from arbiter.operators.pretrained import Operator
from arbiter.scoring import find_counted_quotes, score
from arbiter.surface import Surface
from arbiter.vix.replication import term_structure
from counts import FULL, count

CHAINS = {
    "2023-02-07": "spx_2023-02-07_close.csv",
    "2022-02-04": "spx_2022-02-04_close.csv",
    "2019-05-13": "spx_2019-05-13_0447ET_gth.dat",
    "2023-09-14": "spx_2023-09-14_close.csv",
    "2023-08-18": "spx_2023-08-18_close.csv",
    "2020-09-04": "spx_2020-09-04_close.dat",
    "2022-07-12": "spx_2022-07-12_1155ET.csv",
    "2023-12-08": "spx_2023-12-08_close.csv",
    "2025-01-29": "spx_2025-01-29_long.csv",
    "2026-01-30": "spx_2026-01-30_yahoo.csv",
}
MOMENTS = {"2025-01-29": "2025-01-29T16:15"}  # a file that does not say when
DAYS = list(CHAINS)[: count(full=len(CHAINS), reduced=3)]
WILD = {"2022-02-04"}  # the fit alone has 25 bp there: no ordinary day

LIMITS = {
    "iv_rmse_bp": 15.0,  # within two standard deviations, on ordinary days
    "median_half_spreads": 1.0,
    "vix_gap": 0.5,
    "refined_half_spreads": 1.0,  # over the fit's own
    "refined_outside": 0.0,  # share more than the fit leaves outside bid-ask
    "refined_steps": 0.65,  # over the fit's own
    "refined_steps_counted": 0.65,  # the same of the quotes that `arbiter evaluate` counts
}
OPEN: dict[str, set[str]] = {}  # what is missed on which days; every one of them is in the docs


class Found(NamedTuple):
    zero_shot: dict[str, float]
    refined: dict[str, float]


def index_gap(surface: Surface, chain: Chain) -> float:
    """The rule on the surface's prices at the listed strikes, less the rule on the quotes.

    Both take total variance linear between two Fridays. The surface's own thirty days do not, and
    differ from either by up to half a point: that is the rule's doing (`arbiter vix` shows it).
    """
    row = term_structure(surface, (30,), chain)
    if row["quoted"][0] is None:  # one month of expiries: none on either side of thirty days
        return float("nan")
    return abs(float(row["listed"][0] - row["quoted"][0]))


@cache
def measured(folder: Path, day: str) -> Found:
    """Everything that LIMITS speaks of, and beside it what a reader wants to know."""
    logging.getLogger("arbiter").addHandler(logging.NullHandler())
    chain = read_chain(folder / "chains" / CHAINS[day], as_of=MOMENTS.get(day))
    quotes = chain.quotes()
    operator = Operator.pretrained()
    first, alone = operator(quotes), fit(quotes)
    refined = operator.refine(quotes, first)
    one, direct, both = (score(surface, quotes) for surface in (first, alone, refined))
    fewer = quotes.select(find_counted_quotes(quotes))
    steps = [made.result for made in (operator.refine(fewer), fit(fewer))]
    zero_shot = {
        "iv_rmse_bp": one.iv_rmse_bp,
        "median_half_spreads": float(
            np.median(np.abs(first.result.residuals[find_counted_quotes(quotes)]))
        ),
        "vix_gap": index_gap(first, chain),
        "inside": one.inside_bid_ask,
        "fit_vix_gap": index_gap(alone, chain),
    }
    return Found(
        zero_shot,
        {
            "refined_half_spreads": both.iv_rmse_half_spreads / direct.iv_rmse_half_spreads,
            "refined_outside": direct.inside_bid_ask - both.inside_bid_ask,
            "refined_steps": refined.result.iterations / alone.result.iterations,
            "refined_steps_counted": steps[0].iterations / steps[1].iterations,
            "passed": float(first.certificate().passed and refined.certificate().passed),
        },
    )


def judged(day: str, name: str, value: float) -> None:
    met = value <= LIMITS[name]
    is_open = day in OPEN.get(name, set())
    assert met is not is_open, f"{name} = {value:.3f} on {day}, limit {LIMITS[name]}: " + (
        "it is met now: take it out of OPEN" if met else "not met"
    )


@pytest.mark.parametrize("day", DAYS)
def test_every_surface_is_certified(day: str, data_dir: Path) -> None:
    assert measured(data_dir, day).refined["passed"] == 1.0


@pytest.mark.parametrize("day", [day for day in DAYS if day not in WILD])
def test_volatility_errors_on_ordinary_days(day: str, data_dir: Path) -> None:
    judged(day, "iv_rmse_bp", measured(data_dir, day).zero_shot["iv_rmse_bp"])


@pytest.mark.parametrize("day", DAYS)
def test_the_median_quote_is_met_within_its_spread(day: str, data_dir: Path) -> None:
    name = "median_half_spreads"
    judged(day, name, measured(data_dir, day).zero_shot[name])


@pytest.mark.parametrize("day", [day for day in DAYS if day != "2023-12-08"])
def test_the_index_is_that_of_the_rule(day: str, data_dir: Path) -> None:
    judged(day, "vix_gap", measured(data_dir, day).zero_shot["vix_gap"])


@pytest.mark.parametrize("name", [name for name in LIMITS if name.startswith("refined")])
@pytest.mark.parametrize("day", DAYS)
def test_refined_it_is_no_worse_than_the_fit_in_fewer_steps(
    day: str, name: str, data_dir: Path
) -> None:
    judged(day, name, measured(data_dir, day).refined[name])


def test_a_limit_that_is_missed_or_met_unawares_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(OPEN, "vix_gap", {"some day"})
    with pytest.raises(AssertionError, match="take it out of OPEN"):
        judged("some day", "vix_gap", 0.4)
    with pytest.raises(AssertionError, match="not met"):
        judged("another day", "vix_gap", 0.6)
    for name, least in (("refined_half_spreads", 1.001), ("refined_outside", 1e-4)):
        with pytest.raises(AssertionError, match="not met"):
            judged("another day", name, least)
    assert not FULL or set(DAYS) == set(CHAINS)
