"""Reports of a fit: one HTML page, pictures, or a PDF.

Everything here is a pure function of its arguments: no clock, no network, no settings. The same
surface, quotes and summary give the same bytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arbiter.extras import require_installed

if TYPE_CHECKING:
    from arbiter.report.page import write_page, write_report
    from arbiter.report.pictures import write_booklet, write_panels, write_pdf, write_pictures
    from arbiter.report.surface_picture import plot_surface

__all__ = [
    "plot_surface",
    "write_booklet",
    "write_page",
    "write_panels",
    "write_pdf",
    "write_pictures",
    "write_report",
]

# resolved on first use: a page does not need matplotlib, the picture of a surface nothing else
_PACKAGES = {
    "page": ("jinja2", "plotly"),
    "pictures": ("matplotlib", "plotly"),
    "surface_picture": ("matplotlib",),
}
_HOME = {
    "plot_surface": "surface_picture",
    "write_booklet": "pictures",
    "write_page": "page",
    "write_panels": "pictures",
    "write_pdf": "pictures",
    "write_pictures": "pictures",
    "write_report": "page",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'arbiter.report' has no attribute {name!r}")
    require_installed(*_PACKAGES[_HOME[name]])
    return getattr(import_module(f"arbiter.report.{_HOME[name]}"), name)
