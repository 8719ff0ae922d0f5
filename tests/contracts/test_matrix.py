"""The tables of attacks by class, the attacks, and the matrix in the threat model say the same."""

import builtins
import dis
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from types import CodeType

import pytest

from tests.portfolio.confined.ground import CONFINED, set_the_ground
from tests.portfolio.confined.rows import STOPPED, SUCCEEDS, Row, read_rows
from tests.portfolio.confined.tools import TOOLS
from tests.portfolio.matrix import PAGE, expected, section
from tests.portfolio.table import ROOT

ROWS = read_rows()
SURFACES = sorted({row.surface for row in ROWS.values()})
set_the_ground(SURFACES)
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)

# What a rubric's own text defines before a deed runs.
AT_HAND = {*(tool.__name__ for tool in TOOLS), *vars(builtins), "NUMBERS", "case_id"}


def test_every_row_has_an_attack_and_every_attack_a_row() -> None:
    assert CONFINED.keys() == ROWS.keys()


def test_every_module_of_attacks_belongs_to_a_table() -> None:
    assert sorted(file.stem for file in (ROOT / "tests" / "hostile" / "confined").glob("*.py")) == SURFACES


def test_no_two_rows_are_the_same_attack_in_other_words() -> None:
    assert [text for text, count in Counter(row.attack for row in ROWS.values()).items() if count > 1] == []


@every_row
def test_a_row_speaks_in_two_words_and_names_its_threats(row: Row) -> None:
    assert set(row.expected.values()) <= {SUCCEEDS, STOPPED}
    assert row.cold in {"", SUCCEEDS, STOPPED} - {row.namespace}
    assert row.threats
    assert all(re.fullmatch(r"[A-Z]{2}-\d\d", threat) for threat in row.threats)


@every_row
def test_a_row_says_why_exactly_if_it_does_not_go_without_saying(row: Row) -> None:
    assert bool(row.why) != row.is_plain


@every_row
def test_a_stronger_class_never_lets_through_what_a_weaker_one_stops(row: Row) -> None:
    strength = [row.expected[name] == STOPPED for name in ("subprocess", "landlock", "namespace")]
    assert strength == sorted(strength)


def test_the_matrix_is_what_the_tables_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert section(ROWS, expected(ROWS.values())) in written, "run `python -m tests.portfolio.matrix`"


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


@pytest.mark.parametrize("deed", list(deeds()), ids=lambda deed: deed.__name__)
def test_a_deed_stands_alone_inside_a_rubric(deed: Callable[..., object]) -> None:
    """A name that is missing there would end the attempt, and look like a wall that held."""
    assert _globals(deed.__code__) - {"__name__", "__qualname__", "__module__"} <= AT_HAND
