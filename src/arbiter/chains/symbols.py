"""Option symbols: root, date, side and strike in one word, ``SPXW230317C04000000``."""

from __future__ import annotations

import polars as pl

_SYMBOL_PATTERN = r"^\^?([A-Z]{1,6})[ _]*(\d{6})([CP])(\d{8})$"


def split_symbol(symbol: pl.Expr) -> dict[str, pl.Expr]:
    """Columns root, expiry, side and strike of a column of symbols; null where it is none."""
    found = symbol.str.extract_groups(_SYMBOL_PATTERN)
    day, letter, thousandths = (found.struct.field(str(i)) for i in (2, 3, 4))
    return {
        "root": found.struct.field("1"),
        "expiry": ("20" + day).str.to_date("%Y%m%d", strict=False),
        "side": letter.replace_strict({"C": "call", "P": "put"}, default=None),
        "strike": thousandths.cast(pl.Float64, strict=False) / 1000.0,
    }
