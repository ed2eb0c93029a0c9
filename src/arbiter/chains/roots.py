"""Which options are European, what they are written on, and when they settle."""

from __future__ import annotations

from dataclasses import dataclass

from arbiter.chains.errors import ChainError


@dataclass(frozen=True)
class Root:
    """An option root: the letters before the date in an option's symbol.

    Attributes:
        underlying: The index.
        settlement: ``"AM"`` for the opening price of the expiry, ``"PM"`` for the close.
    """

    underlying: str
    settlement: str


EUROPEAN_ROOTS = {
    "SPX": Root("SPX", "AM"),
    "SPXW": Root("SPX", "PM"),
    "SPXPM": Root("SPX", "PM"),
    "SPXQ": Root("SPX", "PM"),
    "XSP": Root("XSP", "PM"),
    "XSPW": Root("XSP", "PM"),
    "XSPAM": Root("XSP", "AM"),
    "VIX": Root("VIX", "AM"),
    "VIXW": Root("VIX", "AM"),
    "NDX": Root("NDX", "AM"),
    "NDXP": Root("NDX", "PM"),
    "XND": Root("XND", "PM"),
    "RUT": Root("RUT", "AM"),
    "RUTW": Root("RUT", "PM"),
    "MRUT": Root("MRUT", "PM"),
    "DJX": Root("DJX", "AM"),
    "XEO": Root("XEO", "PM"),
}

_AMERICAN_INDEX = ("OEX",)
_AMERICAN_FUNDS = {
    *("SPY", "QQQ", "IWM", "DIA", "VXX", "UVXY", "SVXY", "VIXY", "TLT", "GLD", "SLV", "EEM"),
    *("EFA", "HYG", "USO", "VOO", "IVV", "XLF", "XLE", "XLK", "TQQQ", "SQQQ"),
}


def find_european_root(root: str) -> Root:
    """The entry of ``root``.

    Raises:
        ChainError: If options on it can be exercised early, or may be.
    """
    if root in EUROPEAN_ROOTS:
        return EUROPEAN_ROOTS[root]
    remedy = (
        "put-call parity does not give a forward for them, and their prices contain an early "
        "exercise premium"
    )
    if root in _AMERICAN_INDEX:
        raise ChainError(f"{root} options are American: {remedy}; XEO is the European one")
    if root in _AMERICAN_FUNDS:
        raise ChainError(
            f"{root} is a fund, and its options are American: {remedy}. Use the index options "
            "(SPX or XSP, NDX, RUT, VIX)"
        )
    raise ChainError(
        f"root {root!r} is not known to be European ({', '.join(EUROPEAN_ROOTS)} are); options "
        "on single "
        f"stocks and funds are American: {remedy}. If yours are European, give a tidy table with "
        "columns exercise ('European') and settlement ('AM' or 'PM')"
    )


def find_common_underlying(roots: list[str]) -> str:
    """The one index that all ``roots`` are written on.

    Raises:
        ChainError: If one is not European, or there are several.
    """
    found = sorted({find_european_root(root).underlying for root in roots})
    if len(found) != 1:
        raise ChainError(
            f"there are options on {', '.join(found) or 'nothing'}: give one underlying at a time"
        )
    return found[0]
