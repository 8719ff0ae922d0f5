"""Private copies: what is in them, who may read them, and that they go."""

import asyncio
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from codegenie.eval.bench.copies import CaseSnapshots
from codegenie.eval.bench.loading import load_cases, load_task_class
from codegenie.eval.errors import BenchCaseDigestMismatch, HarnessFailure
from codegenie.eval.models import BenchCase
from codegenie.eval.ports import SutCase
from codegenie.eval.runner import Runner
from codegenie.eval.system.removal import remove_tree
from codegenie.eval.system.run_directory import RUN_DIRECTORY_PREFIX, run_directory
from tests.support.stub_benches import (
    CASE,
    FIXTURE,
    NAME,
    Edit,
    appended,
    case_of,
    copy_stub,
    everything_below,
    in_place_of,
    ordinary_user,
    removed,
    sparse,
    write_manifest,
)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a bench root whose neighbour `tmp` is where temporary files go."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    (root / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(root / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    copy_stub(root / "bench")
    yield root
    remove_tree(str(root))


def grown(place: Path) -> Path:
    """Give the case every part that a case can have, and the rubric a library."""
    bench = place / "bench" / NAME
    case = case_of(bench)
    for file in ("input/deep/er/tool.sh", "expected/sub/more.txt", "solution/extra/hidden.txt"):
        sparse(0)(case / file)
        (case / file).write_text(file, encoding="utf-8")
    (case / "input/deep/er/tool.sh").chmod(0o755)
    (case / "input/empty").mkdir()
    for file in ("rubric_lib/a/b/c.py", "rubric_lib/d.py"):
        sparse(0)(bench / file)
    write_manifest(bench)
    return bench


def snapshots(place: Path) -> tuple[CaseSnapshots, BenchCase]:
    task_class = load_task_class(NAME, bench_root=place / "bench")
    cases, _ = load_cases(task_class, lambda case_id: case_id == CASE)
    return CaseSnapshots(task_class, place / "tmp"), cases[0]


def test_a_system_under_test_sees_the_input_and_nothing_else(place: Path) -> None:
    bench = grown(place)
    store, case = snapshots(place)
    with store.for_sut(case) as directory:
        assert everything_below(directory) == [
            "input",
            "input/deep",
            "input/deep/er",
            "input/deep/er/tool.sh",
            "input/question.txt",
        ]
        copied = (directory / "input/question.txt").read_bytes()
    assert copied == (case_of(bench) / "input/question.txt").read_bytes()
    assert os.listdir(place / "tmp") == []


def test_a_rubric_sees_input_expected_and_itself_and_no_solution(place: Path) -> None:
    grown(place)
    store, case = snapshots(place)
    with store.for_rubric(case) as directory:
        found = everything_below(directory)
        assert {path.split("/")[0] for path in found} == {
            "codegenie_rubric.py",
            "expected",
            "input",
            "rubric.py",
            "rubric_lib",
        }
        assert {"expected/answer.txt", "expected/sub/more.txt", "input/deep/er/tool.sh"} <= set(found)
        assert {"rubric_lib/a/b/c.py", "rubric_lib/d.py"} <= set(found)
        assert (directory / "rubric.py").read_bytes() == (FIXTURE / "rubric.py").read_bytes()
        everything = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    assert b"hidden.txt" not in everything
    assert b"disposition =" not in everything
    assert os.listdir(place / "tmp") == []


def test_only_we_may_read_a_copy(place: Path) -> None:
    grown(place)
    store, case = snapshots(place)
    before = os.umask(0)
    try:
        with run_directory() as run, store.for_sut(case) as sut, store.for_rubric(case) as rubric:
            modes = {
                str(path.relative_to(place)): stat.S_IMODE(path.lstat().st_mode)
                for root in (run, sut, rubric)
                for path in (root, *root.rglob("*"))
            }
    finally:
        os.umask(before)
    executables = {path for path in modes if path.endswith("tool.sh")}
    directories = {path for path in modes if "." not in path.rsplit("/", 1)[1]}
    assert len(executables) == 2
    assert {modes[path] for path in directories | executables} == {0o700}
    assert {modes[path] for path in modes.keys() - directories - executables} == {0o600}


def test_two_copies_share_nothing_and_their_names_say_nothing(place: Path) -> None:
    store, case = snapshots(place)
    with store.for_rubric(case) as first, store.for_rubric(case) as second:
        (first / "expected/answer.txt").write_text("changed", encoding="utf-8")
        assert (second / "expected/answer.txt").read_text(encoding="utf-8") == "4\n"
        assert first != second
        assert CASE not in first.name
        assert len(first.name.removeprefix("rubric-")) >= 16, "a name that can be guessed can be taken"


EDITS: dict[str, Edit] = {
    "a byte more": appended(f"cases/{CASE}/input/question.txt", "!"),
    "a byte in a part that is not copied": appended(f"cases/{CASE}/solution/harness_output.json", " "),
    "a file more": lambda bench: (case_of(bench) / "input/new").touch(),
    "a file less": removed(f"cases/{CASE}/expected/answer.txt"),
    "an executable bit": lambda bench: (case_of(bench) / "input/question.txt").chmod(0o755),
    "a link in place of a file": in_place_of(
        f"cases/{CASE}/input/question.txt", lambda path: path.symlink_to("/etc/passwd")
    ),
    "a link in place of a directory": in_place_of(
        f"cases/{CASE}/input", lambda path: path.symlink_to("../off_by_one/expected")
    ),
    "another case by a link": in_place_of(f"cases/{CASE}", lambda path: path.symlink_to("off_by_one")),
    "another case": in_place_of(
        f"cases/{CASE}", lambda path: shutil.copytree(path.parent / "off_by_one", path)
    ),
    "a pipe": in_place_of(f"cases/{CASE}/input/question.txt", os.mkfifo),
    "a tebibyte": lambda bench: sparse(1 << 40)(case_of(bench) / "input/big"),
    "nothing": removed(f"cases/{CASE}"),
    "no cases at all": removed("cases"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_case_that_changed_after_the_plan_is_not_copied(place: Path, edit: Edit) -> None:
    """Threats CA-02: the digest is checked on the bytes that are copied, and not before."""
    store, case = snapshots(place)
    edit(place / "bench" / NAME)
    for copy in (store.for_sut, store.for_rubric):
        with pytest.raises(BenchCaseDigestMismatch) as caught, copy(case):
            pytest.fail("the copy was handed out")
        assert caught.value.case_id == CASE
        assert caught.value.expected_blake3 == case.digest != caught.value.computed_blake3
    assert os.listdir(place / "tmp") == []


def test_a_case_edited_by_its_predecessor_ends_the_run_and_leaves_nothing(place: Path) -> None:
    bench = place / "bench" / NAME
    plan = Runner().plan(task_class_name=NAME, bench_root=place / "bench")
    asked = []

    async def treacherous(case: SutCase) -> dict[str, str]:
        await asyncio.sleep(0)
        asked.append(case.case_id)
        for other in plan.cases:
            answer = bench / "cases" / other.case_id / "expected/answer.txt"
            answer.write_text("mine", encoding="utf-8")
        return {"answer": "mine"}

    with pytest.raises(BenchCaseDigestMismatch):
        asyncio.run(Runner().execute(plan, system_under_test=treacherous))
    assert asked
    assert os.listdir(place / "tmp") == []


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError])
def test_copies_and_run_directories_go_however_their_use_ends(
    place: Path, failure: type[BaseException]
) -> None:
    store, case = snapshots(place)

    def use(opened: AbstractContextManager[Path]) -> None:
        with opened as directory:
            assert directory.parent == place / "tmp"
            (directory / "more").mkdir()
            raise failure

    for opened in (run_directory(), store.for_sut(case), store.for_rubric(case)):
        with pytest.raises(failure):
            use(opened)
        assert os.listdir(place / "tmp") == []


def test_a_run_directory_is_named_so_that_a_leftover_can_be_told(place: Path) -> None:
    with run_directory() as directory:
        assert directory.name.startswith(RUN_DIRECTORY_PREFIX)
        assert os.listdir(place / "tmp") == [directory.name]


def locked(directory: Path) -> None:
    (directory / "input/locked").mkdir()
    (directory / "input/locked/file").touch()
    (directory / "input/locked").chmod(0)
    (directory / "input").chmod(0)
    directory.chmod(0)


def exchanged(directory: Path) -> None:
    """Put a link to a neighbour where the copy was: removing through it would remove the neighbour."""
    shutil.rmtree(directory)
    directory.symlink_to(directory.parents[1] / "neighbour")


def gone(directory: Path) -> None:
    shutil.rmtree(directory)


@pytest.mark.parametrize("deed", [locked, exchanged, gone])
def test_whatever_was_done_to_a_copy_it_goes_and_nothing_else(
    place: Path, deed: Callable[[Path], None]
) -> None:
    (place / "neighbour").mkdir()
    (place / "neighbour/kept").touch()
    store, case = snapshots(place)
    with ordinary_user(place):
        for copy in (store.for_sut, store.for_rubric):
            with copy(case) as directory:
                deed(directory)
        assert everything_below(place / "tmp") == []
        assert everything_below(place / "neighbour") == ["kept"]


def test_a_disk_that_is_full_is_the_harnesss_failure(place: Path) -> None:
    store, case = snapshots(place)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        with (
            pytest.raises(HarnessFailure, match="cannot copy a case: File too large") as caught,
            store.for_sut(case),
        ):
            pytest.fail("the copy was handed out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == 4
    assert os.listdir(place / "tmp") == []


def test_a_directory_that_cannot_be_made_is_the_harnesss_failure(place: Path) -> None:
    store, case = snapshots(place)
    shutil.rmtree(place / "tmp")
    with pytest.raises(HarnessFailure, match="cannot make a private directory"), store.for_rubric(case):
        pytest.fail("the copy was handed out")
    tempfile.tempdir = str(place / "tmp")
    with pytest.raises(HarnessFailure, match="cannot make a directory for the run"), run_directory():
        pytest.fail("the directory was handed out")


def test_a_run_directory_that_cannot_be_removed_is_said_and_ends_no_run(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ordinary_user(place), run_directory() as directory:
        directory.parent.chmod(0o500)
    (place / "tmp").chmod(0o700)
    assert f"the directory of the run stays behind: Permission denied: {directory}" in caplog.text
