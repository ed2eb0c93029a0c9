"""How well transport slopes represent the oracle's surfaces, preset by preset.

Exact prices of 14 maturities × 33 strikes from −3.5 to 2 standard deviations, quoted with
half-spreads of 0.01 basis points of volatility, are given to the direct fit with one and with two
components: what remains is what the decoder cannot represent (or the fit does not find). The
states are days of a path, so that each preset has calm and stressed surfaces; as many markets are
drawn from the prior.

Beside it, whether the star order holds in the model itself: the slope of the transport,
``b(x) = φ(x)/g(k)`` with g the density of log X at the percentile of x, must not decrease in T.

    python -m benchmarks.representation [--days 20] [--json PATH] [--picture PATH]
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, fit
from arbiter.markets import LiftedHeston, draw
from arbiter.models.parameters import PRESETS
from arbiter.quotes import Quotes
from benchmarks.oracle import STRIKES, T, states

BASIS_POINT = 1e-4
HALF = 0.01 * BASIS_POINT
PRIOR, PRIOR_JUMPS = "prior", "prior with jumps"
PERCENTILES = np.linspace(-3.0, 2.5, 56)  # Gaussian coordinates at which slopes are compared


def quoted(market: LiftedHeston, state: Array) -> tuple[Quotes, Array, Array]:
    """Nearly exact quotes of a state, with their strikes and volatilities."""
    k = np.linspace(-3.5, 2.0, STRIKES) * np.sqrt(market.log_variance(T, state))[:, None]
    iv = market.iv(k, T[:, None], state)
    seen = np.isfinite(iv)
    frame = {
        "T": np.broadcast_to(T[:, None], k.shape)[seen],
        "k": k[seen],
        "iv_bid": iv[seen] - HALF,
        "iv_ask": iv[seen] + HALF,
    }
    return Quotes.from_frame(frame), k, iv


def slopes(market: LiftedHeston, state: Array) -> Array:
    """``(L, x)`` slopes of the model's own transports."""
    out = np.empty((T.size, PERCENTILES.size))
    for row, t in enumerate(T):
        deviation = float(np.sqrt(market.log_variance(t, state)))
        # heavy tails: the percentile of −3 can lie ten deviations out
        k = np.linspace(max(-14.0 * deviation, -15.9), 6.0 * deviation, 2001)
        below = 1.0 - market.digital(k, t, state)
        inside = np.flatnonzero(np.diff(below) > 0.0)
        at = np.interp(ndtr(PERCENTILES), below[inside], k[inside])
        density = market.density(at, t, state) * np.exp(at)
        out[row] = np.exp(-0.5 * PERCENTILES**2) / np.sqrt(2.0 * np.pi) / density
    return out


def surfaces(days: int) -> Iterator[tuple[str, int, LiftedHeston, Array]]:
    """Days of a path of each preset, and as many starts of markets drawn from the prior."""
    for name, parameters in PRESETS.items():
        market = LiftedHeston.of(parameters)
        path = states(market, 1_000)
        for day in np.linspace(0, 999, days).astype(int).tolist():
            yield name, day, market, path[day]
    rng = np.random.default_rng(9)
    for draw_number in range(days):
        market = LiftedHeston.of(draw(rng))
        name = PRIOR if market.jumps is None else PRIOR_JUMPS
        yield name, draw_number, market, np.zeros(market.factors)


def run(days: int) -> list[dict[str, Any]]:
    rows = []
    for name, day, market, state in surfaces(days):
        quotes, k, iv = quoted(market, state)
        falls = np.diff(slopes(market, state), axis=0)
        row: dict[str, Any] = {
            "preset": name,
            "day": day,
            "vix": float(market.vix(state)),
            "star_order_share": float((falls >= 0.0).mean()),
            "star_order_exact": bool((falls >= 0.0).all()),
        }
        for components in (1, 2):
            start = time.perf_counter()
            surface = fit(quotes, options=FitOptions(components=components, finest=HALF))
            error = surface.iv(k, T[:, None]) - iv
            row[f"rmse_bp_{components}"] = float(np.sqrt(np.nanmean(error**2))) / BASIS_POINT
            row[f"max_bp_{components}"] = float(np.nanmax(np.abs(error))) / BASIS_POINT
            row[f"seconds_{components}"] = time.perf_counter() - start
            row[f"status_{components}"] = surface.result.status.name
        rows.append(row)
        print(
            f"{name:17s} {day:4d} vix {row['vix']:5.1f}  J=1 {row['rmse_bp_1']:7.3f} "
            f"(max {row['max_bp_1']:7.2f})  J=2 {row['rmse_bp_2']:7.3f} "
            f"(max {row['max_bp_2']:7.2f})  star order {row['star_order_share']:.4f}",
            flush=True,
        )
    return rows


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Histograms of the error, one panel per number of components."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["preset"] for row in rows))
    edges = np.geomspace(1e-3, 30.0, 28)
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.2), sharey=True, layout="constrained")
    for components, ax in zip((1, 2), axes, strict=True):
        values = [
            [row[f"rmse_bp_{components}"] for row in rows if row["preset"] == name]
            for name in names
        ]
        ax.hist(values, bins=edges, stacked=True, label=names)
        ax.set(xscale="log", xlabel="IV RMSE, basis points", title=f"J = {components}")
    axes[0].set_ylabel("surfaces")
    axes[1].legend(fontsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def table(rows: list[dict[str, Any]]) -> str:
    """Medians and worst cases per preset as a Markdown table, basis points of volatility."""
    lines = [
        "| preset | surfaces | J=1 median | J=1 worst | J=2 median | J=2 worst "
        "| star order holds exactly | share of slopes in order |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["preset"] for row in rows):
        mine = [row for row in rows if row["preset"] == name]
        one, two = ([row[f"rmse_bp_{j}"] for row in mine] for j in (1, 2))
        exact = sum(row["star_order_exact"] for row in mine)
        share = np.mean([row["star_order_share"] for row in mine])
        lines.append(
            f"| {name} | {len(mine)} | {np.median(one):.2f} | {max(one):.2f} "
            f"| {np.median(two):.2f} | {max(two):.2f} | {exact} of {len(mine)} | {share:.4f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args()
    logging.getLogger("arbiter").setLevel(logging.ERROR)
    rows = run(chosen.days)
    print(table(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1))
    if chosen.picture:
        picture(rows, chosen.picture)


if __name__ == "__main__":
    main()
