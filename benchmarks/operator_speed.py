"""Speed of the operator: on the CPU beside the fit and SVI, on a GPU beside the floor.

    python -m benchmarks.operator_speed [--clock cpu] [--json PATH]
    python -m benchmarks.operator_speed --device cuda [--json PATH]

CPU: one chain of 16 × 41, a batch of 64 such chains, and a full listed chain of 50 expiries, the
same quotes given to the operator, the fit that refines it, the fit alone and raw SVI in one run,
their implied volatilities included; then where the operator's time goes. Ratios compare; seconds
are of one machine: the least of some repetitions, since whatever else runs there only adds. On a
busy one ``--clock cpu`` with one thread counts the time on the processor.
GPU: surfaces per second, quotes to slopes, in batches, with kernels launched one by one, and with
those of the network recorded once: the reference looks at its chains before it decides how many
rounds they need, and cannot be recorded. What the network takes by itself is beside it. The floor
is the larger of two: what the unavoidable traffic takes at the bandwidth of a large copy, and what
as many empty kernels take.
Needs neither tables nor weights there: speed does not depend on what they say.
"""

from __future__ import annotations

import argparse
import json
import platform
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from arbiter.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.network import Network, Output
from arbiter_lab.differentiable.operators.pretrained import build_network
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged, pad_chains

if TYPE_CHECKING:  # a GPU machine may have no tables
    from arbiter.quotes import Quotes

Row = dict[str, Any]
WEIGHTS = Path(__file__).parents[1] / "src" / "arbiter" / "data" / "operator.safetensors"
EXPIRIES, STRIKES, TOGETHER = 16, 41, 64
BATCHES = (1, 8, 64, 512, 2048)
LISTED = 50


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Stopwatch:
    """Least times of calls, by a clock of :data:`CLOCKS`."""

    def __init__(self, clock: str, repeats: int) -> None:
        self.clock, self.repeats = CLOCKS[clock], repeats

    def __call__(self, f: Callable[..., object], *given: object, slow: bool = False) -> float:
        f(*given)
        times = []
        for _ in range(max(3, self.repeats // 4) if slow else self.repeats):
            start = self.clock()
            f(*given)
            times.append(self.clock() - start)
        return min(times)


def fresh(chains: Sequence[Quotes]) -> list[Quotes]:
    """The same quotes without remembered volatilities."""
    return [replace(quotes) for quotes in chains]


def latency(watch: Stopwatch) -> list[Row]:
    """Milliseconds per chain of every method."""
    from arbiter.fitting import fit
    from arbiter.operators.pretrained import Operator
    from arbiter_lab.peers import fit_svi
    from benchmarks.fit import listed_quotes, moved, square_quotes

    operator = Operator.pretrained()
    square = square_quotes()
    many = [moved(square, 1.0 + 0.002 * i) for i in range(TOGETHER)]
    cases = {
        f"one chain, {EXPIRIES} × {STRIKES}": [square],
        f"{TOGETHER} chains, {EXPIRIES} × {STRIKES}, each": many,
        f"listed chain, {LISTED} expiries": [listed_quotes(LISTED)],
    }
    alone: dict[str, Callable[[Quotes], object]] = {
        "refined": operator.refine,
        "fit": fit,
        "raw SVI": fit_svi,
    }
    rows = []
    for name, chains in cases.items():
        row: Row = {"quotes": name, "count": sum(map(len, chains)) // len(chains)}
        row["operator"] = (
            1e3 * watch(lambda given: operator.many(fresh(given)), chains) / len(chains)
        )
        for method, run in alone.items():
            row[method] = 1e3 * watch(_after(run), chains[0], slow=True)
        row["fit over operator"] = row["fit"] / row["operator"]
        rows.append(row)
    return rows


def _after(run: Callable[[Quotes], object]) -> Callable[[Quotes], object]:
    return lambda quotes: run(replace(quotes))


def stages(watch: Stopwatch) -> list[Row]:
    """Where the time of one call goes, in milliseconds."""
    from arbiter.operators.network.network import Network as Pass
    from arbiter.operators.pretrained import Operator
    from arbiter.operators.prior.reference_volatility import scaled as scale_rows
    from arbiter.operators.quote_rows import lay_quotes
    from arbiter.operators.residuals import implied
    from benchmarks.fit import listed_quotes, square_quotes

    operator = Operator.pretrained()
    compiled, trained = Pass(operator.weights, operator.config), build_network(operator)
    rows = []
    chains = {
        f"{EXPIRIES} × {STRIKES}": square_quotes(),
        f"{LISTED} expiries": listed_quotes(LISTED),
    }
    for name, quotes in chains.items():
        batch, rows_of = pad_chains([quotes]), lay_quotes([quotes])
        whole = watch(_after(operator), quotes)
        parts = {
            "implied volatilities": watch(lambda q: implied([q]), quotes),
            "rows and levels": watch(lambda q: scale_rows(lay_quotes([q])), quotes),
            "network": watch(compiled, rows_of) - watch(scale_rows, rows_of),
        }
        parts["residuals, traits, surface"] = whole - sum(parts.values())
        network = watch(_eager, trained, batch, slow=True) - watch(scaled, batch)
        row = {"quotes": name, **{part: 1e3 * s for part, s in parts.items()}}
        rows.append(row | {"whole": 1e3 * whole, "network as trained": 1e3 * network})
    return rows


@torch.inference_mode()
def _eager(network: Network, batch: Ragged) -> None:
    network(batch)


def shipped_config() -> Config:
    """The sizes of the shipped network, read off the file's header alone."""
    content = WEIGHTS.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    about = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["arbiter"])
    known = Config().to_dict()
    return Config(**{k: v for k, v in about["info"]["config"].items() if k in known})


def synthetic(batch: int, device: str) -> Ragged:
    """Skewed smiles, 16 × 41 each, in single precision."""
    generator = torch.Generator().manual_seed(0)
    T = torch.tensor([7, 14, 21, 30, 45, 60, 91, 122, 152, 182, 273, 365, 456, 547, 639, 730.0])
    T = (T / 365.0).expand(batch, EXPIRIES)
    z = torch.linspace(-3.5, 2.0, STRIKES)
    level = 0.1 + 0.3 * torch.rand(batch, 1, 1, generator=generator)
    iv = level * (1.0 - 0.1 * z + 0.02 * z * z).expand(batch, EXPIRIES, STRIKES)
    k = level * torch.sqrt(T)[..., None] * z
    quoted = torch.ones_like(iv, dtype=torch.bool)
    parts = (T.contiguous(), k.contiguous(), iv.contiguous(), 0.01 * iv, quoted)
    return Ragged(*(x.to(device) for x in parts))


def device_rows(device: str) -> tuple[list[Row], Row]:
    """Surfaces per second by size of batch, and what the machine can do at best."""
    network = Network(shipped_config()).to(device).eval().requires_grad_(False)
    machine = limits(device)
    rows = []
    for batch in BATCHES[:2] if device == "cpu" else BATCHES:
        quotes = synthetic(batch, device)
        eager = timed(partial(network, quotes), device)
        kernels = launches(partial(network, quotes), device)
        whole, alone = _recorded(network, quotes, device)
        recorded, by_itself = timed(whole, device), timed(alone, device)
        best = min(eager, recorded)
        traffic = moved_bytes(network, quotes) / machine["bytes_per_second"]
        empty = kernels * machine["seconds_per_kernel"]
        rows.append(
            {
                "batch": batch,
                "eager_per_second": batch / eager,
                "recorded_per_second": batch / recorded,
                "network_per_second": batch / by_itself,
                "kernels": kernels,
                "milliseconds": 1e3 * best,
                "traffic_floor_ms": 1e3 * traffic,
                "launch_floor_ms": 1e3 * empty,
                "share_of_floor": max(traffic, empty) / best,
            }
        )
    return rows, machine


def moved_bytes(network: Network, quotes: Ragged) -> float:
    """Bytes that have to move: quotes, weights, slopes, and each gate's densities out and back."""
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    inputs = sum(x.numel() * x.element_size() for x in quotes)
    cells = quotes.quoted.numel() * network.config.heads * 4
    slopes = quotes.T.numel() * network.knots.numel() * 4
    return float(weights + inputs + slopes + 2 * cells * network.config.looks)


def limits(device: str) -> Row:
    """Bandwidth of a large copy, and the time of one empty kernel among many recorded ones."""
    if device == "cpu":
        source = torch.empty(1 << 24)
        copy = timed(source.clone, device)
        return {"bytes_per_second": 8 * source.numel() / copy, "seconds_per_kernel": 0.0}
    source = torch.empty(1 << 28, device=device)
    target = torch.empty_like(source)
    copy = timed(lambda: target.copy_(source), device)
    small = torch.zeros(1, device=device)
    count = 200
    graph = _graph(lambda: [small.add_(1.0) for _ in range(count)])
    return {
        "bytes_per_second": 8 * source.numel() / copy,
        "seconds_per_kernel": timed(graph.replay, device) / count,
        "device": torch.cuda.get_device_name(),
    }


def timed(f: Callable[[], object], device: str) -> float:
    """Seconds per call, many calls between two looks at the clock."""
    for _ in range(3):
        f()
    best = float("inf")
    for _ in range(5):
        _wait(device)
        start = time.perf_counter()
        count = 0
        while count < 3 or time.perf_counter() - start < 0.05:
            f()
            count += 1
        _wait(device)
        best = min(best, (time.perf_counter() - start) / count)
    return best


def launches(f: Callable[[], object], device: str) -> int:
    """Kernels of one call."""
    if device == "cpu":
        return 0
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        f()
        _wait(device)
    return sum(event.count for event in found.key_averages())


def _recorded(
    network: Network, quotes: Ragged, device: str
) -> tuple[Callable[[], object], Callable[[], object]]:
    """A whole pass with the network recorded, and the recorded network alone."""
    chain = scaled(quotes)
    guess = network.guess(chain)
    if device == "cpu" or guess is None:
        return lambda: network(quotes), lambda: network.decode(chain, guess)
    made: list[Output] = []
    graph = _graph(lambda: made.append(network.decode(chain, guess)))

    def whole() -> Output:
        found = network.guess(scaled(quotes))
        assert found is not None
        for held, new in zip(guess, found, strict=True):
            held.copy_(new)
        graph.replay()
        return network.trusted(made[-1], guess)

    return whole, graph.replay


def _graph(f: Callable[[], object]) -> Any:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    return graph


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def table(rows: Sequence[Row]) -> str:
    """Rows as markdown."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [f"{v:,.4g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=None, help="cuda, or cpu to try the GPU part here")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None)
    given, _ = parser.parse_known_args()
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    result: Row = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    if given.device is not None:
        with torch.inference_mode():
            result["rows"], result["machine"] = device_rows(given.device)
        print(table(result["rows"]), "\n", result["machine"])
    else:
        watch = Stopwatch(given.clock, given.repeats)
        result |= {"clock": given.clock, "latency": latency(watch), "stages": stages(watch)}
        result["machine"] = platform.processor() or platform.machine()
        print("Milliseconds per chain\n\n" + table(result["latency"]))
        print("\nWhere the operator's time goes, milliseconds\n\n" + table(result["stages"]))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
