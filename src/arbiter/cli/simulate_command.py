"""`arbiter simulate`: a synthetic market, with the exact answer beside every quote."""

from __future__ import annotations

import datetime as dt
import json as json_format
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.exit_codes import (
    exit_bad_input,
    exit_failed,
    exit_interrupted,
    print_written,
)
from arbiter.cli.safe_console import open_console

if TYPE_CHECKING:
    from arbiter.markets.dataset import Dataset, Plan

_PICTURE = "three-days.png"


def simulate(  # noqa: PLR0913, PLR0917 - one parameter per option
    out: Annotated[Path, typer.Option(help="Folder for what is written.")] = Path("market"),
    days: Annotated[
        int | None, typer.Option(help="Sessions of the timeline.", show_default="250")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="calm, stressed, inverted, rough or jumpy.", show_default="calm"),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    universe: Annotated[
        int | None,
        typer.Option(help="Number of markets with parameters of their own, a day each."),
    ] = None,
    start: Annotated[str, typer.Option(help="First session: 2015-01-02.")] = "2015-01-02",
    listing: Annotated[
        str, typer.Option(help="full, or sparse: fewer series and strikes.")
    ] = "full",
    coverage: Annotated[
        float | None,
        typer.Option(help="Share of the listed strikes above the liquidity floor, as 0.75."),
    ] = None,
    missing: Annotated[float, typer.Option(help="Share of strikes left out at random.")] = 0.0,
    noise: Annotated[float, typer.Option(help="Noise of mid prices, in half-spreads.")] = 0.35,
    vix: Annotated[
        bool, typer.Option(help="Futures and options on the volatility index, too.")
    ] = True,
    block: Annotated[int, typer.Option(help="Days per part of the dataset.")] = 20,
    chains: Annotated[
        int, typer.Option(help="Number of days also written as chain files, for arbiter fit.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Write a synthetic SPX market: quotes with noise, spreads and gaps, and the exact answer.

    Writes quotes-*.parquet, vix-*.parquet, futures-*.parquet, days-*.parquet, dataset.json,
    three-days.png (with the extra 'report') and, if asked for, chains/*.csv. A run that was
    interrupted goes on where it stopped when the same command is given again. --coverage,
    --missing and --noise are those of index options. Exit code 0 if all is written, 1 if the
    oracle fails, 2 if an option makes no sense, the folder holds another dataset or cannot be
    written to.
    """
    from arbiter.extras import describe_missing
    from arbiter.files import require_folder
    from arbiter.markets.dataset import Dataset, Plan, write_dataset
    from arbiter.markets.dataset_picture import draw_three_days
    from arbiter.markets.frictions import Frictions
    from arbiter.markets.listing import SPARSE_LISTING, Listing
    from arbiter.markets.snapshots import Venue
    from arbiter.markets.vix_listing import VolatilityVenue

    if listing not in ("full", "sparse"):
        exit_bad_input(f"--listing {listing} is not one of full, sparse")
    try:
        first = dt.date.fromisoformat(start)
    except ValueError:
        exit_bad_input(f"--start {start} is not a date: write it as 2015-01-02")
    if universe is not None and not (days is None and preset is None):
        exit_bad_input(
            "--universe draws its own parameters, a day each: leave out --days and --preset"
        )
    if universe is not None and universe < 1:
        exit_bad_input(f"--universe {universe}: give at least one market")
    try:
        require_folder(out, files=(_PICTURE, "dataset.json"), folders=("chains",))
        plan = Plan(
            days=universe or (250 if days is None else days),
            seed=seed,
            preset=None if universe else preset or "calm",
            start=first,
            block=block,
            venue=Venue(
                listing=Listing() if listing == "full" else SPARSE_LISTING,
                frictions=Frictions(coverage=coverage, missing=missing, noise=noise),
                volatility=VolatilityVenue() if vix else None,
            ),
        )
        if not 0 <= chains <= plan.days:
            exit_bad_input(
                f"--chains {chains} is not between 0 and the number of days, {plan.days}"
            )
        with _show_progress(plan.days, not json) as tell:
            write_dataset(plan, out, tell)
        dataset = Dataset(out)
        no_picture = describe_missing("matplotlib")
        if no_picture is None:
            draw_three_days(dataset, out / _PICTURE)
        written = _write_chains(plan, out / "chains", chains)
    except (ValueError, OSError) as error:
        exit_bad_input(str(error))
    except ArithmeticError as error:
        exit_failed(str(error))
    except KeyboardInterrupt:
        exit_interrupted("give the same command again to go on")
    facts = _collect_facts(dataset, plan, written)
    facts |= (
        {"picture": None, "notes": [no_picture]}
        if no_picture
        else {"picture": _PICTURE, "notes": []}
    )
    if json:
        typer.echo(json_format.dumps(facts, indent=1, allow_nan=False))
    else:
        _print_dataset(facts, out)


def _write_chains(plan: Plan, folder: Path, count: int) -> list[str]:
    """Some days, spread over the dataset, in the exchange's layout."""
    from arbiter.files import write_whole
    from arbiter.markets.exchange_file import exchange_text
    from arbiter.markets.seeds import Purpose, derive_seed

    if count == 0:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    numbers = sorted({round((i + 0.5) * plan.days / count - 0.5) for i in range(count)})
    names = []
    for number, snapshot in zip(numbers, plan.build_market().days(numbers), strict=True):
        sheets = {"spx": snapshot, "vix": snapshot.volatility}
        for i, (name, sheet) in enumerate(sheets.items()):
            if sheet is not None:
                text = exchange_text(sheet, derive_seed(plan.seed, Purpose.CHAIN, 2 * number + i))
                date = str(snapshot.board.as_of)[:10]
                names.append(write_whole(folder / f"{name}_{date}_{number:05d}.csv", text).name)
    return names


def _collect_facts(dataset: Dataset, plan: Plan, chains: list[str]) -> dict[str, Any]:
    table = dataset.days
    first, last = table["as_of"].min(), table["as_of"].max()
    listed, quotes = int(table["listed"].sum()), int(table["quotes"].sum())
    return {
        "days": len(dataset),
        "preset": plan.preset,
        "seed": plan.seed,
        "from": str(first)[:10],
        "to": str(last)[:10],
        "listed": listed,
        "quotes": quotes,
        "coverage": quotes / listed,
        "vix": {name: float(getattr(table["vix"], name)()) for name in ("min", "median", "max")},
        "parts": plan.part_count,
        "chains": chains,
    }


def _print_dataset(facts: dict[str, Any], out: Path) -> None:
    from rich.table import Table

    console = open_console()
    numbers = Table.grid(padding=(0, 2))
    what = f"timeline, {facts['preset']}" if facts["preset"] else "universe"
    numbers.add_row("market", f"{what}, seed {facts['seed']}")
    numbers.add_row("days", f"{facts['days']:,}, {facts['from']} to {facts['to']}")
    numbers.add_row(
        "quotes",
        f"{facts['quotes']:,} of {facts['listed']:,} listed strikes, coverage "
        f"{facts['coverage']:.1%}",
    )
    vix = facts["vix"]
    numbers.add_row("VIX", f"{vix['min']:.1f} to {vix['max']:.1f}, median {vix['median']:.1f}")
    console.print(numbers, highlight=False, markup=False)
    print_written(console, out / "dataset.json")
    if facts["picture"]:
        print_written(console, out / facts["picture"])
    for sentence in facts["notes"]:
        console.print(f"note: {sentence}", highlight=False, markup=False)
    for name in facts["chains"]:
        print_written(console, out / "chains" / name)


@contextmanager
def _show_progress(total: int, shown: bool) -> Iterator[Callable[[int], object] | None]:
    from rich.progress import Progress

    if not shown:
        yield None
        return
    with Progress(console=open_console(stderr=True), transient=True) as progress:
        task = progress.add_task("days", total=total)
        yield lambda done: progress.update(task, completed=done)
