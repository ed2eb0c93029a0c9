"""The direct fit of a surface to quotes."""

from arbiter.fitting.direct_fit import fit
from arbiter.fitting.fitted_surface import FitResult, FittedSurface
from arbiter.fitting.interior_point import Status
from arbiter.fitting.loss import Loss
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.verdict import FitQuality, FitVerdict
from arbiter.fitting.vix_fit import VixSmiles, fit_vix

__all__ = [
    "FitOptions",
    "FitQuality",
    "FitResult",
    "FitVerdict",
    "FittedSurface",
    "Loss",
    "Roughness",
    "Status",
    "VixSmiles",
    "fit",
    "fit_vix",
]
