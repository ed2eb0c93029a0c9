"""Install the built wheels in an empty environment and use them from outside the source tree.

Usage: check_wheel.py DIST CONSTRAINTS
"""

import os
import subprocess
import sys
import tempfile
import venv
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


MAX_LIBRARY_BYTES = 6_000_000
LAB_COMMANDS = ("train", "evaluate", "reproduce")


def check_wheels(library: Path, lab: Path, constraints: Path, folder: Path) -> None:
    """Install the library alone under `folder` and use it; then the lab beside it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
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
    arbiter("--help")
    for command in LAB_COMMANDS:
        if "pip install arbiter-lab" not in arbiter(command, "--out", "run", code=2):
            sys.exit(f"arbiter {command} does not name the package that it is part of")
    # The shipped chain, the page's template and every core dependency take part in a fit, the
    # shipped weights in --method both, and a simulated day in the joint fit and its audit.
    arbiter("fit", "--out", "out")
    arbiter("fit", "--method", "both", "--no-report", "--out", "both")
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
