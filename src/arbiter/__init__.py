"""Option quotes of one moment in, one price surface that cannot be arbitraged out.

Names are resolved on first use, so that ``import arbiter`` and the command line start fast.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arbiter.certificate import Certificate, audit
    from arbiter.examples import example
    from arbiter.surface import Surface

__all__ = ["Certificate", "Surface", "__version__", "audit", "example"]

_HOME = {
    "Certificate": "arbiter.certificate",
    "Surface": "arbiter.surface",
    "audit": "arbiter.certificate",
    "example": "arbiter.examples",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("arbiter-vol")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'arbiter' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
