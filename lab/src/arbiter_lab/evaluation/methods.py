"""The methods of the comparison by name: operator, fits, peers and baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, cast

from arbiter.quotes import Quotes
from arbiter.scoring import Model

if TYPE_CHECKING:
    from arbiter.operators.pretrained import Operator
    from arbiter_lab.baselines.trained_baseline import Baseline
    from arbiter_lab.evaluation.convex_decoder_model import ConvexOperator
    from arbiter_lab.evaluation.first_design import FirstDesign

    TrainedOperator = Operator | FirstDesign | ConvexOperator

DEFAULT_METHODS = ("prior", "operator", "refine", "fit", "svi")
"""Methods that are compared if none is named; on markets of Heston's also ``heston``."""
TRAINED_BASELINES = ("ssm", "gru", "transformer")
"""Baselines that need a trained network; none is shipped."""
METHOD_NAMES = (*DEFAULT_METHODS, "heston", "ssvi", "fit_then_clean", *TRAINED_BASELINES)

# module and function of methods that need nothing but quotes; imported when they are chosen
_FITS = {
    "prior": ("arbiter_lab.evaluation.prior_surface", "prior_surface"),
    "fit": ("arbiter.fitting", "fit"),
    "heston": ("arbiter_lab.evaluation.heston_row", "calibrate_heston"),
    "svi": ("arbiter_lab.peers", "fit_svi"),
    "ssvi": ("arbiter_lab.peers", "fit_ssvi"),  # keeps to conditions without static arbitrage
    "fit_then_clean": ("arbiter_lab.baselines.cleaned_svi", "fit_then_clean"),
}


@dataclass(frozen=True)
class Method:
    """A function from quotes to models.

    Attributes:
        name: Name in tables.
        solve: Returns one model per chain.
        promises: Whether the method claims to be free of static arbitrage.
    """

    name: str
    solve: Callable[[Sequence[Quotes]], Sequence[Model]]
    promises: bool = True


def load_operator(weights: str | PathLike[str] | None = None) -> Operator:
    """Load the operator of a checkpoint; the shipped one if left out."""
    from arbiter.operators.pretrained import Operator

    return Operator.pretrained() if weights is None else Operator.load(weights)


def load_any_operator(weights: str | PathLike[str]) -> TrainedOperator:
    """Load the operator of a checkpoint: the library's, or one of the first design.

    Raises:
        FileNotFoundError: If the file does not exist.
        CheckpointError: If it is not a readable checkpoint of an operator.
    """
    from arbiter.operators import checkpoint
    from arbiter_lab.evaluation.convex_decoder_model import ConvexOperator
    from arbiter_lab.evaluation.first_design import FirstDesign

    config = checkpoint.load(weights)[1].get("config")
    decoder = config.get("decoder") if isinstance(config, dict) else None
    if decoder is None:  # the law network has one decoder, and does not name it
        return load_operator(weights)
    return ConvexOperator.load(weights) if decoder == "icnn" else FirstDesign.load(weights)


def default_method_names(trained: TrainedOperator | None, heston: bool = False) -> list[str]:
    """Return the default methods; ``refine`` only for an operator that gives a surface.

    Args:
        trained: The operator.
        heston: Whether the markets are Heston's, where calibrating that model is the bound.
    """
    names = [name for name in DEFAULT_METHODS if name != "refine" or hasattr(trained, "refine")]
    return [*names, "heston"] if heston else names


def select_methods(
    names: Sequence[str],
    trained: TrainedOperator | None = None,
    networks: Mapping[str, Baseline] | None = None,
) -> list[Method]:
    """Return methods by name, in the order given.

    Args:
        names: Some of :data:`METHOD_NAMES`.
        trained: The operator, which ``operator`` and ``refine`` need.
        networks: The trained baselines among the names, by name.

    Raises:
        ValueError: If a name is unknown or given twice, or the operator or a baseline is missing.
    """
    given = networks or {}
    for name in names:
        if name not in METHOD_NAMES:
            raise ValueError(f"method {name!r} is not one of {', '.join(METHOD_NAMES)}")
        if list(names).count(name) > 1:
            raise ValueError(f"method {name!r} is named twice: name it once")
        if trained is None and name in ("operator", "refine"):
            raise ValueError(f"method {name!r} needs an operator: give trained=Operator.load(path)")
        if name == "refine" and not hasattr(trained, "refine"):
            raise ValueError(
                "method 'refine' leans on a surface, and the decoder 'icnn' gives prices on a "
                "grid: leave it out"
            )
        if name in TRAINED_BASELINES and name not in given:
            raise ValueError(
                f"method {name!r} needs a trained network: give networks={{{name!r}: "
                "Baseline.load(path)}"
            )
    return [_build_method(name, trained, given) for name in names]


def _build_method(
    name: str, trained: TrainedOperator | None, networks: Mapping[str, Baseline]
) -> Method:
    if name in networks:
        return Method(name, networks[name].many, promises=False)
    if name in _FITS:
        module, function = _FITS[name]
        return _method_per_chain(name, getattr(import_module(module), function), name != "svi")
    if name == "refine":
        return _method_per_chain(name, cast("Operator | FirstDesign", trained).refine)
    return Method(name, cast("TrainedOperator", trained).many)


def _method_per_chain(name: str, solve: Callable[[Quotes], Model], promises: bool = True) -> Method:
    return Method(name, lambda chains: [solve(quotes) for quotes in chains], promises)
