"""The command line; :mod:`arbiter.cli.exit_codes` has its exit codes.

Commands import what they need when they run, so that ``arbiter --help`` does not wait for the
numerical packages. Other distributions add commands through the entry points ``arbiter.commands``.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from io import TextIOWrapper

import typer

from arbiter.cli.audit_command import audit
from arbiter.cli.exit_codes import (
    BAD_INPUT,
    UNEXPECTED_ERROR,
    exit_bad_input,
    print_error,
    print_unexpected_error,
)
from arbiter.cli.fit_command import fit
from arbiter.cli.joint_command import joint
from arbiter.cli.simulate_command import simulate
from arbiter.cli.vix_command import vix
from arbiter.cli.warm_command import warm
from arbiter.extras import MissingExtraError

COMMANDS = "arbiter.commands"  # entry points of other distributions
LAB_COMMANDS = ("train", "evaluate", "reproduce")
# Imports and pictures make objects by the million and hardly any garbage: Python's own 700 is a
# fifth of the time of a fit.
_OBJECTS_BETWEEN_COLLECTIONS = 500_000


def build_app() -> typer.Typer:
    """The application: the library's own commands, then those of installed distributions."""
    app = typer.Typer(
        help="Option price surfaces that cannot be arbitraged, and audits of those that can.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (fit, vix, audit, joint, simulate, warm):
        app.command()(command)
    installed = {point.name: point for point in entry_points(group=COMMANDS)}
    for name in LAB_COMMANDS:
        if name in installed:
            app.command(name)(installed[name].load())
        else:
            app.command(
                name,
                hidden=True,
                add_help_option=False,
                context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            )(_ask_for_lab(name))
    return app


def _ask_for_lab(name: str) -> Callable[[], None]:
    """A command that names the distribution to install."""

    def missing() -> None:
        exit_bad_input(
            f"arbiter {name} is part of the package arbiter-lab: pip install arbiter-lab"
        )

    return missing


app = build_app()


@app.callback()
def _root() -> None:
    """A callback makes typer keep the name of a single command."""


def main() -> None:
    """Run the command line; an unexpected error ends with its own exit code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal or a pipe may not know every letter
            stream.reconfigure(errors="replace")
    try:
        app()
    except MissingExtraError as error:
        print_error(str(error))
        sys.exit(BAD_INPUT)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of a compiled library is no Exception
        print_unexpected_error(error)
        sys.exit(UNEXPECTED_ERROR)
    finally:
        gc.freeze()  # the interpreter's last collection would take half a second, for nothing
