"""Build the wheel into dist/, twice, and write its bill of materials beside it.

    .venv/bin/python -m scripts.build_wheel

The second build starts from a copy of the source in another directory, with other file times and other modes.
Both must give the same bytes: then a user can build the wheel again and see that it holds nothing else.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.bill_of_materials import write_bill
from scripts.locks import ROOT

# All files that a wheel is made from; .gitignore names the files that are left out.
INPUTS = ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "src", "bench", "scripts/ship_benches.py")
# The time of every file in the wheel: hatchling's own default, whatever the environment says.
FILE_TIME = "1580601600"
BUILD_SECONDS = 300


def declared_version(root: Path = ROOT) -> str:
    """Return the version from the one place where it is declared, without importing the package."""
    namespace: dict[str, str] = {}
    lines = (root / "src" / "codegenie" / "__init__.py").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("__version__ = ")]
    exec(line, namespace)  # noqa: S102 - one assignment of our own source
    return namespace["__version__"]


def build(target: Path, root: Path = ROOT) -> Path:
    """Build the wheel with the locked hatchling of our own environment, which needs no network."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": FILE_TIME}
    subprocess.run(argv, cwd=root, env=environment, check=True, capture_output=True, timeout=BUILD_SECONDS)
    (wheel,) = target.glob("*.whl")
    return wheel


def copy_inputs(target: Path, *, umask: int, time: int, root: Path = ROOT) -> None:
    """Copy the inputs of a wheel, with the modes and times of a checkout by another user at another time."""
    for name in INPUTS:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, target / name)
    for path in target.rglob("*"):
        full = 0o777 if path.is_dir() or path.stat().st_mode & 0o100 else 0o666
        path.chmod(full & ~umask)
        os.utime(path, (time, time))


def main() -> int:
    """Build both; return the exit status."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    wheel = build(ROOT / "dist")
    with tempfile.TemporaryDirectory(prefix="codegenie-build-") as directory:
        copy_inputs(Path(directory, "source"), umask=0o077, time=86_400)
        again = build(Path(directory, "wheel"), Path(directory, "source"))
        if again.read_bytes() != wheel.read_bytes():
            print(f"build_wheel: two builds of {wheel.name} differ", file=sys.stderr)
            return 1
    bill = write_bill(wheel)
    print(
        f"{wheel.name}: two builds, the same bytes, sha256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}"
    )
    print(f"{bill.name}: its bill of materials (CycloneDX)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
