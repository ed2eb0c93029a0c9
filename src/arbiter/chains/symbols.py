"""Option symbols: root, date, side and strike in one word, ``SPXW230317C04000000``."""

from __future__ import annotations

import polars as pl

from arbiter.chains.option_table import number_values

_HEAD_PATTERN, _TAIL_PATTERN = r"^\^?([A-Z]{1,6})[ _]*(\d{6})$", r"^([CP])(\d{8})$"
_TAIL_LENGTH = 9  # characters of side and strike


def split_symbols(symbols: pl.Series) -> pl.DataFrame:
    """Columns root, expiry, side and strike of a column of symbols; null where it is none."""
    # a chain repeats few beginnings and few ends: each is taken apart once
    heads, head = number_values(symbols.str.head(-_TAIL_LENGTH))
    tails, tail = number_values(symbols.str.tail(_TAIL_LENGTH))
    root, day = _extract(heads, _HEAD_PATTERN)
    letter, thousandths = _extract(tails, _TAIL_PATTERN)
    sides = pl.Series("side", ["call", "put"])
    frame = pl.DataFrame(
        {
            "root": root.gather(head),
            "expiry": ("20" + day).str.to_date("%Y%m%d", strict=False).gather(head),
            "side": sides.gather((letter == "P").cast(pl.UInt32)).gather(tail),
            "strike": (thousandths.cast(pl.Float64, strict=False) / 1000.0).gather(tail),
        }
    )
    whole = frame["root"].is_not_null() & frame["side"].is_not_null()
    if whole.all():
        return frame
    bare = symbols.str.strip_chars()
    if not bare.equals(symbols):
        return split_symbols(bare)
    return frame.select(pl.when(whole).then(pl.all()))


def _extract(text: pl.Series, pattern: str) -> tuple[pl.Series, pl.Series]:
    """The two groups of a pattern."""
    found = text.str.extract_groups(pattern).struct.unnest()
    return found.to_series(0), found.to_series(1)
