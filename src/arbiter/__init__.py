"""Option quotes of one moment in, one price surface that cannot be arbitraged out.

Names are resolved on first use, so that ``import arbiter`` and the command line start fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from arbiter import forked as _forked  # noqa: F401 - it watches forks from the first import on

if TYPE_CHECKING:
    from arbiter import markets
    from arbiter.audit.certificate import Certificate, audit
    from arbiter.chains import Chain, ChainError, read_chain, read_futures, read_volatilities
    from arbiter.examples import example, example_chain
    from arbiter.fitting import (
        FitOptions,
        FittedSurface,
        Loss,
        Roughness,
        VixSmiles,
        fit,
        fit_vix,
    )
    from arbiter.futures import FuturesCurve
    from arbiter.joint import JointAudit, JointSettings, joint_audit
    from arbiter.operators.operator_surface import OperatorSurface
    from arbiter.operators.pretrained import Operator
    from arbiter.pricing.vix_slices import VixSlices
    from arbiter.quotes import Quotes
    from arbiter.surface import Surface
    from arbiter.timing.clock import Clock, Event
    from arbiter.vix.index_rule import vix
    from arbiter.vix.prior import VixPrior, vix_prior

__all__ = [
    "Certificate",
    "Chain",
    "ChainError",
    "Clock",
    "Event",
    "FitOptions",
    "FittedSurface",
    "FuturesCurve",
    "JointAudit",
    "JointSettings",
    "Loss",
    "Operator",
    "OperatorSurface",
    "Quotes",
    "Roughness",
    "Surface",
    "VixPrior",
    "VixSlices",
    "VixSmiles",
    "__version__",
    "audit",
    "example",
    "example_chain",
    "fit",
    "fit_vix",
    "joint_audit",
    "markets",
    "read_chain",
    "read_futures",
    "read_volatilities",
    "vix",
    "vix_prior",
]

_HOME = {
    "Certificate": "arbiter.audit.certificate",
    "Chain": "arbiter.chains",
    "ChainError": "arbiter.chains",
    "Clock": "arbiter.timing.clock",
    "Event": "arbiter.timing.clock",
    "FitOptions": "arbiter.fitting",
    "FittedSurface": "arbiter.fitting",
    "FuturesCurve": "arbiter.futures",
    "JointAudit": "arbiter.joint",
    "JointSettings": "arbiter.joint",
    "Loss": "arbiter.fitting",
    "Operator": "arbiter.operators.pretrained",
    "OperatorSurface": "arbiter.operators.operator_surface",
    "Quotes": "arbiter.quotes",
    "Roughness": "arbiter.fitting",
    "Surface": "arbiter.surface",
    "VixPrior": "arbiter.vix.prior",
    "VixSlices": "arbiter.pricing.vix_slices",
    "VixSmiles": "arbiter.fitting",
    "audit": "arbiter.audit.certificate",
    "example": "arbiter.examples",
    "example_chain": "arbiter.examples",
    "fit": "arbiter.fitting",
    "fit_vix": "arbiter.fitting",
    "joint_audit": "arbiter.joint",
    "read_chain": "arbiter.chains",
    "read_futures": "arbiter.chains",
    "read_volatilities": "arbiter.chains",
    "vix": "arbiter.vix.index_rule",
    "vix_prior": "arbiter.vix.prior",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("arbiter-vol")
    if name == "markets":
        return import_module("arbiter.markets")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'arbiter' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``ab.audit`` and ``ab.vix`` functions: importing their folders does not hide them.

    Python binds a folder to its parent under its own name when it is first imported. Without
    this, what ``ab.audit`` is would depend on what has been imported before.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
