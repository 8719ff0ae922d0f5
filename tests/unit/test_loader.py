"""From a directory to records: nothing runs, and everything is checked."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegenie.eval.bench.digest_list import digest_statuses, write_digests
from codegenie.eval.bench.loading import (
    bench_roots,
    count_cases,
    load_cases,
    load_task_class,
    task_class_names,
)
from codegenie.eval.errors import (
    BenchCaseDigestMismatch,
    BenchCaseLoadError,
    BenchInvalid,
    DigestManifestInvalid,
    EvalError,
    HarnessFailure,
    TaskClassAlreadyRegistered,
    TaskClassNotFound,
)
from codegenie.eval.models import BenchCase, TaskClass
from codegenie.eval.registry import default_registry
from codegenie.eval.system.removal import remove_tree
from tests.support.stub_benches import (
    CASE,
    CASES,
    FIXTURE,
    NAME,
    appended,
    case_of,
    copy_stub,
    digested,
    ordinary_user,
    prepended,
    reference_digest,
    sparse,
    write_manifest,
)


def load(root: Path) -> TaskClass:
    return load_task_class(NAME, bench_root=root)


def load_all(root: Path) -> tuple[BenchCase, ...]:
    return load_cases(load(root), lambda _case_id: True)[0]


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a bench root that an ordinary user can reach, which pytest's own directories are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    copy_stub(path)
    yield path
    remove_tree(str(path))


def test_a_task_class_is_plain_data() -> None:
    loaded = load(FIXTURE.parent)
    assert loaded.name == NAME
    assert loaded.breakdown_keys == ("passed",)
    assert dict(loaded.min_cases_for_promotion) == {"bronze": 3}
    assert loaded.taxonomy["answer.wrong"].severity == "block"
    assert [file.path for file in loaded.rubric] == ["rubric.py"]
    assert loaded.rubric[0].content == (FIXTURE / "rubric.py").read_bytes()
    assert count_cases(loaded) == 3


def test_cases_come_in_order_with_the_digests_that_a_second_program_computes() -> None:
    cases = load_all(FIXTURE.parent)
    assert [case.case_id for case in cases] == list(CASES)
    assert [case.digest for case in cases] == [reference_digest(FIXTURE / "cases" / name) for name in CASES]
    assert {case.family for case in cases} == set(CASES)
    assert {(case.rubric_wall_clock_seconds, case.sut_wall_clock_seconds) for case in cases} == {(60, 1_800)}


SABOTAGE = """
import builtins, json, os, pathlib, sys
pathlib.Path({canary!r}).touch()
json.loads = lambda *_args, **_kwargs: {{"score": 1.0}}
builtins.SABOTAGED = True
sys.modules["codegenie_sabotage"] = json
"""


def sabotaged(root: Path, canary: Path) -> Path:
    """Write a bench whose every Python file takes over the process that imports it."""
    bench = copy_stub(root)
    code = SABOTAGE.format(canary=str(canary))
    for file in ("registration.py", "breakdown_keys.py", "rubric.py"):
        appended(file, code)(bench)
    (bench / "rubric_lib").mkdir()
    (bench / "rubric_lib" / "__init__.py").write_text(code, encoding="utf-8")
    return bench


def test_loading_a_bench_runs_nothing_of_it(tmp_path: Path) -> None:
    """ADR-0001 and threats BL-01: a bench is data, whatever its files would do when imported."""
    canary, loads, path = tmp_path / "canary", json.loads, list(sys.path)
    registered = default_registry.names()
    bench = sabotaged(tmp_path / "bench", canary)

    with pytest.raises(EvalError) as caught:
        load(bench.parent)
    for file in ("registration.py", "breakdown_keys.py"):
        shutil.copy(FIXTURE / file, bench / file)
    loaded = load(bench.parent)
    load_all(bench.parent)

    assert type(caught.value).__name__ == "RegistrationInvalid"
    assert [file.path for file in loaded.rubric] == ["rubric.py", "rubric_lib/__init__.py"]
    assert not canary.exists()
    assert json.loads is loads
    assert sys.path == path
    assert "codegenie_sabotage" not in sys.modules
    assert default_registry.names() == registered
    assert not list(bench.rglob("__pycache__"))


def test_the_sabotage_works_on_whoever_imports_it(tmp_path: Path) -> None:
    canary, loads = tmp_path / "canary", json.loads
    bench = sabotaged(tmp_path / "bench", canary)
    try:
        exec((bench / "rubric_lib" / "__init__.py").read_text(encoding="utf-8"), {})  # noqa: S102
        assert canary.exists()
        assert json.loads is not loads
    finally:
        json.loads = loads
        sys.modules.pop("codegenie_sabotage")


def test_every_byte_of_the_rubric_is_in_its_digest(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    digests = {load(tmp_path).rubric_digest}
    appended("rubric.py", "#")(bench)
    digests.add(load(tmp_path).rubric_digest)
    (bench / "rubric_lib").mkdir()
    digests.add(load(tmp_path).rubric_digest)
    (bench / "rubric_lib/a.py").write_text("x = 1", encoding="utf-8")
    digests.add(load(tmp_path).rubric_digest)
    (bench / "rubric_lib/a.py").rename(bench / "rubric_lib/b.py")
    digests.add(load(tmp_path).rubric_digest)
    (bench / "rubric_lib/b.py").chmod(0o755)
    digests.add(load(tmp_path).rubric_digest)
    assert len(digests) == 5, "an empty rubric_lib is the one change that does not count"


def test_the_digest_of_the_taxonomy_covers_keys_and_codes_and_not_their_layout(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    before = load(tmp_path).taxonomy_digest
    appended("failure_modes.yaml", "# a comment\n")(bench)
    assert load(tmp_path).taxonomy_digest == before
    appended("failure_modes.yaml", "a: {severity: info, description: d}\n")(bench)
    with_code = load(tmp_path).taxonomy_digest
    appended("breakdown_keys.py", '    MORE = "more"\n')(bench)
    assert len({before, with_code, load(tmp_path).taxonomy_digest}) == 3


def test_only_wanted_cases_are_read_but_every_name_is_checked(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    appended(f"cases/{CASE}/expected/answer.txt", "!")(bench)
    cases, available = load_cases(load(tmp_path), lambda case_id: case_id != CASE)
    assert [case.case_id for case in cases] == [name for name in CASES if name != CASE]
    assert available == 3
    with pytest.raises(BenchCaseDigestMismatch):
        load_all(tmp_path)
    shutil.rmtree(case_of(bench))
    with pytest.raises(DigestManifestInvalid):
        load_cases(load(tmp_path), lambda case_id: case_id == "off_by_one")


def test_a_stale_digest_says_which_case_and_both_digests(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    expected = reference_digest(case_of(bench))
    appended(f"cases/{CASE}/case.toml", "# changed\n")(bench)
    with pytest.raises(BenchCaseDigestMismatch) as caught:
        load_all(tmp_path)
    assert caught.value.case_id == CASE
    assert caught.value.expected_blake3 == expected
    assert caught.value.computed_blake3 == reference_digest(case_of(bench))
    assert "--write" in (caught.value.hint or "")


def test_a_refused_field_is_named_and_its_text_is_cut(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    digested(appended(f"cases/{CASE}/case.toml", f'"{"k" * 5_000}" = 1\n'))(bench)
    with pytest.raises(BenchCaseLoadError) as caught:
        load_all(tmp_path)
    assert len(caught.value.message) < 200
    assert caught.value.where == f"{case_of(bench)}/case.toml:9"


@pytest.mark.parametrize("above", [1 << 14, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_a_case_toml_is_not_read_by_its_end_alone(tmp_path: Path, above: int) -> None:
    bench = copy_stub(tmp_path)
    digested(prepended(f"cases/{CASE}/case.toml", "#" * (above - 1) + "\n"))(bench)
    with pytest.raises(BenchCaseLoadError, match=r"case\.toml: \d+ bytes are more than the 16384 allowed"):
        load_all(tmp_path)


@pytest.mark.parametrize("path", ["rubric.py", "rubric_lib/deeper/helper.py"])
@pytest.mark.parametrize(
    ("cookie", "refused"),
    [
        (b"# coding: utf-7\n", "'utf-7'"),
        (b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\n", "'latin-1'"),
        (b"\r# vim: fileencoding=cp1252\n", "'cp1252'"),
        (b"# -*- coding: UTF-8 -*-\n", None),
        (b"\n\n# coding: utf-7\n", None),
        (b"encoding = 'utf-7'\n", None),
    ],
)
def test_no_source_of_a_rubric_declares_another_encoding_than_utf_8(
    tmp_path: Path, path: str, cookie: bytes, refused: str | None
) -> None:
    bench = copy_stub(tmp_path)
    sparse(0)(bench / "rubric_lib/deeper/helper.py")
    prepended(path, cookie)(bench)
    if refused is None:
        load(tmp_path)
        return
    with pytest.raises(BenchInvalid, match=refused) as caught:
        load(tmp_path)
    assert caught.value.where == f"{bench}/{path}"


def test_statuses_name_every_difference_and_writing_removes_them(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    appended("cases/adds_up/input/question.txt", "?")(bench)
    manifest = bench / "cases/digests.yaml"
    lines = manifest.read_text(encoding="utf-8").splitlines(keepends=True)
    manifest.write_text(lines[0] + lines[1] + f"gone: blake3:{'0' * 64}\n", encoding="utf-8")

    loaded = load(tmp_path)
    statuses = digest_statuses(loaded)
    found = {entry.case_id: entry.status for entry in statuses}
    assert found == {"adds_up": "stale", "empty_answer": "current", "off_by_one": "missing", "gone": "extra"}
    write_digests(loaded, statuses)

    assert {entry.status for entry in digest_statuses(loaded)} == {"current"}
    assert len(load_all(tmp_path)) == 3
    written = manifest.read_bytes()
    write_manifest(bench)
    assert manifest.read_bytes() == written
    manifest.unlink()
    assert {entry.status for entry in digest_statuses(loaded)} == {"missing"}


def test_a_name_in_two_roots_is_refused_in_both_orders_and_the_same_root_twice_is_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    copy_stub(first)
    copy_stub(second)
    for roots in ([first, second], [second, first]):
        with pytest.raises(TaskClassAlreadyRegistered) as caught:
            load_task_class(NAME, bench_root=roots)
        assert str(first) in (caught.value.where or "")
    assert load_task_class(NAME, bench_root=[first, str(first), f"{first}/."]).name == NAME
    assert task_class_names([first, second]) == (NAME, NAME)


def test_names_are_those_of_directories_that_could_be_classes(tmp_path: Path) -> None:
    copy_stub(tmp_path)
    for name in ("other", ".hidden", "Not-A-Name"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert task_class_names(tmp_path) == ("Not-A-Name", "other", NAME)


def test_a_working_directory_that_has_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(TaskClassNotFound, match="working directory"):
        bench_roots("bench")
    assert load_task_class(NAME, bench_root=FIXTURE.parent).name == NAME


def test_a_relative_root_is_meant_from_where_the_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_stub(tmp_path / "bench")
    monkeypatch.chdir(tmp_path)
    loaded = load_task_class(NAME)
    monkeypatch.chdir("/")
    assert loaded.directory == tmp_path / "bench" / NAME
    assert len(load_cases(loaded, lambda _case_id: True)[0]) == 3


@pytest.mark.parametrize(
    ("locked", "mode", "error"),
    [
        ("", 0o000, TaskClassNotFound),
        (NAME, 0o000, BenchInvalid),
        (NAME, 0o400, BenchInvalid),
        (f"{NAME}/registration.py", 0o000, BenchInvalid),
        (f"{NAME}/cases", 0o000, BenchInvalid),
        (f"{NAME}/cases/digests.yaml", 0o000, BenchInvalid),
        (f"{NAME}/cases/{CASE}", 0o000, BenchCaseLoadError),
        (f"{NAME}/cases/{CASE}/input", 0o400, BenchCaseLoadError),
        (f"{NAME}/cases/{CASE}/expected/answer.txt", 0o000, BenchCaseLoadError),
    ],
)
def test_what_may_not_be_read_is_a_typed_refusal(
    home: Path, locked: str, mode: int, error: type[BenchInvalid]
) -> None:
    with ordinary_user(home):
        (home / locked).chmod(mode)
        with pytest.raises(error):
            load_all(home)


def test_a_root_or_cases_that_may_not_be_listed_are_a_typed_refusal(home: Path) -> None:
    loaded = load(home)
    with ordinary_user(home):
        (home / NAME / "cases").chmod(0)
        for ask in (count_cases, digest_statuses):
            with pytest.raises(BenchInvalid):
                ask(loaded)
        home.chmod(0o100)
        with pytest.raises(TaskClassNotFound, match="cannot be listed"):
            task_class_names(home)
        home.chmod(0o755)


def test_trouble_of_our_own_is_not_blamed_on_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(*_args: object, **_kwargs: object) -> int:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(os, "open", no_descriptor)
    with pytest.raises(HarnessFailure, match="Too many open files") as caught:
        load(FIXTURE.parent)
    assert caught.value.exit_code == 4


def test_digests_are_not_written_into_a_directory_that_became_a_link_after_the_look(tmp_path: Path) -> None:
    bench = copy_stub(tmp_path)
    loaded = load(tmp_path)
    appended("cases/adds_up/input/question.txt", "?")(bench)
    statuses = digest_statuses(loaded)
    (bench / "cases").rename(tmp_path / "elsewhere")
    (bench / "cases").symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere/digests.yaml").read_bytes()

    with pytest.raises(HarnessFailure, match="cannot write the digests: is a symbolic link"):
        write_digests(loaded, statuses)

    assert (tmp_path / "elsewhere/digests.yaml").read_bytes() == before
