"""What a PATH means, and what is never followed or opened to find out."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from codegenie.eval.errors import TaskClassNotFound
from codegenie.eval.fence import inspect_paths
from codegenie.eval.fence.targets import class_around, find_targets
from codegenie.eval.system.removal import remove_tree
from tests.support.fence import rules_of
from tests.support.stub_benches import (
    CASE,
    FIXTURE,
    NAME,
    Edit,
    copy_stub,
    link,
    ordinary_user,
    removed,
    written,
)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copy_stub(tmp_path / "bench")


@pytest.mark.parametrize(
    "path",
    [
        "bench",
        "bench/",
        "./bench/../bench",
        f"bench/{NAME}",
        f"bench/{NAME}/",
        f"bench/{NAME}/rubric.py",
        f"bench/{NAME}/cases",
        f"bench/{NAME}/cases/digests.yaml",
        f"bench/{NAME}/cases/{CASE}/input/question.txt",
    ],
)
def test_a_path_leads_to_the_class_that_it_is_or_holds_or_lies_in(path: str, bench: Path) -> None:
    assert [target.directory for target in find_targets([path]).classes] == [bench]
    assert find_targets([path]).classes[0].shown == f"bench/{NAME}"


def test_paths_that_lead_to_one_class_are_looked_at_once(bench: Path) -> None:
    report = inspect_paths(["bench", bench / "rubric.py", f"bench/{NAME}", bench])

    assert (len(report.classes), report.case_count) == (1, 3)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("gone", "there is no gone"),
        ("", "there is no path"),
        ("a\0b", "there is no a"),
        ("x" * 5_000, "there is no x"),
        ("empty", "there is no task class"),
        ("notes.txt", "does not belong to a task class"),
    ],
)
def test_a_path_with_nothing_to_look_at_is_refused(path: str, says: str, bench: Path) -> None:
    (bench.parents[1] / "empty").mkdir()
    (bench.parents[1] / "notes.txt").touch()

    with pytest.raises(TaskClassNotFound, match=says):
        inspect_paths([path])


def test_a_working_directory_that_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(TaskClassNotFound, match="working directory"):
        inspect_paths(["."])


def test_a_class_inside_a_case_is_data_of_the_outer_one(bench: Path) -> None:
    inner = bench / "cases" / CASE / "input" / "bench" / "inner"
    shutil.copytree(FIXTURE, inner)

    assert class_around(inner / "rubric.py") == bench
    assert class_around(inner / "cases" / CASE / "case.toml") == bench


def test_a_file_above_a_bench_root_that_looks_like_part_of_a_class_changes_nothing(
    bench: Path, tmp_path: Path
) -> None:
    (tmp_path / "rubric.py").touch()

    assert [target.directory for target in find_targets(["bench"]).classes] == [bench]
    assert [target.directory for target in find_targets([f"bench/{NAME}/cases"]).classes] == [bench]
    assert [target.directory for target in find_targets([bench / "rubric.py"]).classes] == [bench]


def test_what_lies_in_a_class_where_nothing_may_lie_leads_to_the_class(bench: Path) -> None:
    (bench / "evil").mkdir()
    (bench / "evil/x.py").touch()

    assert rules_of(inspect_paths(["bench/stub-task-class/evil/x.py"]).findings) == ["F002"]
    assert rules_of(inspect_paths(["bench/stub-task-class/evil"]).findings) == ["F002"]


@pytest.mark.parametrize("kept", ["registration.py", "rubric.py", "failure_modes.yaml", "cases"])
def test_a_class_of_which_most_was_removed_is_still_looked_at(kept: str, bench: Path) -> None:
    for entry in list(bench.iterdir()):
        if entry.name not in {kept, "README.md"}:
            removed(entry.name)(bench)

    assert "F001" in rules_of(inspect_paths([bench / "README.md"]).findings)


@pytest.mark.parametrize(
    "edit",
    [link("../linked", NAME), link("../outside", "/")],
    ids=["to a class", "to the root of the system"],
)
def test_a_link_beside_the_classes_is_named_and_not_followed(edit: Edit, bench: Path) -> None:
    edit(bench)
    report = inspect_paths(["bench"])

    assert rules_of(report.findings) == ["F003"]
    assert len(report.classes) == 1


def test_a_path_that_is_a_link_is_a_finding_and_not_followed(bench: Path, tmp_path: Path) -> None:
    (tmp_path / "to-class").symlink_to(bench)
    (tmp_path / "to-root").symlink_to(tmp_path / "bench")

    assert rules_of(inspect_paths(["to-class"]).findings) == ["F003"]
    assert rules_of(inspect_paths(["to-root/"]).findings) == ["F003"]


@pytest.mark.parametrize("name", ["conftest.py", ".gitattributes", "pyproject.toml", "__init__.py", "x.pth"])
def test_what_configures_tools_is_also_found_beside_the_classes(name: str, bench: Path) -> None:
    (bench.parent / name).touch()
    (bench.parent / "README.md").touch()
    (finding,) = inspect_paths(["bench"]).findings

    assert (finding.rule, finding.path) == ("F004", f"bench/{name}")


def test_a_class_that_cannot_be_loaded_by_its_name_is_found(bench: Path) -> None:
    hostile = bench.parent / "::error::\n\x1b[2J\udcff"
    bench.rename(hostile)
    findings = inspect_paths(["bench"]).findings

    assert "F008" in rules_of(findings)
    assert all(finding.path.isprintable() for finding in findings)


def test_no_path_begins_with_what_a_service_takes_for_a_command(
    bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written("::error::x", "")(bench)
    written("##[error]x", "")(bench)
    written("  ::error::x", "")(bench)
    monkeypatch.chdir(bench)

    assert [finding.path for finding in inspect_paths(["."]).findings] == [
        "./  ::error::x",
        "./##[error]x",
        "./::error::x",
    ]


def test_pipes_keep_nobody_waiting(bench: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(bench / f"cases/{CASE}/input/pipe")
    link(f"cases/{CASE}/input/x", str(tmp_path / "pipe"))(bench)
    removed("README.md")(bench)
    os.mkfifo(bench / "README.md")

    assert rules_of(inspect_paths([bench]).findings) == ["F003", "F003", "F003"]


@pytest.mark.parametrize(
    "path",
    ["", "README.md", "rubric.py", "cases", "cases/digests.yaml", f"cases/{CASE}", f"cases/{CASE}/input"],
)
def test_what_may_not_be_read_is_a_finding(path: str) -> None:
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    bench, _ = copy_stub(home), copy_stub(home, "beside")
    try:
        # What is compiled is remembered. An ordinary user may not be able to start our interpreter.
        assert inspect_paths([home]).findings is not None
        with ordinary_user(home):
            (bench / path).chmod(0)
            findings = [one for one in inspect_paths([home]).findings if NAME in one.path]
            (bench / path).chmod(0o755)
        assert "F003" in rules_of(tuple(findings))
        assert all("Permission denied" in one.message for one in findings if one.rule == "F003")
    finally:
        remove_tree(str(home))


def test_what_is_left_out_is_the_same_at_every_look(bench: Path) -> None:
    for number in sorted(range(300), key=lambda number: number * 7_919 % 1_000):
        (bench / f"cases/{CASE}/input/l{number:03}").symlink_to("/")
    listed = [finding.path for finding in inspect_paths([bench]).findings[:-1]]
    links = sorted(path.name for path in (bench / f"cases/{CASE}/input").glob("l*"))

    assert [path.rpartition("/")[2] for path in listed] == links[:100]
