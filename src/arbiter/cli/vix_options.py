"""The VIX side of `arbiter fit`: what it may be combined with, and what is shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbiter.cli.exit_codes import exit_bad_input
from arbiter.cli.score_lines import format_share

if TYPE_CHECKING:
    from rich.table import Table


def require_vix(source: Path, files: tuple[Path | None, Path | None]) -> None:
    """Refuse files on the VIX that are not there, or that belong to no one chain."""
    given = {n: p for n, p in zip(("--vix", "--vix-futures"), files, strict=True) if p is not None}
    if not given:
        return
    name = next(iter(given))
    for option, path in given.items():
        if not path.is_file():
            exit_bad_input(f"{option} {path} is not a file: give the path of one")
        if path.exists() and path.resolve() == source.resolve():
            exit_bad_input(
                f"{option} {path} is the chain of the index too: give the two markets' own"
            )
    if source.is_dir():
        exit_bad_input(
            f"{name} with a folder of chains: one VIX market belongs to one chain; name the file"
        )


def vix_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The VIX market in a few lines, each with its name."""
    lines = []
    if found["quotes"]:
        alone = found["inside_bid_ask_alone"]
        beside = "" if alone is None else f" ({format_share(alone)} alone)"
        share = f"{format_share(found['inside_bid_ask'])} inside bid-ask{beside}"
        lines.append(f"{found['quotes']:,} options on {_count_dates(found)}, {share}")
    else:
        lines.append(f"futures alone, on {_count_dates(found)}")
    if found["largest_future_error"] is not None:
        lines.append(f"futures within {found['largest_future_error']:.3f} of the quoted ones")
    apart = found["largest_gap_alone"]
    before = "" if apart is None else f"; fitted apart, the two roots differ by up to {apart:.2f}"
    lines.append(f"E[VIX²] = FV to {found['largest_second_moment_error']:.0e}{before}")
    return [("" if i else "VIX market", line) for i, line in enumerate(lines)]


def _count_dates(found: dict[str, Any]) -> str:
    return "one date" if len(found["dates"]) == 1 else f"{len(found['dates'])} dates"


_COLUMN_HEADS = {
    "date": "VIX date",
    "future": "future",
    "fitted_future": "fitted",
    "spx_alone": "SPX √FV",
    "vix_alone": "VIX √E",
    "gap": "gap",
    "root_forward_variance": "√FV",
    "vvix": "VVIX",
    "inside": "inside",
}
_TABLE_TITLE = "VIX, index points; SPX √FV, VIX √E[VIX²] and gap: each market by itself"


def vix_dates(found: dict[str, Any]) -> Table:
    """Both markets by themselves and together, date by date."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=_TABLE_TITLE, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, head in _COLUMN_HEADS.items():
        table.add_column(head, justify="left" if name == "date" else "right", no_wrap=True)
    for row in found["dates"]:
        table.add_row(*(_format_cell(name, row[name]) for name in _COLUMN_HEADS))
    return table


def _format_cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "date":
        return str(value)
    return (
        f"{value:.0%}" if name == "inside" else f"{value:.1f}" if name == "vvix" else f"{value:.2f}"
    )
