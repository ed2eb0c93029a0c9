"""Methods that are compared: the operator, the fit that starts from it, the fit alone, and SVI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from arbiter.quotes import Quotes
from arbiter.scoring import Model

if TYPE_CHECKING:
    from arbiter.operators.pretrained import Operator

NAMES = ("operator", "refine", "fit", "svi")


@dataclass(frozen=True)
class Method:
    """Something that makes models of quotes.

    Attributes:
        name: What tables call it.
        solve: Models of several chains at once.
        promises: Whether it says of itself that nothing can be arbitraged.
    """

    name: str
    solve: Callable[[Sequence[Quotes]], Sequence[Model]]
    promises: bool = True


def operator(weights: str | PathLike[str] | None = None) -> Operator:
    """The operator of a checkpoint; the one that ships if left out."""
    from arbiter.operators.pretrained import Operator

    return Operator.pretrained() if weights is None else Operator.load(weights)


def methods(names: Sequence[str], trained: Operator | None = None) -> list[Method]:
    """Methods by name, in the order given.

    Args:
        names: Of :data:`NAMES`.
        trained: The operator, which ``operator`` and ``refine`` need.

    Raises:
        ValueError: If a name is not known, or comes twice, or the operator is missing.
    """
    for name in names:
        if name not in NAMES:
            raise ValueError(f"method {name!r} is not one of {', '.join(NAMES)}")
        if list(names).count(name) > 1:
            raise ValueError(f"method {name!r} is named twice: name it once")
        if trained is None and name in ("operator", "refine"):
            raise ValueError(f"method {name!r} needs an operator: give trained=Operator.load(path)")
    return [_method(name, trained) for name in names]


def _method(name: str, trained: Operator | None) -> Method:
    if name == "svi":
        from arbiter.peers import fit_svi

        return Method(name, lambda chains: [fit_svi(quotes) for quotes in chains], promises=False)
    if name == "fit":
        from arbiter.fitting import fit

        return Method(name, lambda chains: [fit(quotes) for quotes in chains])
    assert trained is not None
    if name == "refine":
        return Method(name, lambda chains: [trained.refine(quotes) for quotes in chains])
    return Method(name, trained.many)
