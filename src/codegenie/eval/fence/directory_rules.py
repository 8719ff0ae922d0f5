"""The directory contract: which entries are required, which are forbidden, and which tools would act on."""

import os
import re
import stat
from collections.abc import Mapping

from codegenie.eval.bench.grammar import COMPILED_CODE, pycache_hint
from codegenie.eval.bench.loading import entry_problems
from codegenie.eval.fence.findings import Notes, shown_name

# Files that test runners, interpreters, package managers, linters, editors and CI services use by their name.
_TOOL_FILES = re.compile(
    r"""
      (conftest|sitecustomize|usercustomize|__init__|__main__|setup|noxfile|fabfile|tasks|dodo)\.py
    | .*\.(pth|egg-link|pyc|pyo|so|pyd|dylib|dll|whl|egg|sh|bash|bat|ps1)
    | __pycache__ | \.venv | venv | node_modules | .*\.egg-info
    | (requirements|constraints).*\.txt | pyproject\.toml | setup\.cfg | tox\.ini | \.?pytest\.ini | uv\.lock
    | \.?mypy\.ini | \.?ruff\.toml | \.flake8 | \.pylintrc | \.coveragerc | \.python-version | pip\.conf
    | \.pre-commit-(config|hooks)\.yaml | \.git.* | \.hg | \.svn | \.circleci | \.travis\.yml
    | \.env.* | \.vscode | \.idea | \.devcontainer | \.editorconfig | \.npmrc | package\.json
    | [Mm]akefile | GNUmakefile | [Dd]ockerfile | docker-compose\.ya?ml | [Jj]enkinsfile
    """,
    # Case does not matter, because some people check a bench out on a file system that ignores case.
    re.VERBOSE | re.IGNORECASE,
)
# Git uses these wherever they are in the checkout: attributes can hide a diff or change bytes.
_GIT_FILES = {".git", ".gitattributes", ".gitmodules"}
_RUN_BY_ACCIDENT = re.compile(r"(^|/)((conftest|sitecustomize|usercustomize)\.py|[^/]+\.pth)$", re.IGNORECASE)


def inspect_entries(notes: Notes, kinds: Mapping[str, str]) -> None:
    """Compare the entries of a task class with the contract. Unlike the loader, require a README."""
    for name, problem in entry_problems(kinds):
        kind = kinds.get(name)
        if kind is None:
            notes.add("F001", "", problem.message, problem.hint)
        elif kind == "other":
            notes.add("F003", shown_name(name), f"{name!a} is a link, a pipe or a device")
        else:
            rule = "F004" if _TOOL_FILES.fullmatch(name) else "F002"
            notes.add(rule, shown_name(name), problem.message, pycache_hint(name))
    if "README.md" not in kinds:
        notes.add(
            "F001", "", "the bench has no README.md", "say what it measures and how it could be cheated"
        )


def inspect_root(notes: Notes, kinds: Mapping[str, str]) -> None:
    """Check the entries of a bench root that are not task classes."""
    for name, kind in sorted(kinds.items()):
        if kind == "other":
            notes.add(
                "F003", shown_name(name), f"{name!a} is a link, a pipe or a device, and is not looked into"
            )
        elif _TOOL_FILES.fullmatch(name):
            message = f"{name!a} lies among the task classes and affects all of them"
            notes.add("F004", shown_name(name), message, pycache_hint(name))


def inspect_case_path(notes: Notes, path: str) -> bool:
    """Check the name of one file of a case. Return whether a tool would run it by accident."""
    git = _GIT_FILES.intersection(path.lower().split("/"))
    if git:
        notes.add("F004", path, f"{min(git)} changes how git checks out or shows the files beside it")
    return bool(_RUN_BY_ACCIDENT.search(path) or COMPILED_CODE.search(path))


def inspect_accidents(notes: Notes, paths: list[str]) -> None:
    """Warn once for a whole class about the files that tools would run by accident."""
    if paths:
        more = f"; {len(paths)} such files in all" if len(paths) > 1 else ""
        notes.add("F005", paths[0], f"is run by a tool that finds it{more}", pycache_hint(paths[0]))


def inspect_bits(notes: Notes, directory: int, name: str, path: str) -> bool:
    """Note executable bits on a file that is only read. Return whether there are any."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False  # the code that reads the file reports what is wrong with it
    executable = stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)
    if executable:
        notes.add("F006", path, "is marked as executable")
    return executable
