"""Compare imports, declared dependencies and the page that gives a reason for each.

    .venv/bin/python -m scripts.check_dependencies

Each imported package must be declared, each declared package must be used, and the page must have one line
for each of them and no other. A package that is installed only because another one needs it does not count
as declared: it may disappear together with the other.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from scripts.locks import ROOT, normalised

PAGE = "docs/reference/dependencies.md"
SOURCE = "src"
DEVELOPMENT_TREES = ("tests", "scripts", "benchmarks")
OWN = {"codegenie", "tests", "scripts", "benchmarks"}
# These directories hold programs of benches, which import modules that the harness puts beside them.
FIXTURES = Path("tests/fixtures")
# The files that start tools by their names.
TOOL_FILES = ("Makefile", "scripts/run_checks.py")
STUBS = "types-"


def imported(tree: ast.AST) -> set[str]:
    """Return the top-level names that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def foreign_imports(root: Path, tree: str) -> dict[str, str]:
    """Return the foreign packages that the modules of a tree import, each with one module that imports it."""
    found: dict[str, str] = {}
    for path in sorted((root / tree).rglob("*.py")):
        relative = path.relative_to(root)
        if relative.is_relative_to(FIXTURES):
            continue
        beside = {sibling.stem for sibling in path.parent.glob("*.py")}
        names = imported(ast.parse(path.read_text(encoding="utf-8")))
        for name in names - OWN - beside - sys.stdlib_module_names:
            found.setdefault(name, relative.as_posix())
    return found


def undeclared(imports: Mapping[str, str], declared: set[str]) -> Iterator[str]:
    """Yield imports of packages that are installed but not declared, or not installed at all."""
    homes = metadata.packages_distributions()
    for name, module in sorted(imports.items()):
        packages = {normalised(package) for package in homes.get(name, [])}
        if not packages & declared:
            yield f"{module}: imports {name}, which is not declared"


def used_as_a_tool(package: str, texts: str) -> bool:
    """Return whether a package is started by its own command, or is a configured plugin of pytest."""
    points = metadata.distribution(package).entry_points
    commands = {point.name for point in points if point.group == "console_scripts"} | {package}
    plugins = {point.name for point in points if point.group == "pytest11"}
    patterns = [rf"\b{re.escape(name)}\b" for name in commands] + [
        rf"\b{re.escape(name)}" for name in plugins
    ]
    return any(re.search(pattern, texts) for pattern in patterns)


def places_of_tools(root: Path) -> str:
    """Return the texts that start tools, configure pytest and mark tests for its plugins."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    tests = sorted((root / "tests").rglob("test_*.py"))
    files = [root / name for name in TOOL_FILES] + [
        path for path in tests if not path.is_relative_to(FIXTURES)
    ]
    return "\n".join([repr(settings), *(path.read_text(encoding="utf-8") for path in files)])


def unused(declared: set[str], imports: Mapping[str, str], texts: str) -> Iterator[str]:
    """Yield declared packages that nothing imports or starts."""
    homes = metadata.packages_distributions()
    imported_packages = {normalised(package) for name in imports for package in homes.get(name, [])}
    for package in sorted(declared - imported_packages):
        stubs_for_a_used_one = package.removeprefix(STUBS) in imported_packages
        if not (package.startswith(STUBS) and stubs_for_a_used_one) and not used_as_a_tool(package, texts):
            yield f"pyproject.toml: {package} is declared, and nothing uses it"


def unexplained(declared: set[str], page: str) -> Iterator[str]:
    """Yield packages without a line in the page, and lines about packages that are not declared."""
    listed = {normalised(name) for name in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)}
    yield from (f"{PAGE}: {name} has no line" for name in sorted(declared - listed))
    yield from (f"{PAGE}: {name} has a line and is not declared" for name in sorted(listed - declared))


def faults(root: Path) -> Iterator[str]:
    """Yield all that is wrong in a checkout."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime = {normalised(requirement) for requirement in project["dependencies"]}
    development = {normalised(requirement) for requirement in project["optional-dependencies"]["dev"]}
    of_source = foreign_imports(root, SOURCE)
    of_tools: dict[str, str] = {}
    for tree in DEVELOPMENT_TREES:
        of_tools = foreign_imports(root, tree) | of_tools
    yield from undeclared(of_source, runtime)
    yield from undeclared(of_tools, runtime | development)
    yield from unused(runtime, of_source, "")
    yield from unused(development, of_tools, places_of_tools(root))
    yield from unexplained(runtime | development, (root / PAGE).read_text(encoding="utf-8"))


def main() -> int:
    """Print what is wrong; return the exit status."""
    found = list(faults(ROOT))
    print(
        "\n".join(found)
        or "dependencies: every import is declared, everything declared is used and explained"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
