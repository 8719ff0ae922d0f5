"""Whatever lies in a bench directory: a typed refusal, or exactly what its bytes say, in one order."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hypothesis import assume, example, given
from hypothesis import strategies as st

from codegenie.eval.bench.grammar import read_breakdown_keys, read_digests, read_registration, read_taxonomy
from codegenie.eval.bench.loading import read_case_tree
from codegenie.eval.decoding import EMPTY_FILE, decode_yaml
from codegenie.eval.errors import (
    BenchCaseLoadError,
    BreakdownKeysInvalid,
    DecodingRefused,
    DigestManifestInvalid,
    EvalError,
    FailureModeTaxonomyInvalid,
    RegistrationInvalid,
)
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import RUNNER_CODES
from codegenie.eval.system.files import walk_files
from codegenie.eval.system.removal import remove_tree
from tests.laws.near_misses import Changes, changes, edited, examples, near_yaml
from tests.support.stub_benches import CASE, FIXTURE, NAME, everything_below, ordinary_user, reference_digest

T = TypeVar("T")

python_texts = st.binary(max_size=30) | st.text(max_size=60).map(str.encode) | st.none()
yaml_texts = st.binary(max_size=30) | near_yaml | st.none()


def outcome(refusal: type[EvalError], read: Callable[[bytes], T], raw: bytes) -> T | EvalError:
    """Return what was read, or the typed refusal; anything else that is raised fails the test."""
    try:
        return read(raw)
    except refusal as refused:
        return refused


def changed(file: str, instead: bytes | None, made: Changes) -> bytes:
    """Return a file of the fixture, or other bytes, with a few changes."""
    return edited((FIXTURE / file).read_bytes() if instead is None else instead, made)


@examples(200)
@given(python_texts, changes)
def test_a_registration_is_refused_by_type_or_has_positive_minimums(
    instead: bytes | None, made: Changes
) -> None:
    found = outcome(
        RegistrationInvalid,
        lambda raw: read_registration(raw, NAME),
        changed("registration.py", instead, made),
    )
    if isinstance(found, EvalError):
        assert (found.where or "").startswith("registration.py")
    else:
        assert all(type(count) is int and count > 0 for count in found.values())


@examples(200)
@given(python_texts, changes)
def test_breakdown_keys_are_refused_by_type_or_plain(instead: bytes | None, made: Changes) -> None:
    found = outcome(BreakdownKeysInvalid, read_breakdown_keys, changed("breakdown_keys.py", instead, made))
    if isinstance(found, EvalError):
        assert (found.where or "").startswith("breakdown_keys.py")
    else:
        assert found == tuple(sorted(set(found)))
        assert all(key.isascii() and key == key.lower() and 1 <= len(key) <= 64 for key in found)


@examples(200)
@given(yaml_texts, changes)
def test_a_taxonomy_is_refused_by_type_or_blocks_with_the_seven_codes(
    instead: bytes | None, made: Changes
) -> None:
    found = outcome(FailureModeTaxonomyInvalid, read_taxonomy, changed("failure_modes.yaml", instead, made))
    if isinstance(found, EvalError):
        assert (found.where or "").startswith("failure_modes.yaml")
    else:
        assert all(found[code].severity.value == "block" for code in RUNNER_CODES)
        assert all(spec.description.strip() for spec in found.values())


@examples(200)
@given(yaml_texts, changes)
@example(b"a: blake3:" + b"0" * 64 + b"\x85b: blake3:" + b"0" * 64, [])
def test_digests_are_refused_by_type_or_read_as_yaml_reads_them(instead: bytes | None, made: Changes) -> None:
    raw = changed("cases/digests.yaml", instead, made)
    found = outcome(DigestManifestInvalid, read_digests, raw)
    if isinstance(found, EvalError):
        assert (found.where or "").startswith("digests.yaml")
    else:
        assert {case_id: f"blake3:{digest}" for case_id, digest in found.items()} == listed(raw)


def listed(raw: bytes) -> object:
    """Return what YAML makes of a list; one without an entry is a list too."""
    try:
        return decode_yaml(raw) or {}
    except DecodingRefused as refusal:
        return {} if refusal.message == EMPTY_FILE else refusal


@contextmanager
def scratch() -> Iterator[Path]:
    """Give an empty directory that an ordinary user can reach."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def case_copy() -> Iterator[Path]:
    with scratch() as root:
        yield Path(shutil.copytree(FIXTURE / "cases" / CASE, root / CASE))


def digest_or_refusal(case: Path) -> str:
    try:
        return read_case_tree(case.parent, case.name).digest
    except BenchCaseLoadError:
        return "refused"


ORIGINAL = digest_or_refusal(FIXTURE / "cases" / CASE)
FILES = sorted(
    str(path.relative_to(FIXTURE / "cases" / CASE))
    for path in (FIXTURE / "cases" / CASE).rglob("*")
    if path.is_file()
)
files = st.sampled_from(FILES)
names = st.text(st.sampled_from("ab.-_ A/"), min_size=1, max_size=6).filter(
    lambda name: not {"", ".", ".."} & set(name.split("/"))
)


def test_the_unchanged_case_has_the_digest_that_a_second_program_computes() -> None:
    assert reference_digest(FIXTURE / "cases" / CASE) == ORIGINAL


@examples(100)
@given(files, st.integers(min_value=0))
def test_any_flipped_bit_changes_the_digest(file: str, position: int) -> None:
    with case_copy() as case:
        content = bytearray((case / file).read_bytes())
        content[position // 8 % len(content)] ^= 1 << position % 8
        (case / file).write_bytes(content)
        assert digest_or_refusal(case) != ORIGINAL


@examples(60)
@given(names, st.binary(max_size=3))
def test_any_added_file_changes_the_digest_or_is_refused(name: str, content: bytes) -> None:
    with case_copy() as case:
        target = case / "input" / name
        assume(not target.exists())
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        assert digest_or_refusal(case) != ORIGINAL


@examples(40)
@given(files, names)
def test_any_renamed_removed_or_executable_file_changes_the_digest_or_is_refused(
    file: str, name: str
) -> None:
    with case_copy() as case:
        (case / file).chmod(0o744)
        executable = digest_or_refusal(case)
        (case / file).chmod(0o644)
        target = case / name
        assume(not target.exists())
        target.parent.mkdir(parents=True, exist_ok=True)
        (case / file).rename(target)
        renamed = digest_or_refusal(case)
        target.unlink()
        assert ORIGINAL not in {executable, renamed, digest_or_refusal(case)}


@examples(40)
@given(st.binary(max_size=12), st.integers(0, 12))
def test_bytes_do_not_move_between_files_unnoticed(content: bytes, cut: int) -> None:
    digests = set()
    splits = {content[:at] for at in {0, min(cut, len(content)), len(content)}}
    with case_copy() as case:
        for head in splits:
            (case / "input/question.txt").write_bytes(head)
            (case / "input/rest.txt").write_bytes(content[len(head) :])
            digests.add(digest_or_refusal(case))
    assert len(digests) == len(splits)


trees = st.dictionaries(
    names.map("input/{}".format), st.tuples(st.binary(max_size=4), st.booleans()), max_size=6
)


Tree = dict[str, tuple[bytes, bool]]


def grow(case: Path, tree: Tree, order: list[str]) -> bool:
    """Make the files of a tree in this order; False if two names need the same place."""
    try:
        for path in order:
            (case / path).parent.mkdir(parents=True, exist_ok=True)
            (case / path).write_bytes(tree[path][0])
            (case / path).chmod(0o755 if tree[path][1] else 0o644)
    except OSError:
        return False
    return True


@examples(60)
@given(trees, st.randoms(use_true_random=False), st.integers(0, 2**31))
def test_the_digest_depends_on_neither_order_nor_time_nor_empty_directories(
    tree: Tree, chance: random.Random, moment: int
) -> None:
    order = sorted(tree)
    chance.shuffle(order)
    with case_copy() as first, case_copy() as second:
        assume(grow(first, tree, list(tree)) and grow(second, tree, order))
        (second / "input" / "empty" / "within").mkdir(parents=True, exist_ok=True)
        for path in second.rglob("*"):
            os.utime(path, (moment, moment))
        expected = digest_or_refusal(first)
        assert digest_or_refusal(second) == expected
        assert expected in {"refused", reference_digest(first)}


@examples(60)
@given(trees)
@example(
    {
        "input/a": (b"", False),
        "input/a-b/x": (b"", False),
        "input/a.": (b"", False),
        "input/a b": (b"", False),
    }
)
@example({"input/a/x": (b"", False), "input/a-b": (b"", False), "input/a0": (b"", False)})
def test_files_come_in_the_order_of_their_whole_paths(tree: Tree) -> None:
    with scratch() as root:
        assume(grow(root, tree, list(tree)))
        assume(all(part.strip(" ") == part for path in tree for part in path.split("/")))
        found = [file.path for file in walk_files(root, LIMITS.case_tree)]
    assert found == sorted(tree, key=os.fsencode)


modes = st.sampled_from([0o000, 0o100, 0o400, 0o500, 0o700, 0o555])
hostile_names = st.sampled_from(
    [".removing-0000000000000000-0", "-rf", "a\nb", "\udcff", "*", " ", "x" * 200, "rubric.py", "é"]
)
plants = st.lists(
    st.tuples(
        st.lists(hostile_names, min_size=1, max_size=5),
        st.sampled_from(["file", "directory", "link", "link to all", "pipe", "hard link"]),
        modes,
    ),
    max_size=8,
)
Plants = list[tuple[list[str], str, int]]


def plant(root: Path, outside: Path, seeds: Plants) -> None:
    """Make hostile things below `root`, some of which point outside."""
    for parts, kind, mode in seeds:
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                path.touch(mode)
            elif kind == "directory":
                path.mkdir(exist_ok=True)
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "hard link":
                os.link(outside / "kept.txt", path)
            else:
                path.symlink_to(outside if kind == "link to all" else outside / "kept.txt")
        except OSError:
            continue
    # The deepest first: a directory that is locked cannot be entered any more.
    for parts, _, mode in sorted(seeds, key=lambda seed: -len(seed[0])):
        path = root.joinpath(*parts)
        if os.path.isdir(path) and not os.path.islink(path):
            path.chmod(mode)


@examples(60)
@given(plants, modes)
def test_any_tree_is_removed_and_nothing_that_it_points_to(seeds: Plants, mode: int) -> None:
    with scratch() as place, ordinary_user(place):
        root, outside = place / "root", place / "outside"
        root.mkdir()
        outside.mkdir()
        (outside / "kept.txt").write_text("kept", encoding="utf-8")
        plant(root, outside, seeds)
        root.chmod(mode)
        kept = everything_below(outside)

        remove_tree(str(root))

        assert os.listdir(place) == ["outside"]
        assert everything_below(outside) == kept
        assert (outside / "kept.txt").read_text(encoding="utf-8") == "kept"
