"""`arbiter warm`: compile everything beforehand, on the chain that ships with the package."""

from __future__ import annotations

import json as json_format
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.console_log import show_only_notices
from arbiter.cli.exit_codes import exit_failed

if TYPE_CHECKING:
    from arbiter.quotes import Quotes
    from arbiter.surface import Surface

_Query = Callable[..., object]
_SMALL_EXPIRIES = 4  # of the fits that are there to be compiled


@dataclass(frozen=True)
class WarmStep:
    """One part of the library, run once.

    Attributes:
        name: What was run.
        seconds: Wall time, compiling included.
        functions: How many functions were compiled; none where all were kept from before.
    """

    name: str
    seconds: float
    functions: int


def warm(
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Compile for this machine what the first fit and the first operator would wait for.

    It runs fit, queries, certificate, index, VIX options and operator once on the example chain.
    Exit code 0 if later processes find the machine code, 1 if no folder can keep it.
    """
    folders = _require_kept_folders()
    began = time.perf_counter()
    with show_only_notices():
        steps = time_steps(run_every_part(), None if json else _print_step)
    facts: dict[str, Any] = {
        "folders": [str(folder) for folder in folders],
        "steps": [asdict(step) for step in steps],
        "functions": sum(step.functions for step in steps),
        "seconds": time.perf_counter() - began,
    }
    if json:
        typer.echo(json_format.dumps(facts, indent=1, allow_nan=False))
        return
    typer.echo(f"{facts['functions']} functions compiled in {facts['seconds']:.1f} s, kept in")
    for folder in folders:
        typer.echo(f"  {folder}")


def _require_kept_folders() -> list[Path]:
    """The folders of the machine code; the command ends where there are none."""
    from arbiter.compiled import NOTHING_KEPT, ROOMS, find_cache_folder

    folders = [find_cache_folder(room) for room in ROOMS]
    if None in folders:
        exit_failed(NOTHING_KEPT)
    return [folder for folder in folders if folder is not None]


def time_steps(parts: Iterator[str], tell: Callable[[WarmStep], None] | None) -> list[WarmStep]:
    """Run what yields the name of each part before it runs it; ``tell`` gets every step."""
    from numba.core import event

    from arbiter.compiled import is_of_package

    steps: list[WarmStep] = []
    name = next(parts, None)
    while name is not None:
        began = time.perf_counter()
        with event.install_recorder("numba:compile") as recorder:
            following = next(parts, None)
        functions = sum(found.is_start and is_of_package(found) for _, found in recorder.buffer)
        steps.append(WarmStep(name, time.perf_counter() - began, functions))
        if tell is not None:
            tell(steps[-1])
        name = following
    return steps


def _print_step(step: WarmStep) -> None:
    typer.echo(f"{step.name:<24}{step.seconds:6.1f} s  {step.functions:3} functions")


def run_every_part() -> Iterator[str]:
    """Run every compiled part of the library once, and say before each which it is."""
    import numpy as np

    from arbiter.data import example_chain_path
    from arbiter.fitting import FitOptions, Roughness, fit
    from arbiter.pipeline import Job, run_job

    with tempfile.TemporaryDirectory() as folder:
        yield "fit and certificate"
        found = run_job(example_chain_path(), folder, Job(report=False, holdout=0.2))
        quotes, surface = found.quotes, found.surface
        yield "curves of a report"
        _read_curves(surface, quotes)
        yield "queries"
        _ask_everything(surface)
        small = quotes.select(np.asarray(quotes.expiry < _SMALL_EXPIRIES))
        yield "roughness given"
        _read_curves(fit(small, options=FitOptions(roughness=Roughness(0.1, 1.0, 0.03))), small)
        yield "two components"
        mixed = fit(small, options=FitOptions(components=2))
        mixed.certificate()
        _read_curves(mixed, small)
        yield "VIX options"
        fit(quotes, vix_quotes=_invent_vix_quotes(surface)).certificate()
        yield "operator"
        run_job(example_chain_path(), folder, Job(report=False, method="operator"))
        yield "refinement"
        run_job(example_chain_path(), folder, Job(report=False, method="both"))


def _read_curves(surface: Surface, quotes: Quotes) -> tuple[object, ...]:
    """Every curve that a report draws."""
    from arbiter.report.curves import Readings

    r = Readings(surface, quotes)
    return r.smile_error, r.residual_cells, r.mesh, r.densities, r.modes, r.term_structure


def _ask_everything(surface: Surface) -> None:
    """Every query of a surface, at one point and at many."""
    import numpy as np

    by_point: tuple[_Query, ...] = (
        surface.otm,
        surface.iv,
        surface.z,
        surface.log_strike,
        surface.density,
        surface.digital,
        surface.local_variance,
    )
    by_strike: tuple[_Query, ...] = (
        surface.call,
        surface.put,
        surface.delta,
        surface.gamma,
        surface.vega,
        surface.theta,
    )
    by_probability: tuple[_Query, ...] = (surface.quantile, surface.dual, surface.cvar)
    k, T = np.linspace(-0.3, 0.2, 6), surface.maturities[:, None]
    for points, at in ((0.0, 0.25), (k, 0.25), (k, T)):
        for query in by_point:
            query(points, at)
        for query in by_strike:
            query(surface.forward(at) * np.exp(points), at)
        for query in by_probability:
            query(np.abs(points) + 0.1, at)
        surface.variance_swap(at)
        surface.forward_variance(at)


def _invent_vix_quotes(surface: Surface) -> Quotes:
    """Quotes of VIX options that agree with a surface."""
    import numpy as np

    from arbiter.pricing.vix_slices import VixSlices
    from arbiter.quotes import Quotes

    T, k = 0.1, np.linspace(-0.3, 0.7, 11)
    known = surface.with_vix(VixSlices.of([-3.0, 0.0, 3.0], [T], [[0.25, 0.3, 0.4]]))
    future = known.vix_future(T)
    iv = known.vix_iv(future * np.exp(k), T)
    table = {"T": np.full(k.size, T), "k": k, "forward": np.full(k.size, float(future))}
    return Quotes.from_frame({**table, "iv_bid": iv - 0.01, "iv_ask": iv + 0.01})
