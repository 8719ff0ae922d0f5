"""The workspace of a step: the input, the agent's files from its stored output, the files of the step."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from codegenie.eval.execute_steps import EXECUTE, Program, PythonCalls
from codegenie.eval.execution_ports import CaseFile
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer

_INPUT = "input/"
_MOST_FILES = 20_000
_PATH_BYTES = 1_024
_DEPTH = 64


class Workspace:
    """Files by relative path. A file that is laid over another one, or over a directory, replaces it."""

    def __init__(self) -> None:
        self._files: dict[str, CaseFile] = {}
        self._folders: set[str] = set()

    def lay(self, path: str, file: CaseFile) -> None:
        """Put a file at a path. What is in its way is removed."""
        above = _folders(path)
        for folder in above:
            self._files.pop(folder, None)
        self.remove(path)
        self._files[path] = file
        self._folders.update(above)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything below it."""
        self._files.pop(path, None)
        if path in self._folders:
            for below in [each for each in self._files if each.startswith(f"{path}/")]:
                del self._files[below]

    @contextmanager
    def packed(self) -> Iterator[int]:
        """Give the descriptor of a parcel with all files."""
        with stream_file() as descriptor:
            packer = Packer(descriptor)
            made: set[str] = set()
            for path, file in sorted(self._files.items()):
                for folder in [each for each in _folders(path) if each not in made]:
                    made.add(folder)
                    packer.directory(folder)
                packer.file(path, len(file.content), (file.content,), executable=file.executable)
            packer.close()
            yield descriptor


def workspace_of(
    step: PythonCalls | Program, case_files: Mapping[str, CaseFile], changes: Mapping[str, str | None]
) -> Workspace:
    """Lay out the workspace of one step. What the step places wins over what the agent wrote."""
    workspace = Workspace()
    for path, file in case_files.items():
        if path.startswith(_INPUT):
            workspace.lay(path.removeprefix(_INPUT), file)
    for path, text in changes.items():
        if text is None:
            workspace.remove(path)
        else:
            workspace.lay(path, CaseFile(text.encode()))
    for path, source in step.place.items():
        workspace.lay(path, case_files[source])
    return workspace


def changes_of(output: bytes) -> dict[str, str | None]:
    """Return the files of an output that can be laid out. The agent wrote it, so others are left out."""
    # It was decoded strictly before it was stored.
    document = json.loads(output)
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict):
        return {}
    found = {path: text for path, text in files.items() if _is_laid_out(path) and _is_text(text)}
    return dict(list(found.items())[:_MOST_FILES])


def step_file(case_files: Mapping[str, CaseFile], path: str) -> bytes:
    """Return the content of a file below `execute/`."""
    if not path.startswith(EXECUTE):
        raise RuntimeError(f"{path} is not a file of a step")
    return case_files[path].content


def _is_text(text: object) -> bool:
    if text is None:
        return True
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_laid_out(path: str) -> bool:
    """Say whether a path stays in the workspace, whatever it is made of."""
    if "\0" in path or not _is_text(path) or len(path.encode()) > _PATH_BYTES:
        return False
    parts = path.split("/")
    return len(parts) <= _DEPTH and all(
        part not in {"", ".", ".."} and len(part.encode()) <= _PATH_BYTES // 4 - 1 for part in parts
    )


def _folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
