"""Wrong `registration.py` and `breakdown_keys.py`."""

import os

from tests.cli.refusals import Refusal, bench_invalid
from tests.support.stub_benches import Edit, appended, in_place_of, prepended, removed, written

REGISTRATION = "registration.py"
KEYS = "breakdown_keys.py"
DECORATOR = '@register_task_class("stub-task-class")\nclass Stub:\n    """Say."""\n'
ENUMERATION = "class BreakdownKey(StrEnum):\n    "


def _registration(sentence: str, edit: Edit, says: str) -> Refusal:
    return Refusal(f"a registration {sentence}", edit, "RegistrationInvalid", says)


def _options(options: str) -> Edit:
    return written(REGISTRATION, DECORATOR.replace('"stub-task-class"', f'"stub-task-class", {options}'))


def _decorated(old: str, new: str) -> Edit:
    assert old in DECORATOR
    return written(REGISTRATION, DECORATOR.replace(old, new))


def _keys(sentence: str, edit: Edit, says: str) -> Refusal:
    return Refusal(f"a list of breakdown keys {sentence}", edit, "BreakdownKeysInvalid", says)


def _lines(*lines: str) -> Edit:
    return written(KEYS, ENUMERATION + "\n    ".join(lines) + "\n")


REGISTRATIONS = [
    _registration("that imports os", appended(REGISTRATION, "import os\n"), "Import statement"),
    _registration(
        "that imports from os", appended(REGISTRATION, "from os import system\n"), "other than pathlib"
    ),
    _registration(
        "that imports everything", prepended(REGISTRATION, "from pathlib import *\n"), "imports everything"
    ),
    _registration(
        "that renames an import", prepended(REGISTRATION, "from pathlib import Path as P\n"), "renames"
    ),
    _registration(
        "that imports a neighbour", prepended(REGISTRATION, "from . import rubric\n"), "other than pathlib"
    ),
    _registration(
        "that imports a neighbour with a known name",
        prepended(REGISTRATION, "from .pathlib import Path\n"),
        "other than pathlib",
    ),
    _registration("that computes at import", appended(REGISTRATION, "X = open('x')\n"), "Assign statement"),
    _registration("with a condition", appended(REGISTRATION, "if True:\n    pass\n"), "If statement"),
    _registration(
        "with an async function", _decorated("class Stub", "async def stub()"), "AsyncFunctionDef statement"
    ),
    _registration("that registers twice", appended(REGISTRATION, DECORATOR), "holds 2 registrations"),
    _registration("that registers nothing", written(REGISTRATION, '"""Say."""\n'), "holds 0 registrations"),
    _registration("of another name", _decorated("stub-task-class", "other"), "registers 'other'"),
    _registration("of a computed name", _decorated('"stub-', '"stub-" + "'), "not one literal string"),
    _registration("of a formatted name", _decorated('"stub', 'f"stub'), "not one literal string"),
    _registration("of bytes for a name", _decorated('"stub', 'b"stub'), "not one literal string"),
    _registration("without a name", _decorated('"stub-task-class"', ""), "not one literal string"),
    _registration(
        "under a second decorator", _decorated("@reg", "@other\n@reg"), "exactly one @register_task_class"
    ),
    _registration(
        "under another decorator",
        _decorated("@register_task_class", "@run"),
        "exactly one @register_task_class",
    ),
    _registration(
        "under an attribute of a module",
        _decorated("@register", "@os.register"),
        "exactly one @register_task_class",
    ),
    _registration(
        "of a class with a base",
        _decorated("class Stub", "class Stub(Base)"),
        "'Stub' has bases or parameters, or holds more",
    ),
    _registration(
        "of a class with code",
        _decorated('"""Say."""', "x = open('x')"),
        "'Stub' has bases or parameters, or holds more",
    ),
    _registration(
        "of a function with code",
        _decorated("class Stub", "def stub(a=print())"),
        "'stub' has bases or parameters, or holds more",
    ),
    _registration("of another directory", _options('bench_path=".."'), "bench_path is not"),
    _registration("of a computed directory", _options('bench_path=Path("/etc")'), "bench_path is not"),
    _registration("with an option we do not have", _options('rubric="other.py"'), "takes only bench_path"),
    _registration("with unpacked options", _options("**{}"), "takes only bench_path"),
    _registration(
        "with computed minimums", _options("min_cases_for_promotion=dict(a=1)"), "literal dictionary"
    ),
    _registration("with unpacked minimums", _options("min_cases_for_promotion={**x}"), "a tier is not"),
    _registration("with a minimum of 0", _options('min_cases_for_promotion={"gold": 0}'), "of tier 'gold'"),
    _registration("with a minimum of -1", _options('min_cases_for_promotion={"gold": -1}'), "of tier 'gold'"),
    _registration(
        "with a minimum of True", _options('min_cases_for_promotion={"gold": True}'), "tier 'gold'"
    ),
    _registration("with a minimum of 1.5", _options('min_cases_for_promotion={"gold": 1.5}'), "tier 'gold'"),
    _registration(
        "with more cases at least than a bench may have",
        _options('min_cases_for_promotion={"gold": 100_001}'),
        "from 1 to 100000",
    ),
    _registration(
        "with a tier twice",
        _options('min_cases_for_promotion={"a": 1, "a": 2}'),
        "literal name, or appears twice",
    ),
    _registration(
        "with control characters in a tier",
        _options(r'min_cases_for_promotion={"\x1b[2J": 1}'),
        "a tier is not",
    ),
    _registration(
        "with an integer that cannot be printed",
        _options("min_cases_for_promotion={'gold': 0x" + "f" * 9_000 + "}"),
        "more than 64 bits",
    ),
    _registration("with an integer of 5,000 digits", appended(REGISTRATION, "9" * 5_000), "is not Python"),
    _registration("with a byte order mark", prepended(REGISTRATION, b"\xef\xbb\xbf"), "byte order mark"),
    _registration("in Latin-1 by its cookie", prepended(REGISTRATION, "# coding: latin-1\n"), "latin-1"),
    _registration(
        "whose cookie stands after a lone carriage return",
        prepended(REGISTRATION, b"\r# -*- coding: cp1252 -*-\n"),
        "not shown as one",
    ),
    _registration("that is not UTF-8", appended(REGISTRATION, b"# \xff\n"), "not UTF-8 at byte"),
    _registration("in UTF-16", written(REGISTRATION, DECORATOR.encode("utf-16")), "not UTF-8"),
    _registration("with a NUL", appended(REGISTRATION, b"\0"), ""),
    _registration("that is no Python", appended(REGISTRATION, "class class\n"), "is not Python"),
    _registration("of 10,000 minus signs", written(REGISTRATION, "-" * 10_000 + "1"), "nested too deeply"),
    _registration("of 40 minus signs", written(REGISTRATION, "-" * 40 + "1"), "nested too deeply"),
    _registration("of 10,000 brackets", written(REGISTRATION, "(" * 10_000), "is not Python"),
    _registration("of 5,000 attributes", written(REGISTRATION, "a" + ".b" * 5_000), "nested too deeply"),
    bench_invalid("a registration of 17 KB", appended(REGISTRATION, "#" * 17_000), "larger than 16384"),
    bench_invalid("no registration.py", removed(REGISTRATION), "has no registration.py"),
    bench_invalid(
        "a registration.py that is a pipe",
        in_place_of(REGISTRATION, os.mkfifo),
        "'registration.py' (other)",
    ),
    bench_invalid(
        "a registration.py that is a link",
        in_place_of(REGISTRATION, lambda path: path.symlink_to("rubric.py")),
        "'registration.py' (other)",
    ),
    bench_invalid(
        "a registration.py that is a directory",
        in_place_of(REGISTRATION, lambda path: path.mkdir()),
        "'registration.py' (directory)",
    ),
    bench_invalid(
        "a registration.py with a second name",
        lambda bench: os.link(bench / REGISTRATION, bench.parent / "second"),
        "more than one hard link",
    ),
]

BREAKDOWN_KEYS = [
    _keys("with a computed value", _lines('A = "a" + "b"'), "NAME = "),
    _keys("with a value from a call", _lines("A = auto()"), "NAME = "),
    _keys("with an annotated value", _lines('A: str = "a"'), "NAME = "),
    _keys("with two names for a value", _lines('A = B = "a"'), "NAME = "),
    _keys("with a method", _lines('A = "a"', "def f(self): ..."), "NAME = "),
    _keys("with a number", _lines("A = 1"), "NAME = "),
    _keys("with a name twice", _lines('A = "a"', 'A = "b"'), "appears twice"),
    _keys("with a value twice", _lines('A = "a"', 'B = "a"'), "appears twice"),
    _keys("with a private name", _lines('_A = "a"'), "private"),
    _keys("with nothing in it", _lines('"""Say."""'), "declares no breakdown key"),
    _keys("of 257 keys", _lines(*(f'K{n} = "k{n}"' for n in range(257))), "1 to 256"),
    _keys("in capitals", _lines('A = "Accuracy"'), "does not match"),
    _keys("with a dash", _lines('A = "self-made"'), "does not match"),
    _keys("with a Cyrillic letter", _lines('A = "c\N{CYRILLIC SMALL LETTER O}nfidence"'), "does not match"),
    _keys("with a ligature", _lines('A = "con\N{LATIN SMALL LIGATURE FI}dence"'), "does not match"),
    _keys("with half a character", _lines(r'A = "\ud800"'), "does not match"),
    _keys("with a key of 65 characters", _lines(f'A = "{"a" * 65}"'), "does not match"),
    _keys("that asks for confidence", _lines('A = "confidence"'), "'confidence'"),
    _keys("that asks for confidence in pieces", _lines('A = "con" "fidence"'), "'confidence'"),
    _keys("that asks for con_fi.dence", _lines('A = "con_fi.dence"'), "'confidence'"),
    _keys("that asks an llm", _lines('A = "llm_score"'), "'llm'"),
    _keys("that takes what is self_reported", _lines('A = "is_self_reported"'), "'self_reported'"),
    _keys("that takes what is selfreported", _lines('A = "selfreported"'), "'self_reported'"),
    _keys("that takes what model.says", _lines('A = "model.says"'), "'model_says'"),
    _keys(
        "under another name", written(KEYS, 'class Keys(StrEnum):\n    A = "a"\n'), "BreakdownKey(StrEnum)"
    ),
    _keys(
        "on another base", written(KEYS, 'class BreakdownKey(str):\n    A = "a"\n'), "BreakdownKey(StrEnum)"
    ),
    _keys(
        "with a metaclass",
        written(KEYS, ENUMERATION.replace("m)", "m, metaclass=M)") + 'A = "a"'),
        "class is",
    ),
    _keys("under a decorator", written(KEYS, "@unique\n" + ENUMERATION + 'B = "b"\n'), "class is not"),
    _keys("in two classes", appended(KEYS, ENUMERATION + 'B = "b"\n'), "exactly one class"),
    _keys("without a class", written(KEYS, "from enum import StrEnum\n"), "exactly one class"),
    _keys("that imports more", prepended(KEYS, "from enum import StrEnum, auto\n"), "ImportFrom statement"),
    _keys("that runs code", prepended(KEYS, "print('x')\n"), "Expr statement"),
    _keys("that ends in 9,000 digits", appended(KEYS, "-0x" + "f" * 9_000), "more than 64 bits"),
    _keys("in Latin-1 by its cookie", prepended(KEYS, "# vim: set fileencoding=latin-1 :\n"), "latin-1"),
    bench_invalid("no breakdown_keys.py", removed(KEYS), "has no breakdown_keys.py"),
    bench_invalid(
        "a package that shadows breakdown_keys.py",
        lambda bench: (bench / "breakdown_keys").mkdir(),
        "'breakdown_keys' (directory)",
    ),
]

BENIGN: dict[str, Edit] = {
    "the shortest registration": written(REGISTRATION, DECORATOR),
    "a registration of a function": _decorated("class Stub", "def stub() -> None"),
    "a registration with every option": _options('bench_path="stub-task-class", min_cases_for_promotion={}'),
    "a registration with a UTF-8 cookie": prepended(REGISTRATION, "# -*- coding: utf-8 -*-\n"),
    "a registration with a name in two pieces": _decorated('"stub-', '"stub-" "'),
    "breakdown keys that look banned and are not": _lines(
        'A = "all_metrics"', 'B = "a.l_l.m"', f'C = "{"c" * 64}"', 'PASSED = "passed"'
    ),
}
