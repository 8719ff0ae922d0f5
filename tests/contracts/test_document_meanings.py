"""What the pages say is true of the source, and not only that they have a row for everything.

Each claim is looked up where it can be seen: in the syntax trees of the source, or in the import contracts.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from codegenie.eval import errors
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.records import RECORD_OF_BODY
from codegenie.eval.system.files import UnsafeTree, walk_files

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "codegenie"
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of every row of a section whose first cell is in backticks."""
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"there is no section {heading!r}"
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


# Exceptions.


def mentions(node: ast.AST) -> list[ast.AST | None]:
    """Return the parts of a node that name a type and make none: caught, asked for, declared."""
    if isinstance(node, ast.ExceptHandler):
        return [node.type]
    if isinstance(node, ast.Attribute):
        return [node.value]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass"}:
        return list(node.args)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.returns]
    return [node.annotation] if isinstance(node, ast.arg | ast.AnnAssign) else []


def made(tree: ast.AST) -> set[str]:
    """Return the names that are raised, called or handed over, as an exception to raise later is."""
    nodes = list(ast.walk(tree))
    mentioned = {id(part) for node in nodes for root in mentions(node) if root for part in ast.walk(root)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in mentioned}


@cache
def made_somewhere() -> set[str]:
    return set().union(*(made(tree) for path, tree in trees().items() if not path.endswith("/errors.py")))


def exception_rows() -> dict[str, str]:
    return {cells[0].strip("`"): cells[2] for cells in rows(page("docs/reference/python.md"), "Exceptions")}


def test_an_exception_is_said_not_to_be_raised_yet_only_if_nothing_makes_it() -> None:
    said = exception_rows()

    assert len(said) > 20
    unmade = {name for name, when in said.items() if not when.startswith("base:")} - made_somewhere()
    assert {name for name, when in said.items() if "not raised yet" in when} == unmade


def test_an_exception_that_is_said_to_be_a_base_alone_has_children_and_is_never_made() -> None:
    bases = {name for name, when in exception_rows().items() if when.startswith("base:")}

    assert bases
    assert bases & made_somewhere() == set()
    assert {name for name in bases if not vars(errors)[name].__subclasses__()} == set()


def test_what_is_only_caught_is_not_taken_for_raised() -> None:
    assert made(ast.parse("raise X")) == {"X"}
    assert made(ast.parse("def f():\n    raise X('no')")) == {"X"}
    assert made(ast.parse("read(raw, error=X)")) >= {"X"}
    assert made(ast.parse("try:\n    pass\nexcept (X, Y):\n    pass")) == set()
    assert made(ast.parse("kind = Y if other else X")) >= {"X"}
    assert "X" not in made(ast.parse("isinstance(error, X)"))
    assert "X" not in made(ast.parse("def f(error: X) -> X | None:\n    return X.exit_code"))


# Records.


def test_a_kind_of_record_is_said_not_to_be_written_yet_only_if_nothing_writes_it() -> None:
    written = {
        ast.unparse(node.func)
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    unwritten = {
        kind.model_fields["kind"].default
        for body, kind in RECORD_OF_BODY.items()
        if body.__name__ not in written
    }
    said = {
        cells[0].strip("`"): cells[1]
        for cells in rows(page("docs/reference/log.md"), "Records")
        if re.fullmatch(r"`[a-z]+\.[a-z]+`", cells[0])
    }

    assert len(said) == len(RECORD_OF_BODY)
    assert {kind for kind, when in said.items() if "not written yet" in when} == unwritten


# Caps.

CAP = re.compile(
    r"_?(?:(?:LARGEST|MOST|LONGEST|LEAST)_[A-Z_]+|[A-Z_]*(?:BYTES|SECONDS|CHARACTERS|MEMBERS|RATIO|BITS|VALUES))"
)
# Named like a cap, and none: a pause, an age, the size of a buffer or of a key, a unit, an estimate.
NOT_CAPS = {
    "_DEADLINE_SECONDS",
    "_FLUSH_BYTES",
    "_GATHERED_BYTES",
    "_KEY_BYTES",
    "_FINISH_BYTES",
    "_LARGEST_ALPHA",
    "_LARGEST_SCOPE_FOR_TRACERS",
    "_LATE_SECONDS",
    "LEAST_ABI",
    "_LEAST_SECONDS",
    "_LEAST_VALUE_BYTES",
    "_LEFTOVER_SECONDS",
    "_LONGEST_JUMP",
    "_POLL_SECONDS",
    "_REDRAW_SECONDS",
    "_SALT_BYTES",
    "_STANDSTILL_SECONDS",
    "_TAIL_BYTES",
    "_TURN_SECONDS",
    "_NANOSECONDS",
    "_TRIAL_BYTES",
    "_UNIX_PATH_CHARACTERS",
    "_WORD_BYTES",
    "_YOUNG_SECONDS",
}


def number(node: ast.expr) -> float | None:
    """Compute a constant that is written as arithmetic on numbers, and nothing else."""
    if not all(
        isinstance(part, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
        for part in ast.walk(node)
    ):
        return None
    value = eval(compile(ast.Expression(node), "constant", "eval"), {"__builtins__": {}})  # noqa: S307
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def caps(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of every constant of a module that is named like a cap."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = number(node.value) if isinstance(node, ast.Assign | ast.AnnAssign) and node.value else None
        if isinstance(target, ast.Name) and value is not None and CAP.fullmatch(target.id):
            yield target.id, f"{value:,}" if isinstance(value, int) else f"{value:g}"


def test_every_cap_that_stands_beside_its_code_has_a_row_with_its_value() -> None:
    found = {cap for tree in trees().values() for cap in caps(tree)}
    said = {
        (cells[0].strip("`"), cells[1].partition(" ")[0])
        for cells in rows(page("docs/reference/limits.md"), "Caps beside their code")
    }

    assert {name for name, _ in found} >= NOT_CAPS
    assert said == {(name.lstrip("_").lower(), value) for name, value in found if name not in NOT_CAPS}


def test_a_cap_is_found_by_its_name_and_computed() -> None:
    tree = ast.parse(
        "_FILE_BYTES = 2 * 1024**2\nMOST_CALLERS: int = 7\n_PAUSE = 3\n_NAME_BYTES = f()\n_RATIO = 1.5"
    )

    assert list(caps(tree)) == [("_FILE_BYTES", "2,097,152"), ("MOST_CALLERS", "7"), ("_RATIO", "1.5")]


# Layers and programs.


def contracts() -> list[dict[str, Any]]:
    project = tomllib.loads(page("pyproject.toml"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def programs() -> set[str]:
    """Return the modules that the source runs by their path: those whose file it names beside its own."""
    files = {
        part.value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.BinOp) and "__file__" in ast.unparse(node)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.endswith(".py")
    }
    found = {name: path for path in trees() for name in files if Path(path).name == name}
    assert found.keys() == files
    return {"codegenie." + path.removesuffix(".py").replace("/", ".") for path in found.values()}


def test_every_program_that_is_run_by_its_path_is_imported_by_no_module() -> None:
    (protected,) = [
        set(contract["protected_modules"])
        for contract in contracts()
        if contract["type"] == "protected" and "by path" in contract["name"]
    ]

    assert protected == programs()


def test_the_architecture_names_every_program_that_is_run_by_its_path() -> None:
    chapter = page("docs/architecture.md").partition("## Who may import whom\n")[2].partition("\n## ")[0]
    named = {
        Path(name).stem
        for name in re.findall(r"`([\w/]+(?:\.py)?)`", chapter.partition("Programs that are run by path")[2])
    }

    assert {program.rpartition(".")[2] for program in programs()} - named == set()


def test_contributing_names_the_top_and_the_bottom_of_the_layers() -> None:
    layers = next(contract["layers"] for contract in contracts() if contract["type"] == "layers")
    top, bottom = re.findall(r"from top \(([^)]+)\) to bottom\s\(([^)]+)\)", page("CONTRIBUTING.md"))[0]

    assert re.findall(r"`(\w+)`", top) == layers[0].split(" | ")[:1]
    assert re.findall(r"`(\w+)`", bottom) == layers[-1].split(" | ")


def test_only_the_strict_decoder_and_the_named_exceptions_parse_a_document() -> None:
    parsers = {
        "json.loads",
        "json.load",
        "tomllib.loads",
        "tomllib.load",
        "yaml.load",
        "yaml.safe_load",
        "yaml.parse",
    }
    found = {
        path.removeprefix("eval/").removesuffix(".py")
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in parsers
    }
    said = page("docs/architecture.md").partition("## Three invariants\n")[2].partition("\n2. ")[0]
    named = set(re.findall(r"`(\w+(?:/\w+)*)`", said.partition("Exceptions")[2]))

    assert found == named | {"decoding"}


# Names of files.


def test_the_page_on_benches_says_which_characters_a_file_name_may_have(tmp_path: Path) -> None:
    said = " ".join(page("docs/reference/bench.md").partition("## What a file may be")[2].split())
    forbidden = re.findall(
        r"`(\S)`", said.partition("printable ASCII characters other than")[2].partition(",")[0]
    )
    # `/` cannot be tried: no file has it in its name.
    tried = [chr(code) for code in range(1, 128) if chr(code) != "/"]

    for character in tried:
        (tmp_path / f"a{character}b").write_bytes(b"")
    refused: list[UnsafeTree] = []
    taken = [found.path for found in walk_files(tmp_path, LIMITS.case_tree, refused.append)]

    assert forbidden == ["/", "\\"]
    assert len(taken) + len(refused) == len(tried)
    assert {path[1] for path in taken} == set(filter(str.isprintable, tried)) - set(forbidden)
