"""The optional part of the installation: pictures and reports, the extra ``report``.

Reading, fitting, certifying and the command line work without it.
"""

from __future__ import annotations

from importlib.util import find_spec

REPORT_PACKAGES = ("jinja2", "matplotlib", "plotly")


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the message names the extra and the command."""


def describe_missing(*packages: str) -> str | None:
    """A sentence that names the packages which are not installed; None if all are."""
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return None
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"reports and pictures need the extra 'report', and {', '.join(missing)} {verb} not "
        "installed: pip install 'arbiter-vol[report]'"
    )


def require_installed(*packages: str) -> None:
    """Raise a :class:`MissingExtraError` if one of the packages is not installed."""
    if (missing := describe_missing(*packages)) is not None:
        raise MissingExtraError(missing)
