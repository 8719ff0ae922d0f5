"""The documents say what the code does: links resolve, and tables match the code.

Tables are compared with what introspection finds, so that a new field, limit, option, code or exception
makes this red until its page has a row for it. The meanings are compared in test_document_meanings.py, and
the examples run in test_document_examples.py.
"""

import dataclasses
import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from codegenie.eval import errors, models, ports
from codegenie.eval.limits import LIMITS
from scripts.check_links import dead_links

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "codegenie"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
ADRS = sorted((DOCS / "adr").glob("[0-9]*.md"))
ADR_PARTS = ("Question.", "Options.", "Decision.", "Why not the others", "Cost.", "Pinned by.")
ADR_WORDS = 500  # a page

FENCE = re.compile(r"^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST_NAME = re.compile(r"tests/[\w/-]+\.py(?:::\w+)?")


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


# Links.


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page, page.read_text(encoding="utf-8"))) == []


def test_the_index_leads_to_every_page() -> None:
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall(text_of("index.md"))}

    assert {page for page in DOCS.rglob("*.md") if page not in ADRS} - linked == {DOCS / "index.md"}


# Decisions.


def test_the_index_of_decisions_lists_every_one_and_the_numbers_have_no_hole() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\)", text_of("adr/README.md"), re.MULTILINE)

    assert [name for _, name in listed] == [adr.name for adr in ADRS]
    assert [number for number, _ in listed] == [f"{n:04}" for n in range(1, len(ADRS) + 1)]
    assert [name[:4] for _, name in listed] == [number for number, _ in listed]


@pytest.mark.parametrize("adr", ADRS, ids=page_id)
def test_a_decision_has_every_part_and_fits_on_a_page(adr: Path) -> None:
    text = adr.read_text(encoding="utf-8")
    places = [text.find(f"\n**{part}") for part in ADR_PARTS]

    assert text.startswith(f"# ADR-{adr.name[:4]}: ")
    assert -1 not in places
    assert places == sorted(places)
    assert TEST_NAME.search(text[places[-1] :])
    assert len(text.split()) < ADR_WORDS


def test_every_decision_that_the_code_cites_exists() -> None:
    known = {adr.name[:4] for adr in ADRS}
    sources = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *PAGES]
    cited = {
        (page_id(source), number)
        for source in sources
        for number in re.findall(r"ADR-(\d{4})", source.read_text(encoding="utf-8"))
    }

    assert cited
    assert {(source, number) for source, number in cited if number not in known} == set()


def missing_tests(text: str) -> list[str]:
    missing = []
    for name in TEST_NAME.findall(text):
        path, _, function = name.partition("::")
        file = ROOT / path
        if not file.is_file() or f"def {function}" not in file.read_text(encoding="utf-8"):
            missing.append(name)
    return missing


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    assert missing_tests(page.read_text(encoding="utf-8")) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    here = "tests/contracts/test_documents.py"

    assert missing_tests(f"`{here}`, `{here}::test_gone`, `tests/unit/test_gone.py`") == [
        f"{here}::test_gone",
        "tests/unit/test_gone.py",
    ]


# Tables.


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of every table."""
    table = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def first_cells(text: str) -> set[str]:
    """Return every name in backticks that begins a row."""
    return {name for cells in rows(text) for name in re.findall(r"`([^`]+)`", cells[0])}


def section(text: str, heading: str) -> str:
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"there is no section {heading!r}"
    return rest.partition("\n## ")[0]


def field_names(record: type[models.Record]) -> set[str]:
    return {field.alias or name for name, field in record.model_fields.items()}


def test_every_field_of_a_report_has_a_row() -> None:
    wanted = field_names(models.BenchRunReport) | field_names(models.BenchScore)

    assert wanted - first_cells(text_of("reference/report.md")) == set()


def test_every_field_inside_a_field_of_a_report_is_named() -> None:
    wanted = field_names(models.FailureMode) | field_names(models.Selection) | field_names(models.SutIdentity)

    assert {name for name in wanted if f"`{name}`" not in text_of("reference/report.md")} == set()


def test_every_option_of_a_run_and_every_field_of_a_system_under_test_has_a_row() -> None:
    wanted = set(models.RunOptions.model_fields)
    wanted |= {
        field.name for record in (ports.SutCase, ports.SutResult) for field in dataclasses.fields(record)
    }

    assert wanted - first_cells(text_of("reference/python.md")) == set()


def every_limit() -> dict[str, str]:
    limits: dict[str, str] = {}
    for name, value in dataclasses.asdict(LIMITS).items():
        parts = (
            {f"{name}.{part}": cap for part, cap in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        limits |= {key: f"{cap:,}" if isinstance(cap, int) else f"{cap:g}" for key, cap in parts.items()}
    return limits


def test_every_limit_has_a_row_with_its_value() -> None:
    table = rows(text_of("reference/limits.md").partition("\n## ")[0])[2:]
    written = {cells[0].strip("`"): cells[1].partition(" ")[0] for cells in table}

    assert written == every_limit()


def test_every_exception_has_a_row_with_its_exit_code() -> None:
    tree = {
        name: str(kind.exit_code)
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.EvalError)
    }
    table = rows(section(text_of("reference/python.md"), "Exceptions"))[2:]

    assert {cells[0].strip("`"): cells[1] for cells in table} == tree


def test_every_code_of_the_runner_has_a_row_with_its_fault() -> None:
    table = rows(text_of("reference/failure-codes.md").partition("## Details")[0])[2:]

    assert {cells[0].strip("`"): cells[1] for cells in table} == dict(models.RUNNER_CODES)


def commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for path in sorted((SOURCE / "eval" / "cli").glob("*_command.py")):
        found[path.stem.removesuffix("_command").replace("_", "-")] = importlib.import_module(
            f"codegenie.eval.cli.{path.stem}"
        ).command
    return found


def test_every_command_has_a_section_with_a_row_for_every_option_and_no_other() -> None:
    page = text_of("reference/cli.md")
    for name, command in commands().items():
        table = first_cells(section(page, f"codegenie eval {name}"))
        options = {
            spelling for option in command.params for spelling in option.opts if spelling.startswith("-")
        }

        assert {spelling.split()[0] for spelling in table if spelling.startswith("-")} == options, name


def test_every_variable_setting_and_schema_that_the_source_names_is_on_the_page() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    named = set(re.findall(r"\bCODEGENIE_[A-Z_]*[A-Z]\b", source))
    named |= set(re.findall(r'"(codegenie\.eval\.[a-z]+/\d+)"', source))
    named |= set(re.findall(r'^    "([a-z_]+)": \([a-z, ]+\),$', source, re.MULTILINE))
    pages = "".join(text_of(f"reference/{page}.md") for page in ("cli", "report", "log", "sut-toml"))

    assert {"CODEGENIE_DEBUG", "codegenie.eval.run/1", "concurrency"} <= named
    assert {name for name in named if f"`{name}" not in pages} == set()


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_table_of_layers_is_the_one_that_is_enforced() -> None:
    contracts = project()["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    table = rows(section(text_of("architecture.md"), "Who may import whom"))[2:]

    assert [" | ".join(re.findall(r"`(\w+)`", cells[1])) for cells in table] == layers


def test_every_module_has_its_sentence_in_the_architecture() -> None:
    chapter = section(text_of("architecture.md"), "Module by module")
    modules = {path.stem for path in (SOURCE / "eval").glob("*") if path.suffix == ".py" or path.is_dir()}

    assert modules - {"__init__", "__pycache__"} - set(re.findall(r"\*\*`(\w+)`\*\*", chapter)) == set()
