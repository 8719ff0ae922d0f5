"""What the files of a bench may say: its two Python files, its taxonomy and its list of digests.

The two Python files are parsed to a syntax tree and only a literal grammar is taken (threats BL-01, BL-07):
no value of a bench is ever computed, so none can differ between two looks at it.
"""

import ast
import re
import warnings
from typing import NoReturn

from pydantic import ValidationError

from codegenie.eval.breakdown import banned_part
from codegenie.eval.decoding import decode_text, decode_yaml
from codegenie.eval.errors import (
    BenchInvalid,
    BreakdownKeysInvalid,
    DecodingRefused,
    DigestManifestInvalid,
    FailureModeTaxonomyInvalid,
    RegistrationInvalid,
)
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import (
    CODE_PATTERN,
    IDENTIFIER_PATTERN,
    RESERVED_PREFIXES,
    RUNNER_CODES,
    FailureModeSpec,
    Severity,
)

_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8_NAMES = {"utf-8", "utf8", "utf_8", "utf-8-unix"}
_LINE_END = re.compile(r"\r\n|\r|\n")  # Python's: a cookie after a lone carriage return counts too
_INTEGER_BITS = 64
_NOTHING = ("~", "null", "Null", "NULL")  # other readers of YAML take these for a missing value
_DIGEST = r"blake3:([0-9a-f]{64})"
_DIGEST_LINE = re.compile(rf"([a-z0-9][a-z0-9_-]{{0,63}}): {_DIGEST}")
_IMPORTABLE = re.compile(r"__future__|pathlib|codegenie\.eval(\.[a-z_]+)*")


class _SourceFile:
    """One Python file of a bench, as a syntax tree and with the error type of its kind."""

    def __init__(self, raw: bytes, name: str, error: type[BenchInvalid]) -> None:
        self._name = name
        self._error = error
        try:
            text = decode_text(raw, LIMITS.python_bytes)
        except DecodingRefused as refusal:
            raise error(refusal.message, where=name, hint=refusal.hint) from None
        for line in _LINE_END.split(text, 2)[:2]:
            cookie = _COOKIE.match(line)
            if cookie and cookie[1].lower() not in _UTF8_NAMES:
                raise error(
                    f"declares the encoding {_quoted(cookie[1])}", where=name, hint="write it as UTF-8"
                )
        self.body = self._parse(text)

    def _parse(self, text: str) -> list[ast.stmt]:
        try:
            with warnings.catch_warnings():
                # A warning would quote the bench's text on our stderr.
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except SyntaxError as problem:
            raise self._error(
                f"is not Python: {problem.msg}", where=f"{self._name}:{problem.lineno or 1}"
            ) from None
        except (ValueError, RecursionError, MemoryError):
            raise self._error("is nested too deeply or holds a NUL", where=self._name) from None
        self._check_nodes(tree)
        return tree.body

    def _check_nodes(self, tree: ast.Module) -> None:
        level: list[ast.AST] = [tree]
        for _ in range(LIMITS.nesting):
            level = [child for node in level for child in ast.iter_child_nodes(node)]
            for node in level:
                # 16 KB of hexadecimal digits are an integer that Python itself refuses to print.
                if isinstance(node, ast.Constant) and _bits(node.value) > _INTEGER_BITS:
                    self.refuse(node, f"holds an integer of more than {_INTEGER_BITS} bits")
        if level:
            raise self._error("is nested too deeply", where=self._name)

    def refuse(self, node: ast.AST, problem: str) -> NoReturn:
        """Raise the typed refusal that names file and line."""
        line = getattr(node, "lineno", 1)
        raise self._error(
            problem,
            where=f"{self._name}:{line}",
            hint="only the literal form in docs/reference/bench.md is read",
        )


def _bits(value: object) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _quoted(text: object) -> str:
    """Quote a bench's text for a message: ASCII, and not all of it."""
    return ascii(text)[:80]


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def read_registration(raw: bytes, directory_name: str) -> dict[str, int]:
    """Check the one registration and return its `min_cases_for_promotion`."""
    source = _SourceFile(raw, "registration.py", RegistrationInvalid)
    registered: list[ast.ClassDef | ast.FunctionDef] = []
    for index, node in enumerate(source.body):
        if index == 0 and _is_docstring(node):
            continue
        if isinstance(node, ast.ImportFrom):
            _check_import(source, node)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            _check_empty_definition(source, node)
            registered.append(node)
        else:
            source.refuse(node, f"holds a {type(node).__name__} statement, which we do not run")
    if len(registered) != 1:
        where = registered[1] if registered else ast.Pass()
        source.refuse(where, f"holds {len(registered)} registrations; exactly one is needed")
    return _read_decorator(source, registered[0], directory_name)


def _check_import(source: _SourceFile, node: ast.ImportFrom) -> None:
    if node.level or not _IMPORTABLE.fullmatch(node.module or ""):
        source.refuse(node, "imports from somewhere other than pathlib and codegenie.eval")
    if any(alias.asname or alias.name == "*" for alias in node.names):
        source.refuse(node, "renames an import or imports everything")


def _check_empty_definition(source: _SourceFile, node: ast.ClassDef | ast.FunctionDef) -> None:
    if getattr(node, "type_params", None):  # Python 3.12 and later
        source.refuse(node, "has type parameters")
    if isinstance(node, ast.ClassDef):
        plain = not node.bases and not node.keywords
    else:
        returns_nothing = node.returns is None or (
            isinstance(node.returns, ast.Constant) and node.returns.value is None
        )
        plain = returns_nothing and ast.unparse(node.args) == ""
    body = node.body[1:] if _is_docstring(node.body[0]) else node.body
    if not plain or not all(isinstance(part, ast.Pass) for part in body):
        source.refuse(node, f"{_quoted(node.name)} is more than a name with a docstring or `pass`")


def _read_decorator(
    source: _SourceFile, node: ast.ClassDef | ast.FunctionDef, directory_name: str
) -> dict[str, int]:
    call = node.decorator_list[0] if len(node.decorator_list) == 1 else None
    if not (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "register_task_class"
    ):
        source.refuse(node, "is not decorated by exactly one @register_task_class(…)")
    name = call.args[0] if len(call.args) == 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        source.refuse(call, "the name of the task class is not one literal string")
    if name.value != directory_name:
        source.refuse(name, f"registers {_quoted(name.value)}, but the directory is {directory_name!r}")
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if len(options) != len(call.keywords) or not options.keys() <= {"bench_path", "min_cases_for_promotion"}:
        source.refuse(call, "takes only bench_path and min_cases_for_promotion, once each")
    if "bench_path" in options and not _is_own_directory(options["bench_path"], directory_name):
        source.refuse(
            options["bench_path"], 'bench_path is not ".", the directory\'s name or Path(__file__).parent'
        )
    return _read_minimums(source, options.get("min_cases_for_promotion"))


def _is_own_directory(node: ast.expr, directory_name: str) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in (".", directory_name)
    return ast.unparse(node) == "Path(__file__).parent"


def _read_minimums(source: _SourceFile, node: ast.expr | None) -> dict[str, int]:
    if node is None:
        return {}
    if not isinstance(node, ast.Dict):
        source.refuse(node, "min_cases_for_promotion is not a literal dictionary")
    minimums: dict[str, int] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        tier = key.value if isinstance(key, ast.Constant) else None
        count = value.value if isinstance(value, ast.Constant) else None
        if not isinstance(tier, str) or not re.fullmatch(IDENTIFIER_PATTERN, tier) or tier in minimums:
            source.refuse(value, "a tier is not a literal name of its own")
        if type(count) is not int or not 1 <= count <= LIMITS.cases:
            source.refuse(
                value, f"the minimum of tier {tier!r} is not a whole number from 1 to {LIMITS.cases}"
            )
        minimums[tier] = count
    return minimums


def read_breakdown_keys(raw: bytes) -> tuple[str, ...]:
    """Return the declared breakdown keys, sorted."""
    source = _SourceFile(raw, "breakdown_keys.py", BreakdownKeysInvalid)
    classes = []
    for index, node in enumerate(source.body):
        if isinstance(node, ast.ClassDef):
            classes.append(node)
        elif not (index == 0 and _is_docstring(node)) and ast.unparse(node) != "from enum import StrEnum":
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
        source.refuse(enumeration, "the class is not `class BreakdownKey(StrEnum)`")
    return _read_keys(source, enumeration)


def _read_keys(source: _SourceFile, enumeration: ast.ClassDef) -> tuple[str, ...]:
    keys: dict[str, str] = {}
    for index, node in enumerate(enumeration.body):
        if index == 0 and _is_docstring(node):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        value = node.value if isinstance(node, ast.Assign) else None
        if not (
            isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
        ):
            source.refuse(node, 'is not a line of the form NAME = "literal"')
        if target.id.startswith("_") or target.id in keys or value.value in keys.values():
            source.refuse(node, f"{_quoted(target.id)} is private, or its name or value appears twice")
        _check_key(source, node, value.value)
        keys[target.id] = value.value
    if not 1 <= len(keys) <= LIMITS.breakdown_keys:
        source.refuse(
            enumeration,
            f"declares {len(keys) or 'no'} breakdown keys; 1 to {LIMITS.breakdown_keys} are allowed",
        )
    return tuple(sorted(keys.values()))


def _check_key(source: _SourceFile, node: ast.AST, key: str) -> None:
    if not re.fullmatch(CODE_PATTERN, key):
        source.refuse(node, f"breakdown key {_quoted(key)} does not match [a-z][a-z0-9_.]{{0,63}}")
    banned = banned_part(key)
    if banned:
        source.refuse(node, f"breakdown key {key!r} holds the banned word {banned!r} (ADR-0008)")


def read_taxonomy(raw: bytes) -> dict[str, FailureModeSpec]:
    """Return the taxonomy of failure modes, the seven runner-internal codes included (ADR-0004)."""
    try:
        entries = decode_yaml(raw)
    except DecodingRefused as refusal:
        raise _taxonomy_error(refusal.message) from None
    if not isinstance(entries, dict):
        raise _taxonomy_error("is not a mapping from code to severity and description")
    taxonomy = {code: _read_failure_mode(code, entry) for code, entry in entries.items()}
    missing = sorted(RUNNER_CODES.keys() - taxonomy.keys())
    if missing:
        raise _taxonomy_error(f"does not declare the runner-internal code {', '.join(missing)}")
    for code, spec in taxonomy.items():
        if code in RUNNER_CODES and spec.severity is not Severity.BLOCK:
            raise _taxonomy_error(f"lowers {code} to {spec.severity.value}; it always blocks")
        if code not in RUNNER_CODES and code.startswith(RESERVED_PREFIXES):
            raise _taxonomy_error(f"declares {code!r} under a prefix that belongs to the runner")
    return dict(sorted(taxonomy.items()))


def _read_failure_mode(code: str, entry: object) -> FailureModeSpec:
    if not re.fullmatch(CODE_PATTERN, code):
        raise _taxonomy_error(f"code {_quoted(code)} does not match [a-z][a-z0-9_.]{{0,63}}")
    if not isinstance(entry, dict):
        raise _taxonomy_error(f"{code} is not a mapping with severity and description")
    severity = entry.get("severity")
    if severity not in list(Severity):
        raise _taxonomy_error(
            f"{code} has severity {_quoted(severity)}, which is not one of block, warn and info"
        )
    if entry.get("description") in _NOTHING:
        raise _taxonomy_error(f"{code} has no description")
    try:
        return FailureModeSpec.model_validate({**entry, "severity": Severity(severity)})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(_quoted(part) for part in problem["loc"])
        raise _taxonomy_error(f"{code}: {place}: {problem['msg']}") from None


def _taxonomy_error(problem: str) -> FailureModeTaxonomyInvalid:
    return FailureModeTaxonomyInvalid(
        f"the taxonomy {problem}"
        if problem.startswith(("is ", "does ", "lowers ", "declares "))
        else problem,
        where="failure_modes.yaml",
        hint="see docs/reference/bench.md for its form and the seven codes that it must declare",
    )


def read_digests(raw: bytes) -> dict[str, str]:
    """Return case id to digest, without its prefix, as `cases/digests.yaml` says."""
    entries = _flat_digests(raw)
    if entries is not None:
        return entries
    try:
        document = decode_yaml(raw)
    except DecodingRefused as refusal:
        raise _digests_error(refusal.message) from None
    if not isinstance(document, dict):
        raise _digests_error("is not a mapping from case id to digest")
    digests = {}
    for case_id, value in document.items():
        digest = re.fullmatch(_DIGEST, value) if isinstance(value, str) else None
        if digest is None:
            raise _digests_error(f"the digest of {_quoted(case_id)} is not blake3:<64 hex digits>")
        digests[case_id] = digest[1]
    return digests


def _flat_digests(raw: bytes) -> dict[str, str] | None:
    """Read the list in the form in which the harness writes it, or return None.

    A tenth of the time that YAML takes, so that this form alone may be larger than other YAML.
    """
    digests: dict[str, str] = {}
    for line in raw.decode("ascii", "replace").removesuffix("\n").split("\n"):
        match = _DIGEST_LINE.fullmatch(line)
        if match is None:
            return None
        if match[1] in digests:
            raise _digests_error(f"key {match[1]!r} appears twice")
        digests[match[1]] = match[2]
    return digests


def _digests_error(problem: str) -> DigestManifestInvalid:
    return DigestManifestInvalid(
        problem,
        where="digests.yaml",
        hint="remove it and write it with `codegenie eval digest TASK_CLASS --write`",
    )
