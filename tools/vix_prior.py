"""Train the prior of VIX slices on synthetic markets, and put it where the package ships it.

Usage: PYTHONPATH=src python tools/vix_prior.py MARKETS.npz [--steps 6000] [--seed 0]

Markets come from tools/vix_markets.py. A tenth of them is held out: their errors are printed, over
the deviations that the prior states. Features are blurred as those of a fitted surface are.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from arbiter.conventions import Array
from arbiter.files import open_whole
from arbiter.vix.prior import KNOTS, MAX_FEATURE_DEVIATIONS, VixRegression

HERE = Path(__file__).resolve().parents[1] / "src" / "arbiter" / "data" / "vix_prior.npz"
HIDDEN, BATCH, LR = 64, 512, 3e-3
HELD_OUT = 10  # one market in so many
BLUR_FORWARD, BLUR_SWAP, BLUR_SMILE = 0.02, 0.005, 0.004  # of logarithms, in a fitted surface
WEIGHT_DECAY = 1e-4


def blurred(x: Tensor, generator: torch.Generator) -> Tensor:
    """Features with the errors that those of fitted surfaces have."""
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    scale = torch.full((x.shape[1],), BLUR_SMILE, dtype=x.dtype)
    scale[0], scale[2:8] = 0.0, BLUR_SWAP
    noise = noise * scale
    ahead = BLUR_FORWARD * torch.randn(len(x), 1, generator=generator, dtype=x.dtype)
    noise[:, 1:2] += ahead
    noise[:, 2:5] -= ahead  # which are ratios to it
    return x + noise


def main() -> None:
    """Read, train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("markets", type=Path)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    with np.load(given.markets, allow_pickle=False) as found:
        data = {name: found[name] for name in found.files}
    held = data["market"] % HELD_OUT == HELD_OUT - 1
    x = torch.from_numpy(data["features"])
    y = torch.from_numpy(np.log(data["slopes"]) - 0.5 * np.log(data["T"])[:, None])
    trained = train(x[~held], y[~held], given.steps, given.seed)
    report(trained, data, held)
    with open_whole(given.out) as file:
        np.savez_compressed(file, **{n: v.astype(np.float32) for n, v in trained._asdict().items()})


def train(x: Tensor, y: Tensor, steps: int, seed: int) -> VixRegression:
    """Means and a size of error by Gaussian likelihood, then the covariance of what they leave."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    centre, scale = x.mean(0), x.std(0).clamp(min=1e-3)
    n = y.shape[1]
    sizes = (x.shape[1], HIDDEN, HIDDEN, n + 1)
    first, second, last = (nn.Linear(a, b).double() for a, b in pairwise(sizes))
    layers = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)
    with torch.no_grad():
        last.weight.mul_(0.1)
        last.bias[:n] = y.mean(0)
        last.bias[n] = 0.0
    spread = y.std(0)
    optimiser = torch.optim.AdamW(layers.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

    def said(x: Tensor) -> tuple[Tensor, Tensor]:
        out = layers(((x - centre) / scale).clamp(-MAX_FEATURE_DEVIATIONS, MAX_FEATURE_DEVIATIONS))
        return out[:, :n], out[:, n]

    for _ in range(steps):
        pick = torch.randint(len(x), (BATCH,), generator=generator)
        mean, log_size = said(blurred(x[pick], generator))
        off = ((y[pick] - mean) / spread) ** 2
        loss = (n * log_size + 0.5 * off.sum(1) * torch.exp(-2.0 * log_size)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rate.step()
    with torch.no_grad():
        mean, log_size = said(blurred(x, generator))
        off = (y - mean) * torch.exp(-log_size)[:, None]
        covariance = off.T @ off / len(off) + 1e-6 * torch.eye(n, dtype=off.dtype)
        root = torch.linalg.cholesky(covariance)
    arrays = (
        *(part.detach().numpy() for part in (centre, scale)),
        *(
            t.detach().numpy()
            for layer in (first, second, last)
            for t in (layer.weight.T, layer.bias)
        ),
        root.numpy(),
    )
    return VixRegression(*arrays)


def report(trained: VixRegression, data: dict[str, Array], held: NDArray[np.bool_]) -> None:
    """Errors of log-slopes of held-out markets, by date."""
    x = torch.from_numpy(data["features"][held])
    blurry = blurred(x, torch.Generator().manual_seed(1)).numpy()
    y = np.log(data["slopes"][held]) - 0.5 * np.log(data["T"][held])[:, None]
    mean, root = trained(blurry)
    deviation = np.sqrt((root**2).sum(-1))
    bands = np.quantile(data["T"][held], [0.0, 0.33, 0.67, 1.0])
    print(
        f"{held.sum()} dates of held-out markets; rms error of log-slopes, and over its deviation"
    )
    for low, high in pairwise(bands):
        part = (data["T"][held] >= low) & (data["T"][held] <= high)
        off = (y - mean)[part]
        rms, over = np.sqrt((off**2).mean(0)), np.sqrt(((off / deviation[part]) ** 2).mean(0))
        print(f"  {365 * low:5.0f} to {365 * high:4.0f} days ", np.round(rms, 2), np.round(over, 2))
    print("  knots               ", np.array(KNOTS))


if __name__ == "__main__":
    main()
