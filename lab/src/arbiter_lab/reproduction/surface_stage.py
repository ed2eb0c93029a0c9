"""Stage ``portrait``: the operator's surface, the exact one and the quotes of one day."""

from __future__ import annotations

import numpy as np

from arbiter.conventions import DAYS_PER_YEAR
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.reproduction.scored_days import first_fold, read_days
from arbiter_lab.reproduction.stages import Facts, StageContext

LOG_STRIKES = np.linspace(-0.30, 0.15, 61)
YEARS = np.geomspace(14.0, 600.0, 45) / DAYS_PER_YEAR
LEG_MONEYNESS = (0.9, 1.0, 1.1)
"""Moneyness of the three legs whose prices are drawn along maturities."""


def make_portrait(context: StageContext) -> Facts:
    """Return volatilities and prices on fine grids, of the last day out of sample."""
    days = read_days(context.folder_of("days") / context.profile.market)
    day = int(first_fold(context.profile).test[-1])
    quotes, state = days.quotes[day], days.states[day]
    context.tell("portrait", 0, 1)
    surface = FirstDesign.load()(quotes)
    T = YEARS[:, None]
    k, at = np.broadcast_arrays(LOG_STRIKES, T)
    legs = np.log(np.array(LEG_MONEYNESS))
    leg_k, leg_T = np.broadcast_arrays(legs, T)
    parity = np.maximum(1.0 - np.array(LEG_MONEYNESS), 0.0)
    facts = {
        "day": day,
        "model": "operator",
        "k": LOG_STRIKES,
        "T": YEARS,
        "iv": surface.iv(k, at),
        "exact_iv": days.market.iv(k, at, state),
        "legs": LEG_MONEYNESS,
        "leg_calls": surface.otm(legs, T) + parity,
        "leg_calls_exact": days.market.otm(leg_k, leg_T, state) + parity,
        "quotes": {
            "k": quotes.k,
            "T": quotes.T,
            "iv": 0.5 * (quotes.iv_bid + quotes.iv_ask),
        },
    }
    context.tell("portrait", 1, 1)
    return facts
