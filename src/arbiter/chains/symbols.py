"""Option symbols: root, date, side and strike in one word, ``SPXW230317C04000000``."""

from __future__ import annotations

import polars as pl

_HEAD_PATTERN, _TAIL_PATTERN = r"^\^?([A-Z]{1,6})[ _]*(\d{6})$", r"^([CP])(\d{8})$"
_TAIL_LENGTH = 9  # characters of side and strike


def split_symbols(symbols: pl.Series) -> pl.DataFrame:
    """Columns root, expiry, side and strike of a column of symbols; null where it is none."""
    symbols = symbols.str.strip_chars()
    # a chain repeats few beginnings and few ends: each is taken apart once
    heads, head = _encode(symbols.str.head(-_TAIL_LENGTH))
    tails, tail = _encode(symbols.str.tail(_TAIL_LENGTH))
    series, option = (
        text.str.extract_groups(pattern).struct.rename_fields(["0", "1"])
        for text, pattern in ((heads, _HEAD_PATTERN), (tails, _TAIL_PATTERN))
    )
    day, thousandths = series.struct.field("1"), option.struct.field("1")
    columns = {
        "root": series.struct.field("0").gather(head),
        "expiry": ("20" + day).str.to_date("%Y%m%d", strict=False).gather(head),
        "side": option.struct.field("0")
        .replace_strict({"C": "call", "P": "put"}, default=None, return_dtype=pl.String)
        .gather(tail),
        "strike": (thousandths.cast(pl.Float64, strict=False) / 1000.0).gather(tail),
    }
    whole = columns["root"].is_not_null() & columns["side"].is_not_null()
    frame = pl.DataFrame(columns)
    return frame if whole.all() else frame.select(pl.when(whole).then(pl.all()))


def _encode(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The different values of a column, and the place of each entry among them."""
    values = text.drop_nulls().unique(maintain_order=True)
    return values, text.cast(pl.Enum(values)).to_physical()
