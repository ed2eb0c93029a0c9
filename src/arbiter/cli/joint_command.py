"""`arbiter joint`: is there a joint law of index and VIX? A portfolio or a law as proof."""

from __future__ import annotations

import json as json_format
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.exit_codes import FAILED, exit_bad_input, exit_failed, printable_name
from arbiter.cli.safe_console import open_console

if TYPE_CHECKING:
    from rich.console import Console

    from arbiter.joint import JointAudit
    from arbiter.pricing.vix_slices import VixSlices
    from arbiter.surface import Surface


def joint(
    surface: Annotated[Path, typer.Argument(help="A surface with a VIX side (.npz).")],
    at: Annotated[
        list[str] | None,
        typer.Option("--T", help="A VIX date, 2023-03-22, a tenor, 30d, or years. May repeat."),
    ] = None,
    resolution: Annotated[
        float,
        typer.Option(help="Prices that differ by less are the same: 1e-4 is 0.01 VIX points."),
    ] = 1e-4,
    variance_unit: Annotated[
        float, typer.Option(help="100 gives log contracts a hundred times the room of options.")
    ] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Decide whether the index and the VIX of a surface fit into one market without arbitrage.

    Without --T every VIX date that was fitted is judged. Exit code 0 if each has a joint law, 1 if
    one has an arbitrage or is left open, 2 if the file or a date cannot be used.
    """
    from arbiter.joint import JointSettings, joint_audit

    try:
        settings = JointSettings(resolution=resolution, variance_unit=variance_unit)
    except ValueError as error:
        exit_bad_input(str(error))
    loaded, slices = _load_surface(surface)
    found = []
    with open_console(stderr=True, quiet=json).status("") as status:
        for T in _resolve_dates(loaded, at) if at else slices.maturities.tolist():
            name = _format_date(loaded, T)
            status.update(f"judging {name}")
            try:
                found.append((name, T, joint_audit(loaded, T, settings)))
            except ValueError as error:
                exit_bad_input(f"{printable_name(surface)}, {name}: {error}")
            except ArithmeticError as error:  # the program was not solved: nothing is decided
                exit_failed(f"{printable_name(surface)}, {name}: {error}")
    if json:
        facts = [_collect_facts(*each) for each in found]
        typer.echo(json_format.dumps(facts, indent=1, allow_nan=False))
    else:
        _print_audits(found)
    if not all(audit.feasible for _, _, audit in found):
        raise typer.Exit(FAILED)


def _load_surface(path: Path) -> tuple[Surface, VixSlices]:
    """The surface in a file, and its VIX side."""
    from arbiter.surface import Surface

    if not path.is_file():
        exit_bad_input(
            f"{path} is not a file: give the path of a surface that arbiter fit --vix wrote"
        )
    try:
        loaded = Surface.load(path)
    except (ValueError, OSError) as error:
        exit_bad_input(f"{printable_name(path)}: {error}")
    if loaded.vix_slices is None:
        exit_bad_input(
            f"{printable_name(path)} has no VIX side: fit the chain with --vix (or "
            "--vix-futures), and give the surface.npz of that fit"
        )
    return loaded, loaded.vix_slices


def _resolve_dates(surface: Surface, given: list[str]) -> list[float]:
    """Year fractions of the dates that were asked for."""
    from arbiter.conventions import THIRTY_DAYS

    last, found = float(surface.maturities[-1]), []
    for text in given:
        T = _parse_years(surface, text)
        if not (math.isfinite(T) and T > 0.0):
            exit_bad_input(
                f"--T {text} is {T:g} years ahead: give a date after the surface's moment"
            )
        if last + 1e-9 < T + THIRTY_DAYS:
            exit_bad_input(
                f"--T {text}: the 30 days after it end after the surface's last maturity, "
                f"{last:.4g} years: give an earlier date; a number is years, and 30d is 30 days"
            )
        found.append(T)
    return found


def _parse_years(surface: Surface, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    if surface.as_of is None:
        exit_bad_input(
            f"--T {text}: the surface does not know its moment; give years ahead, as 0.25"
        )
    try:
        return float(surface.vix_years(text))
    except ValueError as error:
        exit_bad_input(
            f"--T {text} is neither a date nor a number of years ({error}); write 2023-03-22"
        )


def _format_date(surface: Surface, T: float) -> str:
    """A date where the surface knows its own."""
    import numpy as np

    from arbiter.conventions import MINUTES_PER_YEAR

    if surface.as_of is None:
        return f"T = {T:.4g}"
    minutes = np.timedelta64(round(T * MINUTES_PER_YEAR), "m")
    return str((surface.as_of.astype("datetime64[m]") + minutes).astype("datetime64[D]"))


def _collect_facts(name: str, T: float, audit: JointAudit) -> dict[str, Any]:
    portfolio = audit.portfolio
    return {
        "date": name,
        "T": T,
        "verdict": audit.verdict.value,
        "sentence": str(audit),
        "violation": audit.violation,
        "bound": audit.bound,
        "portfolio": None if portfolio is None else portfolio.legs.to_dicts(),
        "law": {"atoms": audit.law.frame.height},
        "strikes": list(audit.strikes),
        "passes": audit.passes,
    }


def _print_audits(found: list[tuple[str, float, JointAudit]]) -> None:
    """The verdicts as a table, and each arbitrage in words."""
    from rich.table import Table

    console = open_console()
    table = Table()
    for head in ("VIX date", "T", "verdict", "violation", "bound", "atoms of the law"):
        left = head in ("VIX date", "verdict")
        table.add_column(head, justify="left" if left else "right", no_wrap=True)
    for name, T, audit in found:
        sizes = (f"{audit.violation:.2g}", f"{audit.bound:.2g}", f"{audit.law.frame.height}")
        table.add_row(name, f"{T:.4f}", audit.verdict.value, *sizes)
    console.print(table)
    for name, _, audit in found:
        if audit.portfolio is not None or len(found) == 1:
            console.print(f"{name}: {audit}", highlight=False, markup=False)
    _print_total(console, [audit for _, _, audit in found])


def _print_total(console: Console, audits: list[JointAudit]) -> None:
    good = sum(audit.feasible for audit in audits)
    if good == len(audits):
        verdict = "index and VIX have a joint law on every date"
    else:
        held = sum(audit.portfolio is not None for audit in audits)
        left = len(audits) - good - held
        verdict = f"{good} of {len(audits)} dates have a joint law, {held} an arbitrage" + (
            f", {left} are left open" if left else ""
        )
    console.print(
        f"{verdict}. A size of 1e-4 is a basis point of the index forward, or 0.01 VIX points.",
        highlight=False,
        markup=False,
    )
