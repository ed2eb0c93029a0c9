"""Loops over numbers, compiled on their first call and kept on disk for the next process.

For what is a long row of small steps: there a library of arrays spends its time between operations.
Sums are taken in the order in which they are written. Threads run such functions side by side.
Where Numba is not installed, as on a machine that only trains networks, the functions are Python's
own: the same results, hundreds of times later.

What is kept belongs to one state of all files that a function can be made of, its own room and
those below it (:data:`ROOMS`): the compiler itself looks at the file of a function alone, and would
go on with the code of an older version of another file.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

try:
    from numba import njit
    from numba.core import config as _config
    from numba.core import event

    HAS_COMPILER = True
except ImportError:
    _config, HAS_COMPILER = None, False  # type: ignore[assignment]

F = TypeVar("F", bound=Callable[..., object])
logger = logging.getLogger(__name__)

config: Any = _config  # whose attributes come from the environment
PACKAGE = Path(__file__).parent
# Modules and folders that compiled functions and their constants come from, from low to high: a
# test looks after it.
ROOMS = ("compiled.py", "conventions.py", "pricing", "models", "audit", "fitting", "operators")
_CACHE_PREFIX, _MAX_CACHE_AGE_SECONDS = "arbiter-compiled-", 3600.0  # names of folders, and seconds
NOTHING_KEPT = (
    "machine code cannot be kept, and every process compiles anew: set NUMBA_CACHE_DIR to a folder "
    "that can be written to"
)
_compile_lock = Lock()


def compiled(f: F) -> F:
    """The function in machine code; it takes and returns numbers and arrays."""
    return _compile_function(f)


def inlined(f: F) -> F:
    """The same, put where it is called: small functions of one number, in loops over many."""
    return _compile_function(f, forceinline=True)


def _compile_function(f: F, **more: object) -> F:
    # nobody calls these from C
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    options |= more
    if not HAS_COMPILER:
        return f
    with _compile_lock:  # modules may be imported by several threads
        _register_notice()
        path = Path(f.__code__.co_filename)
        folder = find_cache_folder(_find_room(path))
        if folder is None or not path.is_file():
            return cast(F, njit(**options)(f))
        with _cache_in_folder(folder):
            return cast(F, njit(cache=True, **options)(f))


def _find_room(path: Path) -> str:
    """The room of :data:`ROOMS` that a module is in; the last one if it is in none."""
    parts = path.relative_to(PACKAGE).parts if path.is_relative_to(PACKAGE) else ()
    return parts[0] if parts and parts[0] in ROOMS else ROOMS[-1]


@lru_cache(maxsize=len(ROOMS))
def find_cache_folder(room: str) -> Path | None:
    """The folder of a room's machine code; None if none can be written to, or files are missing.

    ``NUMBA_CACHE_DIR`` if that is set, else the package's own, else the user's. Without one every
    process compiles.
    """
    try:
        state = hash_rooms(room)
    except OSError:  # not a plain folder of files: nothing says which state this is
        return None
    # code with and without checks of bounds is not the same code
    name = f"{_CACHE_PREFIX}{Path(room).stem}-{state}{'-checked' if config.BOUNDSCHECK else ''}"
    for base in _list_cache_bases():
        folder = base / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        if base == PACKAGE / "__pycache__":
            _remove_old_caches(base, folder, room)
        return folder
    return None


def _list_cache_bases() -> Iterator[Path]:
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    yield PACKAGE / "__pycache__"
    with suppress(RuntimeError):  # there may be no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arbiter"


def _remove_old_caches(base: Path, folder: Path, room: str) -> None:
    """Remove what versions that are gone have left, but not what may just be written."""
    for other in base.glob(f"{_CACHE_PREFIX}{Path(room).stem}-*"):
        with suppress(OSError):
            if other != folder and time.time() - other.stat().st_mtime > _MAX_CACHE_AGE_SECONDS:
                shutil.rmtree(other, ignore_errors=True)


@lru_cache(maxsize=len(ROOMS))
def hash_rooms(room: str) -> str:
    """A digest of a room and of those below it, each of which is read once."""
    place = ROOMS.index(room)
    return hash_sources([PACKAGE / room], hash_rooms(ROOMS[place - 1]) if place else "")


def hash_sources(sources: Sequence[Path], before: str = "") -> str:
    """A digest of modules, and of all modules in folders, behind another digest."""
    found = hashlib.sha256(before.encode())
    for source in sources:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            found.update(path.relative_to(source.parent).as_posix().encode() + b"\0")
            found.update(path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


@contextmanager
def _cache_in_folder(folder: Path) -> Iterator[None]:
    """Let the compiler keep its functions in a folder."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def is_of_package(event: Any) -> bool:
    """Whether an event of the compiler is about a function of this package."""
    function = getattr(event.data.get("dispatcher"), "py_func", None)
    return (getattr(function, "__module__", None) or "").startswith("arbiter.")


@lru_cache(maxsize=1)
def _register_notice() -> None:
    """Have the compiler say once why the first call of all takes long, and not take longer."""

    class CompileListener(event.Listener):
        """The compiler keeps what it makes: to look through it for cycles takes an eighth more."""

        depth, collects = 0, False  # functions being compiled, one in another; the state before

        def on_start(self, event: Any) -> None:
            if is_of_package(event):
                log_compiling()
                if self.depth == 0:
                    self.collects = gc.isenabled()
                    gc.disable()
                self.depth += 1

        def on_end(self, event: Any) -> None:
            if is_of_package(event):
                self.depth -= 1
                if self.depth == 0 and self.collects:
                    gc.enable()

    event.register("numba:compile", CompileListener())  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1)
def log_compiling() -> None:
    """Log a notice: the record is marked as one, and is no warning about a result."""
    message = "compiling for this machine, which takes up to a minute the first time"
    if find_cache_folder(ROOMS[-1]) is None:
        message = f"compiling for this machine, which takes up to a minute; {NOTHING_KEPT}"
    logger.warning(message, extra={"notice": True})
