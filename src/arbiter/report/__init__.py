"""Reports of a fit: one HTML page, pictures, or a PDF.

Everything here is a pure function of its arguments: no clock, no network, no settings. The same
surface, quotes and summary give the same bytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arbiter.report.page import write_report
    from arbiter.report.pictures import write_pdf, write_pictures

__all__ = ["write_pdf", "write_pictures", "write_report"]

# resolved on first use: a page does not need matplotlib, pictures do not need plotly
_HOME = {
    "write_pdf": "arbiter.report.pictures",
    "write_pictures": "arbiter.report.pictures",
    "write_report": "arbiter.report.page",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'arbiter.report' has no attribute {name!r}")
