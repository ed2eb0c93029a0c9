"""The VIX from SPX quotes alone, and the operator's VIX side: errors by date, and what was stated.

Markets with both an index and its VIX, drawn from the prior of the synthetic universe by a seed
that training has not seen, and the presets. *SPX alone*: futures, at-the-money volatilities and
VVIX of ``vix_prior`` on surfaces of noisy SPX quotes, their errors, the deviations that it states,
and the share of errors within two of them. *With VIX quotes*: the operator's VIX side. *Day*:
2023-02-15 by SPX quotes alone, where ``ARBITER_DATA`` names the folder with it.

    python -m benchmarks.vix_from_spx [--markets 40] [--method operator] [--json PATH] [--markdown]
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import arbiter as ab
from arbiter.conventions import Array
from arbiter.markets.snapshots import Snapshot
from arbiter.models.parameters import PRESETS, draw
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from benchmarks.joint_fit import joint_day, snapshot, told, vix_side

Row = dict[str, Any]
SEED = 20_261_116
METHODS = ("operator", "fit")


def made_by(method: str) -> Callable[[Quotes], Surface]:
    """What makes surfaces of quotes."""
    return ab.Operator.pretrained() if method == "operator" else ab.fit


def snapshots(count: int) -> Iterator[Snapshot]:
    """One moment of each preset and of some draws; without those whose VIX has no computed law."""
    draws = (draw(np.random.default_rng([SEED, number])) for number in range(count))
    for number, parameters in enumerate(chain(PRESETS.values(), draws)):
        try:
            yield snapshot(parameters, [SEED, number])
        except (ValueError, ArithmeticError):
            continue


def tables(count: int, method: str) -> dict[str, list[Row]]:
    """Root mean squares by date."""
    alone: list[Array] = []
    together: list[Array] = []
    operator = ab.Operator.pretrained()
    for made in snapshots(count):
        market, (quotes, futures) = made.market, vix_side(made)
        T = futures.maturities
        exact = np.asarray(market.vix_future(T))
        truth = np.asarray(market.vix_iv(exact, T))
        vvix = np.asarray(market.vvix(T))
        surface = made_by(method)(made.quotes)
        prior = ab.vix_prior(surface, T)
        said = (prior.future(T), prior.iv(exact, T), prior.vvix(T))
        off = [value - known for (value, _), known in zip(said, (exact, truth, vvix), strict=True)]
        stated = [deviation for _, deviation in said]
        alone.append(np.array([*off, *stated]))
        with_vix = operator(made.quotes, vix_quotes=quotes, vix_futures=futures)
        K = quotes.forwards[quotes.expiry] * np.exp(quotes.k)
        square = (with_vix.vix_iv(K, quotes.T) - market.vix_iv(K, quotes.T)) ** 2
        many = np.bincount(quotes.expiry, minlength=T.size)
        by_date = np.bincount(quotes.expiry, square, T.size) / np.maximum(many, 1)
        mids = np.bincount(
            quotes.expiry, (quotes.iv_mid - market.vix_iv(K, quotes.T)) ** 2, T.size
        ) / np.maximum(many, 1)
        future, width = with_vix.vix_future(T) - exact, with_vix.vvix(T) - vvix
        together.append(np.array([future**2, (futures.mid - exact) ** 2, by_date, mids, width**2]))
    errors, with_quotes = np.array(alone), np.array(together)  # (M, 6, dates), (M, 5, dates)
    rms = np.sqrt((errors**2).mean(0))
    within = (np.abs(errors[:, :3]) <= 2.0 * errors[:, 3:]).mean(0)
    days = [round(365.0 * t) for t in T]
    first = [
        {
            "days": day,
            "future": rms[0, i], "stated": rms[3, i], "within 2": within[0, i],
            "ATM IV (bp)": 1e4 * rms[1, i], "stated (bp)": 1e4 * rms[4, i],
            "within 2 ": within[1, i],
            "VVIX": rms[2, i], "stated ": rms[5, i], "within 2  ": within[2, i],
        }
        for i, day in enumerate(days)
    ]  # fmt: skip
    both = np.sqrt(with_quotes.mean(0)) * np.array([1.0, 1.0, 1e4, 1e4, 1.0])[:, None]
    names = ("future", "its mid", "VIX IV (bp)", "its mids (bp)", "VVIX")
    second = [
        {"days": day, **dict(zip(names, both[:, i].tolist(), strict=True))}
        for i, day in enumerate(days)
    ]
    return {f"SPX alone, {len(errors)} markets, {method}": first, "with VIX quotes": second}


def day(method: str) -> list[Row]:
    """The real day: what the index makes likely, and what was quoted."""
    real = joint_day()
    if real is None:
        return []
    spx, vix = real
    surface, T = made_by(method)(spx), vix.maturities
    prior = ab.vix_prior(surface, T)
    (future, deviation), (vvix, width) = prior.future(T), prior.vvix(T)
    quoted = ab.fit_vix(vix)
    with_quotes = ab.Operator.pretrained()(spx, vix_quotes=vix)
    root = 100.0 * np.sqrt(surface.forward_variance(T))
    return [
        {
            "date": vix.labels[i],
            "future": float(vix.forwards[i]),
            "√FV": float(root[i]),
            "SPX alone": f"{future[i]:.2f} ± {deviation[i]:.2f}",
            "with VIX quotes": float(with_quotes.vix_future(T[i])),
            "VVIX": float(quoted.vvix(T[i])),
            "VVIX, SPX alone": f"{vvix[i]:.1f} ± {width[i]:.1f}",
            "VVIX, with VIX quotes": float(with_quotes.vvix(T[i])),
        }
        for i in range(T.size)
    ]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--markets", type=int, default=40)
    parser.add_argument("--method", choices=METHODS, default="operator")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    results = {**tables(given.markets, given.method), "day": day(given.method)}
    told(results, given.markdown, given.json)


if __name__ == "__main__":
    main()
