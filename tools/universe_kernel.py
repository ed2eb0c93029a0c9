"""Learn the covariance that kriging rests on, and put it where the package ships it.

PYTHONPATH=src python tools/universe_kernel.py --pool POOL --laws 16000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from arbiter.files import open_whole
from arbiter_lab.training.pool_files import load_pool
from arbiter_lab.training.prior_covariance import covariance_factor

HERE = Path(__file__).resolve().parent.parent / "src" / "arbiter" / "data" / "kernel.npy"


def main() -> None:
    """Read the command line, learn, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pool", required=True, help="folder in which pools of laws are kept")
    parser.add_argument("--laws", type=int, default=16_000)
    parser.add_argument("--surfaces", type=int, default=8_000)
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    laws = load_pool(args.laws, args.seed, args.pool, args.device).laws

    def told(i: int) -> None:
        sys.stderr.write(f"\riteration {i + 1} of {args.iterations}")

    found = covariance_factor(
        laws, args.surfaces, iterations=args.iterations, seed=args.seed, told=told
    )
    sys.stderr.write("\n")
    with open_whole(args.out) as file:
        np.save(file, found.cpu().numpy().astype(np.float32), allow_pickle=False)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
