"""`registration.py` and `breakdown_keys.py`: a literal grammar, and nothing beside it.

No value of a bench is ever computed, so none can differ between two looks at it (threats BL-01, BL-07).
"""

import ast
import re

from codegenie.eval.bench.grammar.problems import Problems, Reading, quoted
from codegenie.eval.bench.grammar.syntax_tree import SourceFile, is_docstring
from codegenie.eval.breakdown import banned_part
from codegenie.eval.errors import BreakdownKeysInvalid, RegistrationInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import CODE_PATTERN, IDENTIFIER_PATTERN

_IMPORTABLE = re.compile(r"__future__|pathlib|codegenie\.eval(\.[a-z_]+)*")

_Definition = ast.ClassDef | ast.FunctionDef


def inspect_registration(raw: bytes, directory_name: str) -> Reading[dict[str, int]]:
    """Read the one registration: its `min_cases_for_promotion`, and all that is wrong with the file."""
    problems = Problems()
    minimums: dict[str, int] = {}
    with problems.caught():
        source = SourceFile(raw, "registration.py", RegistrationInvalid)
        registered = _registrations(source, problems)
        if len(registered) == 1:
            minimums = _read_decorator(source, registered[0], directory_name, problems)
        elif registered or not problems.found:
            where = registered[1] if registered else ast.Pass()
            source.refuse(where, f"holds {len(registered)} registrations; exactly one is needed")
    return Reading(minimums, tuple(problems.found))


def read_registration(raw: bytes, directory_name: str) -> dict[str, int]:
    """Check the one registration and return its `min_cases_for_promotion`."""
    return inspect_registration(raw, directory_name).or_refuse()


def _registrations(source: SourceFile, problems: Problems) -> list[_Definition]:
    registered: list[_Definition] = []
    for index, node in enumerate(source.body):
        if index == 0 and is_docstring(node):
            continue
        with problems.caught():
            if isinstance(node, ast.ImportFrom):
                _check_import(source, node)
            elif isinstance(node, _Definition):
                registered.append(node)
                _check_empty_definition(source, node)
            else:
                source.refuse(node, f"holds a {type(node).__name__} statement, which we do not run")
    return registered


def _check_import(source: SourceFile, node: ast.ImportFrom) -> None:
    if node.level or not _IMPORTABLE.fullmatch(node.module or ""):
        source.refuse(node, "imports from somewhere other than pathlib and codegenie.eval")
    if any(alias.asname or alias.name == "*" for alias in node.names):
        source.refuse(node, "renames an import or imports everything")


def _check_empty_definition(source: SourceFile, node: _Definition) -> None:
    if getattr(node, "type_params", None):  # Python 3.12 and later
        source.refuse(node, "has type parameters")
    if isinstance(node, ast.ClassDef):
        plain = not node.bases and not node.keywords
    else:
        returns_nothing = node.returns is None or (
            isinstance(node.returns, ast.Constant) and node.returns.value is None
        )
        plain = returns_nothing and ast.unparse(node.args) == ""
    body = node.body[1:] if is_docstring(node.body[0]) else node.body
    if not plain or not all(isinstance(part, ast.Pass) for part in body):
        source.refuse(
            node, f"{quoted(node.name)} has bases or parameters, or holds more than a docstring or `pass`"
        )


def _read_decorator(
    source: SourceFile, node: _Definition, directory_name: str, problems: Problems
) -> dict[str, int]:
    call = node.decorator_list[0] if len(node.decorator_list) == 1 else None
    if not (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "register_task_class"
    ):
        source.refuse(node, "is not decorated by exactly one @register_task_class(…)")
    with problems.caught():
        _check_name(source, call, directory_name)
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if len(options) != len(call.keywords) or not options.keys() <= {"bench_path", "min_cases_for_promotion"}:
        source.refuse(call, "takes only bench_path and min_cases_for_promotion, once each")
    with problems.caught():
        if "bench_path" in options and not _is_own_directory(options["bench_path"], directory_name):
            source.refuse(
                options["bench_path"],
                'bench_path is not ".", the directory\'s name or Path(__file__).parent',
            )
    return _read_minimums(source, options.get("min_cases_for_promotion"), problems)


def _check_name(source: SourceFile, call: ast.Call, directory_name: str) -> None:
    name = call.args[0] if len(call.args) == 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        source.refuse(call, "the name of the task class is not one literal string")
    if name.value != directory_name:
        source.refuse(name, f"registers {quoted(name.value)}, but the directory is {quoted(directory_name)}")


def _is_own_directory(node: ast.expr, directory_name: str) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in (".", directory_name)
    return ast.unparse(node) == "Path(__file__).parent"


def _read_minimums(source: SourceFile, node: ast.expr | None, problems: Problems) -> dict[str, int]:
    if node is None:
        return {}
    if not isinstance(node, ast.Dict):
        source.refuse(node, "min_cases_for_promotion is not a literal dictionary")
    minimums: dict[str, int] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        with problems.caught():
            tier = key.value if isinstance(key, ast.Constant) else None
            count = value.value if isinstance(value, ast.Constant) else None
            if not isinstance(tier, str) or not re.fullmatch(IDENTIFIER_PATTERN, tier) or tier in minimums:
                source.refuse(value, "a tier is not a literal name, or appears twice")
            if type(count) is not int or not 1 <= count <= LIMITS.cases:
                source.refuse(
                    value, f"the minimum of tier {tier!r} is not a whole number from 1 to {LIMITS.cases}"
                )
            minimums[tier] = count
    return minimums


def inspect_breakdown_keys(raw: bytes) -> Reading[tuple[str, ...]]:
    """Read the declared breakdown keys, sorted, and all that is wrong with the file."""
    problems = Problems()
    keys: tuple[str, ...] = ()
    with problems.caught():
        source = SourceFile(raw, "breakdown_keys.py", BreakdownKeysInvalid)
        keys = _read_keys(source, _enumeration(source, problems), problems)
    return Reading(keys, tuple(problems.found))


def read_breakdown_keys(raw: bytes) -> tuple[str, ...]:
    """Return the declared breakdown keys, sorted."""
    return inspect_breakdown_keys(raw).or_refuse()


def _enumeration(source: SourceFile, problems: Problems) -> ast.ClassDef:
    classes = []
    for index, node in enumerate(source.body):
        if isinstance(node, ast.ClassDef):
            classes.append(node)
        elif not (index == 0 and is_docstring(node)) and ast.unparse(node) != "from enum import StrEnum":
            with problems.caught():
                source.refuse(node, f"holds a {type(node).__name__} statement beside the one enumeration")
    if len(classes) != 1:
        source.refuse(
            classes[1] if classes else ast.Pass(), "does not hold exactly one class BreakdownKey(StrEnum)"
        )
    enumeration = classes[0]
    heading = [
        enumeration.name,
        *map(ast.unparse, enumeration.bases),
        *enumeration.keywords,
        *enumeration.decorator_list,
        *getattr(enumeration, "type_params", []),
    ]
    if heading != ["BreakdownKey", "StrEnum"]:
        with problems.caught():
            source.refuse(enumeration, "the class is not `class BreakdownKey(StrEnum)`")
    return enumeration


def _read_keys(source: SourceFile, enumeration: ast.ClassDef, problems: Problems) -> tuple[str, ...]:
    keys: dict[str, str] = {}
    lines = enumeration.body[1:] if is_docstring(enumeration.body[0]) else enumeration.body
    for node in lines:
        with problems.caught():
            name, key = _read_key(source, node, keys)
            keys[name] = key
            _check_key(source, node, key)
    if not (lines and len(keys) <= LIMITS.breakdown_keys):
        source.refuse(
            enumeration,
            f"declares {len(keys) or 'no'} breakdown keys; 1 to {LIMITS.breakdown_keys} are allowed",
        )
    return tuple(sorted(keys.values()))


def _read_key(source: SourceFile, node: ast.stmt, keys: dict[str, str]) -> tuple[str, str]:
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    value = node.value if isinstance(node, ast.Assign) else None
    if not (
        isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    ):
        source.refuse(node, 'is not a line of the form NAME = "literal"')
    if target.id.startswith("_") or target.id in keys or value.value in keys.values():
        source.refuse(node, f"{quoted(target.id)} is private, or its name or value appears twice")
    return target.id, value.value


def _check_key(source: SourceFile, node: ast.AST, key: str) -> None:
    banned = banned_part(key)
    if not re.fullmatch(CODE_PATTERN, key):
        reads_as = f" and reads like the banned word {banned!r} (ADR-0008)" if banned else ""
        problem = f"breakdown key {quoted(key)} does not match [a-z][a-z0-9_.]{{0,63}}{reads_as}"
        source.refuse(node, problem, "banned_word" if banned else "form")
    if banned:
        source.refuse(
            node, f"breakdown key {key!r} holds the banned word {banned!r} (ADR-0008)", "banned_word"
        )
