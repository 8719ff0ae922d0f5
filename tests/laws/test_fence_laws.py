"""What the loader refuses, the fence finds; where the fence finds no error, the loader loads."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codegenie.eval.bench.loading import load_cases, load_task_class
from codegenie.eval.breakdown import BANNED_WORDS, banned_part
from codegenie.eval.errors import EvalError
from codegenie.eval.fence import inspect_paths
from codegenie.eval.fence.findings import Notes
from codegenie.eval.fence.text_rules import inspect_text
from tests.cli import wrong_cases, wrong_python_files, wrong_trees, wrong_yaml_files
from tests.cli.refusals import Refusal
from tests.laws.near_misses import Changes, changes, edited, examples, near_yaml
from tests.support.stub_benches import CASE, FIXTURE, NAME, Edit, copy_stub, write_manifest

TABLE = [
    *wrong_python_files.REGISTRATIONS,
    *wrong_python_files.BREAKDOWN_KEYS,
    *wrong_yaml_files.TAXONOMIES,
    *wrong_yaml_files.MANIFESTS,
    *wrong_cases.FIELDS,
    *wrong_cases.SYNTAX,
    *wrong_trees.TREES,
    *wrong_trees.DIRECTORIES,
]
BENIGN = {
    **wrong_python_files.BENIGN,
    **wrong_yaml_files.BENIGN,
    **wrong_cases.BENIGN,
    **wrong_trees.BENIGN,
}
# The one thing that the loader lets pass and a reviewer does not.
WITHOUT_README = "a bench without a README"


def is_loaded(root: Path) -> bool:
    try:
        load_cases(load_task_class(NAME, bench_root=root), lambda _case_id: True)
    except EvalError:
        return False
    return True


def errors_in(root: Path) -> list[str]:
    findings = inspect_paths([root / NAME]).findings
    assert all(text.isprintable() for one in findings for text in (one.path, one.message, one.fix))
    return [finding.rule for finding in findings if finding.severity == "error"]


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_what_the_loader_refuses_is_found(row: Refusal, tmp_path: Path) -> None:
    row.edit(copy_stub(tmp_path))

    assert not is_loaded(tmp_path)
    assert errors_in(tmp_path)


@pytest.mark.parametrize("sentence", sorted(BENIGN.keys() - {WITHOUT_README}))
def test_what_only_looks_wrong_to_the_loader_is_not_found(sentence: str, tmp_path: Path) -> None:
    edit: Edit = BENIGN[sentence]
    edit(copy_stub(tmp_path))

    assert is_loaded(tmp_path)
    assert inspect_paths([tmp_path]).findings == ()


@contextmanager
def stub_with(file: str, raw: bytes) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp())
    try:
        bench = copy_stub(root)
        (bench / file).write_bytes(raw)
        if file.endswith("case.toml"):
            write_manifest(bench)
        yield root
    finally:
        shutil.rmtree(root)


FILES = (
    "registration.py",
    "breakdown_keys.py",
    "failure_modes.yaml",
    "rubric.py",
    "cases/digests.yaml",
    f"cases/{CASE}/case.toml",
    f"cases/{CASE}/input/question.txt",
)
contents = st.none() | st.binary(max_size=40) | st.text(max_size=60).map(str.encode) | near_yaml


@examples(300)
@given(st.sampled_from(FILES), contents, changes)
@example("breakdown_keys.py", b"class BreakdownKey(StrEnum):\n    '''doc'''\n", [])
@example("registration.py", b"", [])
@example("cases/digests.yaml", b"", [])
def test_a_bench_without_an_error_is_one_that_loads(file: str, instead: bytes | None, made: Changes) -> None:
    raw = edited((FIXTURE / file).read_bytes() if instead is None else instead, made)
    with stub_with(file, raw) as root:
        assert errors_in(root) or is_loaded(root)


@examples(300)
@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example("p\N{CYRILLIC SMALL LETTER A}ss = 1\n((".encode())
@example(b"\xef\xbb\xbfx\r\ry")
def test_any_bytes_are_looked_at_and_every_place_is_in_the_file(raw: bytes) -> None:
    notes = Notes("x")
    for path, required in (("a.py", True), ("a.txt", False)):
        inspect_text(notes, path, raw, required=required)
    lines = raw.decode("utf-8", "replace").split("\n")
    for finding in notes.findings():
        assert finding.message.isprintable()
        if finding.line is not None:
            assert 1 <= finding.line <= len(lines)
            assert 1 <= (finding.column or 1) <= len(lines[finding.line - 1]) + 1


separators = st.sampled_from(["", "_", ".", "-", " ", "\N{ZERO WIDTH SPACE}", "\N{SOFT HYPHEN}"])
spellings = {
    "c": "c\N{CYRILLIC SMALL LETTER ES}\N{FULLWIDTH LATIN SMALL LETTER C}\N{MATHEMATICAL BOLD SMALL C}",
    "o": "o\N{CYRILLIC SMALL LETTER O}\N{GREEK SMALL LETTER OMICRON}\N{LATIN SMALL LETTER O WITH DIAERESIS}",
    "e": "e\N{CYRILLIC SMALL LETTER IE}\N{LATIN SMALL LETTER E WITH ACUTE}E",
    "i": "i\N{CYRILLIC SMALL LETTER BYELORUSSIAN-UKRAINIAN I}\N{LATIN SMALL LETTER DOTLESS I}I",
    "s": "s\N{CYRILLIC SMALL LETTER DZE}S",
    "l": "l\N{SMALL ROMAN NUMERAL FIFTY}\N{CYRILLIC SMALL LETTER PALOCHKA}L",
    "a": "a\N{CYRILLIC SMALL LETTER A}\N{GREEK SMALL LETTER ALPHA}A",
}


@examples(300)
@given(st.sampled_from([word for word in BANNED_WORDS if word != "llm"]), st.data())
def test_no_mixture_of_look_alikes_and_separators_hides_a_banned_word(word: str, data: st.DataObject) -> None:
    pieces = []
    for letter in word.replace("_", ""):
        pieces.append(data.draw(st.sampled_from(spellings.get(letter, letter))))
        pieces.append(data.draw(separators))

    assert banned_part("a" + "".join(pieces)) == word
