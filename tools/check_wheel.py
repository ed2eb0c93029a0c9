"""Install the built wheels in an empty environment and use them from outside the source tree.

Usage: check_wheel.py DIST CONSTRAINTS
"""

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

PROBE = """
import sys
from pathlib import Path

import arbiter

package = Path(arbiter.__file__).resolve().parent
prefix = Path(sys.prefix).resolve()
if not package.is_relative_to(prefix):
    sys.exit(f"arbiter was imported from {package}, not from the environment {prefix}")
if not (package / "py.typed").is_file():
    sys.exit(f"py.typed is missing from {package}: type checkers would ignore the package")
for name in getattr(arbiter, "__all__", ()):
    getattr(arbiter, name)
print(f"arbiter imports from {package.relative_to(prefix)}, with py.typed")
"""
ABSENT = """
from importlib.util import find_spec

found = [name for name in ("torch", "plotly", "matplotlib", "jinja2") if find_spec(name)]
if found:
    raise SystemExit(f"the library alone brings {', '.join(found)}")
import arbiter as ab

try:
    ab.example().plot()
except ImportError as error:
    assert "pip install 'arbiter-vol[report]'" in str(error), error
else:
    raise SystemExit("a picture was drawn without matplotlib")
"""

MAX_LIBRARY_BYTES = 6_000_000
ASK_FOR_REPORT, COMPILING = "pip install 'arbiter-vol[report]'", "compiling for this machine"
LAB_COMMANDS = ("train", "evaluate", "reproduce")


def check_wheels(library: Path, lab: Path, constraints: Path, folder: Path) -> None:
    """Install the library alone under `folder` and use it; then its report, then the lab."""
    ours = ("PYTHONPATH", "NUMBA_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    scripts = folder / "env" / "bin"

    def run(*command: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, check=False, text=True, stderr=subprocess.PIPE
        )
        if done.returncode != code:
            sys.stderr.write(done.stderr)
            raise subprocess.CalledProcessError(done.returncode, list(map(str, command)))
        return done.stderr

    def arbiter(*arguments: str | Path, code: int = 0) -> str:
        return run(scripts / "arbiter", *arguments, code=code)

    venv.create(folder / "env", with_pip=True)
    install = (scripts / "python", "-m", "pip", "install", "--disable-pip-version-check", "-q")
    run(*install, "-c", constraints, library)
    run(scripts / "python", "-m", "pip", "check")
    run(scripts / "python", "-I", "-c", PROBE)
    run(scripts / "python", "-I", "-c", ABSENT)
    arbiter("--help")
    if COMPILING not in arbiter("warm"):
        sys.exit("arbiter warm compiled nothing in an empty environment")
    for command in LAB_COMMANDS:
        if "pip install arbiter-lab" not in arbiter(command, "--out", "run", code=2):
            sys.exit(f"arbiter {command} does not name the package that it is part of")
    # Without the extra 'report' a fit is whole but for its report, and says so.
    check_fit_without_report(arbiter, folder / "plain")
    run(*install, "-c", constraints, f"{library}[report]")
    # The shipped chain, the page's template and every dependency take part in a fit, the
    # shipped weights in --method both, and a simulated day in the joint fit and its audit.
    for fit in (
        ("fit", "--out", "out"),
        ("fit", "--method", "both", "--no-report", "--out", "both"),
    ):
        if COMPILING in arbiter(*fit):
            sys.exit(f"arbiter {' '.join(fit)} compiles what arbiter warm has left out")
    if not (folder / "out" / "report.html").is_file():
        sys.exit("arbiter fit wrote no report although its packages are installed")
    arbiter("audit", folder / "out" / "surface.npz")
    arbiter("simulate", "--out", "market", "--days", "1", "--listing", "sparse", "--chains", "1")
    (spx,), (vix,) = ((folder / "market/chains").glob(f"{name}_*.csv") for name in ("spx", "vix"))
    arbiter("vix", spx)
    arbiter("fit", spx, "--vix", vix, "--no-report", "--out", "joint")
    arbiter("joint", folder / "joint" / "surface.npz")
    run(*install, "-c", constraints, lab, library)
    run(scripts / "python", "-m", "pip", "check")
    for command in LAB_COMMANDS:
        arbiter(command, "--help")


def check_fit_without_report(arbiter: Callable[..., str], out: Path) -> None:
    """A fit in an environment without the packages of the report."""
    for asked in ("--report", "--pdf"):
        if ASK_FOR_REPORT not in arbiter("fit", asked, "--out", out, code=2) or out.exists():
            sys.exit(f"arbiter fit {asked} does not name the extra that it needs")
    arbiter("fit", "--out", out)
    if not any(
        ASK_FOR_REPORT in note for note in json.loads((out / "fit.json").read_text())["notes"]
    ):
        sys.exit("arbiter fit does not say that the report needs an extra")
    written = sorted(path.name for path in out.iterdir())
    if written != ["certificate.json", "exclusions.csv", "fit.json", "surface.npz"]:
        sys.exit(f"arbiter fit without the extra wrote {', '.join(written)}")


def find_wheel(dist: Path, name: str) -> Path:
    """The one wheel of a distribution."""
    wheels = list(dist.glob(f"{name}-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"expected one {name} wheel in {dist}, found {len(wheels)}")
    return wheels[0]


def main() -> None:
    dist, constraints = (Path(argument).resolve() for argument in sys.argv[1:])
    library, lab = find_wheel(dist, "arbiter_vol"), find_wheel(dist, "arbiter_lab")
    if (size := library.stat().st_size) > MAX_LIBRARY_BYTES:
        sys.exit(f"{library.name} has {size:,} bytes, more than {MAX_LIBRARY_BYTES:,}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_wheels(library, lab, constraints, Path(folder))
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd[:3]))
            sys.exit(f"the wheels failed their check at: {command} (exit {error.returncode})")
    print(
        f"{library.name} ({size / 1e6:.1f} MB) works in an empty environment, {lab.name} beside it"
    )


if __name__ == "__main__":
    main()
