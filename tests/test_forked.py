"""A process that was forked after polars had been used says so, instead of waiting for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from arbiter.data import example_chain_path

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

PROGRAM = """
import os, signal, sys
import arbiter as ab

chain = {chain!r}
{before}
sys.stdout.flush()
if os.fork() == 0:
    signal.alarm(60)  # what hangs is ended, and has printed nothing
    try:
        {call}
        print("worked", flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
USED = "read = ab.read_chain(chain)"
REMEDY = "multiprocessing.get_context('spawn')"
CALLS = {
    "read_chain": "ab.read_chain(chain)",
    "quotes": "read.quotes()",
    "vix": "ab.vix(read)",
    "certificate": "ab.Surface.from_slopes([-1, 1], [0.5], [[0.2, 0.2]]).certificate()",
    "to_frame": "ab.Surface.from_slopes([-1, 1], [0.5], [[0.2, 0.2]]).to_frame()",
    "audit": "ab.audit({'T': [0.5] * 3, 'k': [-0.1, 0.0, 0.1], 'iv': [0.2] * 3})",
    "read_futures": "ab.read_futures({'expiry': ['2023-03-22'], 'bid': [20.0], 'ask': [20.1]})",
}


def fork(before: str, call: str) -> str:
    program = PROGRAM.format(chain=str(example_chain_path()), before=before, call=call)
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.mark.parametrize("name", CALLS)
def test_what_needs_polars_names_the_remedy_after_a_fork(name: str) -> None:
    assert REMEDY in fork(USED, CALLS[name])


def test_what_needs_no_polars_works_after_a_fork() -> None:
    before = f"{USED}\nsmall = read.quotes()\nsmall = small.select(small.expiry < 3)"
    assert fork(before, "ab.fit(small).iv(0.0, 0.1)") == "worked\n"


def test_without_use_of_polars_a_forked_process_reads_and_certifies() -> None:
    """The control: a parent that has only imported it takes nothing away."""
    for name in ("read_chain", "certificate"):
        assert fork("import polars", CALLS[name]) == "worked\n"
