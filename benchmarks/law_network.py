"""Networks of the operator's second design, trained side by side on the same batches.

Every arm sees the same lessons in the same order. On a GPU a step of an arm is one recording,
replayed on a stream of its own: a step is a few thousand small kernels, so that six arms take less
than three times as long as one. Errors are RMSE of the decoded surface in basis points, on held-out
laws of the universe, on Heston surfaces (seeds 1000 to 1099) and on 300 unseen surfaces from number
2001 on. None of these is a surface that a page reports errors of the shipped operator on.

    python -m benchmarks.law_network --seconds 285 --device cuda [--arms one flat two ...]
        [--pool 24000] [--seeds 0 1 ...] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.law.network import (
    LawConfig,
    LawNetwork,
    LawTask,
)
from arbiter_lab.differentiable.operators.law.proposal import (
    Law,
    decode,
    knots,
    martingale_defect,
    order_defect,
    price_law,
    prior_law,
)
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged, at_heads, known
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged, pad_chains
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces
from arbiter_lab.training.batch_stream import BatchStream, make_generator
from arbiter_lab.training.batches import Batch, BatchLayout, draw_batch
from arbiter_lab.training.law_pool import Laws, make_laws
from arbiter_lab.training.objective import robust_loss
from arbiter_lab.training.settings import Settings

KNEE, ERROR_FLOOR, MAX_RELATIVE = 3.0, 1e-3, 4.0  # of the loss, as the first design has them
MARTINGALE_PRICE, ORDER_PRICE = 3e3, 300.0  # of the mean square, and of the mean fall
RATE, WARM_STEPS, DECAY_SHARE = 1.5e-3, 200, 0.4
BETAS, AVERAGE, CLIP, MAX_ENTRY = (0.9, 0.99), 0.998, 5.0, 2.0
ARMS: dict[str, tuple[LawConfig, float]] = {
    "one look": (LawConfig(), ORDER_PRICE),
    "order cheap": (LawConfig(), 10.0),
    "flat reading": (LawConfig(flat=True), ORDER_PRICE),
    "two looks": (LawConfig(looks=2), ORDER_PRICE),
    "no adjoint scan": (LawConfig(adjoint=False), ORDER_PRICE),
    "half rank": (LawConfig(state=32, rank=2), ORDER_PRICE),
}


class Lesson(NamedTuple):
    """A chain with its prior, and what its law is worth at targets.

    Attributes:
        task: What the network is given.
        k: ``(B, L, P)`` log-strikes of the targets.
        log_price: Their exact out-of-the-money prices.
        scale: What turns a difference of log-prices into one of volatility over reference.
        weight: One over the error that quotes allow, zero off the targets.
    """

    task: LawTask
    k: Tensor
    log_price: Tensor
    scale: Tensor
    weight: Tensor

    def flat(self) -> tuple[Tensor, ...]:
        """All tensors, for a recording."""
        return (*self.task[:-1], *self.task.prior, *self[1:])

    @classmethod
    def from_flat(cls, tensors: Sequence[Tensor]) -> Lesson:
        """Undo :meth:`flat`."""
        own = len(LawTask._fields) - 1
        prior = Kriged(*tensors[own : own + len(Kriged._fields)])
        task = LawTask._make([*tensors[:own], prior])
        return cls(task, *tensors[own + len(Kriged._fields) :])


def make_lesson(batch: Batch, places: Tensor) -> Lesson:
    """The lesson of a batch: its prior is computed once, in double precision."""
    chain = scaled(Ragged(batch.T, batch.k, batch.iv, batch.half, batch.quoted))
    said, root = known(chain), torch.sqrt(batch.T)[..., None].double()
    prior = at_heads(said, chain, places.to(batch.T.device))
    k, total = batch.target_k.double(), batch.target_iv.double() * root
    price = black.otm(k, total).clamp(min=1e-300)
    elasticity = (total * black.vega(k, total) / price).clamp(min=0.2)
    _, doubt = said.at(torch.asinh(k * torch.exp(-chain.total.double())[..., None]))
    mid = black.otm(batch.k.double(), batch.iv.double() * root)
    relative = torch.exp(chain.noise)
    parts = (chain.total, chain.gap, chain.ahead, batch.k, mid, relative)
    own = Kriged(*(part.float() for part in prior))
    task = LawTask._make([*(part.float() for part in parts), chain.quoted, own])
    scale = (batch.target_iv / chain.sigma[..., None]).clamp(max=MAX_RELATIVE) / elasticity
    weight = batch.target / torch.sqrt(ERROR_FLOOR**2 + doubt**2)
    return Lesson(task, k.float(), torch.log(price).float(), scale.float(), weight.float())


class Terms(NamedTuple):
    """The objective's parts."""

    fit: Tensor
    martingale: Tensor
    order: Tensor


def compute_terms(law: Law, lesson: Lesson) -> Terms:
    """Errors of the proposal's prices, and what it lacks to be a surface."""
    task, seen = lesson.task, lesson.task.seen
    found = price_law(law, task.total, lesson.k)
    error = torch.log(found.price.clamp(min=1e-30)) - lesson.log_price
    error = error * lesson.scale * lesson.weight
    fit = robust_loss(error, KNEE).sum() / (lesson.weight > 0.0).sum().clamp(min=1)
    defect = martingale_defect(found.log_mean, task.total)
    both = seen[:, 1:] & seen[:, :-1]
    return Terms(
        fit,
        (defect.square() * seen).sum() / seen.sum(),
        (order_defect(law, task.total) * both).sum() / both.sum().clamp(min=1),
    )


class Exam(NamedTuple):
    """A bench: lesson, maturities and exact volatilities; NaN where there is none."""

    lesson: Lesson
    T: Tensor
    iv: Tensor


@torch.no_grad()
def score(network: LawNetwork | None, exam: Exam) -> dict[str, float]:
    """RMSE over surfaces in basis points, its median, and the RMS martingale defect."""
    task = exam.lesson.task
    law = prior_law(task.prior.start, task.total) if network is None else network(task).law
    k = exam.lesson.k.double()
    price = Transport(knots(), decode(law, task.total, task.seen)).otm(k)
    volatility = black.implied_total_volatility(price, k).volatility
    off = torch.nan_to_num(volatility) / torch.sqrt(exam.T.double())[..., None] - exam.iv
    there = torch.isfinite(exam.iv)
    square = torch.where(there, off, 0.0).square().sum((1, 2)) / there.sum((1, 2))
    defect = compute_terms(law, exam.lesson).martingale
    return {
        "bp": 1e4 * float(square.mean().sqrt()),
        "median_bp": 1e4 * float(square.sqrt().median()),
        "martingale": float(defect.sqrt()),
    }


def make_exams(places: Tensor, device: str) -> dict[str, Exam]:
    """Benches by name."""
    unseen = make_unseen_surfaces(300, first=2001)
    cases = [unseen.build_case(i) for i in range(len(unseen))]
    made = {"unseen": [(case.quotes, case.k, case.iv) for case in cases]}
    for name, hard in (("Heston", False), ("hard", True)):
        drawn = [heston_surface(seed, hard) for seed in range(1000, 1100)]
        made[name] = [(one.quotes, one.k, one.iv_oracle) for one in drawn]
    return {name: _make_exam(rows, places, device) for name, rows in made.items()}


def _make_exam(rows: Sequence[tuple[Quotes, object, object]], places: Tensor, device: str) -> Exam:
    quotes = Ragged(*(part.to(device) for part in pad_chains([row[0] for row in rows])))
    k, iv = (torch.stack([torch.as_tensor(r[i]) for r in rows]).to(device) for i in (1, 2))
    there = torch.isfinite(iv)
    batch = Batch(
        quotes.T, quotes.listed, quotes.k, quotes.iv, quotes.half, quotes.quoted, quotes.iv,
        torch.where(there, k, 0.0), torch.where(there, iv, 0.2), there, iv[:, 0, 0], quotes.T,
    )  # fmt: skip
    return Exam(make_lesson(batch, places), quotes.T, iv)


@dataclass
class Arm:
    """A network in training; ``mean`` is the moving average of its weights, which is scored."""

    name: str
    network: LawNetwork
    mean: LawNetwork
    order_price: float
    device: str

    def __post_init__(self) -> None:
        self.weights, self.means = list(self.network.parameters()), list(self.mean.parameters())
        self.first = [torch.zeros_like(w) for w in self.weights]
        self.second = [torch.zeros_like(w) for w in self.weights]
        self.rate, self.count = (torch.zeros((), device=self.device) for _ in range(2))
        self.stream = torch.cuda.Stream() if self.device == "cuda" else None
        self.recordings: dict[int, Callable[..., None]] = {}

    def learn(self, *tensors: Tensor) -> None:
        """A whole step in place: gradients, Adam, the average."""
        lesson = Lesson.from_flat(tensors)
        with torch.enable_grad():
            found = compute_terms(self.network(lesson.task).law, lesson)
            value = found.fit + MARTINGALE_PRICE * found.martingale
            value = value + self.order_price * found.order
            grads = torch.autograd.grad(value, self.weights, materialize_grads=True)
        with torch.no_grad():
            norm = torch.stack(torch._foreach_norm(grads)).norm()
            share = torch.where(torch.isfinite(norm), CLIP / norm.clamp(min=CLIP), 0.0)
            self.count += 1.0
            sizes = [1.0 - beta**self.count for beta in BETAS]
            keep = torch.clamp(self.count / (self.count + 10.0), max=AVERAGE)
            rows = zip(self.weights, grads, self.first, self.second, self.means, strict=True)
            for weight, grad, one, two, mean in rows:
                step = torch.where(torch.isfinite(norm), grad * share, 0.0)
                one.lerp_(step, 1.0 - BETAS[0])
                two.lerp_(step * step, 1.0 - BETAS[1])
                entry = one / sizes[0] / (torch.sqrt(two / sizes[1]) + 1e-9)
                weight.sub_(self.rate * entry.clamp(-MAX_ENTRY, MAX_ENTRY))
                mean.add_((weight - mean) * (1.0 - keep))

    def step(self, kind: int, lesson: tuple[Tensor, ...], rate: float) -> None:
        """One step on a lesson of a kind of batch."""
        self.rate.fill_(rate)
        if self.stream is None:
            self.learn(*lesson)
            return
        if kind not in self.recordings:
            self.recordings[kind] = _record(self.learn, lesson, self.stream)
        self.stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(self.stream):
            self.recordings[kind](*lesson)


def _record(
    learn: Callable[..., None], example: Sequence[Tensor], stream: torch.cuda.Stream
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
    with torch.cuda.graph(graph, stream=stream):
        learn(*inputs)

    def replay(*given: Tensor) -> None:
        torch._foreach_copy_(inputs, list(given))
        graph.replay()

    return replay


def make_arm(name: str, seed: int, device: str) -> Arm:
    """An arm with weights from its seed."""
    config, order_price = ARMS[name]
    torch.manual_seed(seed)
    network = LawNetwork(config).to(device)
    mean = LawNetwork(config).to(device)
    mean.load_state_dict(network.state_dict())
    return Arm(f"{name}, seed {seed}", network, mean, order_price, device)


def train(arms: Sequence[Arm], laws: Laws, seconds: float, settings: Settings) -> int:
    """Steps for so many seconds; returns their number."""
    places = LawConfig().places()

    def prepare(batch: Batch, _: Laws) -> tuple[Tensor, ...]:
        return make_lesson(batch, places).flat()

    stream, began, step = BatchStream(settings, laws, prepare), time.monotonic(), 0
    while (share := (time.monotonic() - began) / seconds) < 1.0:
        late = max(share - (1.0 - DECAY_SHARE), 0.0) / DECAY_SHARE
        rate = RATE * min(1.0, (step + 1) / WARM_STEPS) * 0.5 * (1.0 + math.cos(math.pi * late))
        kind, lesson = stream.next_lesson(step)
        for arm in arms:
            arm.step(kind, lesson, rate)
        for own in [arm.stream for arm in arms if arm.stream is not None]:
            torch.cuda.default_stream().wait_stream(own)
        if arms[0].stream is not None and step % 20 == 0:
            torch.cuda.synchronize()
        step += 1
    return step


def main() -> None:
    """Print a line of JSON per arm."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--pool", type=int, default=24_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    settings = Settings()
    if given.device == "cpu":
        rows = ((8, 16, 16, 16), (14, 33, 24, 8))
        settings = replace(settings, layouts=rows, mix=(0.5, 0.5), chunk=2)
    laws = make_laws(given.pool, settings.pool_seed, given.device)
    places = LawConfig().places()
    exams = make_exams(places, given.device)
    held = make_laws(settings.held_out, settings.held_out_seed, given.device)
    draw = make_generator(given.device, settings.held_out_seed)
    batch = draw_batch(held, BatchLayout(14, 33, 24), draw, 512)
    truth = torch.where(batch.target, batch.target_iv, torch.nan).double()
    exams["held out"] = Exam(make_lesson(batch, places), batch.T, truth)
    print(json.dumps({"arm": "prior alone", **{n: score(None, e) for n, e in exams.items()}}))
    arms = [make_arm(name, seed, given.device) for name in given.arms for seed in given.seeds]
    steps = train(arms, laws, given.seconds, settings)
    for arm in arms:
        weights = sum(w.numel() for w in arm.weights)
        found = {name: score(arm.mean, exam) for name, exam in exams.items()}
        print(json.dumps({"arm": arm.name, "weights": weights, "steps": steps, **found}))
        if given.out is not None:
            save_file(
                arm.mean.state_dict(), given.out / f"{arm.name.replace(' ', '_')}.safetensors"
            )


if __name__ == "__main__":
    main()
