"""The command line. Exit codes: 0 fine, 1 the check failed, 2 bad input.

Commands import what they need when they run, so that ``arbiter --help`` does not wait for
PyTorch.
"""

from __future__ import annotations

import logging
import sys
from io import TextIOWrapper

import typer

from arbiter.cli.auditing import audit
from arbiter.cli.evaluating import evaluate
from arbiter.cli.fits import fit
from arbiter.cli.indices import vix
from arbiter.cli.joining import joint
from arbiter.cli.reproducing import reproduce
from arbiter.cli.simulations import simulate
from arbiter.cli.training import train

app = typer.Typer(
    help="Option price surfaces that cannot be arbitraged, and audits of those that can.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (fit, vix, audit, joint, simulate, train, evaluate, reproduce):
    app.command()(command)


@app.callback()
def _root() -> None:
    """A callback makes typer keep the name of a single command."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal or a pipe may not know every letter
            stream.reconfigure(errors="replace")
    waiting = logging.getLogger("arbiter.compiled")  # says why a first time takes long: at once
    waiting.addHandler(logging.StreamHandler())
    waiting.propagate = False
    app()
