"""The ceilings on the shape of the source.

Medians look alike in every codebase; taste shows in the longest file, the deepest nesting and the
widest signature, so it is those that are bounded. Each rule is a function from one parsed module to its
findings. It is run on the whole source, and on a specimen that breaks it, so that no rule is vacuous.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

FILE_LINES = 400
FUNCTION_LINES = 50
NESTING = 3
PARAMETERS = 5

# Around foreign code, and at the command line's last line; nowhere else, and once in each.
BROAD_EXCEPT_ROOMS = {
    "codegenie/eval/boxes/box_server_program.py",
    "codegenie/eval/boxes/init.py",
    "codegenie/eval/execution/worker_program.py",
    "codegenie/eval/suts/raised.py",
    "codegenie/eval/cli/__init__.py",
    "codegenie/eval/isolation/confinement/guardian_program.py",
    "codegenie/eval/isolation/confinement/run_as_main.py",
    "codegenie/eval/isolation/confinement/zygote.py",
}
ROOMLESS_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class Module:
    """One source file: its path below `src`, its text and its tree."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def in_cli(self) -> bool:
        return self.path.startswith("codegenie/eval/cli/")


Rule = Callable[[Module], Iterator[str]]


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def docstring_lines(function: Function) -> int:
    if ast.get_docstring(function, clean=False) is None:
        return 0
    first = function.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def long_files(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines >= FILE_LINES:
        yield f"{lines} lines"


def long_functions(module: Module) -> Iterator[str]:
    for function in functions(module.tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1 - docstring_lines(function)
        if lines >= FUNCTION_LINES:
            yield f"{function.name}: {lines} lines"


def deepest(node: ast.AST, depth: int = 0) -> int:
    """Return the depth of the deepest block below `node`; inner functions are measured by themselves."""
    found = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, SCOPES):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        found = max(found, deepest(child, depth + (isinstance(child, BLOCKS) and not is_elif)))
    return found


def deep_functions(module: Module) -> Iterator[str]:
    for function in functions(module.tree):
        if deepest(function) > NESTING:
            yield f"{function.name}: nested {deepest(function)} deep"


def parameters(function: Function) -> list[str]:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = [argument.arg for argument in every]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def is_click_callback(module: Module, function: Function) -> bool:
    return module.in_cli and any(
        re.search(r"\b(command|group|option|argument)\(", ast.unparse(decorator) + "(")
        for decorator in function.decorator_list
    )


def wide_signatures(module: Module) -> Iterator[str]:
    for function in functions(module.tree):
        if len(parameters(function)) > PARAMETERS and not is_click_callback(module, function):
            yield f"{function.name}: {len(parameters(function))} parameters"


def names_everything(expression: ast.expr | None) -> bool:
    if expression is None:
        return True
    return any(
        isinstance(node, ast.Name) and node.id in {"Exception", "BaseException"}
        for node in ast.walk(expression)
    )


def broad_excepts(module: Module) -> Iterator[str]:
    broad = [
        node.lineno
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.ExceptHandler) and names_everything(node.type))
        or (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("suppress")
            and any(names_everything(argument) for argument in node.args)
        )
    ]
    allowed = 1 if module.path in BROAD_EXCEPT_ROOMS else 0
    yield from (f"line {line}: broad except" for line in sorted(broad)[allowed:])


def is_own(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] == "codegenie"
    return isinstance(node, ast.Import) and any(name.name.split(".")[0] == "codegenie" for name in node.names)


def hidden_imports(module: Module) -> Iterator[str]:
    # The command line and the packages' front doors load their parts on first use, to start fast.
    if module.in_cli or module.path.endswith(("__init__.py", "__main__.py")):
        return
    for function in functions(module.tree):
        for node in ast.walk(function):
            if is_own(node):
                yield f"{function.name}: {ast.unparse(node)}"


def roomless_modules(module: Module) -> Iterator[str]:
    names = {part.strip("_") for part in Path(module.path).with_suffix("").parts}
    yield from (f"named {name}" for name in sorted(names & ROOMLESS_NAMES))


def public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield node


def undocumented_functions(module: Module) -> Iterator[str]:
    for function in public_functions(module.tree.body):
        overload = any(ast.unparse(decorator).endswith("overload") for decorator in function.decorator_list)
        if not overload and not ast.get_docstring(function):
            yield f"{function.name}: no docstring"


def nested(levels: int) -> str:
    blocks = "".join(f"{'    ' * (level + 1)}if a:\n" for level in range(levels))
    return f"def f(a: int) -> None:\n{blocks}{'    ' * (levels + 1)}pass\n"


ELIF_CHAIN = "def f(a: int) -> None:\n    if a == 0:\n        pass\n" + "".join(
    f"    elif a == {n}:\n        pass\n" for n in range(1, 9)
)
SIX = "def f(a, b, c, d, e, *, f):\n    pass\n"
SWALLOW = "try:\n    pass\nexcept Exception:\n    pass\n"
LAZY = "def f():\n    from codegenie.eval import models\n    return models\n"
SHORT = "def f():\n" + "    x = 1\n" * 48
LONG = f"{SHORT}    x = 1\n"
METHOD = "class C:\n    def f(self):\n        pass\n"

# For each rule: where a file lies and what it holds when it is just too much, and when it is just right.
SPECIMENS: list[tuple[Rule, list[Module], list[Module]]] = [
    (long_files, [Module("m.py", "x = 1\n" * 400)], [Module("m.py", "x = 1\n" * 399)]),
    (
        long_functions,
        [Module("m.py", LONG), Module("m.py", f"class C:\n{indent('async ' + LONG, '    ')}")],
        [Module("m.py", SHORT), Module("m.py", LONG.replace("x = 1", '"""Say."""', 1))],
    ),
    (
        deep_functions,
        [Module("m.py", nested(4)), Module("m.py", nested(4).replace("if a", "while a"))],
        [Module("m.py", nested(3)), Module("m.py", ELIF_CHAIN)],
    ),
    (
        wide_signatures,
        [
            Module("m.py", SIX),
            Module("codegenie/eval/cli/run.py", SIX),
            Module("m.py", f"@click.option('--a')\n{SIX}"),
        ],
        [
            Module("m.py", "def f(a, b, c, d, e): ...\n"),
            Module("m.py", "class C:\n    def f(self, a, b, c, d, e): ...\n"),
            Module("codegenie/eval/cli/run.py", f"@click.option('--a')\n{SIX}"),
        ],
    ),
    (
        broad_excepts,
        [
            Module("codegenie/eval/runner.py", SWALLOW),
            Module("codegenie/eval/runner.py", SWALLOW.replace(" Exception", "")),
            Module("codegenie/eval/runner.py", SWALLOW.replace("Exception", "(ValueError, BaseException)")),
            Module("codegenie/eval/runner.py", "with contextlib.suppress(Exception):\n    pass\n"),
            Module("codegenie/eval/suts/raised.py", SWALLOW * 2),
        ],
        [
            Module("codegenie/eval/suts/raised.py", SWALLOW),
            Module("codegenie/eval/cli/__init__.py", SWALLOW),
            Module("codegenie/eval/runner.py", SWALLOW.replace("Exception", "OSError")),
            Module("codegenie/eval/runner.py", "with contextlib.suppress(OSError):\n    pass\n"),
        ],
    ),
    (
        hidden_imports,
        [
            Module("codegenie/eval/trial.py", LAZY),
            Module("codegenie/eval/trial.py", "def f():\n    from . import models\n"),
            Module("codegenie/eval/trial.py", "def f():\n    import codegenie.eval.models\n"),
        ],
        [
            Module("codegenie/eval/cli/run.py", LAZY),
            Module("codegenie/eval/__init__.py", LAZY),
            Module("codegenie/eval/estimators.py", "def f():\n    import numpy\n"),
        ],
    ),
    (
        roomless_modules,
        [Module("codegenie/eval/utils.py", ""), Module("codegenie/eval/_common/x.py", "")],
        [Module("codegenie/eval/files.py", "")],
    ),
    (
        undocumented_functions,
        [Module("m.py", "def f():\n    pass\n"), Module("m.py", METHOD)],
        [Module("m.py", "def _f():\n    pass\n"), Module("m.py", 'def f():\n    """Say."""\n')],
    ),
]
RULES = [rule for rule, _, _ in SPECIMENS]


def source_modules() -> list[Module]:
    return [
        Module(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_every_ceiling(rule: Rule) -> None:
    assert [f"{module.path}: {finding}" for module in source_modules() for finding in rule(module)] == []


@pytest.mark.parametrize(("rule", "broken", "kept"), SPECIMENS, ids=[rule.__name__ for rule in RULES])
def test_a_ceiling_is_found_broken_when_it_is_and_only_then(
    rule: Rule, broken: list[Module], kept: list[Module]
) -> None:
    assert [module for module in broken if not list(rule(module))] == []
    assert [(module, list(rule(module))) for module in kept if list(rule(module))] == []
