"""The direct fit in the place of the operator, for quotes unlike those of training; only if asked.

A fit takes longer than a pass, and a rule that chooses between two surfaces is a jump in the
quotes. So neither happens unless the caller asks for it.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from typing import Literal

from arbiter.fitting import FittedSurface, fit
from arbiter.futures import FuturesCurve
from arbiter.inputs import freeze_info
from arbiter.operators.operator_surface import OperatorSurface
from arbiter.quotes import Quotes

Fallback = Literal["fit"] | None


def require_fallback(fallback: Fallback, limits: Sized) -> None:
    """Refuse a fallback that is not known, or that nothing could ever call for.

    Args:
        fallback: What was asked for.
        limits: Of the domain that the weights know.
    """
    if fallback not in (None, "fit"):
        raise ValueError(f"fallback = {fallback!r}: give 'fit', or leave it out")
    if fallback is not None and not limits:
        raise ValueError(
            f"fallback = {fallback!r}: these weights have no limits of their domain, so no quotes "
            "are outside; calibrate the limits, or take fit(quotes)"
        )


def is_outside(surface: OperatorSurface) -> bool:
    """Whether the quotes of a surface are unlike those of training, as far as that is known."""
    return surface.domain is not None and not surface.domain.inside


def fit_instead(
    surface: OperatorSurface,
    quotes: Quotes,
    vix_quotes: Quotes | None = None,
    vix_futures: FuturesCurve | None = None,
) -> FittedSurface:
    """The direct fit to quotes, with what the operator said of them.

    Args:
        surface: The operator's answer, whose alarms the fit's warnings begin with.
        quotes: Those of the index.
        vix_quotes: Options on the VIX; the fit is the joint one then.
        vix_futures: Futures on the VIX.
    """
    found = fit(quotes, vix_quotes=vix_quotes, vix_futures=vix_futures)
    warnings = (*surface.result.warnings, *found.result.warnings)
    return replace(
        found,
        info=freeze_info({**found.info, "operator": surface.info["operator"]}),
        result=replace(found.result, warnings=warnings),
    )
