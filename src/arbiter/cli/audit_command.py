"""`arbiter audit`: look for static arbitrage in a surface or a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arbiter.cli.exit_codes import FAILED, exit_bad_input
from arbiter.cli.safe_console import open_console

if TYPE_CHECKING:
    import polars as pl

    from arbiter.audit.certificate import Certificate

_MAX_FINDINGS_SHOWN = 20  # findings in the table; all of them are in the JSON


def audit(
    file: Annotated[
        Path, typer.Argument(help="A surface (.npz), or a table of prices or IVs (.csv, .parquet).")
    ],
    tolerance: Annotated[
        float | None,
        typer.Option(help="Sizes up to this, in forward units, do not count (tables only)."),
    ] = None,
    percent: Annotated[
        bool | None,
        typer.Option(
            "--percent/--decimal",
            help="Unit of the volatilities of a table; if left out, decimals, and what looks like "
            "percent is refused.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Look for static arbitrage in a surface or in a table of prices or volatilities.

    A table has columns T and k (prices in forward units), or T, strike and forward (prices in
    currency, with a column discount if they are discounted), and one or more of iv, call, put.
    Exit code 0 if nothing was found, 1 if something was, 2 if the file cannot be read.
    """
    certificate = _certify_file(file, tolerance, percent)
    if json:
        typer.echo(certificate.to_json(indent=2))
    else:
        _print_certificate(certificate)
    if not certificate.passed:
        raise typer.Exit(FAILED)


def _certify_file(file: Path, tolerance: float | None, percent: bool | None) -> Certificate:
    """The certificate of what is in a file."""
    if not file.is_file():
        exit_bad_input(f"{file} is not a file: give the path of a surface or of a table")
    kind = file.suffix.lower()
    if kind == ".npz" and not (tolerance is None and percent is None):
        exit_bad_input(
            "--tolerance, --percent and --decimal are for tables; a surface is audited to its own "
            "rounding: leave them out"
        )
    if kind not in (".npz", ".csv", ".parquet"):
        exit_bad_input(
            f"{file.name}: unknown kind {kind!r}; give a .npz surface, a .csv or a .parquet"
        )
    try:
        if kind == ".npz":
            from arbiter.surface import Surface

            return Surface.load(file).certificate()
        from arbiter.audit.certificate import audit as audit_table

        return audit_table(_read_table(file), tolerance=tolerance, percent=percent)
    except (ValueError, OSError) as error:
        exit_bad_input(f"{file.name}: {error}")


def _read_table(file: Path) -> pl.DataFrame:
    """A CSV or Parquet file as a frame, within the limits of every file."""
    import polars as pl

    from arbiter.chains import ChainError
    from arbiter.chains.source import SourceTable, load_source
    from arbiter.files.limits import CELLS

    try:
        source = load_source(file)
    except ChainError as error:
        raise ValueError(f"not a readable table ({error}); check the file") from error
    if isinstance(source, SourceTable):
        return source.frame
    if file.suffix.lower() != ".csv":
        raise ValueError("not a readable table (it is text, not Parquet); name it .csv if it is")
    CELLS.require(source.starts.size * (next(source.lines()).count(",") + 1), "it")
    try:
        return pl.read_csv(source.content, infer_schema_length=None).rename(str.strip)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"not a readable table ({error}); check the file") from error


def _print_certificate(certificate: Certificate) -> None:
    """The findings as a table, and the verdict in words."""
    from rich.table import Table

    console = open_console()
    if not certificate.passed:
        table = Table(title="Findings, largest first", title_justify="left")
        for name in ("family", "T", "k", "size", "in volatility", "material"):
            table.add_column(name, no_wrap=True)
        table.add_column("portfolio", overflow="fold")
        for row in certificate.findings.head(_MAX_FINDINGS_SHOWN).iter_rows(named=True):
            table.add_row(
                row["family"],
                *("–" if row[n] is None else f"{row[n]:.4g}" for n in ("T", "k", "size")),
                "–" if row["size_iv"] is None else f"{row['size_iv']:.2g}",
                "yes" if row["material"] else "no",
                row["legs"],
            )
        console.print(table)
        if len(certificate.findings) > _MAX_FINDINGS_SHOWN:
            console.print(
                f"and {len(certificate.findings) - _MAX_FINDINGS_SHOWN} more; --json lists them all"
            )
    console.print(str(certificate), highlight=False)
