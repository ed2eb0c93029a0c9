"""Threads and processes side by side give the bits of one alone."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
from arbiter.quotes import Quotes
from counts import FULL, count

PROGRAM = """
import sys
sys.path.insert(0, "tests")
from test_same_bits import answer
sys.stdout.write(answer(0))
"""


OPERATOR_PROGRAM = """
import sys
sys.path.insert(0, "tests")
from test_same_bits import answer_of_operator
sys.stdout.write(answer_of_operator(0))
"""


def make_quotes(seed: int) -> Quotes:
    rng = np.random.default_rng(seed)
    T = np.repeat([0.05, 0.1, 0.3, 0.9], 25)
    k = np.tile(np.linspace(-1.0, 0.6, 25), 4) * np.sqrt(T)
    mid = 0.2 - 0.05 * k / np.sqrt(T) + 0.002 * rng.uniform(-1.0, 1.0, k.size)
    return Quotes.from_frame({"T": T, "k": k, "iv_bid": mid - 0.002, "iv_ask": mid + 0.002})


def answer(seed: int) -> str:
    """A digest of a fit, of an update, of prices and volatilities, and of a certificate."""
    quotes = make_quotes(seed)
    surface = ab.fit(quotes)
    k, T = np.meshgrid(np.linspace(-0.4, 0.3, 41), [0.03, 0.1, 0.5, 1.4])
    parts = [
        surface.slopes,
        surface.iv(k, T),
        surface.local_variance(k, T),
        surface.density(k, T),
        surface.iv_error(k, T),
        surface.result.residuals,
    ]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
    digest.update(surface.certificate().to_json().encode())
    return digest.hexdigest()


def test_threads_give_the_bits_of_one() -> None:
    alone = [answer(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(answer, range(8)))
    assert together == alone
    assert len(set(alone)) == 8  # negative control: other quotes, other bits


def test_processes_give_the_bits_of_one() -> None:
    """Each with another number of threads for the libraries below."""
    made = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(n + 1), "OPENBLAS_NUM_THREADS": str(n + 1)},
        )
        for n in range(count(full=8, reduced=2))
    ]
    assert {process.communicate()[0] for process in made} == {answer(0)}


def answer_of_operator(seed: int) -> str:
    return hashlib.sha256(ab.Operator.pretrained()(make_quotes(seed)).slopes.tobytes()).hexdigest()


@pytest.mark.skipif(not FULL, reason="compiles everything anew, which takes a minute")
def test_compiling_gives_the_bits_of_machine_code_that_was_kept(tmp_path: Path) -> None:
    """The first process compiles, the second loads what it has kept."""
    command = [sys.executable, "-c", OPERATOR_PROGRAM]
    place = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [subprocess.check_output(command, text=True, env=place) for _ in range(2)]
    assert any(tmp_path.rglob("*.nbc"))
    assert set(runs) == {answer_of_operator(0)}
    assert answer_of_operator(1) != runs[0]  # negative control
