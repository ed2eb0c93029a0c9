"""Compare the numbers of two revisions on one machine, bit for bit.

    python tools/same_results.py [REVISION] [--data FOLDER]

runs REVISION (by default the commit that the house was rebuilt from) and the working tree in
processes of their own: the shipped chain by fit and by operator with its VIX and certificate, and,
where market data are at hand, one real chain and one joint fit of SPX and VIX. Exit code 0 if every
digest is the same, 1 if one differs. `--probe` prints what the tree that is imported computes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "232570f"  # the last commit before library and laboratory were parted
REAL_CHAIN = Path("chains", "spx_2023-09-14_close.csv")
JOINT = Path("joint")
# of the quotes whose numbers are kept
RULES: dict[str, Any] = {"shortest_days": 2.0, "fewest_strikes": 8}
STRIKES = np.linspace(-0.4, 0.2, 13)
YEARS = np.array([0.05, 0.25, 0.8])


def digest_of(*arrays: Any) -> str:
    """A digest of the bytes of float64 arrays."""
    made = hashlib.sha256()
    for each in arrays:
        made.update(np.ascontiguousarray(each, dtype=np.float64).tobytes())
    return made.hexdigest()[:16]


def list_numbers(value: Any) -> Iterator[float]:
    """The numbers of a JSON value in their order, truth values as 0 and 1; text is left out."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from list_numbers(each)
    elif isinstance(value, int | float):
        yield float(value)


def describe_surface(surface: Any) -> dict[str, Any]:
    """Digests of what a surface stores and answers, and a few of its numbers."""
    inside = YEARS[(surface.maturities[0] <= YEARS) & (surface.maturities[-1] >= YEARS)]
    k, T = STRIKES, inside[:, None]
    iv, certificate = surface.iv(k, T), surface.certificate()
    return {
        "stored": digest_of(surface.maturities, surface.slopes, surface.weights),
        "queries": digest_of(
            iv, surface.density(k, T), surface.local_variance(k, T), surface.vix()
        ),
        "certificate": digest_of(list(list_numbers(json.loads(certificate.to_json())))),
        "iv": iv.ravel().tolist(),
        "vix": float(surface.vix()),
        "nas": float(certificate.nas),
    }


def without_bounds(quotes: Any) -> Any:
    """The two-sided quotes alone, as of revisions that keep no asks without a bid."""
    return replace(quotes, bounds=type(quotes.bounds)()) if hasattr(quotes, "bounds") else quotes


def probe_results(data: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the imported tree computes, part by part; through public names alone."""
    import arbiter as ab

    chain = ab.example_chain()
    quotes = without_bounds(chain.quotes(**RULES))
    rule = ab.vix(chain)
    yield "vix rule", {"digest": digest_of(float(rule)), "value": float(rule)}
    yield "fit", describe_surface(ab.fit(quotes))
    yield "operator", describe_surface(ab.Operator.pretrained()(quotes))
    if data is not None:
        yield from probe_market_data(data)


def probe_market_data(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """One real chain by fit and by operator, and one joint fit of SPX and VIX."""
    import arbiter as ab

    real = ab.read_chain(data / REAL_CHAIN)
    quotes = without_bounds(real.quotes(**RULES))
    yield "real chain", describe_surface(ab.fit(quotes))
    yield "real operator", describe_surface(ab.Operator.pretrained()(quotes))
    spx, vix = (
        ab.read_volatilities(data / JOINT / f"{name}_implied_vol_20230215.csv", **RULES)
        for name in ("spx", "vix")
    )
    joint = ab.fit(spx, vix_quotes=vix)
    dates = np.asarray(vix.maturities[:4])
    futures = np.asarray(joint.vix_future(dates))
    yield (
        "joint fit",
        {**describe_surface(joint), "futures": futures.tolist(), "digest": digest_of(futures)},
    )


def run_probe(tree: Path, data: Path | None) -> dict[str, Any]:
    """The results of a tree in a process of its own, one thread."""
    places = [str(tree / "src"), str(tree / "lab" / "src")]
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
    environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, str(Path(__file__).resolve()), "--probe"]
    command += ["--data", str(data)] if data is not None else []
    # The compiled pass rounds differently in the process that compiles it than in those that read
    # the machine code from disk, by some 1e-11: the second answer of each tree is compared.
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def list_differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each part whose bits differ, with the largest difference where it is known."""
    lines = []
    for name in sorted(set(before) | set(after)):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            lines.append(f"{name}: only {'after' if old is None else 'before'}")
            continue
        for key in old:
            if old[key] != new.get(key):
                try:
                    off = float(np.max(np.abs(np.subtract(old[key], new[key]))))
                    told = f"differ by up to {off:.3g}"
                except (TypeError, ValueError):
                    told = f"{old[key]} became {new.get(key)}"
                lines.append(f"{name}, {key}: {told}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="compare two revisions bit for bit")
    parser.add_argument("revision", nargs="?", default=BEFORE)
    parser.add_argument("--data", type=Path, default=os.environ.get("ARBITER_DATA"))
    parser.add_argument("--probe", action="store_true", help="print what this tree computes")
    given = parser.parse_args(arguments)
    data = Path(given.data) if given.data else None
    if given.probe:
        print(json.dumps(dict(probe_results(data)), indent=1))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "before"
        add = ["git", "-C", str(ROOT), "worktree", "add", "--detach", str(old), given.revision]
        subprocess.run(add, check=True, capture_output=True)
        try:
            before, after = run_probe(old, data), run_probe(ROOT, data)
        finally:
            remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(old)]
            subprocess.run(remove, check=True, capture_output=True)
    lines = list_differences(before, after)
    for line in lines or [f"{len(after)} results, the same bits: {', '.join(after)}"]:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
