"""Put the benches of this repository into the wheel, as one archive that no installer unpacks.

hatchling calls this while it builds. As plain files the benches would not survive an installation: pip
compiles every `.py` file that it installs, which puts `__pycache__` directories into benches, and a bench
that holds anything but its own files is refused. `codegenie.eval.bench.shipped` reads the archive.
"""

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "codegenie/eval/benches.zip"
# Fixed, like the modes below: the same benches give the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)
MODES = {False: 0o100644, True: 0o100755}


def files_of(root: Path) -> Iterator[Path]:
    """Yield every file of the benches in order, without the compiled files that Python left there."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def write_archive(root: Path, target: Path) -> None:
    """Pack a bench root. The digest of a case covers executable bits, so they are kept."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in files_of(root):
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), DATE)
            entry.create_system = 3  # always Unix: this field says how to read the mode
            entry.external_attr = MODES[bool(path.stat().st_mode & 0o111)] << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


class ShipBenches(BuildHookInterface):  # type: ignore[type-arg] # hatchling has one configuration here
    """Adds the archive to a wheel. An editable install reads `bench/` itself, so that no copy goes stale."""

    PLUGIN_NAME = "custom"
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Pack the benches and say where in the wheel they belong."""
        if version == "editable":
            return
        self._directory = tempfile.TemporaryDirectory(prefix="codegenie-build-")
        archive = Path(self._directory.name, "benches.zip")
        write_archive(Path(self.root, "bench"), archive)
        build_data["force_include"][str(archive)] = TARGET

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's signature
        """Remove what was packed; it is in the wheel now."""
        if self._directory is not None:
            self._directory.cleanup()
