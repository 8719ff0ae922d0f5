"""The tables of attacks by class, the attacks, and the matrix in the threat model say the same."""

import builtins
import dis
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from types import CodeType
from typing import Any

import pytest

from tests.hostile.engine.ground import CONFINED, set_the_ground
from tests.hostile.engine.matrix import PAGE, expected, section
from tests.hostile.engine.rows import STOPPED, SUCCEEDS, Row, read_rows
from tests.hostile.engine.table import ROOT
from tests.hostile.engine.tools import TOOLS

ROWS = read_rows()
SURFACES = sorted({row.surface for row in ROWS.values()})
set_the_ground(SURFACES)

# What a rubric's own text defines before a deed runs.
AT_HAND = {*(tool.__name__ for tool in TOOLS), *vars(builtins), "NUMBERS", "case_id"}


def test_every_row_has_an_attack_and_every_attack_a_row() -> None:
    assert CONFINED.keys() == ROWS.keys()


def test_every_module_of_attacks_belongs_to_a_table() -> None:
    assert sorted(file.stem for file in (ROOT / "tests" / "hostile" / "confined").glob("*.py")) == SURFACES


def test_no_two_rows_are_the_same_attack_in_other_words() -> None:
    assert [text for text, count in Counter(row.attack for row in ROWS.values()).items() if count > 1] == []


def offenders(keeps_the_rule: Callable[[Row], bool]) -> list[str]:
    """Name the rows that do not keep a rule."""
    return [row.name for row in ROWS.values() if not keeps_the_rule(row)]


def speaks_in_two_words_and_names_its_threats(row: Row) -> bool:
    words = set(row.expected.values()) <= {SUCCEEDS, STOPPED}
    cold = row.cold in {"", SUCCEEDS, STOPPED} - {row.namespace}
    not_as_root = row.not_as_root in {"", SUCCEEDS, STOPPED} - {row.subprocess}
    threats = [bool(re.fullmatch(r"[A-Z]{2}-\d\d", threat)) for threat in row.threats]
    return words and cold and not_as_root and bool(threats) and all(threats)


def says_why_exactly_if_it_does_not_go_without_saying(row: Row) -> bool:
    return bool(row.why) != row.is_plain


def stronger_classes_stop_what_weaker_ones_stop(row: Row) -> bool:
    strength = [row.expected[name] == STOPPED for name in ("subprocess", "landlock", "namespace")]
    return strength == sorted(strength)


def test_a_row_speaks_in_two_words_and_names_its_threats() -> None:
    assert offenders(speaks_in_two_words_and_names_its_threats) == []


def test_a_row_says_why_exactly_if_it_does_not_go_without_saying() -> None:
    assert offenders(says_why_exactly_if_it_does_not_go_without_saying) == []


def test_a_stronger_class_never_lets_through_what_a_weaker_one_stops() -> None:
    assert offenders(stronger_classes_stop_what_weaker_ones_stop) == []


PLAIN = Row("plain", "none", ("RO-04",), "it tries", SUCCEEDS, STOPPED, STOPPED)
BAD_ROWS = [
    (speaks_in_two_words_and_names_its_threats, {"landlock": "perhaps"}),
    (speaks_in_two_words_and_names_its_threats, {"cold": STOPPED}),
    (speaks_in_two_words_and_names_its_threats, {"cold": "perhaps"}),
    (speaks_in_two_words_and_names_its_threats, {"not_as_root": SUCCEEDS}),
    (speaks_in_two_words_and_names_its_threats, {"not_as_root": "perhaps"}),
    (speaks_in_two_words_and_names_its_threats, {"threats": ()}),
    (speaks_in_two_words_and_names_its_threats, {"threats": ("RO-04", "RO-4")}),
    (says_why_exactly_if_it_does_not_go_without_saying, {"why": "a reason for what is plain"}),
    (says_why_exactly_if_it_does_not_go_without_saying, {"landlock": SUCCEEDS}),
    (stronger_classes_stop_what_weaker_ones_stop, {"namespace": SUCCEEDS}),
    (stronger_classes_stop_what_weaker_ones_stop, {"subprocess": STOPPED, "landlock": SUCCEEDS}),
]


@pytest.mark.parametrize(("keeps_the_rule", "change"), BAD_ROWS)
def test_a_row_that_breaks_a_rule_is_found(
    keeps_the_rule: Callable[[Row], bool], change: dict[str, Any]
) -> None:
    assert keeps_the_rule(PLAIN)
    assert not keeps_the_rule(replace(PLAIN, **change))


def test_the_matrix_is_what_the_tables_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert section(ROWS, expected(ROWS.values())) in written, "run `python -m tests.hostile.engine.matrix`"


def test_the_matrix_says_which_attacks_succeed_only_if_root_runs_the_harness() -> None:
    hidden = replace(PLAIN, name="hidden", attack="it looks in", not_as_root=STOPPED)
    rows = {row.name: row for row in (PLAIN, hidden)}
    text = section(rows, expected(rows.values()))
    lines = text.splitlines()
    assert "| it tries | RO-04 | **succeeds** | stopped | stopped |" in lines
    assert "| it looks in | RO-04 | **succeeds** as root, otherwise stopped | stopped | stopped |" in lines
    assert "Attacks that succeed in `subprocess` only if root runs the harness: 1. " in text
    assert "only if root runs the harness" not in section({"plain": PLAIN}, expected([PLAIN]))


def deeds() -> Iterator[Callable[..., object]]:
    """Return the functions that are copied into rubrics: those that take a plan, and the tools."""
    yield from TOOLS
    for surface in SURFACES:
        module = import_module(f"tests.hostile.confined.{surface}")
        for function in vars(module).values():
            if inspect.isfunction(function) and {"plan", "_plan"} & set(_first_parameter(function)):
                yield function


def _first_parameter(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)[:1]


def _globals(code: CodeType) -> set[str]:
    """Return the global names that a piece of code asks for, the functions inside it included."""
    asked = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}
    }
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return asked.union(*(_globals(constant) for constant in inner))


def missing_names(deed: Callable[..., object]) -> set[str]:
    """Return the names that a deed asks for and does not find inside a rubric."""
    return _globals(deed.__code__) - {"__name__", "__qualname__", "__module__"} - AT_HAND


def test_a_deed_stands_alone_inside_a_rubric() -> None:
    """A name that is missing there would end the attempt, and look like a wall that held."""
    every = list(deeds())
    assert len(every) >= len(ROWS)
    assert {deed.__qualname__: missing_names(deed) for deed in every if missing_names(deed)} == {}


def test_a_deed_that_needs_a_name_of_its_module_is_found() -> None:
    def leans_on_its_module(_plan: object) -> object:
        return [ROWS for _ in range(2)]

    assert missing_names(leans_on_its_module) == {"ROWS"}
