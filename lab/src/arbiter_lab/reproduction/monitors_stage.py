"""Stage ``monitors``: assumptions A1 to A4, the regression of section 7.2, dimensions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.models.parameters import preset
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.metrics.effective_dimension import effective_dimensions
from arbiter_lab.protocol.folds import Fold
from arbiter_lab.protocol.monitors import (
    local_orders,
    measure_scan_memories,
    switch_rate,
    window_martingales,
)
from arbiter_lab.reproduction.coverage_windows import regress_error_on_gap
from arbiter_lab.reproduction.models import SMALL, list_checkpointed, list_untrained
from arbiter_lab.reproduction.networks import describe_network
from arbiter_lab.reproduction.scored_days import (
    KAPPA,
    LAW_MATURITIES,
    MATURITIES,
    Days,
    first_fold,
    read_days,
)
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.reproduction.training_stage import POOLS_FOLDER, weights_of
from arbiter_lab.training.held_out import HeldOut
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.pool_files import load_pool
from arbiter_lab.training.routes import make_route

WINDOW_DAYS = 30
_SMOOTHNESS_POINTS = 65  # log-strikes at which smoothness is measured
_SMOOTHNESS_REACH_SD = 2.0  # deviations


def make_monitors(context: StageContext) -> Facts:
    """Return the four monitors on the days out of sample, and facts of the checkpoints."""
    days = read_days(context.folder_of("days") / context.profile.market)
    fold = first_fold(context.profile)
    parts = ("A1", "A2", "A3", "regression", "dimensions", "networks")

    def tell(name: str) -> None:
        context.tell(name, parts.index(name), len(parts))

    tell("A1")
    switched = _measure_switch_rate(context, days, fold.windows)
    tell("A2")
    operator = FirstDesign.load()
    smooth = _smoothness(operator, days, int(fold.test[-1]))
    tell("A3")
    networks = {"operator": operator.network, **_load_small_network(context)}
    chain = days.quotes[int(fold.test[-1])]
    memories = {
        name: {scan: asdict(memory) for scan, memory in measure_scan_memories(net, chain).items()}
        for name, net in networks.items()
    }
    tell("regression")
    regression = _regression(context, days, fold)
    tell("dimensions")
    dimensions = {"inputs": _dimensions(input_rows(days, fold.test), "")} | {
        name: _dimensions(features(net, days, fold.test), "features")
        for name, net in networks.items()
    }
    tell("networks")
    known = _describe_networks(context, days, fold)
    return {
        "A1": switched,
        "A2": smooth,
        "A3": memories,
        "A4": {"windows": context.read_facts("days")["coverage_windows"]},
        "regression": regression,
        "dimensions": dimensions,
        "networks": known,
    }


def _load_small_network(context: StageContext) -> dict[str, Network]:
    """Load the network of the small width; empty if its training diverged."""
    trained = context.read_facts("train")
    if "reason" in trained["runs"][SMALL]:
        return {}
    loaded = FirstDesign.load(weights_of(context.folder_of("train"), trained, SMALL))
    return {SMALL: loaded.network}


def _regression(context: StageContext, days: Days, fold: Fold) -> Facts:
    name = f"{SMALL}_representer"
    run = context.read_facts("train")["runs"].get(name)
    if run is None or "reason" in run:
        return {"reason": "the network with the representer was not trained"}
    return regress_error_on_gap(
        context.folder_of("train") / name,
        _load_held_out_laws(context),
        days,
        fold.windows,
        context.profile.gap_windows,
    )


def _describe_networks(context: StageContext, days: Days, fold: Fold) -> Facts:
    """Return facts of the operator and of every checkpoint."""
    settings = context.profile.small
    exam = HeldOut(settings, _load_held_out_laws(context), make_route(settings).make_lesson)
    every = [*list_untrained(["operator"]), *list_checkpointed(context.checkpoints)]
    return {
        entry.name: describe_network(entry, days, fold.test, exam)
        for entry in every
        if not entry.missing and entry.projected
    }


def _load_held_out_laws(context: StageContext) -> Laws:
    small = context.profile.small
    pools = context.folder_of("train") / POOLS_FOLDER
    return load_pool(small.held_out, small.held_out_seed, pools, "cpu").laws


def input_rows(days: Days, rows: NDArray[np.int64]) -> Array:
    """Return ``(N, L·S)`` quoted mid volatilities of each day on the common grid."""
    return np.stack([_interpolate_on_grid(days.quotes[i]) for i in rows.tolist()])


@torch.no_grad()
def features(network: Network, days: Days, rows: NDArray[np.int64]) -> Array:
    """Return ``(N, d)`` states before the head, one row for each slice of each day."""
    dtype = next(network.parameters()).dtype
    found = [network(pad_chains([days.quotes[i]], dtype)).features[0] for i in rows.tolist()]
    return np.asarray(torch.cat(found).double().numpy())


def _measure_switch_rate(
    context: StageContext, days: Days, windows: tuple[NDArray[np.int64], ...]
) -> dict[str, Any]:
    """Measure A1 over windows that begin on days out of sample, equally many per block."""
    profile = context.profile
    each = max(1, profile.windows // len(windows))
    starts = [
        block[np.unique(np.linspace(0, block.size - 1, each).round().astype(int))]
        for block in windows
    ]
    label = np.repeat(np.arange(len(starts)), [s.size for s in starts])
    paths = window_martingales(
        preset(profile.market), days.states[np.concatenate(starts)], WINDOW_DAYS,
        paths=profile.paths, seed=profile.seed,
    )  # fmt: skip
    found = switch_rate(paths.end, paths.variation)
    return {
        "rate": found.rate,
        "interval": found.interval,
        "windows": found.switched.size,
        "by_block": [float(found.switched[label == b].mean()) for b in range(len(starts))],
        "in_block": [int((label == b).sum()) for b in range(len(starts))],
        "gap": found.gap,
        "novikov_holds": float(found.holds.mean()),
    }


def _smoothness(trained: FirstDesign, days: Days, day: int) -> dict[str, Any]:
    """Measure A2 of the oracle's and the operator's smiles and of linearly interpolated quotes."""
    state, quotes = days.states[day], days.quotes[day]
    scale = np.sqrt(days.market.log_variance(LAW_MATURITIES, state))[:, None]
    k = scale * np.linspace(-_SMOOTHNESS_REACH_SD, _SMOOTHNESS_REACH_SD, _SMOOTHNESS_POINTS)
    T = np.broadcast_to(LAW_MATURITIES[:, None], k.shape)
    surface = trained(quotes)
    smiles = {
        "oracle": days.market.iv(k, T, state),
        "operator": surface.iv(k, T),
        "quotes": np.stack(
            [_interpolate_slice(quotes, t, row) for t, row in zip(LAW_MATURITIES, k, strict=True)]
        ),
    }
    found = {}
    for name, smile in smiles.items():
        order = local_orders(smile)
        found[name] = {"lowest": order.lowest_order, "share_below": order.share_below}
    return found


def _dimensions(rows: Array, suffix: str) -> dict[str, float | None]:
    plain = effective_dimensions(rows, suffix=suffix)
    centred = effective_dimensions(rows, suffix=suffix, centred=True)
    return {metric.name: metric.value for metric in (*plain, *centred)}


def _interpolate_on_grid(quotes: Quotes) -> Array:
    return np.concatenate([_interpolate_slice(quotes, t, np.log(KAPPA)) for t in MATURITIES])


def _interpolate_slice(quotes: Quotes, T: float, k: Array) -> Array:
    """Interpolate mid volatilities of the expiry nearest to T, linearly, flat outside."""
    near = int(np.abs(quotes.maturities - T).argmin())
    here = quotes.expiry == near
    mid = 0.5 * (quotes.iv_bid + quotes.iv_ask)[here]
    return np.asarray(np.interp(k, quotes.k[here], mid))
