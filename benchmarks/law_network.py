"""Arms of the law network, trained side by side on the same batches for equal steps.

What do multipliers buy, and what does reading through the law? Arms of the objective: *none* fits
the decoded surface without multipliers, *fixed* has fixed prices on the proposal's defects,
*saddle* learns them, *saddle, both* fits proposal and surface. Each learns from endless laws, or
(*few*) from 500. *flat* reads every quote by the width of its cell. On a GPU a step of an arm is
one recording, replayed on a stream of its own: a step is a thousand small kernels, and arms side by
side take less time than one after the other. Errors are RMSE of the decoded surface in basis points
on held-out laws, on Heston surfaces (seeds 1000 to 1099) and on 300 unseen ones from number 2001.

    python -m benchmarks.law_network --steps 4000 --device cuda --arms saddle flat --seeds 0 1 2 3 4
        [--pool 24000] [--config '{"width": 96}'] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from arbiter.operators.law.config import LawConfig
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.law.network import LawNetwork, Variant
from arbiter_lab.differentiable.operators.law.proposal import (
    martingale_defect,
    price_law,
    prior_law,
)
from arbiter_lab.differentiable.operators.quote_tensors import Ragged, pad_chains
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces
from arbiter_lab.training.batch_stream import BatchStream
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.duals import Duals
from arbiter_lab.training.law_pool import make_laws
from arbiter_lab.training.law_route import LawLesson, LawRoute, make_law_lesson
from arbiter_lab.training.law_trainer import LawHeldOut, decoded_volatilities
from arbiter_lab.training.settings import Settings

FEW_LAWS = 500
WARM_STEPS, DECAY_SHARE, MAX_ENTRY, AVERAGE, CLIP = 200, 0.5, 2.0, 0.998, 5.0
RAMP_STEPS = 500  # over which multipliers' rates rise


@dataclass(frozen=True)
class ArmSettings:
    """What an arm does otherwise than the shipped training."""

    duals: str = "saddle"
    priced: str = "proposal"
    few: bool = False
    variant: Variant = field(default_factory=Variant)


_OBJECTIVES = {
    "none": ArmSettings("none", "surface"),
    "fixed": ArmSettings("fixed"),
    "saddle": ArmSettings(),
    "saddle, both": ArmSettings(priced="both"),
}
ARMS = {
    **_OBJECTIVES,
    **{f"{name}, few": replace(arm, few=True) for name, arm in _OBJECTIVES.items()},
    "flat": ArmSettings(variant=Variant(flat=True)),
    "no adjoint scan": ArmSettings(variant=Variant(scans=1)),
    "no scan": ArmSettings(variant=Variant(scans=0)),
    "guard off": ArmSettings(variant=Variant(guard=False)),
}


class Exam(NamedTuple):
    """A bench: lesson, maturities and exact volatilities; NaN where there is none."""

    lesson: LawLesson
    T: Tensor
    iv: Tensor


@torch.no_grad()
def score(network: LawNetwork | None, exam: Exam) -> dict[str, float]:
    """RMSE over surfaces in basis points, its median, and the RMS martingale defect."""
    task = exam.lesson.task
    law = prior_law(task.prior.start, task.total) if network is None else network(task).law
    there = torch.isfinite(exam.iv)
    off = torch.where(there, decoded_volatilities(law, exam.lesson, exam.T) - exam.iv, 0.0)
    square = off.square().sum((1, 2)) / there.sum((1, 2))
    log_mean = price_law(law, task.total, exam.lesson.k).log_mean
    defect = martingale_defect(log_mean, task.total)[task.seen]
    return {
        "bp": 1e4 * float(square.mean().sqrt()),
        "median_bp": 1e4 * float(square.sqrt().median()),
        "martingale": float(defect.square().mean().sqrt()),
    }


def make_exams(config: LawConfig, device: str) -> dict[str, Exam]:
    """Benches by name."""
    unseen = make_unseen_surfaces(300, first=2001)
    cases = [unseen.build_case(i) for i in range(len(unseen))]
    made = {"unseen": [(case.quotes, case.k, case.iv) for case in cases]}
    for name, hard in (("Heston", False), ("hard", True)):
        drawn = [heston_surface(seed, hard) for seed in range(1000, 1100)]
        made[name] = [(one.quotes, one.k, one.iv_oracle) for one in drawn]
    return {name: _make_exam(rows, config, device) for name, rows in made.items()}


def _make_exam(
    rows: Sequence[tuple[Quotes, object, object]], config: LawConfig, device: str
) -> Exam:
    quotes = Ragged(*(part.to(device) for part in pad_chains([row[0] for row in rows])))
    k, iv = (torch.stack([torch.as_tensor(r[i]) for r in rows]).to(device) for i in (1, 2))
    there = torch.isfinite(iv)
    batch = Batch(
        quotes.T, quotes.listed, quotes.k, quotes.iv, quotes.half, quotes.quoted, quotes.iv,
        torch.where(there, k, 0.0), torch.where(there, iv, 0.2), there, iv[:, 0, 0], quotes.T,
    )  # fmt: skip
    return Exam(make_law_lesson(batch, config), quotes.T, iv)


class Arm:
    """A network in training; ``mean`` is the moving average of its weights, which is scored.

    Args:
        name: Of the arm in :data:`ARMS`.
        seed: Of its first weights.
        settings: Of the training.
        device: Of it.
    """

    def __init__(self, name: str, seed: int, settings: Settings, device: str) -> None:
        own = ARMS[name]
        self.name, self.seed, self.few, self.betas = name, seed, own.few, settings.betas
        where = torch.device(device)
        self.route = LawRoute(settings.law, settings.knee, own.duals, own.priced, where)
        self.duals = Duals(self.route.boxes, device=where)
        torch.manual_seed(seed)
        self.network = LawNetwork(settings.law, own.variant).to(where)
        self.mean = LawNetwork(settings.law, own.variant).to(where)
        self.mean.load_state_dict(self.network.state_dict())
        self.weights, self.means = list(self.network.parameters()), list(self.mean.parameters())
        self.first = [torch.zeros_like(w) for w in self.weights]
        self.second = [torch.zeros_like(w) for w in self.weights]
        self.rate, self.count = (torch.zeros((), device=where) for _ in range(2))
        self.dual_rate = settings.dual_lr
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        # recordings of an arm never run at once, and share their memory
        self.pool = torch.cuda.graph_pool_handle() if device == "cuda" else None
        self.recordings: dict[int, Callable[..., None]] = {}

    def learn(self, *tensors: Tensor) -> None:
        """A whole step in place: gradients, Adam, Q-Align, multipliers, the average."""
        lesson = LawLesson.from_tensors(tensors)
        with torch.enable_grad():
            found = self.route.compute_terms(self.network(lesson.task).law, lesson)
            value = found.fit + self.duals.inner_product(found.defects)
            grads = torch.autograd.grad(value, self.weights, materialize_grads=True)
        with torch.no_grad():
            norm = torch.stack(torch._foreach_norm(grads)).norm()
            share = torch.where(torch.isfinite(norm), CLIP / norm.clamp(min=CLIP), 0.0)
            self.count += 1.0
            sizes = [1.0 - beta**self.count for beta in self.betas]
            keep = torch.clamp(self.count / (self.count + 10.0), max=AVERAGE)
            rows = zip(self.weights, grads, self.first, self.second, strict=True)
            for weight, grad, one, two in rows:
                step = torch.where(torch.isfinite(norm), grad * share, 0.0)
                one.lerp_(step, 1.0 - self.betas[0])
                two.lerp_(step * step, 1.0 - self.betas[1])
                entry = one / sizes[0] / (torch.sqrt(two / sizes[1]) + 1e-9)
                weight.sub_(self.rate * entry.clamp(-MAX_ENTRY, MAX_ENTRY))
            if self.network.variant.align:
                self.network.align()
            for weight, mean in zip(self.weights, self.means, strict=True):
                mean.add_((weight - mean) * (1.0 - keep))
            if self.route.boxes:
                duals, ramp = self.duals, torch.clamp(self.count / RAMP_STEPS, max=1.0)
                ascent = self.dual_rate * ramp * duals.rate * duals.gradient(found.defects)
                duals.vector.add_(ascent).clamp_(duals.low, duals.high)

    def step(self, kind: int, lesson: tuple[Tensor, ...], rate: float) -> None:
        """One step on a lesson of a kind of batch."""
        self.rate.fill_(rate)
        if self.stream is None:
            self.learn(*lesson)
            return
        if kind not in self.recordings:
            self.recordings[kind] = _record(self.learn, lesson, self.stream, self.pool)
        self.stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(self.stream):
            self.recordings[kind](*lesson)

    def inside_share(self) -> float | None:
        """Share of the multipliers strictly inside their box; None without a box."""
        duals = self.duals
        room = duals.high > duals.low
        if not bool(room.any()):
            return None
        inside = (duals.vector > duals.low) & (duals.vector < duals.high)
        return float(inside[room].float().mean())


def _record(
    learn: Callable[..., None],
    example: Sequence[Tensor],
    stream: torch.cuda.Stream,
    pool: Any,
) -> Callable[..., None]:
    """A recording on a stream of its own: cuBLAS has one workspace a stream, and two recordings of
    one stream that run at once overwrite each other's sums."""
    inputs = [x.clone() for x in example]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            learn(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        learn(*inputs)

    def replay(*given: Tensor) -> None:
        torch._foreach_copy_(inputs, list(given))
        graph.replay()

    return replay


def train(arms: Sequence[Arm], streams: dict[bool, BatchStream], settings: Settings) -> None:
    """All steps of all arms; those of few laws have a stream of their own."""
    began = time.monotonic()
    for step in range(settings.steps):
        late = max(step / settings.steps - (1.0 - DECAY_SHARE), 0.0) / DECAY_SHARE
        warm = min(1.0, (step + 1) / WARM_STEPS)
        rate = settings.lr * warm * 0.5 * (1.0 + math.cos(math.pi * late))
        for few, stream in streams.items():
            kind, lesson = stream.next_lesson(step)
            for arm in arms:
                if arm.few == few:
                    arm.step(kind, lesson, rate)
        own = [arm.stream for arm in arms if arm.stream is not None]
        for one in own:
            torch.cuda.default_stream().wait_stream(one)
        if own and step % 20 == 0:
            torch.cuda.synchronize()
        if step % 500 == 0:
            print(f"step {step}, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    """Print a line of JSON per arm."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--pool", type=int, default=24_000)
    parser.add_argument("--config", type=json.loads, default={}, help="of the network, as JSON")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    settings = Settings(
        model="law", law=LawConfig.from_dict(given.config), chunk=32, passes=12, dual_lr=2e-3,
        steps=given.steps,
    )  # fmt: skip
    if given.device == "cpu":
        rows = ((8, 16, 16, 16), (14, 33, 24, 8))
        settings = replace(settings, layouts=rows, mix=(0.5, 0.5), chunk=2)
    laws = make_laws(given.pool, settings.pool_seed, given.device)
    held = make_laws(settings.held_out, settings.held_out_seed, given.device)
    arms = [Arm(name, seed, settings, given.device) for name in given.arms for seed in given.seeds]
    exams, held_out = (
        make_exams(settings.law, given.device),
        LawHeldOut(settings, held, arms[0].route.make_lesson),
    )
    streams = {}
    for few in sorted({arm.few for arm in arms}):
        some = make_laws(FEW_LAWS, settings.pool_seed, given.device) if few else laws
        streams[few] = BatchStream(settings, some, arms[0].route.make_lesson)

    def measure(network: LawNetwork | None) -> dict[str, object]:
        found = {name: score(network, exam) for name, exam in exams.items()}
        return {**found, "held out": held_out.measure(network)}

    print(json.dumps({"arm": "prior alone", **measure(None)}), flush=True)
    train(arms, streams, settings)
    for arm in arms:
        about = {"arm": arm.name, "seed": arm.seed, "weights": sum(w.numel() for w in arm.weights)}
        about |= {"steps": settings.steps, "lambda_inside": arm.inside_share()}
        print(json.dumps({**about, **measure(arm.mean)}), flush=True)
        if given.out is not None:
            file = given.out / f"{arm.name.replace(', ', '_').replace(' ', '_')}_{arm.seed}"
            save_file(arm.mean.state_dict(), file.with_suffix(".safetensors"))


if __name__ == "__main__":
    main()
