"""What one pass says of one chain, and the surface that it becomes."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.inputs import freeze_array, freeze_info
from arbiter.operators import domain
from arbiter.operators.monitors import Monitors, watch
from arbiter.operators.operator_surface import PRIOR, OperatorResult, OperatorSurface
from arbiter.operators.volatility_error import ErrorCalibration, HeadErrors
from arbiter.quotes import Quotes
from arbiter.surface import Surface

logger = logging.getLogger(__name__)


class KnownNetwork(NamedTuple):
    """What is known of the network that made a pass.

    Attributes:
        knots: ``(n,)`` of its slopes.
        model: Hash of its weights.
        lipschitz: Its certified constant.
        limits: Of its domain; none where it came without.
        place: ``(H,)`` asinh of deviations, where its heads are.
        errors: Calibration of its standard errors; None where it came without.
        rate: At which its scans forget, per unit of log-maturity; None without a scan.
    """

    knots: Array
    model: str
    lipschitz: float | None
    limits: domain.Limits
    place: Array
    errors: ErrorCalibration | None
    rate: float | None


class ChainPass(NamedTuple):
    """One chain's part of a pass.

    Attributes:
        quotes: On the operator's own clock.
        slopes: ``(L, n)`` in the star order.
        level: ``(L,)`` logarithm of the reference total volatility.
        residuals: ``(m,)`` model less mid, in half-spreads.
        traits: Of the domain check.
        share: Part of the network's change that is in the slopes.
        doubt: ``(L, H)`` logarithms of the prior's standard errors where it is told.
        seconds: Wall time of the pass, this chain's share.
    """

    quotes: Quotes
    slopes: Array
    level: Array
    residuals: Array
    traits: dict[str, float]
    share: float
    doubt: Array
    seconds: float


def plain_surface(knots: Array, quotes: Quotes, slopes: Array) -> Surface:
    """The surface of slopes ``(L, n)``, without a record."""
    ones, b = freeze_array(np.ones((1, len(slopes)))), freeze_array(slopes[None])
    return Surface(knots, quotes.maturities, b, ones, quotes.curve)


def _watch_pass(quotes: Quotes, slopes: Array, level: Array, network: KnownNetwork) -> Monitors:
    """The monitors of a pass, which no price depends on: a call does not wait for them."""
    zeta = np.arcsinh(quotes.k * np.exp(-level)[quotes.expiry])
    return watch(network.knots, slopes, zeta, quotes.expiry, quotes.maturities, network.rate)


def build_surface(found: ChainPass, network: KnownNetwork) -> OperatorSurface:
    """The surface of a pass with its record; alarms of the domain are logged."""
    began, quotes = time.perf_counter(), found.quotes
    traits, limits = found.traits, network.limits
    report = domain.compare_with_limits(traits, limits) if limits else None
    warnings = [] if report is None or report.inside else [f"quotes {report}"]
    plain = plain_surface(network.knots, quotes, found.slopes)
    about = {
        "model": network.model,
        "lipschitz": network.lipschitz,
        "inside_domain": None if report is None else report.inside,
        "alarms": [] if report is None else [alarm.to_dict() for alarm in report.alarms],
    }
    result = OperatorResult(
        model=network.model,
        lipschitz=network.lipschitz,
        residuals=freeze_array(found.residuals),
        reference=freeze_array(np.exp(found.level) / np.sqrt(quotes.maturities)),
        traits=MappingProxyType(traits),
        share=found.share,
        watch=partial(_watch_pass, quotes, found.slopes, found.level, network),
        seconds=found.seconds + time.perf_counter() - began,
    )
    if result.path == PRIOR:
        warnings.append(
            f"the surface is about that of the prior: {100.0 * found.share:.0f} % of the network's "
            "change is made, since the whole of it, or what the prior misses of the quotes, is far "
            "beyond training"
        )
    for sentence in warnings:
        logger.warning(sentence)
    errors = None
    if network.errors is not None:
        log_error = network.errors.apply(found.doubt, traits["moved"])
        errors = HeadErrors(network.place, freeze_array(log_error))
    return OperatorSurface(
        plain.knots,
        plain.maturities,
        plain.slopes,
        plain.weights,
        plain.curve,
        quotes.as_of,
        freeze_info({**quotes.info, "expiries": list(quotes.labels), "operator": about}),
        result=replace(result, warnings=tuple(warnings)),
        domain=report,
        errors=errors,
    )
