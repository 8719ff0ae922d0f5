"""Who runs an agent's code: never a rubric, and a test suite inside that code gives only its own word."""

import io
import re
import sys
import tokenize
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

from codegenie.eval.bench.step_files import step_problems
from codegenie.eval.execute_steps import Program
from codegenie.eval.fence.findings import Notes, Spot
from codegenie.eval.models import BenchCase

_OWN = {"codegenie_rubric", "rubric_lib", "__future__"}
_RUNNING_MODULES = {"ctypes", "importlib", "marshal", "pickle", "runpy", "subprocess"}
_RUNNING_NAMES = {"__import__", "compile", "eval", "exec"}
_RUNNING_IN_OS = re.compile(r"exec[lv]\w*|popen|posix_spawnp?|spawn[lv]\w*|system")
_SUITES = re.compile(r"(pytest|py\.test|unittest|nose2?|nosetests|tox|nox|jest|vitest|mocha|ctest)(\.\w+)*")
_TESTING = {"go", "cargo", "npm", "yarn"}
_ENDS = {tokenize.NEWLINE, tokenize.ENDMARKER}
_QUIET = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}

Token = tokenize.TokenInfo


def inspect_rubric(notes: Notes, path: str, text: str, library: Collection[str]) -> None:
    """Find what a rubric could run an agent's code with. `library` names the modules of `rubric_lib/`.

    The words of the source are looked at and not its syntax tree: parsing a hostile source takes minutes.
    """
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return  # it does not compile, and there is a finding for that
    own = _OWN | set(library)
    for statement in _statements(tokens):
        for token, name, member in _imports(statement):
            problem = _problem_of_import(name, member, own)
            if problem is not None:
                notes.add("F012", _spot(path, token), problem)
        for token, name in _runners(statement):
            notes.add("F012", _spot(path, token), f"uses {name}, which runs code")


def inspect_steps(notes: Notes, case: BenchCase, files: Mapping[str, bytes]) -> int:
    """Check the steps of a case; `files` are those below `execute/`. Return how many errors were noted."""
    folder = f"cases/{case.case_id}"
    problems = list(step_problems(case, files))
    for problem in problems:
        notes.add_problem("F051", problem, folder)
    for step in case.execute:
        suite = _suite(step.argv) if isinstance(step, Program) else None
        if suite is not None:
            message = f"step {step.name!r} runs {suite}: what it reports is the word of the code under test"
            notes.add("F053", f"{folder}/case.toml", message)
    return len(problems)


def _suite(argv: Collection[str]) -> str | None:
    words = [word.rpartition("/")[2] for argument in argv for word in argument.split()]
    named = next((word for word in words if _SUITES.fullmatch(word)), None)
    if named is not None:
        return named
    pairs = pairwise(words)
    return next((f"{tool} test" for tool, what in pairs if tool in _TESTING and what == "test"), None)


def _statements(tokens: list[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    for token in tokens:
        if token.type in _ENDS or token.string == ";":
            yield statement
            statement = []
        elif token.type not in _QUIET:
            statement.append(token)


def _imports(statement: list[Token]) -> Iterator[tuple[Token, str, str | None]]:
    """Yield each import: the place, the module, and the name that is taken out of it."""
    words = [token.string for token in statement]
    if "import" not in words:
        return
    at = words.index("import")
    parts = _listed(statement[at + 1 :])
    if "from" in words[:at]:
        start = at - 1 - words[:at][::-1].index("from")
        module = "".join(words[start + 1 : at])
        yield from ((statement[at], module, name) for name in parts)
    else:
        yield from ((statement[at], name, None) for name in parts)


def _listed(tokens: list[Token]) -> list[str]:
    """Return the names of a list such as `a.b as c, (d, e)`, without their new names."""
    text = " ".join(token.string for token in tokens if token.string not in "()")
    return [part.split(" as ")[0].replace(" ", "") for part in text.split(",") if part.strip()]


def _problem_of_import(module: str, member: str | None, own: Collection[str]) -> str | None:
    top = module.split(".", maxsplit=1)[0]
    if not top:
        return None  # relative, so it is in rubric_lib/
    if top in _RUNNING_MODULES:
        return f"imports {top}, which runs code"
    if top not in own and top not in sys.stdlib_module_names:
        return f"imports {top[:80]!a}, which is neither the standard library nor in rubric_lib/"
    if top == "os" and member is not None and _RUNNING_IN_OS.fullmatch(member):
        return f"imports os.{member}, which runs code"
    if top == "builtins" and member in _RUNNING_NAMES:
        return f"imports {member}, which runs code"
    return None


def _runners(statement: list[Token]) -> Iterator[tuple[Token, str]]:
    """Yield each name with which a statement could run code. A method of the same name is another thing."""
    words = ["", "", *(token.string for token in statement), ""]
    for number, token in enumerate(statement):
        holder, before, name, after = words[number : number + 4]
        if before == ".":
            if holder == "os" and _RUNNING_IN_OS.fullmatch(name):
                yield token, f"os.{name}"
            elif holder in {"builtins", "__builtins__"} and name in _RUNNING_NAMES:
                yield token, name
        elif token.type == tokenize.NAME and name in _RUNNING_NAMES and before != "def" and after != "=":
            yield token, name


def _spot(path: str, token: Token) -> Spot:
    return Spot(path, token.start[0], token.start[1] + 1)
