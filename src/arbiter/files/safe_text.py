"""Text from files of others, made harmless for a terminal and for a spreadsheet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# Control characters but the line feed, marks that turn the direction of text, lone surrogates.
_CONTROLS = "\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNPRINTABLE = re.compile(f"[{_CONTROLS}\ud800-\udfff]")
_FORMULA = r"^\s*[=+\-@]"


def show_controls(text: str) -> str:
    r"""``text`` with a question mark for what a terminal would obey instead of show.

    Example:
        >>> show_controls("SPX\x1b[2J") == "SPX\N{REPLACEMENT CHARACTER}[2J"
        True
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def format_safe_csv(frame: pl.DataFrame) -> str:
    r"""A table as CSV; text that a spreadsheet would run as a formula has an apostrophe before it.

    Example:
        >>> import polars as pl
        >>> format_safe_csv(pl.DataFrame({"chain": ["=1+1", "SPX"], "size": [-1.0, 2.0]}))
        "chain,size\n'=1+1,-1.0\nSPX,2.0\n"
    """
    import polars as pl

    text = pl.col(pl.String).str.replace_all(f"[{_CONTROLS}\n]", "\N{REPLACEMENT CHARACTER}")
    quoted = pl.when(text.str.contains(_FORMULA)).then(pl.lit("'") + text).otherwise(text)
    return frame.with_columns(quoted.name.keep()).write_csv()
