"""The console of every command: text of files is shown as it is, and never obeyed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def open_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that knows no markup, and prints no control characters but line feeds.

    Names, roots and errors come from files: square brackets in them are not styles, and escape
    sequences do not reach the terminal.
    """
    from rich.console import Console
    from rich.text import Text

    from arbiter.files.safe_text import show_controls

    class SafeConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(show_controls(text), **{**options, "markup": False})

    return SafeConsole(stderr=stderr, quiet=quiet, emoji=False)
